"""Tests of loading gin files and of errors about bindings."""

import pathlib
import re
import sys
import types

import gin
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import trainer
from xlflax.config import gin_config
from xlflax.evaluation import eval_task
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.optimization import schedules
from xlflax.utils import errors

_FILES = ('pretrain/mlm.gin', 'models/tiny.gin')
_GIVEN = ('MODEL_DIR=runs/a', 'VOCABULARY=data/vocab', 'TRAIN_STEPS=5000')


def _fails(files=_FILES, bindings=_GIVEN, paths=()) -> str:
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(files, bindings, paths)
  return str(error.value)


def _write(path: pathlib.Path, *lines: str) -> str:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(
    '\n'.join(
      [
        'from __gin__ import dynamic_registration',
        'from xlflax import trainer',
        *lines,
      ]
    )
    + '\n',
    encoding='utf-8',
  )
  return str(path)


def _trainer_settings(configuration, **fields):
  """Returns the settings from which the trainer would be built."""
  received = {}

  def settings(self, **received_settings):
    received.update(received_settings)
    raise errors.ConfigError('seen')

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(trainer.Trainer, '__init__', settings)
    with pytest.raises(errors.ConfigError, match='seen'):
      configuration.build(trainer.Trainer, **fields)
  return received


def test_later_files_and_bindings_override(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin', 'trainer.Trainer.seed = 3', 'LENGTH = 99'
  )
  settings = _trainer_settings(
    gin_config.load_gin_files([*_FILES, mine], [*_GIVEN, 'LENGTH=7'])
  )
  assert (settings['seed'], settings['datasets'][0].length) == (3, 7)
  assert settings['num_train_steps'] == 5000


def test_paths_need_no_quotes():
  configuration = gin_config.load_gin_files(
    _FILES,
    (
      'MODEL_DIR=runs/a-1',
      'VOCABULARY=~/v',
      'CORPUS=./c',
      'TRAIN_STEPS=5000',
      'CACHE_DIR="x/y"',
    ),
  )
  settings = _trainer_settings(configuration)
  assert [
    settings[k] for k in ('model_dir', 'vocabulary', 'corpus', 'cache_dir')
  ] == ['runs/a-1', '~/v', './c', 'x/y']


def test_values_of_macros_need_no_quotes():
  quoted_path = 'it\'s\\a "b"'
  configuration = gin_config.load_gin_files(
    _FILES, _GIVEN[1:], macros={'MODEL_DIR': quoted_path, 'TRAIN_STEPS': 3}
  )
  settings = _trainer_settings(configuration)
  assert (settings['model_dir'], settings['num_train_steps']) == (
    quoted_path,
    5000,
  )
  assert 'TRAIN_STEPS = 5000' in configuration.operative()


def test_value_without_quotes_is_rejected():
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(_FILES, ('MODEL_DIR=runs', *_GIVEN[1:]))
  assert error.value.where == '--gin.MODEL_DIR'


def test_missing_required_macro_is_rejected():
  assert _fails(bindings=_GIVEN[1:]) == (
    'The configuration must set a value for MODEL_DIR. What to do: Pass '
    '--model_dir=DIR.'
  )


@pytest.mark.parametrize('files', [_FILES[:1], _FILES[::-1]])
def test_missing_or_misplaced_model_file_is_rejected(files):
  assert _fails(files).startswith(
    'The configuration must set a value for MODEL. What to do: Pass '
    '--gin_file=models/SIZE.gin. '
  )


def test_misspelled_macro_is_rejected():
  assert _fails(bindings=(*_GIVEN, 'LENTGH=3')) == (
    'The configuration sets a macro that it never uses. Got: LENTGH. '
    'Expected: one of LENGTH. What to do: Correct the name of the macro.'
  )


def test_misspelled_macro_in_a_file_is_rejected(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'WARMUP_STPES = 3')
  assert 'Got: WARMUP_STPES. Expected: one of WARMUP_STEPS' in _fails(
    [*_FILES, mine]
  )


def test_macro_of_an_overridden_binding_may_be_unused(tmp_path):
  """Binding a field directly instead of its macro is not an error."""
  mine = _write(tmp_path / 'mine.gin', 'MY_OWN = 1', 'trainer.Trainer.seed = 3')
  settings = _trainer_settings(
    gin_config.load_gin_files(
      [*_FILES, mine], (*_GIVEN, 'mono/dataset_config.DatasetConfig.length=64')
    )
  )
  assert (settings['seed'], settings['datasets'][0].length) == (3, 64)
  text = _fails(bindings=(*_GIVEN, 'trainer.Trainer.seed=3', 'SEED=4'))
  assert 'Got: SEED' in text


