"""`analyze`: models + an analysis -> a folder of numbers, pictures, a page."""

from collections.abc import Sequence

import jax

from xlflax import bucket_checks, paths
from xlflax.analysis import models, report, study
from xlflax.training import partitioning

Analysis = report.Analysis


def analyze(
  analysis: study.Study,
  *,
  output: str,
  command: Sequence[str] = (),
  seed: int = 0,
  batch_size: int = 64,
  partitioner: partitioning.Partitioner | None = None,
) -> Analysis:
  """Runs an analysis and writes what it finds.

  Args:
    analysis: what to find out, such as `cka_study.CkaStudy(...)`.
    output: the folder; see `report.write`.
    command: the words of a command, for the report.
    seed: of untrained parameters.
    batch_size: sentences a batch, where it does not change results.
    partitioner: shards parameters and batches; None splits batches over all
      devices.

  Returns:
    What was found, with the failures of single parts.

  Raises:
    XlflaxError: the settings are wrong, or nothing was found.
  """
  folder = paths.of(output)
  bucket_checks.check_usable(folder)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  found = analysis.run(
    models.Models(batch_size=batch_size, seed=seed, partitioner=partitioner)
  )
  report.write(folder, found, command=command)
  return found
