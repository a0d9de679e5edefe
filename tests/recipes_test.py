"""Tests of recipes: phases, tiny configurations and published values."""

import dataclasses
import math
import re

import numpy as np
import pytest

from tests import gin_files
from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax import trainer
from xlflax.cli import options as cli_options
from xlflax.cli import train as train_command
from xlflax.cli import train_phases
from xlflax.config import gin_config
from xlflax.data import dataset_config
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import errors

_CHAINS = {'modernbert': 3, 'mmbert': 3, 'eurobert': 2}
_TINY_RECIPES = [f'{name}/tiny' for name in _CHAINS]
_ALONE = ('recipes/xlm_e/base.gin', 'recipes/xlm_e/tiny.gin')
# Fields in which a tiny configuration may differ from its recipe.
_SIZES = (
  r'.*\.(config|generator)\.(num_layers|hidden_dim|mlp_dim|num_heads'
  r'|max_position_embeddings|dtype|local_attention)',
  r'datasets\[\d\]\.(length|batch_size)',
  r'gradient_accumulation_steps',
  r'optimizer\.learning_rate\.(warmup_steps|decay_steps|total_steps)',
)


def _options(phases, *bindings, gin_file=(), **fields):
  return train_command.TrainOptions(
    **{
      'phases': phases,
      'model_dir': 'runs/a',
      'corpus': 'corpus',
      'vocabulary': 'vocabulary',
      'gin': cli_options.GinOptions(
        gin_file=tuple(gin_file), gin_bindings=bindings
      ),
    }
    | fields
  )


def _trainers(phases, *bindings, **flags):
  configured = train_phases.configure(_options(phases, *bindings, **flags))
  return {
    phase.name: phase.configuration.build(
      trainer.Trainer, vocabulary=gin_files.SPEC
    )
    for phase in configured
  }


def _settings(file):
  return gin_files.settings_of(
    [file], ["MODEL_DIR='a'", "CORPUS='c'", "VOCABULARY='v'"]
  )


# Three full phases are traced in seven CPU seconds, two in four.
@pytest.mark.parametrize(
  'name', mark_slow([*_CHAINS, *_TINY_RECIPES], slow=['modernbert', 'mmbert'])
)
def test_phases_start_from_the_previous_phase(name):
  """Steps of full phases are traced."""
  trainers = _trainers(f'recipes/{name}')
  count = _CHAINS[name.partition('/')[0]]
  assert list(trainers) == [f'phase{i + 1}' for i in range(count)]
  assert train_phases.check(list(trainers.values())) == [False] * count
  datasets = [
    (phase_trainer.seed, phase_trainer.datasets[0].seed_offset)
    for phase_trainer in trainers.values()
  ]
  assert datasets == [(0, i) for i in range(count)]  # for any value of SEED
  for before, (phase, phase_trainer) in zip(
    [None, *trainers], trainers.items(), strict=False
  ):
    assert phase_trainer.model_dir == f'runs/a/{phase}'
    source = phase_trainer.init_from and phase_trainer.init_from.model_dir
    assert source == (before and f'runs/a/{before}')
    if name in _CHAINS:
      gin_files.trace_steps(phase_trainer.resolved(None))


@pytest.mark.parametrize(
  'file', mark_slow(_ALONE, slow=['recipes/xlm_e/base.gin'])
)
def test_xlm_e_has_the_published_discriminator_weight(file):
  settings = _settings(file)
  if 'tiny' not in file:
    gin_files.trace_steps(settings)
  assert {
    e.objective.discriminator_weight for e in settings.objectives.entries
  } == {50}


def test_first_run_of_a_published_model_uses_only_contrastive_learning():
  settings = gin_files.settings_of(
    ['studies/first_training_runs/contrast.gin', 'models/tiny.gin'],
    ["MODEL_DIR='a'", "CORPUS='c'", "VOCABULARY='v'", 'TRAIN_STEPS=9'],
  )
  [entry] = settings.objectives.entries
  [dataset] = settings.datasets
  assert (entry.dataset, dataset.length, dataset.batch_size) == (
    'sides',
    32,
    32,
  )


@pytest.mark.parametrize(
  'file', ['first_training_runs/contrast', 'recipes/own_vocabulary_mlm']
)
def test_published_model_is_transferred_to_the_vocabulary_of_the_corpus(file):
  settings = gin_files.settings_of(
    [
      f'studies/{file}.gin',
      'studies/recipes/own_vocabulary.gin',
      'models/tiny.gin',
    ],
    [
      "MODEL_DIR='a'",
      "CORPUS='c'",
      "VOCABULARY='v'",
      "CONTINUED='m'",
      'TRAIN_STEPS=9',
    ],
  )
  init = settings.init_from
  assert (init.model_dir, init.vocabulary_matching.text) == ('m', 'c')