def test_reference_to_an_unset_macro_is_rejected(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'trainer.Trainer.seed = %MY_SEED')
  assert _fails([mine], ()) == (
    'The configuration uses macros that are not set. Got: MY_SEED. What to '
    'do: Pass --gin.MY_SEED=VALUE.'
  )


@pytest.mark.parametrize(
  ('binding', 'named', 'suggestion'),
  [
    ('trainer.Trainer.sed=3', 'sed', 'seed'),
    (
      'optimizers.adamx.b1=3',
      'optimizers.adamx',
      'optimizers.Adam or optimizers.AdamW',
    ),
    ('optimizer.AdamW.b1=3', 'optimizer.AdamW', 'optimizers.AdamW'),
  ],
)
def test_unknown_names_in_bindings_are_rejected(binding, named, suggestion):
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(_FILES, (*_GIVEN, binding))
  assert error.value.got == named
  assert error.value.where == f'--gin.{binding.partition("=")[0]}'
  assert suggestion in error.value.fix


def test_unknown_names_in_files_are_reported_with_the_line(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'trainer.Trainer.sed = 3')
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files([mine])
  assert (error.value.got, error.value.where) == ('sed', f'{mine}:3')


@pytest.mark.parametrize(
  ('line', 'named'),
  [
    ('from xlflax import nope', 'xlflax.nope'),
    ("include 'pretrain/nope.gin'", 'pretrain/nope.gin'),
    ('trainer.Trainer.seed == 3', 'trainer.Trainer.seed == 3'),
    (
      'trainer.Trainer.seed = @nope.f()',
      "'nope' was not provided by an import",
    ),
  ],
)
def test_invalid_lines_are_rejected(tmp_path, line, named):
  mine = _write(tmp_path / 'mine.gin', line)
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files([mine])
  assert named in error.value.got
  assert error.value.where == f'{mine}:3'


@pytest.mark.parametrize(
  'included, suggested',
  [
    ('pretrain/mlm', 'pretrain/mlm.gin'),
    ('pretrain/mml.gin', 'pretrain/mlm.gin'),
    ('base.gin', 'mine/base.gin'),
    ('mine/base', 'mine/base.gin'),
  ],
)
def test_similar_included_file_is_suggested(
  tmp_path, monkeypatch, included, suggested
):
  monkeypatch.chdir(tmp_path)
  _write(tmp_path / 'mine/base.gin', 'trainer.Trainer.seed = 1')
  _write(tmp_path / 'mine/own.gin', f"include '{included}'")
  with raises_error(
    errors.ConfigError, got=included, where='mine/own.gin:3'
  ) as error:
    gin_config.load_gin_files(['mine/own.gin'])
  assert_mentions(error.value.fix, suggested)


@pytest.mark.parametrize(
  'value, corrected',
  [
    ("{en: 'a.tsv'}", "{'en': 'a.tsv'}"),
    ("{en: 'a.tsv', zh-Hans: 'b.tsv'}", "{'en': 'a.tsv', 'zh-Hans': 'b.tsv'}"),
    ('{en: nli/a.tsv}', "{'en': 'nli/a.tsv'}"),
  ],
)
def test_dictionary_keys_require_quotes(value, corrected):
  with raises_error(
    errors.ConfigError, where='--gin.TRAIN_FILES', mentions=corrected
  ):
    gin_config.load_gin_files(
      ['finetune/classification.gin'], [f'TRAIN_FILES={value}']
    )


@pytest.mark.parametrize(
  'value, key, suggested',
  [
    ("{'en': 'a.tsv', 'en': 'b.tsv'}", 'en', "{'en': ('a.tsv', 'b.tsv')}"),
    ("{'fr': 'f.tsv', 'en': {'x': 1, 'x': 2}}", 'x', 'Remove'),
    ("{'en-fr': 'a.tsv', 'en-fr': 'b.tsv'}", 'en-fr', 'Remove'),
  ],
)
def test_repeated_dictionary_keys_are_rejected(tmp_path, value, key, suggested):
  files = ['finetune/classification.gin']
  with raises_error(
    errors.ConfigError, got=repr(key), where='--gin.TRAIN_FILES'
  ) as caught:
    gin_config.load_gin_files(files, [f'TRAIN_FILES={value}'])
  assert suggested in caught.value.fix
  lines = value.replace(', ', ',\n  ')
  mine = _write(tmp_path / 'mine.gin', f'TRAIN_FILES = {lines}')
  line = 3 + lines[: lines.rindex(repr(key))].count('\n')
  with raises_error(errors.ConfigError, got=repr(key), where=f'{mine}:{line}'):
    gin_config.load_gin_files([*files, mine])


def test_different_dictionaries_may_contain_the_same_key():
  value = "{'en': {'x': 'a.tsv'}, 'fr': {'x': 'b.tsv', 'en': 'c.tsv'}}"
  configuration = gin_config.load_gin_files(
    ['finetune/classification.gin'], [f'TRAIN_FILES={value}'], partial=True
  )
  assert configuration.macro('TRAIN_FILES')['fr']['x'] == 'b.tsv'


