"""Tests of the gin files of transfer settings, suites and papers."""

import re

import pytest

from tests import gin_files
from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax.config import gin_config
from xlflax.data.supervised.featurizers import translation_featurizer
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
  xtreme_tasks,
)
from xlflax.evaluation import during_training
from xlflax.finetuning import hyperparameter_grid
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.suites import suite_config, suite_export
from xlflax.training.checkpointing import objective_config, run_directory
from xlflax.utils import errors

_MACROS = {  # required macros of the files
  'LABELS': ('a', 'b'),
  'BATCH_SIZE': 8,
  'LEARNING_RATE': 1e-5,
  'HEAD_LEARNING_RATE': 1e-4,
  'EPOCHS': 3,
  'LAYER': 1,
  'TRAIN_LANGUAGE': 'fr',
  'TRANSLATED_FILES': {'fr': 'train.fr'},
}

_PLUGGED_IN = ('classification', 'tagging', 'question_answering')


@pytest.fixture
def settings_of(tmp_path):
  """Function that returns the settings of gin files for a two-layer model."""
  run_directory.write_model(
    tmp_path / 'pretrained',
    encoder.Encoder(
      model_config.EncoderConfig(
        num_layers=2,
        hidden_dim=8,
        mlp_dim=8,
        num_heads=1,
        max_position_embeddings=512,
        cross_attention=True,
      )
    ),
  )

  def build(*files, train=None, labeled=None, macros=None):
    macro_values = {
      'MODEL_DIR': 'run',
      'INIT_FROM': str(tmp_path / 'pretrained'),
      'TRAIN_FILES': train or {'en': 'train.en'},
      'TRAIN_STEPS': 20000,
    }
    macro_values |= {} if labeled is None else {'LABELED_FILES': labeled}
    macro_values |= macros or {}
    text = '\n'.join(map(_text, files))
    macro_values |= {
      name: value
      for name, value in _MACROS.items()
      if re.search(rf'^{name} = (%gin.REQUIRED|@)', text, re.M)
    }
    settings, build.configuration = gin_files.settings_and_configuration(
      files, [f'{name}={value!r}' for name, value in macro_values.items()]
    )
    return settings

  return build


def _text(file):
  text = (gin_config.SHIPPED / file).read_text()
  return text + ''.join(map(_text, re.findall(r"^include '(.*)'", text, re.M)))


def _batch_length_and_rate(settings):
  """Returns batch size, length and peak learning rate."""
  (dataset,) = settings.datasets
  return (
    dataset.batch_size,
    dataset.length,
    max(float(settings.optimizer.rate_at(step)) for step in (1000, 2000)),
  )


@pytest.mark.parametrize(
  'task, batch, length, rate',
  [
    ('pos', 32, 128, 1e-5),
    ('ner', 8, 128, 7e-6),
    ('xquad', 32, 384, 3e-5),
    ('mlqa', 32, 384, 3e-5),
    ('tydiqa', 32, 384, 4e-5),
    ('xnli', 32, 128, 1e-5),
    ('pawsx', 32, 128, 2e-5),
    ('amazon', 32, 128, 2e-5),
  ],
)
def test_metaxlm_settings_equal_table_8(settings_of, task, batch, length, rate):
  settings = settings_of(f'papers/metaxlm/finetune_{task}.gin')
  assert _batch_length_and_rate(settings) == (
    batch,
    length,
    pytest.approx(rate),
  )
  # 10% warmup followed by linear decay.
  assert float(settings.optimizer.rate_at(1000)) == pytest.approx(rate / 2)
  assert float(settings.optimizer.rate_at(11000)) == pytest.approx(rate / 2)
  epochs = dict(
    pos=10, ner=10, xquad=4, mlqa=4, tydiqa=40, xnli=6, pawsx=10, amazon=5
  )
  assert settings_of.configuration.macro('EPOCHS') == epochs[task]
  assert settings_of.configuration.parameter(
    'optimizers.AdamW.weight_decay'
  ) == (0.01 if task in ('xnli', 'pawsx', 'amazon') else 0)


