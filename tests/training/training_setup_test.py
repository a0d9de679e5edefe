"""Tests of validating settings and of the training setup."""

import dataclasses
import re

import jax
import optax
import pytest

from tests import gin_files
from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax import trainer as trainer_lib
from xlflax.data import dataset_config
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import (
  denoising,
  masked_lm,
  sentence_alignment,
)
from xlflax.training import (
  step_benchmark,
  train_loop,
  train_step,
  training_setup,
)
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors

MONO = dataset_config.DatasetConfig(
  name='mono', mixture='corpus.mono', layout='blocks', length=12, batch_size=8
)
_SIDES = dataset_config.DatasetConfig(
  name='sides',
  mixture='corpus.parallel',
  layout='dual',
  length=10,
  batch_size=16,
)
_MLM = objective_mixture.WeightedObjective(
  dataset='mono', objective=masked_lm.MaskedLM()
)
_ALIGN = objective_mixture.WeightedObjective(
  dataset='sides', objective=sentence_alignment.SentenceAlignment()
)


def _unsized():
  """Returns the tiny encoder without sizes, as in configurations."""
  model = tiny.make_model()
  return encoder.Encoder(
    dataclasses.replace(model.config, vocab_size=None, num_languages=None)
  )


def make_settings(**fields) -> trainer_lib.Trainer:
  options = dict(
    model_dir='unused',
    model=_unsized(),
    objectives=tiny.make_mixture(_MLM),
    datasets=(MONO,),
    vocabulary=tiny.SPEC,
    num_train_steps=100,
    optimizer=optimizers.AdamW(learning_rate=0.01),
    corpus=None,
    cache_dir=None,
    task_modules=(),
    partitioner=partitioning.Partitioner(fsdp=2),
    checkpoints=checkpoints.CheckpointOptions(),
    evaluation=None,
    init_from=None,
    seed=0,
    gradient_accumulation_steps=1,
    ema_decay=None,
    non_finite=train_step.NonFinitePolicy.STOP,
    log_metrics_every=10,
    prefetch=2,
    stop_after_steps=None,
    on_config_mismatch=run_directory.OnConfigMismatch.ERROR,
  )
  return trainer_lib.Trainer(**(options | fields))


def _fails(**fields) -> str:
  with pytest.raises(errors.ConfigError) as error:
    make_settings(**fields)
  return str(error.value)


@pytest.mark.parametrize(
  'field',
  [
    'num_train_steps',
    'gradient_accumulation_steps',
    'log_metrics_every',
    'prefetch',
  ],
)
def test_numeric_fields_must_be_positive(field):
  with pytest.raises(errors.ConfigError) as error:
    make_settings(**{field: 0})
  assert error.value.where == f'Trainer.{field}'


def test_duplicate_dataset_names_are_rejected():
  assert "Got: ['mono', 'mono']. Where: Trainer.datasets" in _fails(
    datasets=(MONO, MONO)
  )


@pytest.mark.parametrize(
  ('entries', 'datasets'),
  [((_MLM,), (MONO, _SIDES)), ((_MLM, _ALIGN), (MONO,))],
)
def test_unused_and_missing_datasets_are_rejected(entries, datasets):
  text = _fails(objectives=tiny.make_mixture(*entries), datasets=datasets)
  assert f'Got: {sorted(s.name for s in datasets)}' in text
  assert f'Expected: {sorted(e.dataset for e in entries)}' in text


def test_indivisible_batch_size_is_reported_with_its_dataset():
  text = _fails(datasets=(dataclasses.replace(MONO, batch_size=12),))
  assert 'a multiple of 8 ' in text and 'Got: 12' in text
  assert 'Where: dataset mono' in text
  assert 'a multiple of 16' in _fails(gradient_accumulation_steps=2)


def test_last_step_is_limited_by_stop_after_steps():
  assert make_settings().last_step == 100
  assert make_settings(stop_after_steps=7).last_step == 7
  assert make_settings(stop_after_steps=700).last_step == 100