def test_errors_name_the_option_of_the_binding():
  with raises_error(
    errors.ConfigError, got='foo', where='--eval_gin tagging_task.Tagging.foo'
  ):
    gin_config.load_gin_files(
      ['evaluate/tagging.gin'],
      ['tagging_task.Tagging.foo=3'],
      partial=True,
      option='--eval_gin',
    )


def test_missing_import_is_suggested(tmp_path):
  mine = tmp_path / 'mine.gin'
  mine.write_text(
    'from __gin__ import dynamic_registration\n'
    "include 'pretrain/mlm.gin'\n"
    'trainer.Trainer.log_metrics_every = 5\n'
  )
  with raises_error(errors.ConfigError, where=f'{mine}:3') as error:
    gin_config.load_gin_files([str(mine)])
  assert 'import trainer' in error.value.fix


def test_missing_file_is_rejected():
  text = _fails(['pretrain/mlmm.gin'])
  assert 'The gin file does not exist. Got: pretrain/mlmm.gin' in text
  assert 'such as pretrain/mlm.gin' in text and '--gin_file' in text


def test_search_paths_precede_shipped_files(tmp_path):
  _write(tmp_path / 'a/pretrain/mlm.gin', 'trainer.Trainer.seed = 1')
  _write(tmp_path / 'b/pretrain/mlm.gin', 'trainer.Trainer.seed = 2')
  _write(tmp_path / 'b/only_b.gin', 'trainer.Trainer.log_metrics_every = 9')
  required_fields = dict(
    model_dir='',
    model=None,
    objectives=None,
    datasets=(),
    vocabulary='',
    num_train_steps=1,
    optimizer=None,
  )
  first = gin_config.load_gin_files(
    ['pretrain/mlm.gin', 'only_b.gin'], (), [f'{tmp_path}/a,{tmp_path}/b']
  )
  settings = _trainer_settings(first, **required_fields)
  assert (settings['seed'], settings['log_metrics_every']) == (1, 9)
  second = gin_config.load_gin_files(
    ['pretrain/mlm.gin'], (), [f'{tmp_path}/b']
  )
  assert _trainer_settings(second, **required_fields)['seed'] == 2
  # Loading one configuration does not affect the others.
  assert (
    _trainer_settings(gin_config.load_gin_files(_FILES, _GIVEN))['seed'] == 0
  )
  assert _trainer_settings(first, **required_fields)['seed'] == 1


def test_missing_arguments_are_rejected(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'trainer.Trainer.seed = 1')
  configuration = gin_config.load_gin_files([mine])
  with pytest.raises(errors.ConfigError) as error:
    configuration.build(trainer.Trainer)
  assert '`model_dir`, `model`, `objectives`' in error.value.what
  assert error.value.where == 'Trainer'


def test_errors_of_constructors_are_located():
  configuration = gin_config.load_gin_files(
    _FILES, (*_GIVEN, "ObjectiveMixture.combine='nope'")
  )
  with pytest.raises(errors.ConfigError) as error:
    configuration.build(trainer.Trainer)
  assert type(error.value) is errors.ConfigError
  assert error.value.got == "'nope'"
  assert error.value.where == (
    'ObjectiveMixture.combine, --gin.ObjectiveMixture.combine'
  )


def test_errors_name_the_lines_of_binding_and_macro(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin', 'MINE = 7', 'trainer.Trainer:', '  ema_decay = %MINE'
  )
  files = [*_FILES, mine]
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(files, _GIVEN).build(trainer.Trainer)
  assert error.value.where == f'Trainer.ema_decay, {mine}:5 and {mine}:3'
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(files, (*_GIVEN, 'MINE=1.5')).build(
      trainer.Trainer
    )
  assert error.value.where == f'Trainer.ema_decay, {mine}:5 and --gin.MINE'
  flags = (*_GIVEN, 'MINE=0.9', 'mono/dataset_config.DatasetConfig.length=0')
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files(files, flags).build(trainer.Trainer)
  assert error.value.where == (
    "DatasetConfig.length of 'mono', --gin.mono/dataset_config.DatasetConfig.length"
  )


def test_misspelled_scope_of_an_object_is_rejected(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax.data import dataset_config',
    'trainer.Trainer.datasets = [@sentences/dataset_config.DatasetConfig()]',
    "sentence/dataset_config.DatasetConfig.name = 'own'",
  )
  with pytest.raises(errors.ConfigError) as error:
    gin_config.load_gin_files([*_FILES, mine], _GIVEN).build(trainer.Trainer)
  assert_mentions(
    error.value.fix,
    '@sentences/DatasetConfig()',
    'mono/DatasetConfig',
    f'@sentence/DatasetConfig() (see {mine}:5)?',
  )