@pytest.mark.parametrize(
  'file', ['mlm', 'mlm_tlm', 'mlm_tlm_contrast', 'moco_tlm']
)
def test_small_recipe_can_follow_any_objective(file):
  settings = gin_files.settings_of(
    [f'pretrain/{file}.gin', 'recipes/small.gin'],
    ["MODEL_DIR='a'", "CORPUS='c'", "VOCABULARY='v'", 'TRAIN_STEPS=9'],
  )
  assert settings.model.config.position_embedding == 'rotary'
  assert settings.model.config.dropout_rate == 0
  assert type(settings.optimizer).__name__ == 'Muon'
  masked = [
    entry.objective.mask_ratio
    for entry in settings.objectives.entries
    if hasattr(entry.objective, 'mask_ratio')
  ]
  assert set(masked) == {0.4}


def _write_start_model(directory):
  """Writes a model with fewer tokens and languages than the vocabulary."""
  small = gin_files.tiny_encoder()
  config = dataclasses.replace(
    small.config, vocab_size=gin_files.SPEC.size - 20, num_languages=1
  )
  run_directory.write_model(
    directory, dataclasses.replace(small, config=config)
  )


def _added_language_bindings(start):
  return [
    "MODEL_DIR='a'",
    "CORPUS='c'",
    "VOCABULARY='v'",
    f'RUN={str(start)!r}',
    "NEW_LANGUAGES=('sl',)",
    'REPLAY=0.1',
    'LEARNING_RATE=1e-4',
    'TRAIN_STEPS=200',
  ]


_REPLAY = dataset_config.ReplayOptions(new_languages=('sl',), fraction=0.1)


@pytest.mark.parametrize(
  'file', mark_slow(['mlm', 'mlm_tlm_contrast'], slow=['mlm_tlm_contrast'])
)
@pytest.mark.parametrize('adapters', [(), ('adapters/lora.gin',)])
def test_add_language_recipe_extends_a_model(tmp_path, file, adapters):
  start = tmp_path / 'start'
  _write_start_model(start)
  settings = gin_files.settings_of(
    [f'pretrain/{file}.gin', *adapters, 'recipes/add_language.gin'],
    _added_language_bindings(start),
  )
  gin_files.trace_steps(settings)
  assert settings.model.config.hidden_dim == 16
  assert bool(settings.model.config.adapters) == bool(adapters)
  assert settings.init_from.model_dir == str(start)
  assert settings.init_from.vocabulary_matching is not None
  for dataset in settings.datasets:
    assert dataset.replay == _REPLAY
  # Warmup over 1 % of the steps, then decay to 0.
  peak = settings.optimizer.learning_rate.peak_value
  rates = [float(settings.optimizer.rate_at(step)) for step in (0, 2, 101, 200)]
  np.testing.assert_allclose(rates, [0, peak, peak / 2, 0], atol=1e-3 * peak)


@pytest.mark.parametrize('file', gin_files.list_gin_files('pretrain'))
def test_add_language_recipe_sets_the_replay_of_all_datasets(file):
  """The recipe binds all scopes of datasets in pretrain/."""
  scopes = set(
    re.findall(
      r'@(?:(\w+)/)?dataset_config\.DatasetConfig\(\)',
      gin_files.read_with_includes(file),
    )
  )
  recipe = gin_files.read_with_includes('recipes/add_language.gin')
  for scope in scopes:
    assert f'\n{scope}/dataset_config.DatasetConfig.replay = ' in recipe


def test_replay_is_set_for_multilingual_datasets(tmp_path):
  start, file = tmp_path / 'start', tmp_path / 'two.gin'
  _write_start_model(start)
  file.write_text(
    """
from __gin__ import dynamic_registration
from xlflax import trainer
from xlflax.data import dataset_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
include 'pretrain/mlm.gin'
objective_mixture.ObjectiveMixture.entries = [
    @mlm/objective_mixture.WeightedObjective(),
    @old/objective_mixture.WeightedObjective()]
old/objective_mixture.WeightedObjective:
  dataset = 'old'
  objective = @old/masked_lm.MaskedLM()
old/masked_lm.MaskedLM.name = 'old'
trainer.Trainer.datasets = [
    @mono/dataset_config.DatasetConfig(), @old/dataset_config.DatasetConfig()]
old/dataset_config.DatasetConfig:
  name = 'old'
  mixture = 'corpus.mono'
  layout = 'blocks'
  length = 16
  batch_size = 8
"""
  )

  def read_replay(name, *bindings):
    settings = gin_files.settings_of(
      [name, 'recipes/add_language.gin'],
      [*_added_language_bindings(start), *bindings],
    )
    return {dataset.name: dataset.replay for dataset in settings.datasets}

  replay = 'dataset_config.DatasetConfig.replay'
  assert read_replay(str(file)) == {'mono': _REPLAY, 'old': None}
  assert read_replay(
    str(file), f'old/{replay}=@dataset_config.ReplayOptions()'
  ) == {'mono': _REPLAY, 'old': _REPLAY}
  assert read_replay('pretrain/mlm_tlm.gin', f'pairs/{replay}=None') == {
    'mono': _REPLAY,
    'pairs': None,
  }
  # Without a dataset that replays text, the new languages have no effect.
  with raises_error(errors.ConfigError, mentions='ReplayOptions'):
    read_replay('pretrain/mlm.gin', f'mono/{replay}=None')


