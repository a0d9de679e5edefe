"""Tests that bindings without effect are rejected with suggestions."""

import pathlib
import types

import pytest

from tests import gin_files
from tests.errors import assert_mentions
from tests.slow import mark_slow
from xlflax import evaluate, trainer
from xlflax.config import (
  binding_locations,
  config_files,
  flag_validation,
  gin_config,
  gin_errors,
)
from xlflax.evaluation import during_training
from xlflax.finetuning import finetune_grid, hyperparameter_grid
from xlflax.utils import errors

_FILES = ('pretrain/mlm.gin', 'models/tiny.gin')
_GIVEN = ("MODEL_DIR='runs/a'", "VOCABULARY='vocab'", 'TRAIN_STEPS=5000')
_IMPORTS = (
  'from __gin__ import dynamic_registration',
  'from xlflax import trainer',
  'from xlflax.data import dataset_config',
  'from xlflax.objectives import objective_mixture',
  'from xlflax.objectives.pretraining import masked_lm',
  'from xlflax.training.optimization import optimizers',
  'from xlflax.training.optimization import schedules',
)
_FIRST_LINE = len(_IMPORTS) + 1


def _write(path: pathlib.Path, *lines: str) -> str:
  path.write_text('\n'.join((*_IMPORTS, *lines)) + '\n', encoding='utf-8')
  return str(path)


def _configuration(files=_FILES, bindings=()) -> gin_config.Configuration:
  """Returns a configuration from which a trainer will be built."""
  configuration = gin_config.load_gin_files(files, (*_GIVEN, *bindings))
  configuration.expect_build(trainer.Trainer)
  return configuration


def _error(*configurations) -> errors.ConfigError:
  with pytest.raises(errors.ConfigError) as error:
    gin_config.check_bindings(configurations)
  assert error.value.status == errors.ExitStatus.MISTAKE
  return error.value


_OBJECTIVE = 'objective_mixture.WeightedObjective.objective'
_LENGTH = 'dataset_config.DatasetConfig.length'


@pytest.mark.parametrize(
  ('name', 'value', 'alternative'),
  [
    (_OBJECTIVE, '@masked_lm.MaskedLM()', f'mlm/{_OBJECTIVE}'),
    (f'mono/{_OBJECTIVE}', '@masked_lm.MaskedLM()', f'mlm/{_OBJECTIVE}'),
    (_LENGTH, '32', f'mono/{_LENGTH}'),
    (f'mlm/{_LENGTH}', '32', f'mono/{_LENGTH}'),
  ],
)
def test_binding_of_another_scope_is_rejected(
  tmp_path, name, value, alternative
):
  error = _error(_configuration(bindings=[f'{name}={value}']))
  assert (error.got, error.where) == (name, f'--gin.{name}')
  assert error.expected == f'one of {alternative}'
  assert alternative in error.fix
  file = _write(tmp_path / 'mine.gin', f'{name} = {value}')
  error = _error(_configuration([*_FILES, file]))
  assert (error.got, error.where) == (name, f'{file}:{_FIRST_LINE}')
  assert alternative in error.fix


@pytest.mark.parametrize(
  'binding',
  [
    f'mlm/{_OBJECTIVE}=@masked_lm.MaskedLM()',
    f'mono/{_LENGTH}=32',
    'mono/DatasetConfig.alpha=0.5',
    'dataset_config.DatasetConfig.alpha=0.5',
    'MODEL/model_config.EncoderConfig.num_layers=1',
    'model_config.EncoderConfig.num_layers=1',
    'LENGTH=32',
  ],
)
def test_binding_that_supplies_a_value_is_accepted(binding):
  gin_config.check_bindings([_configuration(bindings=[binding])])


def test_flag_may_omit_the_module():
  error = _error(_configuration(bindings=['DatasetConfig.length=32']))
  assert (error.got, error.where) == (
    'DatasetConfig.length',
    '--gin.DatasetConfig.length',
  )
  assert f'mono/{_LENGTH}' in error.fix


def test_suggestions_use_the_names_of_the_imports():
  error = _error(_configuration(bindings=['x/EncoderConfig.num_layers=1']))
  assert error.expected == 'one of model_config.EncoderConfig.num_layers'


def test_outer_and_inner_scopes_are_suggested():
  error = _error(
    _configuration(bindings=['mno/dataset_config.DatasetConfig.alpha=1.0'])
  )
  assert error.expected == (
    'one of dataset_config.DatasetConfig.alpha, '
    'mono/dataset_config.DatasetConfig.alpha'
  )


