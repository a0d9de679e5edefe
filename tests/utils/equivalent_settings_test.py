"""Tests that suggested options, macros and gin parameters have an effect."""

import dataclasses
import re

import pytest

from tests import gin_files
from tests.errors import raises_error
from xlflax import cli, trainer
from xlflax.cli import parsing
from xlflax.config import flag_validation, gin_config
from xlflax.data import dataset_config
from xlflax.evaluation import during_training
from xlflax.launch import launcher_registry
from xlflax.models import encoder_config
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import equivalent_settings, errors

_SETTINGS = equivalent_settings.SETTINGS
_REQUIRED = ["MODEL_DIR='runs/a'", "VOCABULARY='vocab'", 'TRAIN_STEPS=2000']
_FILES = {
  'train': [
    'pretrain/mlm_tlm.gin', 'models/tiny.gin', 'evaluate/during_training.gin',
  ],
  'finetune': ['finetune/tagging.gin'],
}  # fmt: skip
_COMMANDS = ('train', 'finetune', 'pretrain', 'evaluate', 'vocab', 'cache')
# Placeholders in messages, and the values that replace them in tests.
_VALUES = {
  'N': '8', 'X': '0.25', 'DIR': 'runs/base', 'NAME': 'corpus.mono',
  'LANGUAGE': 'en', 'FILE': 'en.tsv',
}  # fmt: skip


def _flags(command: str) -> set[str]:
  return {
    flag for setting in _SETTINGS.values() for flag in setting.flags(command)
  }


def _bindings(command: str) -> list[str]:
  """Returns the suggested gin bindings with values."""
  bindings = []
  for flag in sorted(_flags(command)):
    if flag.startswith('--gin.'):
      name, _, value = flag.removeprefix('--gin.').partition('=')
      value = re.sub(
        rf'\b({"|".join(_VALUES)})\b',
        lambda match: _VALUES[match[1]],
        value.removeprefix('"').removesuffix('"'),
      )
      bindings.append(f'{name}={value}')
  return bindings