@pytest.mark.parametrize('kind', [ValueError, TypeError, RuntimeError])
def test_bugs_are_not_reported_as_user_errors(monkeypatch, kind):
  def broken(self):
    raise kind('the original configurable engine')

  monkeypatch.setattr(trainer.Trainer, '__post_init__', broken)
  configuration = gin_config.load_gin_files(_FILES, _GIVEN)
  with pytest.raises(kind, match='original configurable engine') as error:
    configuration.build(trainer.Trainer)
  assert not isinstance(error.value, errors.XlflaxError)


def test_enums_are_given_by_value():
  configuration = gin_config.load_gin_files(
    _FILES,
    (
      *_GIVEN,
      "ObjectiveMixture.combine='alternate'",
      "trainer.Trainer.non_finite='skip'",
    ),
  )
  settings = _trainer_settings(configuration)
  assert settings['objectives'].combine is objective_mixture.Combine.ALTERNATE
  assert settings['non_finite'] == 'skip'
  configuration = gin_config.load_gin_files(
    _FILES, (*_GIVEN, "trainer.Trainer.non_finite='ignore'")
  )
  with pytest.raises(errors.ConfigError) as error:
    configuration.build(trainer.Trainer)
  assert error.value.got == "'ignore'"


def test_flags_may_bind_classes_of_imported_modules():
  """The classes come from the modules that the files import."""
  configuration = gin_config.load_gin_files(
    _FILES,
    (
      *_GIVEN,
      'optimizers.AdamW.learning_rate=@schedules.Constant()',
      'schedules.Constant.peak_value=0.5',
    ),
  )
  rate = _trainer_settings(configuration)['optimizer'].rate_at
  assert float(rate(10)) == float(schedules.Constant(peak_value=0.5)(10)) == 0.5


def test_operative_configuration_contains_only_used_values():
  configuration = gin_config.load_gin_files(_FILES, (*_GIVEN, 'LENGTH=7'))
  _trainer_settings(configuration, stop_after_steps=3)
  text = configuration.operative()
  assert 'LENGTH = 7' in text
  assert "mono/dataset_config.DatasetConfig.layout = 'blocks'" in text
  assert 'trainer.Trainer.gradient_accumulation_steps = 1' in text  # default
  assert 'stop_after_steps' not in text  # argument of the caller
  assert 'schedules.Cosine' not in text  # not constructed


def test_unconfigured_classes_are_called_directly():
  schedule = gin_config.load_gin_files([]).build(
    schedules.Constant, peak_value=2.0
  )
  assert schedule(0) == 2.0
  with raises_error(errors.ConfigError, mentions='<lambda>: a'):
    gin_config.load_gin_files([]).build(lambda *, a, b, c=1: a, b=2)


def test_class_without_the_decorator_is_reported_before_its_arguments():
  class Undecorated(eval_task.EvalTask):
    name: str = 'undecorated'

  with raises_error(
    errors.ConfigError, got='name', where='Undecorated'
  ) as error:
    gin_config.load_gin_files([]).build(Undecorated)
  assert_mentions(error.value.fix, 'Undecorated', 'dataclasses.dataclass')


def test_macro_returns_a_new_object_per_call():
  configuration = gin_config.load_gin_files(['models/tiny.gin'])
  model = configuration.macro('MODEL')
  assert model.config.hidden_dim == 128
  assert configuration.macro('MODEL') is not model


def test_unknown_macro_is_rejected():
  configuration = gin_config.load_gin_files(['models/tiny.gin'])
  with pytest.raises(errors.ConfigError, match='the macro `MODELL`'):
    configuration.macro('MODELL')


def test_macros_of_one_configuration_do_not_affect_others():
  """The trials of a grid are built in turn."""
  configuration = gin_config.load_gin_files(_FILES, _GIVEN)
  before = dict(gin.config._CONFIG), gin.operative_config_str()
  trials = [
    configuration.with_macros(
      {'SEED': seed, 'mono/dataset_config.DatasetConfig.length': 64}
    )
    for seed in (1, 2)
  ]
  assert [_trainer_settings(trial)['seed'] for trial in trials] == [1, 2]
  assert _trainer_settings(trials[0])['datasets'][0].length == 64
  assert 'SEED = 2' in trials[1].operative()
  settings = _trainer_settings(configuration)
  assert (settings['seed'], settings['datasets'][0].length) == (0, 256)
  assert 'SEED = 0' in configuration.operative()
  assert (dict(gin.config._CONFIG), gin.operative_config_str()) == before


