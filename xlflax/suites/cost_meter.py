"""What a task of a suite costs: parameters, processor and device seconds."""

import time

import jax

from xlflax.evaluation.reports import score_table
from xlflax.models import vocabulary_padding
from xlflax.storage import paths
from xlflax.training.checkpointing import (
  checkpoint_reader,
  metrics_file,
  run_directory,
)


class Meter:
  """Measures from its making on.

  Attributes:
    model_dir: of the pretrained run.
    step: of its checkpoint.
  """

  def __init__(self, model_dir: str, step: int):
    self.model_dir, self.step = model_dir, step
    self._cpu, self._wall = time.process_time(), time.monotonic()

  def read(self) -> score_table.Cost:
    """What was spent until now; accelerators count while they are held."""
    devices = jax.local_devices()
    held = 0 if devices[0].platform == 'cpu' else len(devices)
    return score_table.Cost(
      parameters=body_parameters(self.model_dir, self.step),
      training_seconds=metrics_file.seconds_written(
        paths.to_path(self.model_dir)
      ),
      cpu_seconds=time.process_time() - self._cpu,
      device_seconds=held * (time.monotonic() - self._wall),
      device=devices[0].device_kind,
    )


def body_parameters(model_dir: str, step: int) -> int:
  """How many parameters a checkpoint's body has, heads apart."""
  shapes = checkpoint_reader.saved_shapes(
    checkpoint_reader.path_of(paths.to_path(model_dir), step)
  )
  return vocabulary_padding.count_unpadded(
    {n: shape for n, shape in shapes.items() if n.startswith('model/')},
    run_directory.read_model(paths.to_path(model_dir)).config,
  )
