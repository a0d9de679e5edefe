"""Runner that writes the shards of a token cache with Apache Beam.

Each unit of a `write_plan` is one Beam element. A Beam worker writes the unit's
shards to the cache directory, to which all workers need access. The resulting
files are identical to those written without Beam. This module requires the
package apache-beam.
"""

import contextlib
import io
import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options import pipeline_options

from xlflax.data.cache import cache_writer, shard_writer, write_lock, write_plan
from xlflax.utils import errors

# The last line of a traceback, with the suffix that Beam adds.
_XLFLAX_ERROR = re.compile(
  r"xlflax\.errors\.(\w+Error): (.+?)(?: \[while running '.*)?$", re.MULTILINE
)


class WriteUnit(beam.DoFn):
  """Beam DoFn that writes shard ranges and yields the names of their tasks."""

  def __init__(self, plan: cache_writer.Plan):
    self._plan = plan

  def setup(self) -> None:
    """Opens the tasks to read. Beam calls this method once in each worker."""
    self._tasks = self._plan.open_tasks()

  def process(self, unit: write_plan.Unit):
    """Writes a range of consecutive shards, and skips those that exist."""
    with write_lock.converting_disk_errors(self._plan.directory):
      shard_writer.write_unit(unit, self._tasks, self._plan.vocabulary)
    yield unit.job.task


def make_runner(flags: Sequence[str]) -> cache_writer.Runner:
  """Returns a runner for `cache_writer.write_cache`.

  Args:
    flags: Beam flags, such as `--runner=DirectRunner` and
      `--direct_num_workers=2`. Beam logs and ignores flags that it does not
      recognize.

  Raises:
    ConfigError: If the Beam runner does not exist, or if a flag has an invalid
      value.
  """
  options = _parse_options(flags)

  def run(plan: cache_writer.Plan, units: Sequence[write_plan.Unit]) -> None:
    if not units:
      return
    try:
      with beam.Pipeline(options=options) as pipeline:
        _ = (
          pipeline
          | 'Units' >> beam.Create(list(units))
          | 'Spread' >> beam.Reshuffle()
          | 'Write' >> beam.ParDo(WriteUnit(plan))
        )
    except Exception as error:
      worker_error = _parse_worker_error(str(error))
      if worker_error is None:
        raise
      raise worker_error from error

  return run


def _parse_worker_error(text: str) -> errors.XlflaxError | None:
  """Extracts the xlflax error that a Beam worker raised, or returns None."""
  matches = _XLFLAX_ERROR.findall(text)
  if not matches:
    return None
  # Earlier matches are the causes of the last error.
  name, message = matches[-1]
  error_class = getattr(errors, name, None)
  return error_class(message) if error_class else None


def _parse_options(flags: Sequence[str]) -> pipeline_options.PipelineOptions:
  """Parses and validates flags of Beam."""
  from apache_beam.runners import runner

  options = pipeline_options.PipelineOptions(list(flags))
  name = options.view_as(pipeline_options.StandardOptions).runner
  try:
    runner.create_runner(name or 'DirectRunner')
  except (ValueError, ImportError, AttributeError) as error:
    raise errors.ConfigError(
      'The Beam runner in --beam_options cannot be loaded '
      f'({str(error)[:200]}). Examples of Beam runners are DirectRunner, '
      'DataflowRunner, FlinkRunner, SparkRunner and '
      'apache_beam.runners.dask.dask_runner.DaskRunner',
      got=name,
    ) from error
  _check_values(options)
  return options


def _check_values(options: pipeline_options.PipelineOptions) -> None:
  """Parses all Beam flags, so that invalid flags raise an error early."""
  usage = io.StringIO()
  try:
    with contextlib.redirect_stderr(usage):
      options.get_all_options()
  except SystemExit as error:
    raise errors.ConfigError(
      'The flags in --beam_options are not valid flags of Beam',
      got=usage.getvalue().strip().splitlines()[-1],
    ) from error