def test_macros_may_be_python_objects():
  model = gin_config.load_gin_files(['models/tiny.gin']).macro('MODEL')
  configuration = gin_config.load_gin_files(
    _FILES[:1], _GIVEN, partial=True
  ).with_macros({'MODEL': model, 'BATCH_SIZE': gin_config.Reference('%LENGTH')})
  settings = _trainer_settings(configuration)
  assert (
    settings['model'] is not None and settings['model'].config == model.config
  )
  assert settings['datasets'][0].batch_size == 256
  text = configuration.operative()
  assert text.startswith('# MODEL: a Python object.\n')
  assert 'BATCH_SIZE = %LENGTH' in text and '\nMODEL =' not in text


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('LENTGH', 'Got: LENTGH. Expected: one of LENGTH'),
    ('optimizers.AdamW.b3', 'Got: b3'),
    ('nothing.AdamW.b2', 'Got: nothing.AdamW'),
  ],
)
def test_with_macros_rejects_unknown_names(name, message):
  configuration = gin_config.load_gin_files(_FILES, _GIVEN)
  with pytest.raises(errors.ConfigError, match=message):
    configuration.with_macros({name: 1})


def test_partial_configuration_requires_only_used_values():
  configuration = gin_config.load_gin_files(_FILES[:1], partial=True)
  assert configuration.macro('LENGTH') == 256
  complete = configuration.with_macros({'TRAIN_STEPS': 5000})
  assert complete.parameter('Trainer.num_train_steps') == 5000
  with pytest.raises(errors.ConfigError) as error:
    configuration.parameter('Trainer.num_train_steps')
  assert 'a value for TRAIN_STEPS.' in str(error.value)
  with pytest.raises(errors.ConfigError) as error:
    configuration.build(trainer.Trainer, model_dir='a')
  assert 'a value for MODEL, VOCABULARY, TRAIN_STEPS.' in str(error.value)


def test_values_of_the_caller_are_not_built(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin',
    'from tests.config import gin_config_test',
    'gin_config_test.broken.value = 1',
    'trainer.Trainer.corpus = @gin_config_test.broken()',
  )
  configuration = gin_config.load_gin_files([*_FILES, mine], _GIVEN)
  with pytest.raises(ZeroDivisionError):
    _trainer_settings(configuration)
  assert _trainer_settings(configuration, corpus='mine')['corpus'] == 'mine'


def broken(value):
  return value / 0


def test_values_overridden_by_the_command_cause_a_warning(caplog):
  """They are not errors, because the command sets both of them."""
  flags = [*_GIVEN, 'trainer.Trainer.log_metrics_every=3']
  configuration = gin_config.load_gin_files(_FILES, flags, macros={'SEED': 3})
  _trainer_settings(configuration, seed=4, log_metrics_every=5)
  gin_config.check_bindings([configuration])
  assert [record.getMessage() for record in caplog.records] == [
    'trainer.Trainer.log_metrics_every is overridden by another flag.',
    'SEED is set, but this run does not use it.',
  ]


@pytest.mark.parametrize(
  'binding, is_warned',
  [
    ("CORPUS='b'", True),
    ('CORPUS=%MODEL_DIR', True),
    ("CORPUS='a'", False),
    ('MODEL_DIR=runs/b', False),
  ],
)
def test_option_overridden_by_a_binding_causes_a_warning(
  caplog, binding, is_warned
):
  bindings = [*_GIVEN, binding] if binding[0] == 'C' else [*_GIVEN[1:], binding]
  args = types.SimpleNamespace(
    gin_file=_FILES, gin_bindings=bindings, gin_search_paths=()
  )
  macros = {'CORPUS': 'a', 'MODEL_DIR': gin_config.Placeholder('unused')}
  gin_config.load_configuration(args, macros)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == is_warned
  if is_warned:
    assert_mentions(messages[0], '--corpus=a', f'--gin.{binding}')


@pytest.mark.parametrize(
  ('lines', 'flags', 'swept', 'ignored', 'effective'),
  [
    ([], ['EPOCHS=1', 'TRAIN_STEPS=20'], (), 'EPOCHS', 'TRAIN_STEPS'),
    ([], ['TRAIN_STEPS=20'], ('EPOCHS',), 'EPOCHS', 'TRAIN_STEPS'),
    (['TRAIN_STEPS = 20'], ['EPOCHS=1'], (), 'EPOCHS', 'TRAIN_STEPS'),
    (['EPOCHS = 1', 'TRAIN_STEPS = 20'], [], (), 'EPOCHS', 'TRAIN_STEPS'),
    (
      ['NUM_EVALUATIONS = 3'],
      ['EVAL_STEPS=9'],
      (),
      'EVAL_STEPS',
      'NUM_EVALUATIONS',
    ),
    ([], ['TRAIN_STEPS=20'], (), None, None),
    ([], ['EPOCHS=None', 'TRAIN_STEPS=20'], (), None, None),
    ([], ['EPOCHS=1', 'TRAIN_STEPS=None'], (), None, None),
    # A flag replaces the setting of a file on purpose.
    (['EPOCHS = 1'], ['TRAIN_STEPS=20'], (), None, None),
  ],
)
def test_macro_that_another_macro_disables_causes_a_warning(
  caplog, tmp_path, lines, flags, swept, ignored, effective
):
  mine = _write(tmp_path / 'mine.gin', *lines)
  args = types.SimpleNamespace(
    gin_file=['finetune/classification.gin', mine],
    gin_bindings=flags,
    gin_search_paths=(),
  )
  gin_config.load_configuration(args, swept=swept, partial=True)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == (ignored is not None)
  for message in messages:
    assert_mentions(message, ignored, effective)
    assert message.index(ignored) < message.index(effective)


