"""A run directory opened for reading: model, vocabulary, checkpoints."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn

from xlflax.data.tokenizers import base_vocabulary
from xlflax.models import model_params as models_api
from xlflax.models import shape_checks
from xlflax.objectives import objective_base as objectives_base
from xlflax.storage import bucket_access, manifests, paths
from xlflax.training import param_tree, randomness
from xlflax.training.checkpointing import (
  checkpoint_reader,
  data_fingerprint,
  objective_config,
  run_directory,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class SavedRun:
  """What `xlflax train` left in a model directory.

  Attributes:
    directory: the model directory.
    model: the Linen module.
    vocabulary: its vocabulary.
    objectives: what it trained, by name; none where that is not recorded.
    inputs: Settings that turned labeled examples into model inputs, by the
      name of the objective; see `objective_config.inputs_of`.
  """

  directory: pathlib.Path
  model: Any
  vocabulary: base_vocabulary.Vocabulary
  objectives: Mapping[str, objectives_base.Objective] = dataclasses.field(
    default_factory=dict
  )
  inputs: objective_config.Inputs = dataclasses.field(default_factory=dict)

  @property
  def steps(self) -> list[int]:
    """Steps of the finished checkpoints, rising."""
    return checkpoint_reader.finished_steps(self.directory)

  def restore_params(
    self, step: int, *, partitioner: partitioning.Partitioner | None = None
  ):
    """`{'model': ..., 'heads': ...}` of one checkpoint.

    A run that keeps a running average gives the average.

    Args:
      step: one of `steps`.
      partitioner: shards the parameters; None puts them on one device.

    Raises:
      CheckpointError: it is not there, or cannot be read.
    """
    saved = checkpoint_reader.saved_shapes(
      checkpoint_reader.path_of(self.directory, step)
    )
    self._check_sizes(saved)
    abstract = self._abstract(saved, partitioner)
    return checkpoint_reader.restore_params(self.directory, step, abstract)

  def untrained_params(
    self, *, seed: int = 0, partitioner: partitioning.Partitioner | None = None
  ):
    """`{'model': ...}` as freshly initialised: the baseline of evaluations."""
    if steps := self.steps:
      self._check_sizes(
        checkpoint_reader.saved_shapes(
          checkpoint_reader.path_of(self.directory, steps[-1])
        )
      )
    key = randomness.purpose_key(seed, randomness.Purpose.PARAMETERS)

    def create(key):
      return nn.meta.unbox(models_api.init_params(self.model, key))

    if partitioner is None:
      return {'model': jax.jit(create)(key)}
    boxed = models_api.abstract_params(self.model)
    with partitioner.scope():
      return {
        'model': jax.jit(create, out_shardings=partitioner.shardings(boxed))(
          key
        )
      }

  def _check_sizes(self, saved: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a model far larger than its checkpoint, before it is made."""
    config = getattr(self.model, 'config', None)
    problems = (
      shape_checks.find_shape_problems(config, saved.values()) if config else []
    )
    if problems:
      raise errors.CheckpointError(
        'The sizes of the model do not fit its checkpoints',
        got='; '.join(problems),
        where=str(self.directory / run_directory.MODEL),
        fix='copy the whole model directory again',
      )

  def _abstract(self, saved, partitioner):
    """ShapeDtypeStructs with shardings; heads as the checkpoint has them."""
    boxed = models_api.abstract_params(self.model)
    # Traced, for a mesh that is set has shapes by themselves refused.
    shapes = jax.eval_shape(nn.meta.unbox, boxed)
    single_device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    of_model = (
      partitioner.shardings(boxed)
      if partitioner
      else jax.tree.map(lambda _: single_device, shapes)
    )
    abstract = {
      'model': jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding
        ),
        shapes,
        of_model,
      )
    }
    replicated = partitioner.replicated if partitioner else single_device
    return abstract | param_tree.unflatten_params(
      {
        name: jax.ShapeDtypeStruct(shape, 'float32', sharding=replicated)
        for name, shape in saved.items()
        if name.startswith('heads/')
      }
    )

  def is_finished(self) -> bool:
    """Whether the run reached its last step (see `mark_finished`)."""
    return (self.directory / FINISHED).exists()


FINISHED = 'finished.json'


def mark_finished(model_dir: pathlib.Path, step: int) -> None:
  """Leaves the sign that `xlflax evaluate --continuous` ends at."""
  if (model_dir / run_directory.METRICS).exists():  # no line follows
    manifests.record_files(
      model_dir, manifests.Kind.RUN, [run_directory.METRICS]
    )
  run_directory.write_json(model_dir / FINISHED, {'step': step})


def mark_unfinished(model_dir: pathlib.Path) -> None:
  """Takes that sign away: training goes on."""
  manifests.forget_files(model_dir, (FINISHED, run_directory.METRICS))
  (model_dir / FINISHED).unlink(missing_ok=True)


def last_step_of_finished(model_dir: pathlib.Path) -> int | None:
  """The step that `mark_finished` noted; None where it did not."""
  path = model_dir / FINISHED
  return run_directory.read_json(path)['step'] if path.exists() else None


def open_run(model_dir: str | os.PathLike[str]) -> SavedRun:
  """Opens a model directory.

  Raises:
    RunDirectoryError: it is none, or in a bucket that cannot be read.
    VocabularyError: its vocabulary is missing or damaged.
  """
  directory = paths.to_path(model_dir)
  bucket_access.check_readable(directory)
  if not directory.is_dir():
    raise errors.RunDirectoryError(
      'There is no such model directory',
      got=str(model_dir),
      expected='a directory that `xlflax train` made',
    )
  return SavedRun(
    directory,
    run_directory.read_model(directory),
    data_fingerprint.own_vocabulary(directory),
    {
      objective.name: objective
      for objective in objective_config.read_objectives(directory)
    },
    objective_config.read_inputs(directory),
  )