@pytest.mark.parametrize(
  'task, length, rate', [('xnli', 128, 5e-5), ('mlqa', 386, 3e-5)]
)
@pytest.mark.parametrize(
  'setting', ['', '_translate_train', '_translate_train_no_cs']
)
def test_ppa_settings_equal_the_paper(settings_of, task, length, rate, setting):
  settings = settings_of(f'papers/ppa/finetune_{task}{setting}.gin')
  assert _batch_length_and_rate(settings) == (32, length, pytest.approx(rate))
  # 1,000 warmup steps
  assert float(settings.optimizer.rate_at(500)) == pytest.approx(rate / 2)
  assert settings_of.configuration.macro('EPOCHS') == 2
  (dataset,) = settings.datasets
  (inputs,) = objective_config.collect_inputs(settings).values()
  assert (inputs['separator'], inputs['length']) == ('bert', length)
  switched = isinstance(dataset.source, code_switched_source.CodeSwitched)
  assert (switched, dataset.group_size) == (
    (True, 2) if setting == '_translate_train' else (False, 1)
  )


@pytest.mark.parametrize('task', ['ner', 'parsing', 'xnli'])
def test_ecs_settings_equal_the_paper(settings_of, task):
  settings = settings_of(f'papers/ecs/finetune_{task}.gin')
  constant = task == 'xnli'
  rates = [float(settings.optimizer.rate_at(s)) for s in (1000, 11000)]
  assert rates == pytest.approx([1e-5, 1e-5] if constant else [5e-6, 5e-6])
  assert settings_of.configuration.macro('EPOCHS') == (200 if constant else 10)
  assert settings_of.configuration.macro('FROZEN') == (
    'model/language_specific',
  )
  assert settings.datasets[0].batching.value == 'one_language'


@pytest.mark.parametrize(
  'task',
  [
    'zero_shot',
    'translate_train_all',
    'translate_train_all_plug_in',
    'translate_train_all_plug_in_tagging',
    'translate_train_all_plug_in_question_answering',
  ],
)
def test_veco_settings_equal_the_paper(settings_of, task):
  settings = settings_of(f'papers/veco/finetune_{task}.gin')
  objective = settings.objectives.entries[0].objective
  plugged = 'plug_in' in task
  assert objective.features == ('plug_in' if plugged else 'plug_out')
  assert isinstance(
    settings.datasets[0].featurizer,
    translation_featurizer.TranslationPairFeaturizer,
  ) == (plugged)
  inputs = objective_config.collect_inputs(settings)[objective.name]
  assert inputs['length'] == settings.datasets[0].length
  assert ('separator' in inputs) == (not task.endswith('tagging'))


def test_training_development_and_translated_files_have_options(settings_of):
  """Training, development and translated files have different columns."""
  columns = [
    {'columns': {'text': i, 'paired_text': i + 1, 'label': 4}} for i in range(3)
  ]
  settings = settings_of(
    'papers/ppa/finetune_xnli_translate_train.gin',
    macros={
      'TRAIN_OPTIONS': columns[0],
      'TRANSLATED_OPTIONS': columns[1],
      'DEV_FILES': {'en': 'dev.tsv'},
      'DEV_OPTIONS': columns[2],
    },
  )
  evaluation = settings_of.configuration.build(during_training.Evaluation)
  (dataset,), (task,) = settings.datasets, evaluation.tasks
  sources = dataset.source.english, dataset.source.translations, task.source
  assert [labeled_source.options for labeled_source in sources] == columns


def test_all_gin_files_of_papers_are_tested():
  names = {
    name.split('finetune_')[1].removesuffix('.gin')
    for name in gin_files.list_gin_files('papers')
    if '/finetune_' in name
  }
  assert names == {
    *'pos ner xquad mlqa tydiqa xnli pawsx amazon parsing zero_shot'.split(),
    'xnli_translate_train',
    'xnli_translate_train_no_cs',
    'mlqa_translate_train',
    'mlqa_translate_train_no_cs',
    'translate_train_all',
    'translate_train_all_plug_in',
    'translate_train_all_plug_in_tagging',
    'translate_train_all_plug_in_question_answering',
  }


@pytest.mark.parametrize(
  'family',
  mark_slow(
    ['tagging', 'parsing', 'classification'], slow=['parsing', 'classification']
  ),
)
def test_layer_head_settings_freeze_the_encoder(settings_of, family):
  settings = settings_of(
    f'finetune/{family}.gin', f'finetune/settings/layer_head_{family}.gin'
  )
  objective = settings.objectives.entries[0].objective
  assert (objective.layer, objective.head_layers) == (1, 4)
  assert objective.freeze_encoder
  setup = gin_files.trace_steps(settings)
  heads = setup.factory.abstract.params['heads'][objective.name]
  assert 'layers' in heads