@pytest.fixture
def custom_modules(tmp_path, monkeypatch):
  """Working directory that is not on the import path."""
  monkeypatch.chdir(tmp_path)
  hidden = ('', str(tmp_path))
  monkeypatch.setattr(sys, 'path', [p for p in sys.path if p not in hidden])
  before = set(sys.modules)
  yield tmp_path
  for name in set(sys.modules) - before:
    del sys.modules[name]


@pytest.mark.parametrize(
  'gin_file, module, statement',
  [
    ('own.gin', 'gc_package/parts.py', 'from gc_package import parts'),
    ('gc_other/own.gin', 'gc_other/parts.py', 'import gc_other.parts'),
    ('configs/own.gin', 'gc_parts.py', 'import gc_parts'),
    ('configs/own.gin', 'configs/gc_beside.py', 'import gc_beside'),
  ],
)
def test_file_imports_custom_modules(
  custom_modules, gin_file, module, statement
):
  path = custom_modules / module
  path.parent.mkdir(exist_ok=True)
  path.write_text('def make(value):\n  return value + 1\n')
  name = statement.split()[-1]
  custom_file = _write(
    custom_modules / gin_file,
    statement,
    f'{name}.make.value = 2',
    f'trainer.Trainer.seed = @{name}.make()',
  )
  configuration = gin_config.load_gin_files([custom_file], partial=True)
  assert configuration.parameter('trainer.Trainer.seed') == 3


def test_folder_in_the_working_directory_does_not_hide_shipped_files(
  custom_modules,
):
  (custom_modules / 'models').mkdir()
  (custom_modules / 'gc_parts.py').write_text('')
  custom_file = _write(
    custom_modules / 'own.gin', 'import gc_parts', "include 'models/tiny.gin'"
  )
  configuration = gin_config.load_gin_files([custom_file], partial=True)
  field = 'model_config.EncoderConfig.num_layers'
  assert configuration.parameter(field) == 2


def test_failing_custom_module_is_reported(custom_modules):
  custom_file = _write(custom_modules / 'own.gin', 'import gc_broken')
  with raises_error(errors.ConfigError, got='gc_broken', where='own.gin:3'):
    gin_config.load_gin_files([custom_file])
  (custom_modules / 'gc_broken.py').write_text('x = 1\nx.y\n')
  with raises_error(
    errors.ConfigError,
    mentions=('AttributeError', 'gc_broken.py:2', f'{custom_file}:3'),
  ):
    gin_config.load_gin_files([custom_file])


def test_pretraining_files_that_replace_objectives_cause_a_warning(
  caplog, tmp_path
):
  two, size = ('pretrain/mlm_tlm.gin', 'pretrain/mlm.gin'), 'models/tiny.gin'
  gin_config.load_gin_files((*two, size), _GIVEN)
  (record,) = caplog.records
  assert record.args == (two[1], two[0], 'tlm')
  caplog.clear()
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax.objectives import objective_mixture',
    'objective_mixture.ObjectiveMixture.entries = '
    '[@tlm/objective_mixture.WeightedObjective()]',
  )
  for files in (two[::-1], two[1:], (*two, mine)):
    gin_config.load_gin_files((*files, size), _GIVEN)
  assert not caplog.records


