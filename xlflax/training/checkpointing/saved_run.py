"""Saved runs: model directories that are opened for reading."""

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
  code_fingerprint,
  data_fingerprint,
  objective_config,
  run_directory,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class SavedRun:
  """A model directory written by `xlflax train`, opened for reading.

  Attributes:
    directory: Model directory of the run.
    model: Linen module of the run.
    vocabulary: Vocabulary of the trained model.
    objectives: Training objectives by name. Empty if they were not recorded.
    inputs: Settings for converting labeled examples to model inputs, by the
      name of the objective (see `objective_config.collect_inputs`).
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
    """Steps of the finished checkpoints, in ascending order."""
    return checkpoint_reader.finished_steps(self.directory)

  def restore_params(
    self, step: int, *, partitioner: partitioning.Partitioner | None = None
  ):
    """Restores a checkpoint's parameters.

    If EMA is enabled, the averaged parameters are restored.

    Args:
      step: Step of the checkpoint to restore, one of `steps`.
      partitioner: Partitioner that shards the parameters. If None, they are
        placed on one device.

    Returns:
      `{'model': ..., 'heads': ...}`.

    Raises:
      CheckpointError: If the checkpoint does not exist or is unreadable.
    """
    checkpoint = checkpoint_reader.checkpoint_path(self.directory, step)
    saved = checkpoint_reader.saved_shapes(checkpoint)
    self._check_sizes(saved)
    code_fingerprint.warn_of_changed_model(self.model, checkpoint)
    abstract = self._abstract(saved, partitioner)
    return checkpoint_reader.restore_params(self.directory, step, abstract)

  def untrained_params(
    self, *, seed: int = 0, partitioner: partitioning.Partitioner | None = None
  ):
    """Initializes random parameters, which serve as a baseline in evaluations.

    These are not the parameters with which the run started, not even if the
    seeds are equal, because a run derives further keys from its seed.

    Args:
      seed: Random seed for the initialization.
      partitioner: Partitioner that shards the parameters. If None, they are
        placed on one device.

    Returns:
      `{'model': ...}`.
    """
    if steps := self.steps:
      self._check_sizes(
        checkpoint_reader.saved_shapes(
          checkpoint_reader.checkpoint_path(self.directory, steps[-1])
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
    """Rejects a model that is far larger than its checkpoint.

    The check precedes the allocation of parameters.

    Args:
      saved: Shapes of the saved parameters by name.

    Raises:
      CheckpointError: If the sizes of the model do not match the saved shapes.
    """
    config = getattr(self.model, 'config', None)
    problems = (
      shape_checks.find_shape_problems(config, saved.values()) if config else []
    )
    if problems:
      raise errors.CheckpointError(
        'The sizes of the model do not match the shapes of the parameters in '
        'its checkpoints',
        got='; '.join(problems),
        where=str(self.directory / run_directory.MODEL),
        fix='Copy the complete model directory again.',
      )

  def _abstract(self, saved, partitioner):
    """Returns sharded abstract parameters. Heads have their saved shapes."""
    boxed = models_api.abstract_params(self.model)
    # `unbox` is traced, because it rejects abstract shapes if a mesh is set.
    shapes = jax.eval_shape(nn.meta.unbox, boxed)
    single_device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    model_shardings = (
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
        model_shardings,
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
    """Returns whether the run reached its last step (see `mark_finished`)."""
    return (self.directory / FINISHED).exists()


FINISHED = 'finished.json'


def mark_finished(model_dir: pathlib.Path, step: int) -> None:
  """Records that a run is finished, so that `evaluate --continuous` can end.

  Args:
    model_dir: Model directory of the run.
    step: Last step of the run.
  """
  # No more metrics are written, so that their digest can be recorded.
  if (model_dir / run_directory.METRICS).exists():
    manifests.record_files(
      model_dir, manifests.Kind.RUN, [run_directory.METRICS]
    )
  run_directory.write_json(model_dir / FINISHED, {'step': step})


def mark_unfinished(model_dir: pathlib.Path) -> None:
  """Deletes the record that `mark_finished` wrote, because training resumes."""
  manifests.forget_files(model_dir, (FINISHED, run_directory.METRICS))
  (model_dir / FINISHED).unlink(missing_ok=True)


def read_finished_step(model_dir: pathlib.Path) -> int | None:
  """Returns the step recorded by `mark_finished`, or None if there is none."""
  path = model_dir / FINISHED
  return run_directory.read_json(path)['step'] if path.exists() else None


def load_run(model_dir: str | os.PathLike[str]) -> SavedRun:
  """Opens a model directory for reading.

  Raises:
    RunDirectoryError: If the path is not a model directory, or is in a bucket
      that cannot be read.
    VocabularyError: If the vocabulary is missing or damaged.
  """
  directory = paths.to_path(model_dir)
  bucket_access.check_readable(directory)
  if not directory.is_dir():
    raise errors.RunDirectoryError(
      'The model directory does not exist. It must be a directory that `xlflax '
      'train` has written',
      got=str(model_dir),
    )
  return SavedRun(
    directory,
    run_directory.read_model(directory),
    data_fingerprint.load_vocabulary(directory),
    {
      objective.name: objective
      for objective in objective_config.read_objectives(directory)
    },
    objective_config.read_inputs(directory),
  )
