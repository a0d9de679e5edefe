"""Tests of the binding names of dataset fields in messages."""

import pytest

from xlflax import trainer
from xlflax.config import gin_config, setting_names
from xlflax.utils import errors

_GIVEN = (
  'MODEL_DIR=runs/a',
  'VOCABULARY=./vocab',
  'CORPUS=./corpus',
  'TRAIN_STEPS=10',
)


def _build(*bindings, files=('pretrain/mlm_tlm.gin', 'models/tiny.gin')):
  """Returns a configuration of a trainer that has been built."""
  configuration = gin_config.load_gin_files(files, (*_GIVEN, *bindings))
  configuration.build(trainer.Trainer)
  return configuration


_MOCO = ('pretrain/moco_tlm.gin', 'models/tiny.gin')
_SCOPED = 'mono/dataset_config.DatasetConfig.length'


@pytest.mark.parametrize(
  'files, bindings, dataset, field, expected',
  [
    (_MOCO, (), 'sides', 'length', 'PAIR_LENGTH'),
    (_MOCO, (), 'sides', 'pairs.min_tokens', 'MIN_TOKENS'),
    (_MOCO, (), 'sides', 'alpha', 'ALPHA'),
    (_MOCO, (), 'other', 'length', None),
    (None, (), 'mono', 'length', 'LENGTH'),
    (None, (f'{_SCOPED}=64',), 'mono', 'length', _SCOPED),
    (
      None,
      (),
      'pairs',
      'pairs.max_tokens',
      'pairs/dataset_config.PairOptions.max_tokens',
    ),
    # Without a reference to PairOptions, a binding would have no effect.
    (None, (), 'mono', 'pairs.max_tokens', None),
    (None, (), 'mono', 'replay', 'mono/dataset_config.DatasetConfig.replay'),
    (
      None,
      ("NAME='text'", 'mono/dataset_config.DatasetConfig.name=%NAME')
      + ("mlm/objective_mixture.WeightedObjective.dataset='text'",),
      'text',
      'length',
      'LENGTH',
    ),
  ],
)
def test_find_dataset_binding(files, bindings, dataset, field, expected):
  keywords = {'files': files} if files else {}
  configuration = _build(*bindings, **keywords)
  assert configuration.find_dataset_binding(dataset, field) == expected


def test_binding_in_a_message_has_an_effect():
  """The flag in a message is accepted and changes the dataset."""
  name = _build(f'{_SCOPED}=64').find_dataset_binding('mono', 'length')
  configuration = gin_config.load_gin_files(
    ('pretrain/mlm_tlm.gin', 'models/tiny.gin'), (*_GIVEN, f'{name}=32')
  )
  datasets = configuration.build(trainer.Trainer).datasets
  gin_config.check_bindings([configuration])
  assert {x.name: x.length for x in datasets}['mono'] == 32


def test_binding_without_the_scope_is_rejected():
  configuration = _build('DatasetConfig.length=32')
  with pytest.raises(errors.ConfigError) as error:
    gin_config.check_bindings([configuration])
  assert error.value.got == 'DatasetConfig.length'


@pytest.mark.parametrize(
  'bindings, expected',
  [
    (('mono/DatasetConfig.alpha=None',), 'mono/DatasetConfig.alpha'),
    (('ALPHA=None',), 'ALPHA'),
  ],
)
def test_hints_for_scoped_objects_contain_scoped_bindings(bindings, expected):
  bindings = (*bindings, "mono/DatasetConfig.sizes='tokens'")
  with pytest.raises(errors.ConfigError) as error:
    _build(*bindings)
  assert error.value.where.startswith('DatasetConfig.sizes, --gin.mono/')
  assert f'Set {expected}, ' in error.value.fix
  assert 'mono/DatasetConfig.sizes' in error.value.fix


def test_scoped_location_precedes_unscoped_location():
  """The shipped file binds the sampling exponent without a scope."""
  with pytest.raises(errors.ConfigError) as error:
    _build('mono/DatasetConfig.alpha=-1')
  assert error.value.where.endswith('--gin.mono/DatasetConfig.alpha')


def test_settings_of_the_user_are_not_defaults(tmp_path):
  """Only the shipped files set a default."""

  def is_default(*bindings, files=()):
    configuration = gin_config.load_gin_files(
      ('pretrain/mlm_tlm.gin', 'models/tiny.gin', *files), (*_GIVEN, *bindings)
    )
    configuration.build(trainer.Trainer)
    with setting_names.naming_settings(
      configuration.find_dataset_binding, configuration.is_default
    ):
      return setting_names.is_default_setting('mono', 'alpha')

  assert is_default()
  assert is_default('BATCH_SIZE=8')
  assert not is_default('ALPHA=0.7')
  assert not is_default('mono/DatasetConfig.alpha=0.7')
  file = tmp_path / 'my.gin'
  file.write_text('ALPHA = 0.7\n')
  assert not is_default(files=[str(file)])
  assert not setting_names.is_default_setting('mono', 'alpha')


def test_flags_are_named_only_inside_the_context():
  assert setting_names.name_setting('mono', 'length') == 'DatasetConfig.length'
  with setting_names.naming_settings(_build().find_dataset_binding):
    assert setting_names.name_setting('mono', 'length') == '--gin.LENGTH'
    assert (
      setting_names.name_setting('mono', 'pairs.max_tokens')
      == 'DatasetConfig.pairs.max_tokens'
    )
  assert setting_names.name_setting('mono', 'length') == 'DatasetConfig.length'