def test_included_pretraining_files_that_replace_objectives_cause_a_warning(
  caplog, tmp_path
):
  both = ["include 'pretrain/mlm_tlm.gin'", "include 'pretrain/mlm.gin'"]
  mine = _write(tmp_path / 'mine.gin', '\n'.join(both))
  first = _write(tmp_path / 'first.gin', both[0])
  second = _write(tmp_path / 'second.gin', f"include '{first}'\n{both[1]}")
  for files, parents in (
    ([mine], ([mine], [mine])),
    ([second], ([first], [second])),
    ([first, 'pretrain/mlm.gin'], ([first], [])),
  ):
    gin_config.load_gin_files((*files, 'models/tiny.gin'), _GIVEN)
    (record,) = caplog.records
    last, earlier, scopes = record.args
    assert_mentions(earlier, 'pretrain/mlm_tlm.gin', *parents[0])
    assert_mentions(last, 'pretrain/mlm.gin', *parents[1])
    assert scopes == 'tlm'
    caplog.clear()
  reverse = _write(tmp_path / 'reverse.gin', '\n'.join(both[::-1]))
  chosen = _write(
    tmp_path / 'chosen.gin',
    'from xlflax.objectives import objective_mixture\n'
    + '\n'.join(both)
    + '\nobjective_mixture.ObjectiveMixture.entries = '
    '[@tlm/objective_mixture.WeightedObjective()]',
  )
  for path in (first, reverse, chosen):
    gin_config.load_gin_files((path, 'models/tiny.gin'), _GIVEN)
  assert not caplog.records


def test_file_that_replaces_a_list_of_another_file_causes_a_warning(
  caplog, tmp_path
):
  def write(name, *lines):
    return _write(
      tmp_path / name, 'from xlflax.training.hooks import hook_base', *lines
    )

  hooks = 'trainer.Trainer.hooks = '
  first = write(
    'first.gin', f'{hooks}[@a/hook_base.Hook(), @b/hook_base.Hook()]'
  )
  second = write('second.gin', f'{hooks}[@b/hook_base.Hook()]')
  both = write('both.gin', f'{hooks}[@b/hook_base.Hook(), @a/hook_base.Hook()]')
  none = write('none.gin', f'{hooks}()')
  variant = write(
    'variant.gin', f'include {first!r}', f'{hooks}[@b/hook_base.Hook()]'
  )
  siblings = write('siblings.gin', f'include {first!r}', f'include {second!r}')
  for files in ([first, second], [siblings], [variant, first, second]):
    gin_config.load_gin_files((*_FILES, *files), _GIVEN, partial=True)
    (record,) = caplog.records
    assert_mentions(
      record.getMessage(),
      f'{first}:4',
      f'{second}:4',
      'a/hook_base.Hook',
      'trainer.Trainer.hooks = [@a/hook_base.Hook(), @b/hook_base.Hook()]',
    )
    caplog.clear()
  for files, flags in (
    ([second, first], []),
    ([first, second, both], []),
    ([first, none], []),
    ([variant], []),
    ([first, second], ['Trainer.hooks=()']),
  ):
    gin_config.load_gin_files((*_FILES, *files), [*_GIVEN, *flags])
  assert not caplog.records


@pytest.mark.parametrize('in_flag', [False, True])
def test_a_flag_for_a_macro_whose_binding_is_replaced(tmp_path, in_flag):
  name = 'masked_lm.MaskedLM.mask_ratio'
  gin_file = _write(
    tmp_path / 'mine.gin',
    'from xlflax.objectives.pretraining import masked_lm\n'
    "include 'pretrain/mlm.gin'\n" + ('' if in_flag else f'{name} = 0.3\n'),
  )
  bindings = ['MASK_RATIO=0.4', *([f'{name}=0.3'] if in_flag else [])]
  where = f'--gin.{name}' if in_flag else f'{gin_file}:5'
  with raises_error(
    errors.ConfigError, got='MASK_RATIO', where=where, mentions=name
  ) as error:
    gin_config.load_gin_files([gin_file], bindings, partial=True)
  assert f'--gin.{name}=' in error.value.fix


def test_flags_with_different_values_cause_a_warning(caplog):
  bindings = ['TRAIN_STEPS=1', 'SEED=3', 'SEED=3', 'TRAIN_STEPS=2']
  args = types.SimpleNamespace(
    gin_file=['pretrain/mlm.gin', 'models/tiny.gin'],
    gin_bindings=[*_GIVEN, *bindings],
    gin_search_paths=(),
  )
  configuration = gin_config.load_configuration(args, partial=True)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), 'TRAIN_STEPS', '1', '2')
  assert configuration.macro('TRAIN_STEPS') == 2


def test_placeholders_of_commands_cause_no_warning(caplog):
  placeholder = gin_config.Placeholder('unused')
  configuration = gin_config.load_gin_files(
    _FILES, _GIVEN, macros={'SEED': placeholder}
  )
  assert _trainer_settings(configuration, seed=4)['seed'] == 4
  gin_config.check_bindings([configuration])
  assert not caplog.records


def test_unknown_class_is_reported_with_the_classes_of_the_module(tmp_path):
  path = tmp_path / 'own.gin'
  path.write_text(
    'from __gin__ import dynamic_registration\n'
    'from xlflax.evaluation import text_sources\n'
    'SOURCE = @text_sources.MonolingualCorpus()\n'
  )
  with raises_error(
    errors.ConfigError,
    got='text_sources.MonolingualCorpus',
    where=f'{path}:3',
    mentions=('text_sources.CorpusText', 'text_sources.ParallelFiles'),
  ) as error:
    gin_config.load_gin_files([str(path)])
  assert 'pydantic' not in str(error.value)