def test_other_class_in_the_scope_of_a_binding_is_suggested():
  error = _error(
    _configuration(
      ['pretrain/mlm_tlm.gin', 'models/tiny.gin'],
      bindings=['tlm/masked_lm.MaskedLM.mask_ratio=0.3'],
    )
  )
  assert error.expected == (
    'one of masked_lm.TranslationLM.mask_ratio, '
    'tlm/masked_lm.TranslationLM.mask_ratio'
  )


def test_binding_that_replaces_the_reader_of_a_macro_is_named(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax.training.optimization import optimizers',
    'WARMUP_STEPS = 5',
    'optimizers.AdamW.learning_rate = 5e-4',
  )
  error = _error(_configuration(['pretrain/mlm.gin', 'models/tiny.gin', mine]))
  assert error.got == 'WARMUP_STEPS'
  assert_mentions(error.fix, 'optimizers.AdamW.learning_rate', mine, 'SCHEDULE')
  assert '--gin.SCHEDULE' not in error.fix


def test_outer_binding_overridden_by_an_inner_one_is_rejected():
  error = _error(
    _configuration(
      bindings=[
        'dataset_config.DatasetConfig.alpha=0.5',
        'mono/dataset_config.DatasetConfig.alpha=0.9',
      ]
    )
  )
  assert error.got == 'dataset_config.DatasetConfig.alpha'


def test_parameters_of_unconstructed_classes_are_rejected():
  error = _error(_configuration(bindings=['schedules.WSD.warmup_steps=3']))
  assert error.got == 'schedules.WSD.warmup_steps'
  assert 'schedules.Linear.warmup_steps' in error.fix
  error = _error(_configuration(bindings=['schedules.WSD.decay_steps=3']))
  assert 'Construct the object' in error.fix


def test_all_bindings_without_effect_are_reported(tmp_path):
  file = _write(
    tmp_path / 'mine.gin',
    'schedules.WSD:',
    '  warmup_steps = 3',
    '  decay_steps = 5',
  )
  error = _error(_configuration([*_FILES, file]))
  assert error.where == f'{file}:{_FIRST_LINE + 1}'
  assert f'schedules.WSD.decay_steps ({file}:{_FIRST_LINE + 2})' in error.fix


def test_macro_of_an_unused_binding_is_reported(tmp_path):
  flags = ['schedules.WSD.decay_steps=%DECAY', 'DECAY=9']
  error = _error(_configuration(bindings=flags))
  assert error.got == 'schedules.WSD.decay_steps'
  assert 'DECAY (--gin.DECAY)' in error.fix
  file = _write(tmp_path / 'mine.gin', 'WARMUP = 3')
  error = _error(_configuration([*_FILES, file]))
  assert (error.got, error.where) == ('WARMUP', f'{file}:{_FIRST_LINE}')
  assert 'WARMUP_STEPS' in error.fix


def test_macro_of_evaluation_tasks_is_rejected_without_evaluation():
  flags = ["TRAIN_FILES={'en': 'train'}", "INIT_FROM='run'", "SCHEME='tags'"]
  error = _error(_configuration(['finetune/tagging.gin'], flags))
  assert (error.got, error.where) == ('SCHEME', '--gin.SCHEME')
  assert error.expected is None
  assert_mentions(error.fix, 'DEV_FILES', 'SCHEME')


def test_required_macro_of_another_file_may_be_unused(tmp_path):
  """As in files that replace the reader of TRAIN_FILES."""
  base = _write(
    tmp_path / 'base.gin',
    'FOLDER = %gin.REQUIRED',
    'trainer.Trainer.corpus = %FOLDER',
  )
  mine = _write(
    tmp_path / 'mine.gin',
    f'include {base!r}',
    "trainer.Trainer.corpus = 'corpus'",
    "FOLDER = ''",
  )
  gin_config.check_bindings([_configuration([*_FILES, mine])])