@pytest.mark.parametrize(
  'tiny, full',
  [
    *(
      (f'{name}/tiny/phase{i + 1}', f'{name}/phase{i + 1}')
      for name, count in _CHAINS.items()
      for i in range(count)
    ),
    ('xlm_e/tiny', 'xlm_e/base'),
  ],
)
def test_tiny_configuration_differs_only_in_sizes(tiny, full):
  bindings = ["MODEL_DIR='a'", "CORPUS='c'", "VOCABULARY='v'"]
  identities = []
  for name in (tiny, full):
    file = f'recipes/{name}.gin'
    flags = (
      [*bindings, "INIT_DIR='b'"]
      if 'INIT_DIR' in gin_files.read_with_includes(file)
      else bindings
    )
    identities.append(
      config_serialization.config_identity(gin_files.settings_of([file], flags))
    )
  differ = {
    key
    for key in identities[0].keys() | identities[1].keys()
    if identities[0].get(key) != identities[1].get(key)
  }
  assert {
    k for k in differ if not any(re.fullmatch(p, k) for p in _SIZES)
  } == set()


# Tokens, length, mask ratio, exponent, learning rate at the start (after warmup)
# and end, weight decay per step, rotary periods (global, local).
_PUBLISHED = {
  'modernbert': [
    (1.719e12, 1024, 0.3, 0.7, 8e-4, 8e-4, 1e-5, (1e4, 1e4)),
    (250e9, 8192, 0.3, 0.7, 3e-4, 3e-4, 1e-5, (1.6e5, 1e4)),
    (50e9, 8192, 0.3, 0.7, 3e-4, 3e-7, 1e-5, (1.6e5, 1e4)),
  ],
  'mmbert': [
    (2.3e12, 1024, 0.3, 0.7, 8e-4, 8e-4, 8e-5, (1e4, 1e4)),
    (600e9, 8192, 0.15, 0.5, 8e-4, 8e-4, 8e-5, (1.6e5, 1.6e5)),
    (100e9, 8192, 0.05, 0.3, 8e-4, 1.6e-5, 8e-5, (1.6e5, 1.6e5)),
  ],
  'eurobert': [
    (4.8e12, 2048, 0.5, 0.7, 1e-4, 1e-4, 1e-5, (1e4, None)),
    (200e9, 8192, 0.1, 0.7, 1e-4, 0.0, 1e-5, (2.5e5, None)),
  ],
}


@pytest.mark.parametrize('name', _CHAINS)
def test_recipes_have_published_values(name):
  for phase_trainer, row in zip(
    _trainers(f'recipes/{name}').values(), _PUBLISHED[name], strict=True
  ):
    tokens, length, ratio, alpha, peak, end, decay, periods = row
    settings = phase_trainer.resolved(None)
    [dataset], optimizer = settings.datasets, settings.optimizer
    per_step = dataset.length * dataset.batch_size
    assert math.isclose(settings.steps * per_step, tokens, rel_tol=1e-3)
    assert (dataset.length, dataset.alpha) == (length, alpha)
    assert settings.objectives.objectives[0].mask_ratio == ratio
    warm_up = optimizer.learning_rate.warmup_steps
    assert float(optimizer.rate_at(warm_up)) == pytest.approx(peak)
    assert float(optimizer.rate_at(settings.steps)) == pytest.approx(
      end, rel=1e-3
    )
    assert optimizer.weight_decay * peak == pytest.approx(decay, rel=1e-2)
    model = settings.model.config
    assert (model.rope_theta, model.local_rope_theta) == periods
    init = settings.init_from
    assert init is None or (warm_up == 0 and init.optimizer_state)


