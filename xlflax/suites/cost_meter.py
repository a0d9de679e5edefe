"""Measurement of a suite task's parameters, CPU time and device time."""

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
  """Meter for the CPU and device time spent since its creation.

  Attributes:
    model_dir: Directory of the pretrained run.
    step: Checkpoint step of the pretrained run.
  """

  def __init__(self, model_dir: str, step: int):
    self.model_dir = model_dir
    self.step = step
    self._cpu_start = time.process_time()
    self._wall_start = time.monotonic()

  def read(self) -> score_table.Cost:
    """Returns the cost incurred since the creation of the meter.

    Accelerator time counts from the meter's creation, including idle time.
    """
    devices = jax.local_devices()
    num_accelerators = 0 if devices[0].platform == 'cpu' else len(devices)
    return score_table.Cost(
      parameters=body_parameters(self.model_dir, self.step),
      training_seconds=metrics_file.recorded_seconds(
        paths.to_path(self.model_dir)
      ),
      cpu_seconds=time.process_time() - self._cpu_start,
      device_seconds=num_accelerators * (time.monotonic() - self._wall_start),
      device=devices[0].device_kind,
    )


def body_parameters(model_dir: str, step: int) -> int:
  """Returns the number of parameters in a checkpoint, without its heads."""
  shapes = checkpoint_reader.saved_shapes(
    checkpoint_reader.checkpoint_path(paths.to_path(model_dir), step)
  )
  return vocabulary_padding.count_unpadded(
    {
      name: shape for name, shape in shapes.items() if name.startswith('model/')
    },
    run_directory.read_model(paths.to_path(model_dir)).config,
  )
