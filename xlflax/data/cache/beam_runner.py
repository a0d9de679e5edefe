"""Writes the shards of a token cache on Apache Beam.

Each unit of `jobs` (a shard, or a file that is read as a whole) is an element
that some worker of the runner writes to the cache's directory, which all of
them must see. The files are those of every other way to write a cache. Needs
the package apache-beam.
"""

import contextlib
import io
import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options import pipeline_options

from xlflax.data.cache import cache_writer, shard_writer, write_lock
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.utils import errors

# As a traceback ends, with what Beam says after it.
_OURS = re.compile(
  r"xlflax\.errors\.(\w+Error): (.+?)(?: \[while running '.*)?$", re.MULTILINE
)


class WriteUnit(beam.DoFn):
  """Writes units; gives the names of their shards' tasks."""

  def __init__(self, plan: cache_writer.Plan):
    self._plan = plan

  def setup(self) -> None:
    """Opens the tasks, once in each worker."""
    self._tasks = self._plan.open_tasks()

  def process(self, unit: cache_jobs.Unit):
    """Writes what is missing of a unit."""
    with write_lock.disk_errors(self._plan.directory):
      shard_writer.write_unit(unit, self._tasks, self._plan.vocabulary)
    yield unit.job.task


def make_runner(flags: Sequence[str]) -> cache_writer.Runner:
  """What `cache_writer.write_cache` takes as its runner.

  Args:
    flags: Beam's own, such as `--runner=DirectRunner`,
      `--direct_num_workers=2`.

  Raises:
    ConfigError: there is no such runner, or a flag has no such value. Of a
      flag that is none of Beam's, Beam logs that it is left out.
  """
  options = _options(flags)

  def run(plan: cache_writer.Plan, units: Sequence[cache_jobs.Unit]) -> None:
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
      ours = _of_worker(str(error))
      if ours is None:
        raise
      raise ours from error

  return run


def _of_worker(text: str) -> errors.XlflaxError | None:
  """The error of ours that a runner gives the text of, if it is one."""
  matches = _OURS.findall(text)
  if not matches:
    return None
  name, message = matches[-1]  # those before it are what it was raised from
  kind = getattr(errors, name, None)
  return kind(message) if kind else None


def _options(flags: Sequence[str]) -> pipeline_options.PipelineOptions:
  from apache_beam.runners import runner as runners

  options = pipeline_options.PipelineOptions(list(flags))
  name = options.view_as(pipeline_options.StandardOptions).runner
  try:
    runners.create_runner(name or 'DirectRunner')
  except (ValueError, ImportError, AttributeError) as error:
    raise errors.ConfigError(
      'Beam has no such runner, or cannot load it',
      got=f'--runner={name}: {str(error)[:200]}',
      expected='DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, '
      'apache_beam.runners.dask.dask_runner.DaskRunner, …',
      where='--beam_options',
    ) from error
  _check_values(options)
  return options


def _check_values(options: pipeline_options.PipelineOptions) -> None:
  """Reads all flags, which Beam itself does at the start of a pipeline."""
  usage = io.StringIO()
  try:
    with contextlib.redirect_stderr(usage):
      options.get_all_options()
  except SystemExit as error:
    raise errors.ConfigError(
      'Beam does not take these flags',
      got=usage.getvalue().strip().splitlines()[-1],
      where='--beam_options',
    ) from error