def test_bindings_apply_to_the_phases_that_read_them():
  trainers = _trainers(
    'recipes/mmbert',
    'PHASE1_STEPS=700',
    "PHASE1_LANGUAGES=('de', 'en')",
    "PHASE2_LANGUAGES=('de', 'en', 'fi')",
    'LONG_LENGTH=512',
    'LEARNING_RATE=1e-3',
    'BATCH_SIZE=768',
    "dataset_config.DatasetConfig.split='test'",
  )
  assert [
    phase_trainer.datasets[0].languages for phase_trainer in trainers.values()
  ] == [('de', 'en'), ('de', 'en', 'fi'), None]
  assert [
    phase_trainer.num_train_steps for phase_trainer in trainers.values()
  ] == [700, 15_895, 2_649]
  assert [
    phase_trainer.datasets[0].length for phase_trainer in trainers.values()
  ] == [1024, 512, 512]
  for phase_trainer in trainers.values():
    assert phase_trainer.datasets[0].batch_size == 768
    assert phase_trainer.optimizer.learning_rate.peak_value == 1e-3
    assert phase_trainer.datasets[0].split == 'test'


def test_phases_can_be_a_list_of_files():
  files = 'recipes/modernbert/phase1.gin,recipes/modernbert/phase3.gin'
  assert list(_trainers(files)) == ['phase1', 'phase3']


def test_veco_starts_from_a_given_run(tmp_path):
  files = 'papers/veco/large_phase1.gin,papers/veco/large_phase2.gin'
  first, second = _trainers(files, "INIT_DIR='runs/xlmr'").values()
  assert first.init_from.model_dir == 'runs/xlmr'
  assert second.init_from.model_dir == 'runs/a/large_phase1'
  assert train_phases.check([first, second]) == [False, False]


@pytest.mark.parametrize('position', [0, 1])
def test_phases_with_a_missing_initial_run_are_rejected(position):
  files = 'papers/veco/large_phase1.gin,papers/veco/large_phase2.gin'
  trainers = [
    dataclasses.replace(phase_trainer, vocabulary='vocabulary')
    for phase_trainer in _trainers(files, "INIT_DIR='runs/xlmr'").values()
  ]
  if position:
    trainers = [
      dataclasses.replace(trainers[0], init_from=None),
      dataclasses.replace(
        trainers[1], init_from=[trainers[1].init_from, 'runs/xlmr']
      ),
    ]
  with raises_error(errors.CheckpointError, got='runs/xlmr'):
    train_phases.check(trainers)


@pytest.mark.parametrize(
  'phases, bindings, message',
  [
    ('recipes/none', (), 'Got: recipes/none'),
    ('recipes/xlm_e', (), '--phases'),
    ('recipes/modernbert/phase1.gin,a/phase1.gin', (), '--phases'),
    ('recipes/modernbert/phase1.gin,none.gin', (), 'gin file does not exist'),
    (
      'recipes/modernbert/phase2.gin,recipes/modernbert/phase1.gin',
      ("INIT_DIR='a'",),
      '%INIT_DIR. Got: recipes/modernbert/phase1.gin',
    ),
    ('recipes/modernbert', ('PHASE4_STEPS=3',), 'PHASE4_STEPS'),
  ],
)
def test_invalid_phases_are_rejected(phases, bindings, message):
  with pytest.raises(errors.ConfigError, match=message):
    _trainers(phases, *bindings)


@pytest.mark.parametrize(
  'binding, message',
  [
    ("EncoderConfig.mlm_head='tied'", 'is unused'),
    ('EncoderConfig.mlp_dim=64', 'mlp.* in the checkpoint'),
    (
      'optimizers.StableAdamW.frozen=("embeddings",)',
      'optimizer does not match',
    ),
  ],
)
def test_incompatible_phase_is_rejected(binding, message, tmp_path):
  (tmp_path / 'second.gin').write_text(
    "include 'recipes/modernbert/tiny/phase2.gin'\n"
    'from xlflax.models import encoder_config as model_config\n'
  )
  first, second = _trainers(
    f'recipes/modernbert/tiny/phase1.gin,{tmp_path}/second.gin'
  ).values()
  other = _trainers(
    f'{tmp_path}/second.gin', "INIT_DIR='runs/a/phase1'", binding
  )
  with pytest.raises(errors.CheckpointError, match=message):
    train_phases.check([first, other['second']])
  assert train_phases.check([first, second]) == [False, False]


@pytest.mark.parametrize('file', gin_files.list_gin_files('recipes'))
def test_header_lists_existing_macros(file):
  text = (gin_config.SHIPPED / file).read_text()
  header = '\n'.join(line for line in text.splitlines() if line.startswith('#'))
  assert header, 'a comment on what the file is for'
  everything = ''.join(
    (gin_config.SHIPPED / f).read_text() for f in gin_files.list_gin_files()
  )
  for macro in re.findall(r'\b[A-Z]{3,}[A-Z0-9]*(?:_[A-Z]+)+\b', header):
    assert re.search(rf'^{macro} =|%{macro}\b', everything, re.M), macro
