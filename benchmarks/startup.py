"""Startup time of `xlflax train` until the end of the first training step.

  python -m benchmarks.startup
  python -m benchmarks.startup --models tiny,base --rounds 3

Runs `xlflax train` with a token cache in subprocesses, in the same way as users
do. The stage `imports` ends when the configuration has been parsed. `set-up`
ends when the first step is called, and includes creating the loaders, the model
directory and the initial parameters, with their compilation. `compile` is the
time that the first step takes for tracing and compilation, or for reading the
program from the persistent cache. `first step` is the remaining time of that
call. For each model, the first process starts with an empty compilation cache,
and the following processes with a full one.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from benchmarks import measure

STAGES = ('imports', 'set_up', 'compile', 'first_step')
_SIZES = {
  'tiny': ('models/tiny.gin', 8, 64),
  'small': ('models/small.gin', 8, 128),
  'base': ('models/base.gin', 8, 128),
}


def make_flags(folder: pathlib.Path, model: str, run: str) -> list[str]:
  """Returns the `xlflax train` flags for a model.

  Args:
    folder: Parent directory of the corpus, vocabulary, cache and runs.
    model: Name of the model, a key of `_SIZES`.
    run: Name of the model directory.
  """
  gin_file, batch, length = _SIZES[model]
  return [
    'train',
    '--gin_file=pretrain/mlm.gin',
    f'--gin_file={gin_file}',
    f'--gin.BATCH_SIZE={batch}',
    f'--gin.LENGTH={length}',
    '--gin.TRAIN_STEPS=2',
    '--gin.WARMUP_STEPS=1',
    '--stop_after_steps=1',
    f'--model_dir={folder / "runs" / run}',
    f'--corpus={folder / "corpus"}',
    f'--vocabulary={folder / "vocabulary"}',
    f'--cache={folder / "cache"}',
    f'--compilation_cache={folder / "compiled" / model}',
  ]


class StageTimer:
  """Timer for startup stages, in wall time and CPU time.

  Attributes:
    seconds: Map from stage to seconds. The keys for CPU seconds end in '_cpu'.
  """

  def __init__(self, started: float):
    self._wall, self._cpu = started, 0.0
    self.seconds: dict[str, float] = {}
    self._compiling = 0.0

  def end_stage(self, stage: str) -> None:
    """Records the end of a startup stage and starts the next one."""
    wall, cpu = time.time(), time.process_time()
    self.seconds[stage] = wall - self._wall
    self.seconds[f'{stage}_cpu'] = cpu - self._cpu
    self._wall, self._cpu = wall, cpu
    self._compiling = 0.0

  def record_compilation(self, event: str, seconds: float, **_) -> None:
    """Adds the duration of a JAX tracing or compilation event."""
    if event.startswith('/jax/core/compile/'):
      self._compiling += seconds

  def end_first_step(self) -> None:
    """Records the compilation time and execution time of the first step."""
    compiling = self._compiling
    self.end_stage('first_step')
    self.seconds['compile'] = min(compiling, self.seconds['first_step'])
    self.seconds['first_step'] -= self.seconds['compile']


def measure_command(arguments: list[str], started: float) -> dict[str, float]:
  """Runs `xlflax ARGUMENTS` for one step and returns the time of each stage.

  Args:
    arguments: Command-line arguments of `xlflax`, including the name of the
      command.
    started: Unix time at which this process was started.

  Returns:
    The seconds spent in each stage.

  Raises:
    RuntimeError: If the command fails.
  """
  timer = StageTimer(started)
  from xlflax import cli
  from xlflax.cli import train as command

  cli.start_process()

  train = command._train

  def train_after_imports(*inputs):
    import jax

    from xlflax.training import training_run

    jax.monitoring.register_event_duration_secs_listener(
      timer.record_compilation
    )
    timer.end_stage('imports')
    _watch_first_step(training_run.TrainingRun, timer)
    return train(*inputs)

  command._train = train_after_imports
  stdout, sys.stdout = sys.stdout, sys.stderr
  try:
    if cli.main(arguments):
      raise RuntimeError(
        '`xlflax train` failed during the startup measurement.'
      )
  finally:
    sys.stdout, command._train = stdout, train
  return timer.seconds


def _watch_first_step(run_class, timer: StageTimer) -> None:
  """Records the times before and after the first step of a `TrainingRun`."""
  next_batches, after_step = run_class.next_batches, run_class.after_step

  def first_batches(self, active):
    run_class.next_batches = next_batches
    timer.end_stage('set_up')
    return next_batches(self, active)

  def after_first_step(self, output):
    import jax

    run_class.after_step = after_step
    jax.block_until_ready((self.state, output))
    timer.end_first_step()
    return after_step(self, output)

  run_class.next_batches, run_class.after_step = first_batches, after_first_step


def run_benchmark(models, *, rounds: int, lines: int = 2000) -> dict[str, dict]:
  """Measures the startup time of several models.

  Args:
    models: Names of the models, keys of `_SIZES`.
    rounds: Number of processes per model that start with a full compilation
      cache.
    lines: Number of lines in the corpus.

  Returns:
    Map from model to 'cold', the seconds in each stage with an empty cache, and
    'cached', the medians with a full cache.
  """
  from benchmarks import input_pipeline

  results = {}
  with tempfile.TemporaryDirectory() as folder_name:
    folder = pathlib.Path(folder_name)
    input_pipeline.prepare_data(folder, lines)
    for model in models:
      runs = [
        measure.run_module(
          'benchmarks.startup',
          '--run_flags',
          json.dumps(make_flags(folder, model, f'{model}{i}')),
          '--started',
          repr(time.time()),
        )
        for i in range(rounds + 1)
      ]
      results[model] = {
        'cold': runs[0],
        'cached': {
          key: statistics.median(run[key] for run in runs[1:])
          for key in runs[0]
        },
      }
  return results


def format_table(results: dict[str, dict]) -> str:
  """Formats wall seconds per stage and total CPU seconds as Markdown."""
  lines = [
    '| model | programs | '
    + ' | '.join(stage.replace('_', '-') for stage in STAGES)
    + ' | sum | CPU s |',
    '| --- ' * (len(STAGES) + 4) + '|',
  ]
  for model, programs in results.items():
    for program, seconds in programs.items():
      cpu_seconds = sum(
        value for key, value in seconds.items() if key.endswith('_cpu')
      )
      cells = [seconds[stage] for stage in STAGES]
      lines.append(
        f'| {model} | {program} | '
        + ' | '.join(
          f'{value:.1f}' for value in [*cells, sum(cells), cpu_seconds]
        )
        + ' |'
      )
  return '\n'.join(lines)


def main(arguments=None) -> None:
  """Measures the startup times and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--models',
    default='tiny,base',
    help=(
      f'Comma-separated models from {", ".join(_SIZES)} (default: %(default)s).'
    ),
  )
  parser.add_argument(
    '--rounds',
    type=int,
    default=2,
    help='Number of processes per model with a full compilation cache.',
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  parser.add_argument('--run_flags', help=argparse.SUPPRESS)
  parser.add_argument('--started', type=float, help=argparse.SUPPRESS)
  args = parser.parse_args(arguments)
  if args.run_flags:
    print(json.dumps(measure_command(json.loads(args.run_flags), args.started)))
    return
  results = run_benchmark(args.models.split(','), rounds=args.rounds)
  print(f'{os.cpu_count()} cores; seconds\n\n{format_table(results)}')
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(results, file, indent=2)


if __name__ == '__main__':
  main()