def test_file_may_be_overridden_by_a_later_file_or_flag(tmp_path):
  base = _write(
    tmp_path / 'base.gin',
    "include 'pretrain/mlm.gin'",
    'RATE = 3e-4',
    'OPTIMIZER = @optimizers.Muon()',
    'optimizers.Muon.weight_decay = 0.3',
    'schedules.Linear.peak_value = %RATE',
  )
  variant = _write(
    tmp_path / 'variant.gin',
    f'include {base!r}',
    'OPTIMIZER = @optimizers.AdamW()',
    'optimizers.AdamW.learning_rate = 1e-3',
  )
  model = 'models/tiny.gin'
  gin_config.check_bindings([_configuration([base, model])])
  gin_config.check_bindings([_configuration([variant, model])])
  flag = 'OPTIMIZER=@optimizers.AdamW()'
  gin_config.check_bindings([_configuration([base, model], [flag])])
  # A flag applies to the command only, and is rejected.
  flags = [flag, 'optimizers.Muon.weight_decay=0.4']
  error = _error(_configuration([base, model], flags))
  assert error.where == '--gin.optimizers.Muon.weight_decay'


def test_file_cannot_configure_an_object_that_it_replaces(tmp_path):
  """The object of the included file is replaced in the same file."""
  mine = _write(
    tmp_path / 'mine.gin',
    "include 'pretrain/mlm.gin'",
    "include 'models/tiny.gin'",
    'OPTIMIZER = @optimizers.Muon()',
    'optimizers.AdamW.weight_decay = 0.1',
  )
  error = _error(_configuration([mine]))
  name = 'optimizers.AdamW.weight_decay'
  assert (error.got, error.where) == (name, f'{mine}:{_FIRST_LINE + 3}')
  assert error.expected == 'one of optimizers.Muon.weight_decay'
  # Objects of earlier user files are not considered either.
  first = _write(tmp_path / 'first.gin', 'OPTIMIZER = @optimizers.Muon()')
  second = _write(tmp_path / 'second.gin', f'{name} = 0.1')
  gin_config.check_bindings([_configuration([*_FILES, second, first])])
  error = _error(_configuration([*_FILES, first, second]))
  assert error.where == f'{second}:{_FIRST_LINE}'


def test_module_may_be_imported_with_an_alias(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax.data import dataset_config as data',
    'mono/data.DatasetConfig.length = 32',
    'data.DatasetConfig.length = 32',
  )
  error = _error(_configuration([*_FILES, mine]))
  assert error.where == f'{mine}:{_FIRST_LINE + 2}'
  assert f'mono/{_LENGTH}' in error.fix


def test_binding_may_have_an_effect_in_one_of_several_configurations():
  flag = 'schedules.WSD.decay_steps=0.1'
  linear = _configuration(bindings=[flag])
  wsd = _configuration(bindings=[flag, 'SCHEDULE=@schedules.WSD()'])
  gin_config.check_bindings([linear, wsd])
  assert _error(linear).got == 'schedules.WSD.decay_steps'


def test_binding_overridden_by_the_command_is_accepted():
  flag = 'trainer.Trainer.seed=3'
  configuration = gin_config.load_gin_files(_FILES, (*_GIVEN, flag))
  configuration.expect_build(trainer.Trainer, ['seed'])
  gin_config.check_bindings([configuration])


def test_file_may_contain_bindings_for_other_commands(tmp_path):
  """Evaluation accepts bindings for training in the same file."""
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax import evaluate',
    'from xlflax.evaluation.tasks import perplexity',
    "include 'pretrain/mlm.gin'",
    "include 'models/tiny.gin'",
    f'mono/{_LENGTH} = 32',
    'evaluate.evaluate.tasks = [@perplexity.Perplexity()]',
    'perplexity.Perplexity.batch_size = 3',
  )
  configuration = gin_config.load_gin_files([mine], partial=True)
  configuration.expect_build(evaluate.evaluate, ['model_dir'])
  gin_config.check_bindings([configuration])
  gin_config.check_bindings([_configuration([mine])])
  # Flags must have an effect on this command.
  error = _error(_configuration([mine], ['perplexity.Perplexity.batch_size=4']))
  assert error.got == 'perplexity.Perplexity.batch_size'


def test_grid_axes_must_have_an_effect():
  configuration = gin_config.load_gin_files(
    _FILES, (*_GIVEN, 'schedules.WSD.decay_steps=0.1')
  )

  def trials(*axes):
    return finetune_grid.trial_configurations(
      configuration, [hyperparameter_grid.parse_axis(axis) for axis in axes]
    )

  gin_config.check_bindings(
    trials('SCHEDULE=@schedules.WSD(),@schedules.Linear()', 'SEED=1,2')
  )
  assert _error(*trials('SEED=1,2')).got == 'schedules.WSD.decay_steps'
  error = _error(
    *trials('SCHEDULE=@schedules.WSD()', 'schedules.Cosine.end_value=0.1,0.2')
  )
  assert (error.got, error.where) == ('schedules.Cosine.end_value', '--grid')