@pytest.mark.parametrize(
  'setting, expected',
  [
    ('translate_train', dict(splits=None, alpha=1.0)),
    ('one_language', dict(splits=('fr',))),
    ('code_switched', dict(group_size=2)),
    pytest.param(
      'plug_in_classification', dict(group_size=1), marks=pytest.mark.slow
    ),
  ],
)
def test_transfer_settings(settings_of, setting, expected):
  settings = settings_of(
    'finetune/classification.gin', f'finetune/settings/{setting}.gin'
  )
  (dataset,) = settings.datasets
  assert {name: getattr(dataset, name) for name in expected} == expected
  gin_files.trace_steps(settings)


@pytest.mark.parametrize(
  'family',
  mark_slow(['tagging', 'question_answering'], slow=['question_answering']),
)
def test_plug_in_settings(settings_of, family):
  settings = settings_of(
    f'finetune/{family}.gin', f'finetune/settings/plug_in_{family}.gin'
  )
  (dataset,) = settings.datasets
  assert isinstance(
    dataset.featurizer, translation_featurizer.TranslationPairFeaturizer
  )
  assert dataset.featurizer.translations.translations.format == (
    'conll' if family == 'tagging' else 'squad'
  )
  (entry,) = settings.objectives.entries
  assert entry.objective.features.value == 'plug_in'
  gin_files.trace_steps(settings)


@pytest.mark.parametrize('family', ['tagging', 'question_answering'])
def test_plug_in_settings_of_test_sets(family):
  configuration = gin_config.load_gin_files(
    [f'evaluate/{family}.gin', f'finetune/settings/plug_in_test_{family}.gin'],
    [
      "TEST_FILES={'en': 'test.en', 'fr': 'test.fr'}",
      "COUNTERPART_FILES={'fr': 'test.fr-en'}",
    ],
  )
  (task,) = configuration.parameter('evaluate.evaluate.tasks')
  assert task.translations.languages() == ('fr',)
  assert task.translations.language == 'en'


def test_frozen_language_parts_require_a_sharing_plan(settings_of):
  settings = settings_of(
    'finetune/classification.gin', 'finetune/settings/frozen_language_parts.gin'
  )
  assert settings.optimizer.frozen == ('model/language_specific',)
  assert settings.datasets[0].batching.value == 'one_language'
  with raises_error(
    errors.ConfigError, got='model/language_specific', where='AdamW.frozen'
  ):
    gin_files.trace_steps(settings)  # This model has no sharing plan.


@pytest.mark.parametrize(
  'optimizer', ['AdamW', 'Adam', 'StableAdamW', 'Muon', 'Adafactor', 'SGD']
)
@pytest.mark.parametrize('schedule', ['Linear', 'WSD', 'Cosine'])
def test_optimizers_and_schedules_can_be_combined(
  settings_of, tmp_path, optimizer, schedule
):
  optimizer_file = tmp_path / 'own.gin'
  optimizer_file.write_text(
    'from __gin__ import dynamic_registration\n'
    'from xlflax.training.optimization import optimizers\n'
    'from xlflax.training.optimization import schedules\n'
    f'OPTIMIZER = @optimizers.{optimizer}()\n'
    f'SCHEDULE = @schedules.{schedule}()\n'
    f'HEAD_SCHEDULE = @head/schedules.{schedule}()\n'
    "FROZEN = ('model/',)\nWARMUP_RATIO = 0.06\nHEAD_LEARNING_RATE = 1e-2\n"
  )
  built_optimizer = settings_of(
    'finetune/classification.gin', str(optimizer_file)
  ).optimizer
  assert built_optimizer.frozen == ('model/',)
  ((pattern, head),) = built_optimizer.learning_rate_overrides
  for rate in (built_optimizer.learning_rate, head):
    assert type(rate).__name__ == schedule and rate.warmup_steps == 0.06
  assert (pattern, head.peak_value) == ('^heads/', 1e-2)