@pytest.mark.parametrize('command', ['train', 'finetune'])
def test_suggested_bindings_have_an_effect(command, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  run_directory.write_model(
    tmp_path / 'runs' / 'base', gin_files.tiny_encoder()
  )
  (tmp_path / 'en.tsv').write_text('a\tDET\nb\tNOUN\n')
  required = list(_REQUIRED)
  if command == 'finetune':
    required += [
      "INIT_FROM='runs/base'",
      "TRAIN_FILES={'en': 'en.tsv'}",
      "DEV_FILES={'en': 'en.tsv'}",
      "FORMAT='conll'",
      'EVALUATION=@during_training.Evaluation()',
      'BATCH_SIZE=64',
    ]
  else:
    required += ["CORPUS='corpus'", 'LENGTH=8', 'PAIR_LENGTH=8']
  bindings = _bindings(command)
  assert len(bindings) >= 12
  for binding in bindings:
    gin_files.settings_of(_FILES[command], [*required, binding])


@pytest.mark.parametrize('command', _COMMANDS)
def test_suggested_options_exist(command):
  names = parsing.option_names(command, cli.load_command(command))[command]
  own_flags = _flags(command) if command in _FILES else ()
  for flag in own_flags:
    assert flag.startswith('--gin.') or flag.partition('=')[0] in names
  for name, setting in _SETTINGS.items():
    if setting.hints:  # See `test_suggested_launcher_options_exist`.
      continue
    hint = equivalent_settings.suggest_for_option(f'--{name}', names, command)
    for option in re.findall(r'(--\w+)=', hint or ''):
      assert option in names or option in ('--gin_file', '--model_dir')


def test_suggested_parameters_exist():
  classes = (
    trainer.Trainer, masked_lm.MaskedLM, encoder_config.EncoderConfig,
    optimizers.AdamW, schedules.Linear, checkpoints.CheckpointOptions,
    during_training.Evaluation, dataset_config.DatasetConfig,
    partitioning.Partitioner,
  )  # fmt: skip
  fields = {field.name for cls in classes for field in dataclasses.fields(cls)}
  for setting in _SETTINGS.values():
    assert set(setting.parameters) <= fields


def test_trainer_fields_equal_the_dataclass_fields():
  fields = {field.name for field in dataclasses.fields(trainer.Trainer)}
  assert equivalent_settings.trainer_fields() == fields


@pytest.mark.parametrize(
  ('command', 'option', 'flag'),
  [
    ('train', '--max_steps', '--gin.TRAIN_STEPS=N'),
    ('pretrain', '--max_steps', '--steps=N'),
    ('train', '--num_train_epochs', '--gin.TRAIN_STEPS=N'),
    ('finetune', '--num_train_epochs', '--gin.EPOCHS=N'),
    ('train', '--output_dir', '--model_dir=DIR'),
    ('finetune', '--output_dir', '--output=DIR'),
    ('train', '--model_name_or_path', '--gin.INIT_FROM="\'DIR\'"'),
    ('finetune', '--model_name_or_path', '--init_from=DIR'),
    ('evaluate', '--model_name_or_path', '--model_dir=DIR'),
    ('evaluate', '--per_device_eval_batch_size', '--batch_size=N'),
    ('train', '--warmup-ratio', '--gin.WARMUP_STEPS=X'),
    ('finetune', '--warmup_ratio', '--gin.WARMUP_RATIO=X'),
    ('train', '--ema_decay', '--gin.Trainer.ema_decay=VALUE'),
    ('train', '--nproc_per_node', 'xlflax launch local --nproc_per_node=N'),
    ('train', '--resume_from_checkpoint', 'Remove'),
    ('finetune', '--do_train', 'Remove'),
  ],
)
def test_unknown_options_suggest_the_equivalent_flag(command, option, flag):
  with raises_error(
    errors.ConfigError, got=option, where=f'xlflax {command}'
  ) as caught:
    cli.parse(command, [f'{option}=2'])
  assert flag in caught.value.fix
  assert '--stop_after_steps' not in caught.value.fix


@pytest.mark.parametrize(
  ('launcher', 'option', 'flag'),
  [
    ('local', '--num_processes', '--nproc_per_node=N'),
    ('local', '--num_process', '--nproc_per_node=N'),
    ('local', '--nprocs', '--nproc_per_node=N'),
    ('local', '--num_gpus', '--nproc_per_node=N'),
    ('local', '--nnodes', 'xlflax launch node --nnodes=N'),
    ('node', '--num-processes', '--nproc_per_node=N'),
    ('slurm', '--nproc_per_node', '--ntasks_per_node=N'),
    ('slurm', '--nnodes', '--nodes=N'),
    ('slurm', '--num_gpus', '--gpus_per_node=N'),
    ('kubernetes', '--nproc_per_node', '--nnodes=N'),
    ('kubernetes', '--nodes', '--nnodes=N'),
    ('kubernetes', '--gpus_per_node', '--gpus_per_pod=N'),
  ],
)
def test_unknown_launcher_options_suggest_the_equivalent_option(
  launcher, option, flag
):
  command = ['--', 'train', '--gin_file=pretrain/mlm.gin', '--model_dir=m']
  with raises_error(
    errors.ConfigError, got=option, where=f'xlflax launch {launcher}'
  ) as caught:
    cli.parse('launch', [launcher, f'{option}=2', *command])
  assert flag in caught.value.fix


def test_suggested_launcher_options_exist():
  launchers = launcher_registry.load_launchers()
  for setting in _SETTINGS.values():
    for command, hint in setting.hints.items():
      match = re.search(r'xlflax launch (\w+)', hint)
      launcher = match[1] if match else command.removeprefix('launch ')
      fields = {x.name for x in dataclasses.fields(launchers[launcher].job)}
      assert set(re.findall(r'--(\w+)=', hint)) <= fields


@pytest.mark.parametrize(
  ('cls', 'argument', 'parameter'),
  [
    (masked_lm.MaskedLM, 'mlm_probability', 'mask_ratio'),
    (optimizers.Adam, 'lr', 'learning_rate'),
    (optimizers.AdamW, 'beta2', 'b2'),
    (optimizers.AdamW, 'max_grad_norm', 'clip_norm'),
    (encoder_config.EncoderConfig, 'num_attention_heads', 'num_heads'),
    (encoder_config.EncoderConfig, 'num_hidden_layers', 'num_layers'),
    (encoder_config.EncoderConfig, 'intermediate_size', 'mlp_dim'),
    (trainer.Trainer, 'max_steps', 'num_train_steps'),
  ],
)
def test_unknown_arguments_suggest_the_equivalent_parameter(
  cls, argument, parameter
):
  with raises_error(
    errors.ConfigError, got=argument, where=cls.__name__
  ) as caught:
    cls(**{argument: 1})
  names = {field.name for field in dataclasses.fields(cls)}
  assert set(re.findall(r'\w+', caught.value.fix)) & names == {parameter}


def test_commands_without_gin_suggest_no_binding():
  with raises_error(errors.ConfigError, got='--logging_steps') as caught:
    cli.parse('vocab', ['--corpus=c', '--logging_steps=2'])
  assert '--gin.' not in caught.value.fix


def _check_macro(file: str, binding: str, model: str = 'models/tiny.gin'):
  class Args:
    gin_file = (file, *([model] if file.startswith('pretrain') else []))
    gin_bindings = ('TRAIN_STEPS=9', binding)
    gin_search_paths = ()

  macros = ['MODEL_DIR', 'VOCABULARY']
  flag_validation.check_configuration(
    Args, macros, partial=not file.startswith('pretrain')
  )


@pytest.mark.parametrize(
  ('file', 'binding', 'flags'),
  [
    ('pretrain/mlm_tlm.gin', 'MIXTURE_OR_TASK_NAME=1', ('MONO', 'PARALLEL')),
    ('pretrain/mlm.gin', 'MIXTURE_OR_TASK_NAME=1', ('MONO',)),
    ('pretrain/mlm.gin', 'TASK_FEATURE_LENGTHS=1', ('LENGTH=N',)),
    ('pretrain/mlm.gin', 'MAX_STEPS=1', ('TRAIN_STEPS=N',)),
    ('pretrain/mlm.gin', 'train_steps=1', ('TRAIN_STEPS=N',)),
    (
      'pretrain/mlm.gin',
      'gradient_accumulation_steps=1',
      ('Trainer.gradient_accumulation_steps=N',),
    ),
    ('finetune/tagging.gin', 'num_train_epochs=1', ('EPOCHS=N',)),
    ('pretrain/mlm.gin', 'EMA_DECAY=1', ('Trainer.ema_decay=VALUE',)),
  ],
)
def test_unused_macros_suggest_bindings(file, binding, flags):
  with raises_error(
    errors.ConfigError, got=binding.partition('=')[0], expected=None
  ) as caught:
    _check_macro(file, binding)
  suggested = re.findall(r'--gin\.([\w.]+)', caught.value.fix)
  assert suggested == [flag.partition('=')[0] for flag in flags]
  assert all(f'--gin.{flag}' in caught.value.fix for flag in flags)


def test_unused_macro_in_a_gin_file_is_reported(tmp_path):
  path = tmp_path / 'mine.gin'
  path.write_text("include 'models/tiny.gin'\nMAX_STEPS = 5\n")
  with raises_error(
    errors.ConfigError, got='MAX_STEPS', where='mine.gin'
  ) as caught:
    _check_macro('pretrain/mlm.gin', 'SEED=3', model=str(path))
  assert '--gin.TRAIN_STEPS=N' in caught.value.fix


def test_unused_macro_of_a_loaded_configuration_is_reported():
  configuration = gin_config.load_gin_files(_FILES['train'][:2], _REQUIRED)
  with raises_error(
    errors.ConfigError, got='max_steps', expected=None
  ) as caught:
    configuration.with_macros({'max_steps': 3})
  assert '--gin.TRAIN_STEPS=N' in caught.value.fix