def test_bindings_used_by_gin_decorated_classes_are_accepted():
  """A class with Gin's decorator receives bindings wherever it is called."""
  configuration = gin_config.load_gin_files(
    _FILES, (*_GIVEN, 'schedules.WSD.decay_steps=0.1')
  )
  configuration.expect_build(trainer.Trainer)
  selector = 'xlflax.training.optimization.schedules.WSD'
  configuration.used['', selector] = {'decay_steps': 0.1}
  gin_config.check_bindings([configuration])


_PRETRAINING = [
  file
  for file in gin_files.list_gin_files('pretrain')
  if file != 'pretrain/base.gin'
]
_FINETUNING = [
  file
  for file in gin_files.list_gin_files('finetune')
  if not file.endswith('base.gin') and '/settings/' not in file
]


# Each file is loaded once per object, which takes two to six CPU seconds. The
# other files have the same objects, and are slow tests.
_QUICK = (
  'pretrain/mlm.gin',
  'pretrain/mlm_tlm_contrast.gin',
  'pretrain/moco_tlm.gin',
  'pretrain/veco.gin',
  'pretrain/span_corruption.gin',
  'pretrain/mbart.gin',
  'pretrain/translation.gin',
  'pretrain/distillation.gin',
  'finetune/classification.gin',
  'finetune/tagging.gin',
)


@pytest.mark.parametrize(
  'file',
  mark_slow(
    [*_PRETRAINING, *_FINETUNING],
    slow={*_PRETRAINING, *_FINETUNING} - set(_QUICK),
  ),
)
def test_misspellings_in_shipped_configurations_are_rejected(file):
  """A wrong scope, field or class is an error that suggests alternatives."""
  configuration = gin_config.load_gin_files([file], partial=True)
  configuration.expect_build(trainer.Trainer)
  gin_config.check_bindings([configuration])
  scoped = sorted(
    (scope, selector, parameter)
    for scope, selector, parameter in configuration.effects.parameters
    if scope and selector.startswith('xlflax.') and scope.islower()
  )
  objects = {o for o in configuration.effects.objects if 'xlflax' in o[1]}
  assert len(objects) > 5
  for scope, selector, parameter in scoped:
    short = gin_errors.short_name(selector, configuration.imports)
    name = f'{short}.{parameter}'
    error = _misspelled(file, f'{scope}x/{name}=None')
    assert error.got == f'{scope}x/{name}'
    assert f'{scope}/{name}' in error.expected
    assert 'Did you mean' in error.fix
  for scope, selector in sorted(objects):
    prefix = f'{scope}/' if scope.islower() else ''
    short = gin_errors.short_name(selector, configuration.imports)
    parameter = gin_errors.parameter_names(selector)[0]
    error = _misspelled(file, f'{prefix}{short}.{parameter}x=None')
    assert (error.got, parameter in error.expected) == (f'{parameter}x', True)
    error = _misspelled(file, f'{prefix}{short}x.{parameter}=None')
    assert f'{short}' in error.fix


def _misspelled(file: str, binding: str) -> errors.ConfigError:
  with pytest.raises(errors.ConfigError) as error:
    configuration = gin_config.load_gin_files([file], [binding], partial=True)
    configuration.expect_build(trainer.Trainer)
    gin_config.check_bindings([configuration])
  assert error.value.where == f'--gin.{binding.partition("=")[0]}'
  return error.value


def test_macro_of_unconstructed_objects_is_rejected():
  error = _error(
    _configuration(
      bindings=['SCHEDULE=@schedules.Constant()', 'WARMUP_STEPS=3']
    )
  )
  assert error.got == 'WARMUP_STEPS'
  assert_mentions(
    error.fix,
    'schedules.WSD.warmup_steps',
    '--gin.SCHEDULE=@schedules.Linear()',
  )


