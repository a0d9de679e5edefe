"""Parses shipped gin files and builds what a run of them would get."""

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


def files(folder: str = '') -> list[str]:
  """Names of the shipped gin files in a folder, as --gin_file takes them."""
  root = gin_config.SHIPPED
  return sorted(
    str(path.relative_to(root)) for path in (root / folder).rglob('*.gin')
  )


@functools.cache
def text(file: str) -> str:
  """The text of a shipped gin file, with that of all that it includes."""
  own = (gin_config.SHIPPED / file).read_text()
  return own + ''.join(map(text, re.findall(r"^include '(.*)'", own, re.M)))


def write_teacher(directory: pathlib.Path) -> None:
  """What distillation reads before a run begins: a teacher's model."""
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
  """An encoder of any vocabulary, to be adapted."""
  return encoder.Encoder(
    model_config.EncoderConfig(
      num_layers=2, hidden_dim=16, mlp_dim=16, num_heads=2
    )
  )


def settings_of(gin_files, bindings, **more):
  """The settings that a run with these files and bindings would get."""
  return settings_and_configuration(gin_files, bindings, **more)[0]


def settings_and_configuration(gin_files, bindings, **more):
  """The settings, and the configuration that they were built from."""
  configuration = gin_config.load_gin_files(gin_files, bindings)
  given = {'vocabulary': SPEC} | more
  found = configuration.build(trainer.Trainer, **given)
  configuration.expect_build(during_training.Evaluation)  # as `finetune` does
  gin_config.check_bindings([configuration])
  check_names(found)
  if found.num_train_steps:
    found = found.resolved(None)
  return found, configuration


def check_names(settings) -> None:
  """Every class of the run has a registered name, so that it can move."""
  parts = config_serialization.config_identity(settings)
  unnamed = [v for k, v in parts.items() if k.endswith('.class') and ':' in v]
  assert not unnamed


# Settings that the traced program does not depend on.
_NOT_TRACED = re.compile(
  r'init_from\b|optimizer\.learning_rate\b|(seed|corpus|cache_dir)$'
  r'|datasets\[\d+\]\.(mixture|languages|alpha|split|sizes|max_share|max_epochs|batch_size)\b'
  r'|objectives\.entries\[\d+\]\.weight$'
)
_traced: set[tuple] = set()


def trace_steps(settings) -> training_setup.Setup:
  """Traces each kind of step on eight devices, and checks what comes out.

  Rows of one program, such as those that differ in the languages or in what
  they start from, are traced once.
  """
  setup = training_setup.Setup(settings)
  program = _program(settings)
  if program not in _traced:
    _trace(setup, settings)
    _traced.add(program)
  return setup


def _program(settings) -> tuple:
  parts = config_serialization.config_identity(settings).items()
  return (
    repr(settings.partitioner),
    *(repr(part) for part in parts if not _NOT_TRACED.match(part[0])),
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