def test_examples_longer_than_the_model_are_rejected():
  settings = make_settings(datasets=(dataclasses.replace(MONO, length=33),))
  with raises_error(
    errors.ConfigError, mentions=("'mono'", 33, 32, 'max_position_embeddings')
  ):
    training_setup.Setup(settings)


@pytest.mark.parametrize(
  ('length', 'message'),
  [
    (36, 'EncoderDecoder'),  # The length is valid, and the next check fails.
    (37, "'mono'.*33.*32.*max_position_embeddings"),
  ],
)
def test_length_limit_applies_to_shortened_examples(length, message):
  """Span corruption shortens the examples of its dataset."""
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=denoising.SpanCorruption()
  )
  with pytest.raises(errors.ConfigError, match=message):
    training_setup.Setup(
      make_settings(
        datasets=(dataclasses.replace(MONO, length=length),),
        objectives=tiny.make_mixture(entry),
      )
    )


def test_span_corruption_requires_a_decoder_and_sentinels():
  """The error contains all steps that the user must take."""
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=denoising.SpanCorruption(mean_span_length=1.0)
  )
  settings = make_settings(objectives=tiny.make_mixture(entry))
  assert not training_setup.Setup(make_settings()).spec.sentinel_ids
  with raises_error(
    errors.ConfigError,
    got='Encoder',
    mentions=(
      'span_corruption',
      '--gin_file=models/tiny_t5.gin',
      '--extra_ids=2',
      'token cache',
    ),
  ):
    training_setup.Setup(settings)


def test_gin_files_in_hints_configure_encoder_decoders():
  with pytest.raises(errors.ConfigError) as error:
    denoising.TextInfilling().init_heads(_unsized(), jax.random.key(0))
  files = re.findall(r'--gin_file=([\w/]+\.gin)', error.value.fix)
  assert len(files) == 3
  for file in files:
    text = gin_files.read_with_includes(file)
    assert 'MODEL = @encoder_decoder.EncoderDecoder()' in text


def test_model_with_a_different_vocabulary_size_is_rejected():
  with pytest.raises(errors.VocabularyError) as error:
    training_setup.Setup(make_settings(model=tiny.make_model(vocab_size=65)))
  assert_mentions(error.value, 'vocab_size', 65, 64)


@pytest.fixture(scope='module')
def setup():
  return training_setup.Setup(
    make_settings(
      objectives=tiny.make_mixture(
        _MLM, _ALIGN, combine=objective_mixture.Combine.ALTERNATE
      ),
      datasets=(MONO, _SIDES),
      ema_decay=0.9,
    )
  )


def test_sizes_come_from_the_vocabulary(setup):
  assert setup.model.config.vocab_size == 64
  assert setup.model.config.num_languages == 2
  assert isinstance(setup.model.config, model_config.EncoderConfig)
  assert setup.factory.abstract.params['model']['embeddings'][
    'token'
  ].shape == (64, 16)
  assert jax.tree.leaves(setup.factory.abstract.ema)


def test_abstract_batches_of_active_entries(setup):
  assert setup.settings.objectives.groups == ((0,), (1,))
  assert setup.datasets_of((0, 1)) == ['mono', 'sides']
  ((name, keys),) = setup.abstract_batches((1,)).items()
  assert name == 'sides' and 'paired_token_ids' in keys
  for leaf in keys.values():
    assert leaf.shape == (16, 10) and leaf.dtype == 'int32'
    assert leaf.sharding == setup.settings.partitioner.batch_sharding