def test_only_classes_of_the_package_are_suggested():
  with raises_error(errors.ConfigError, got='optimizers.Moun') as error:
    gin_config.load_gin_files(
      ['pretrain/mlm.gin'], ['OPTIMIZER=@optimizers.Moun()'], partial=True
    )
  assert 'optimizers.Muon' in error.value.fix
  assert 'jnp' not in error.value.fix and 'Any' not in error.value.fix


@pytest.mark.parametrize(
  ('parameter', 'suggestions'),
  [
    ('mask_prob', ['mask_ratio']),
    ('mlm_probability', ['mask_ratio']),
    ('mask_rate', ['mask_ratio', 'max_mask_ratio', 'mask_probability']),
  ],
)
def test_suggested_parameters_are_documented(parameter, suggestions):
  """Several suggested parameters are shown with their documentation."""
  with raises_error(errors.ConfigError, got=parameter) as caught:
    gin_config.load_gin_files(
      _FILES, [*_GIVEN, f'masked_lm.MaskedLM.{parameter}=0.2']
    )
  fix = caught.value.fix
  names = re.findall(r'(?:mean|or) (\w*mask_\w+)', fix)
  assert names == suggestions
  for name in suggestions if len(suggestions) > 1 else ():
    [sentence] = re.findall(rf'\b{name} \(([A-Z][^()]+)\)', fix)
    assert sentence in ' '.join(masked_lm.MaskedLM.__doc__.split())


def test_parameters_are_listed_for_modules_with_several_names(
  tmp_path, monkeypatch
):
  """Gin registers a class under the first of the names of its module."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'gct_names.py').write_text(
    'import dataclasses\n\n'
    'from xlflax import training\n\n\n'
    '@dataclasses.dataclass(frozen=True, kw_only=True)\n'
    'class Nesterov(training.SGD):\n'
    '  damping: float = 0.1\n'
  )
  lines = (
    'import gct_names',
    'gct_names.Nesterov.damping = 0.5',
    'import gct_names as renamed',
    'OPTIMIZER = @renamed.Nesterov()',
  )
  mine = _write(tmp_path / 'mine.gin', *lines)
  names = {'got': 'dampin', 'mentions': ('damping', 'Did you mean')}
  name = 'renamed.Nesterov.dampin'
  with raises_error(errors.ConfigError, where=f'--gin.{name}', **names) as flag:
    gin_config.load_gin_files([*_FILES, mine], [*_GIVEN, f'{name}=0.4'])
  assert 'damping' in flag.value.expected
  _write(tmp_path / 'mine.gin', *lines, f'{name} = 0.4')
  with raises_error(errors.ConfigError, where=f'{mine}:7', **names) as line:
    gin_config.load_gin_files([*_FILES, mine], _GIVEN)
  assert line.value.expected == flag.value.expected


_OWN_CLASSES = """
import dataclasses

from xlflax import training

class Derived(training.SGD):
  nesterov: float = 0.1

@dataclasses.dataclass(frozen=True, kw_only=True)
class Unannotated(training.SGD):
  dampening = 0.1

class WithoutBase:
  pass
"""


def test_custom_class_without_decorator_or_base_class_is_rejected(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'gct_own.py').write_text(_OWN_CLASSES)
  mine = tmp_path / 'mine.gin'
  lines = 'from __gin__ import dynamic_registration\nimport gct_own\n'
  mine.write_text(lines + 'gct_own.Derived.nesterov = 0.5\n')
  with raises_error(
    errors.ConfigError, got='nesterov', where=f'{mine}:3'
  ) as error:
    gin_config.load_gin_files([*_FILES, str(mine)], _GIVEN)
  assert_mentions(error.value.fix, 'Derived', '@dataclasses.dataclass')
  mine.write_text(lines + 'gct_own.Unannotated.dampening = 0.5\n')
  with raises_error(errors.ConfigError, got='dampening = 0.1') as error:
    gin_config.load_gin_files([*_FILES, str(mine)], _GIVEN)
  assert_mentions(error.value.where, f'{mine}:3', 'gct_own.py:11')
  assert_mentions(error.value.fix, 'dampening: float = 0.1')
  mine.write_text(lines + 'OPTIMIZER = @gct_own.WithoutBase()\n')
  configuration = gin_config.load_gin_files([*_FILES, str(mine)], _GIVEN)
  with raises_error(errors.ConfigError) as error:
    configuration.build(trainer.Trainer)
  assert_mentions(error.value.fix, 'WithoutBase', 'xlflax.training.Optimizer')