def test_fields_of_user_classes_that_could_use_a_macro_are_suggested(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'bet_decay.py').write_text(
    'import dataclasses\n\n'
    'from xlflax.training.optimization import schedules\n\n\n'
    '@dataclasses.dataclass(frozen=True, kw_only=True)\n'
    'class Root(schedules.Peaked):\n'
    '  warmup_steps: int = 10\n\n'
    '  def __call__(self, step):\n'
    '    return self.peak_value * (step + 1) ** -0.5\n'
  )
  mine = _write(
    tmp_path / 'mine.gin',
    'import bet_decay',
    'SCHEDULE = @bet_decay.Root()',
    'bet_decay.Root.peak_value = %LEARNING_RATE',
  )
  error = _error(_configuration([*_FILES, mine], ['WARMUP_STEPS=3']))
  assert error.got == 'WARMUP_STEPS'
  assert 'bet_decay.Root.warmup_steps = %WARMUP_STEPS' in error.fix


def test_macro_that_constructs_the_object_is_suggested():
  error = _error(_configuration(bindings=['schedules.WSD.decay_steps=3']))
  assert_mentions(error.fix, '--gin.SCHEDULE=@schedules.WSD()')
  flags = ["TRAIN_FILES={'en': 'train'}", "INIT_FROM='run'"]
  name = 'head/schedules.Cosine.end_value'
  error = _error(
    _configuration(['finetune/tagging.gin'], [*flags, f'{name}=1e-6'])
  )
  assert error.got == name
  assert_mentions(error.fix, '--gin.HEAD_SCHEDULE=@head/schedules.Cosine()')


def test_development_files_are_suggested_only_if_they_are_read():
  for file, binding, is_named in (
    ('finetune/search.gin', "DEV_FOLDER='dev'", False),
    ('finetune/tagging.gin', 'EVAL_STEPS=5', True),
  ):
    configuration = gin_config.load_gin_files([file], [binding], partial=True)
    configuration.expect_build(trainer.Trainer)
    error = _error(configuration)
    assert_mentions(error.fix, 'EVALUATION=@during_training.Evaluation()')
    assert ('DEV_FILES' in error.fix) == is_named


@pytest.mark.parametrize(
  'binding',
  [
    "DEV_FILES={'en': 'dev'}",
    "DEV_OPTIONS={'labels': 'a'}",
    'EVAL_STEPS=5',
    'NUM_EVALUATIONS=2',
    'during_training.Evaluation.eval_interval_steps=5',
    "SCHEME='tags'",
  ],
)
def test_evaluation_binding_is_rejected_without_evaluation(binding):
  name = binding.partition('=')[0]
  configuration = gin_config.load_gin_files(
    ['finetune/tagging.gin'], [binding], partial=True
  )
  configuration.expect_build(trainer.Trainer)
  error = _error(configuration)
  assert (error.got, error.where) == (name, f'--gin.{name}')
  assert_mentions(error.fix, 'EVALUATION=@during_training.Evaluation()')


def test_binding_replaced_by_a_later_include_is_rejected(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin',
    'LENGTH = 32',
    'trainer.Trainer.log_metrics_every = 7',
    "include 'pretrain/mlm.gin'",
    "include 'models/tiny.gin'",
  )
  with pytest.raises(errors.ConfigError) as error:
    _configuration([mine])
  assert (error.value.got, error.value.where) == (
    'LENGTH',
    f'{mine}:{_FIRST_LINE}',
  )
  assert_mentions(error.value, "include 'pretrain/mlm.gin'")
  assert 'pretrain/base.gin' in str(error.value)
  text = pathlib.Path(mine).read_text() + 'LENGTH = 64\n'
  pathlib.Path(mine).write_text(text)
  gin_config.check_bindings([_configuration([mine])])


@pytest.mark.parametrize('later', ['pretrain/mlm.gin', 'own.gin'])
def test_bindings_replaced_by_a_later_shipped_file_are_rejected(
  later, tmp_path
):
  mine = _write(tmp_path / 'mine.gin', 'TRAIN_STEPS = 7', 'LENGTH = 32')
  if later == 'own.gin':
    later = _write(tmp_path / later, "include 'pretrain/mlm.gin'")
  options = types.SimpleNamespace(
    gin_search_paths=(),
    gin_file=(mine, later, 'models/tiny.gin'),
    gin_bindings=("MODEL_DIR='runs/a'", "VOCABULARY='vocab'"),
  )
  with pytest.raises(errors.ConfigError) as error:
    flag_validation.check_configuration(options)
  assert error.value.got == 'TRAIN_STEPS, LENGTH'
  assert error.value.where == f'{mine}:{_FIRST_LINE}, {mine}:{_FIRST_LINE + 1}'
  assert_mentions(error.value.fix, mine, later)
  with pytest.raises(errors.ConfigError) as error:
    _configuration(options.gin_file)
  assert error.value.got == 'LENGTH'  # A flag sets TRAIN_STEPS.