def test_default_learning_rate_is_recorded_in_the_settings():
  """The batches alternate between 96 and 320 tokens."""
  fields = dict(
    model=tiny.make_model(hidden_dim=256, vocab_size=None, num_languages=None),
    objectives=tiny.make_mixture(
      _MLM, _ALIGN, combine=objective_mixture.Combine.ALTERNATE
    ),
    datasets=(MONO, _SIDES),
    num_train_steps=3000,
  )

  def made(peak):
    rate = schedules.Linear(peak_value=peak)
    return training_setup.Setup(
      make_settings(optimizer=optimizers.AdamW(learning_rate=rate), **fields)
    )

  setup = made(None)
  assert setup.rate_description == (
    '5.7e-4, from width 256, 208 tokens per step, 3,000 steps, post-norm. '
    'Set LEARNING_RATE to override it'
  )
  assert setup.settings.optimizer.rate_at(0) == pytest.approx(5.7e-4)
  settings = made(5.7e-4)
  assert settings.rate_description == ''
  assert settings.description == setup.description


def test_flops_depend_on_the_active_entries(setup):
  """The two steps have 96 and 320 tokens."""
  assert 0 < setup.flops((0,)) < setup.flops((1,))


@pytest.mark.slow
def test_step_benchmark_is_consistent():
  """Measures real steps."""
  settings = make_settings(partitioner=tiny.one_device(), sdc_check_every=50)
  result = step_benchmark.time_steps(settings, steps=2)
  seconds = result['seconds_per_step']
  assert 0 < seconds['min'] <= seconds['median'] <= seconds['max']
  assert result['tokens_per_second'] == pytest.approx(
    8 * 12 / seconds['median']
  )
  assert result['mesh'] == {'data': 1, 'fsdp': 1, 'tensor': 1}
  assert result['devices'] == 1 and result['steps'] == 2
  assert result['mfu'] is None  # The peak FLOPs of CPUs are unknown.
  assert result['vocabulary_size'] == 64 and result['peak_memory_bytes'] > 0
  assert result['loss'] == pytest.approx(4.16, abs=0.3)  # log 64
  assert result['replay']['every'] == 50
  assert result['replay']['seconds_per_step'] > 0


def test_training_requires_a_complete_vocabulary():
  with pytest.raises(errors.ConfigError) as error:
    train_loop.train(make_settings(partitioner=tiny.one_device()))
  assert_mentions(error.value, 'Trainer.vocabulary', 'VocabularySpec')


def test_exception_in_init_heads_is_reported_with_its_line():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Failing(masked_lm.MaskedLM):
    def init_heads(self, model, rng):
      return {'kernel': rng / 0}

  entry = dataclasses.replace(_MLM, objective=_Failing())
  settings = make_settings(
    objectives=tiny.make_mixture(entry), partitioner=tiny.one_device()
  )
  with raises_error(
    errors.ConfigError, mentions='`_Failing.init_heads`'
  ) as error:
    settings.benchmark()
  assert_mentions(error.value.where, "`return {'kernel': rng / 0}`")


@pytest.mark.parametrize(
  ('decay', 'percentage', 'suggested'),
  [(0.9999, 99.0, '0.955'), (0.98, 13.3, '0.955'), (0.955, None, None)],
)
def test_average_close_to_the_initial_parameters_causes_a_warning(
  decay, percentage, suggested, caplog
):
  # 0.9999^100 = 0.990, 0.98^100 = 0.133 and 0.955^100 = 0.01.
  training_setup.Setup(
    make_settings(ema_decay=decay, partitioner=tiny.one_device())
  )
  if percentage is None:
    assert not caplog.records
  else:
    (record,) = caplog.records
    assert_mentions(
      record.getMessage(),
      decay,
      percentage,
      100,
      f'--gin.trainer.Trainer.ema_decay={suggested}',
    )


def test_user_optimizer_that_ascends_causes_a_warning(caplog):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Ascending(optimizers.Optimizer):
    def make(self, rate):
      return optax.scale(rate)

  training_setup.Setup(
    make_settings(
      optimizer=_Ascending(learning_rate=0.1), partitioner=tiny.one_device()
    )
  )
  assert_mentions(
    caplog.text, '_Ascending', 'optax.scale_by_learning_rate(rate)'
  )
