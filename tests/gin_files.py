"""Parses shipped gin files and builds the settings of their runs."""

import functools
import pathlib
import re

import jax
import jax.numpy as jnp

from xlflax import trainer
from xlflax.config import gin_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.evaluation import during_training
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.training import training_setup
from xlflax.training.checkpointing import config_serialization, run_directory

SPEC = vocabulary_spec.make_dummy_spec(320, num_languages=2)


def list_gin_files(folder: str = '') -> list[str]:
  """Returns the names of the shipped gin files in a folder."""
  root = gin_config.SHIPPED
  return sorted(
    str(path.relative_to(root)) for path in (root / folder).rglob('*.gin')
  )


@functools.cache
def read_with_includes(file: str) -> str:
  """Returns the text of a shipped gin file and its included files."""
  file_text = (gin_config.SHIPPED / file).read_text()
  return file_text + ''.join(
    map(read_with_includes, re.findall(r"^include '(.*)'", file_text, re.M))
  )


def write_teacher(directory: pathlib.Path) -> None:
  """Writes the teacher model for distillation."""
  run_directory.write_model(
    directory,
    encoder.Encoder(
      model_config.EncoderConfig(
        num_layers=1,
        hidden_dim=8,
        mlp_dim=8,
        num_heads=1,
        vocab_size=99,
        num_languages=1,
        max_position_embeddings=512,
      )
    ),
  )


def tiny_encoder() -> encoder.Encoder:
  """Returns an encoder without a vocabulary size, for adapter training."""
  return encoder.Encoder(
    model_config.EncoderConfig(
      num_layers=2, hidden_dim=16, mlp_dim=16, num_heads=2
    )
  )


def settings_of(gin_files, bindings, **fields):
  """Returns the settings of a run with these files and bindings."""
  return settings_and_configuration(gin_files, bindings, **fields)[0]


def settings_and_configuration(gin_files, bindings, **fields):
  """Returns the settings, and the configuration they were built from."""
  configuration = gin_config.load_gin_files(gin_files, bindings)
  build_fields = {'vocabulary': SPEC} | fields
  settings = configuration.build(trainer.Trainer, **build_fields)
  configuration.expect_build(during_training.Evaluation)  # as `finetune` does
  gin_config.check_bindings([configuration])
  check_names(settings)
  if settings.num_train_steps:
    settings = settings.resolved(None)
  return settings, configuration


def check_names(settings) -> None:
  """Asserts that every class of the run has a registered name."""
  identity = config_serialization.config_identity(settings)
  unnamed = [
    v for k, v in identity.items() if k.endswith('.class') and ':' in v
  ]
  assert not unnamed


# Settings that do not affect the traced program.
_NOT_TRACED = re.compile(
  r'init_from\b|optimizer\.learning_rate\b|(seed|corpus|cache_dir)$'
  r'|datasets\[\d+\]\.(mixture|languages|alpha|split|sizes|max_share|max_epochs|batch_size)\b'
  r'|objectives\.entries\[\d+\]\.weight$'
)
_traced: set[tuple] = set()


def trace_steps(settings) -> training_setup.Setup:
  """Traces each kind of step on eight devices and checks the outputs.

  Configurations with the same program, such as those that differ only in the
  languages or the initialization, are traced once.
  """
  setup = training_setup.Setup(settings)
  program = _program(settings)
  if program not in _traced:
    _trace(setup, settings)
    _traced.add(program)
  return setup


def _program(settings) -> tuple:
  identity_items = config_serialization.config_identity(settings).items()
  return (
    repr(settings.partitioner),
    *(repr(part) for part in identity_items if not _NOT_TRACED.match(part[0])),
  )


def _trace(setup, settings) -> None:
  state = setup.factory.abstract_sharded
  with settings.partitioner.scope():
    for active in settings.objectives.groups:
      new, output = jax.eval_shape(
        setup.jitted_step(active), state, setup.abstract_batches(active)
      )
      assert _types(new) == _types(state)
      assert (output.loss.shape, output.loss.dtype) == ((), jnp.float32)
      names = {settings.objectives.entries[i].objective.name for i in active}
      assert len({m.split('/')[0] for m in output.metrics}) == len(active)
      if len(names) == len(active):
        assert {m.split('/')[0] for m in output.metrics} == names


def _types(tree):
  return jax.tree.map(lambda x: (x.shape, x.dtype), tree)