@pytest.mark.parametrize('binds_head', [False, True])
def test_model_sizes_replaced_by_a_later_model_file_are_rejected(
  binds_head, tmp_path
):
  mine = _write(
    tmp_path / 'mine.gin',
    'from xlflax.models import encoder_config',
    "include 'pretrain/mlm.gin'",
    'encoder_config.EncoderConfig.num_layers = 4',
    'encoder_config.EncoderConfig:\n  num_heads = 4' if binds_head else '',
    'LENGTH = 32',
  )
  with pytest.raises(errors.ConfigError) as error:
    _configuration([mine, 'models/tiny.gin'])
  name = 'encoder_config.EncoderConfig'
  assert error.value.got == ', '.join(
    [f'{name}.num_layers', *([f'{name}.num_heads'] if binds_head else [])]
  )
  assert error.value.where.startswith(f'{mine}:{_FIRST_LINE + 2}')
  assert_mentions(error.value.fix, mine, "include 'models/tiny.gin'")
  # The suggested correction is valid.
  text = (
    pathlib.Path(mine)
    .read_text()
    .replace("mlm.gin'\n", "mlm.gin'\ninclude 'models/tiny.gin'\n")
  )
  pathlib.Path(mine).write_text(text)
  config = _configuration([mine]).build(trainer.Trainer).model.config
  assert config.num_layers == 4


def test_valid_orders_of_files(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'LENGTH = 32')
  other = _write(tmp_path / 'other.gin', 'LENGTH = 48')
  recipe = _write(
    tmp_path / 'recipe.gin',
    "include 'pretrain/mlm.gin'",
    "include 'models/small.gin'",
    'LENGTH = 32',
    'MODEL = None',
  )
  objectives = _write(
    tmp_path / 'objectives.gin',
    "include 'pretrain/mlm.gin'",
    'WARMUP_STEPS = 20',
    'masked_lm.MaskedLM.mask_probability = 0.7',
  )
  required = _write(
    tmp_path / 'required.gin', 'MODEL = %gin.REQUIRED', 'TRAIN_STEPS = 9'
  )
  for files in (
    ('pretrain/mlm.gin', required, 'models/tiny.gin'),
    (*_FILES, mine),
    (*_FILES, mine, other),
    ('pretrain/mlm.gin', mine, 'models/tiny.gin'),
    (mine, *_FILES, other),
    (recipe, 'models/tiny.gin'),
    (objectives, 'recipes/small.gin'),
  ):
    _configuration(files)


@pytest.mark.parametrize(
  'file',
  mark_slow(
    [
      'pretrain/moco_tlm.gin',
      'recipes/mmbert/tiny/phase3.gin',
      'finetune/search.gin',
      'finetune/tagging.gin',
    ],
    slow=['recipes/mmbert/tiny/phase3.gin', 'finetune/search.gin'],
  ),
)
def test_unlisted_macros_are_those_that_are_rejected(file):
  tree = config_files.read_gin_file(file)
  rejected = set()
  for name, value in tree.macros().items():
    try:
      configuration = gin_config.load_gin_files(
        [file], [f'{name}={value}'], partial=True
      )
      configuration.expect_build(trainer.Trainer)
      configuration.expect_build(during_training.Evaluation)
      gin_config.check_bindings([configuration])
    except errors.ConfigError:
      rejected.add(name)
  assert rejected
  assert binding_locations.find_macros_without_effect(tree) == rejected


def test_all_macros_of_a_file_for_inclusion_are_listed():
  tree = config_files.read_gin_file('finetune/base.gin')
  assert not binding_locations.find_macros_without_effect(tree)


@pytest.mark.parametrize(
  ('files', 'num_warnings'),
  [
    (('models/tiny.gin', 'recipes/small.gin'), 1),
    (('models/tiny.gin', 'models/base.gin'), 1),
    (('recipes/small.gin', 'models/tiny.gin'), 0),
    (('models/tiny.gin', 'models/tiny.gin'), 0),
    (('models/tiny.gin',), 0),
  ],
)
def test_model_replaced_by_a_later_file_causes_a_warning(
  caplog, files, num_warnings
):
  _configuration(['pretrain/mlm.gin', *files])
  assert len(caplog.records) == num_warnings
  if num_warnings:
    assert_mentions(caplog.text, *files)