def test_translate_test_settings():
  configuration = gin_config.load_gin_files(
    ['evaluate/classification.gin', 'finetune/settings/translate_test.gin'],
    ["TEST_FILES={'fr': 'test.tsv'}"],
  )
  (task,) = configuration.parameter('evaluate.evaluate.tasks')
  assert isinstance(task.source, concatenated_source.TranslatedDataset)
  assert task.source.languages() == ('fr',)


def test_plug_in_settings_load_counterparts(tmp_path):
  for name, text in {'test.fr': 'un\tdeux', 'test.fr-en': 'one\ttwo'}.items():
    (tmp_path / name).write_text(f'{text}\tyes\n')
  configuration = gin_config.load_gin_files(
    [
      'evaluate/classification.gin',
      'finetune/settings/plug_in_test_classification.gin',
    ],
    [
      f'TEST_FILES={dict(en="none", fr=str(tmp_path / "test.fr"))!r}',
      f'COUNTERPART_FILES={dict(fr=str(tmp_path / "test.fr-en"))!r}',
    ],
  )
  (task,) = configuration.parameter('evaluate.evaluate.tasks')
  assert task.source.languages() == ('en', 'fr')
  (example,) = task.source.load('fr')
  (other,) = task.translations.load('fr')
  assert (example.id, example.language, example.text) == (other.id, 'fr', 'un')
  assert (other.language, other.text, other.paired_text) == ('en', 'one', 'two')


def test_self_labeled_settings_combine_formats(settings_of, tmp_path):
  (tmp_path / 'en.conllu').write_text('1\tone\t_\tNUM\t_\t_\t0\troot\t_\t_\n\n')
  (tmp_path / 'fr.conll').write_text('un\tDET\n')
  (dataset,) = settings_of(
    'finetune/tagging.gin',
    'finetune/settings/self_labeled.gin',
    train={'en': str(tmp_path / 'en.conllu')},
    labeled={'fr': str(tmp_path / 'fr.conll')},
  ).datasets
  labeled_words = {
    part: [
      (example.language, example.words, example.tags)
      for example in dataset.source.load(part)
    ]
    for part in dataset.source.languages()
  }
  assert labeled_words == {
    'en': [('en', ('one',), ('NUM',))],
    'fr': [('fr', ('un',), ('DET',))],
  }


def test_all_settings_files_are_tested():
  names = {
    name.rpartition('/')[2].removesuffix('.gin')
    for name in gin_files.list_gin_files('finetune/settings')
  }
  assert names == {
    'translate_train',
    'one_language',
    'code_switched',
    'plug_in',
    *(f'plug_in_{f}' for f in _PLUGGED_IN),
    *(f'plug_in_test_{f}' for f in _PLUGGED_IN),
    'frozen_language_parts',
    'translate_test',
    'plug_in_test',
    'self_labeled',
    *(f'layer_head_{f}' for f in ('tagging', 'parsing', 'classification')),
  }


def _suite(name):
  return gin_config.load_gin_files([f'suites/{name}.gin']).build(
    suite_config.Suite
  )


def test_xtreme_suite_tasks():
  suite = _suite('xtreme')
  assert [task.name for task in suite.tasks] == [
    'xnli',
    'pawsx',
    'udpos',
    'panx',
    'xquad',
    'mlqa',
    'tydiqa',
    'bucc2018',
    'tatoeba',
  ]
  for task in suite.tasks:
    _configuration(task, 'folder/')
    for axis in task.grid:
      hyperparameter_grid.parse_axis(axis)
  header = (gin_config.SHIPPED / 'suites/xtreme.gin').read_text()
  assert f'OUTPUT/{suite_export.SUBMISSION}/<model>@<step>/' in header
  assert suite.task('mlqa').trials == 'xquad'


def test_xtreme_r_suite_tasks():
  suite = _suite('xtreme_r')
  assert {task.name for task in suite.tasks} == {
    *xtreme_tasks.R_TASKS,
    *xtreme_tasks.RANKED,
  }
  for task in suite.tasks:
    configuration = _configuration(task, 'folder/')
    if task.name in xtreme_tasks.R_TASKS:
      version = configuration.parameter('xtreme.xtreme_examples.version')
      assert version == xtreme_tasks.XTREME_R


def _configuration(task, data):
  macros = {'DATA': data}
  if task.trials:
    macros |= {'MODEL_DIR': 'run', 'INIT_FROM': 'runs/a'}
  return gin_config.load_gin_files(
    [task.gin_file], task.bindings, macros=macros
  )
