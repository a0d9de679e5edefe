"""Seconds from the command to the first step, cold and with compiled programs.

  python -m benchmarks.startup
  python -m benchmarks.startup --models tiny,base --rounds 3

`xlflax train` from a token cache, as users start it, in processes of its own:
`imports` ends when the configuration is parsed, `set-up` when the first step
is asked for (loaders, initial parameters and their compilation, the run's
directory), `compile` is tracing and compilation of the step, or reading it
from the persistent cache, as far as the first step waits for it, and `first
step` what is left of its call. Compilation beside the set-up counts there. The
first process of a model finds an empty compilation cache, the others a full
one.
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
  """Of `xlflax train` for a model, in a directory of its own."""
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
  """When each stage ended, by the wall clock and by the processor's."""

  def __init__(self, started: float):
    self._wall, self._cpu = started, 0.0
    self.seconds: dict[str, float] = {}
    self._compiling = 0.0

  def end_stage(self, stage: str) -> None:
    wall, cpu = time.time(), time.process_time()
    self.seconds[stage] = wall - self._wall
    self.seconds[f'{stage}_cpu'] = cpu - self._cpu
    self._wall, self._cpu = wall, cpu
    self._compiling = 0.0

  def record_compilation(self, event: str, seconds: float, **_) -> None:
    """Takes what JAX tells about tracing and compilation."""
    if event.startswith('/jax/core/compile/'):
      self._compiling += seconds

  def end_first_step(self) -> None:
    compiling = self._compiling
    self.end_stage('first_step')
    self.seconds['compile'] = min(compiling, self.seconds['first_step'])
    self.seconds['first_step'] -= self.seconds['compile']


def measure_command(arguments: list[str], started: float) -> dict[str, float]:
  """Runs `xlflax ARGUMENTS` in this process, one step long."""
  marks = StageTimer(started)
  from xlflax import cli
  from xlflax.cli import train as command

  cli.start_process()

  train = command._train

  def parsed(*given):
    import jax

    from xlflax.training import training_run

    jax.monitoring.register_event_duration_secs_listener(
      marks.record_compilation
    )
    marks.end_stage('imports')
    _watch_first_step(training_run.TrainingRun, marks)
    return train(*given)

  command._train = parsed
  stdout, sys.stdout = sys.stdout, sys.stderr
  try:
    if cli.main(arguments):
      raise RuntimeError('xlflax train failed')
  finally:
    sys.stdout, command._train = stdout, train
  return marks.seconds


def _watch_first_step(run_class, marks: StageTimer) -> None:
  """Notes the times before and after the first step of a `TrainingRun`."""
  next_batches, after_step = run_class.next_batches, run_class.after_step

  def first_batches(self, active):
    run_class.next_batches = next_batches
    marks.end_stage('set_up')
    return next_batches(self, active)

  def after_first_step(self, output):
    import jax

    run_class.after_step = after_step
    jax.block_until_ready((self.state, output))
    marks.end_first_step()
    return after_step(self, output)

  run_class.next_batches, run_class.after_step = first_batches, after_first_step


def run_benchmark(models, *, rounds: int, lines: int = 2000) -> dict[str, dict]:
  """Model -> {'cold': seconds by stage, 'cached': medians of them}."""
  from benchmarks import input_pipeline

  results = {}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
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
  """Markdown: wall seconds by stage, and processor seconds of all."""
  lines = [
    '| model | programs | '
    + ' | '.join(s.replace('_', '-') for s in STAGES)
    + ' | sum | CPU s |',
    '| --- ' * (len(STAGES) + 4) + '|',
  ]
  for model, kinds in results.items():
    for kind, found in kinds.items():
      cpu = sum(v for k, v in found.items() if k.endswith('_cpu'))
      cells = [found[s] for s in STAGES]
      lines.append(
        f'| {model} | {kind} | '
        + ' | '.join(f'{value:.1f}' for value in [*cells, sum(cells), cpu])
        + ' |'
      )
  return '\n'.join(lines)


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--models',
    default='tiny,base',
    help=f'of {", ".join(_SIZES)} (default: %(default)s)',
  )
  parser.add_argument(
    '--rounds', type=int, default=2, help='processes with compiled programs'
  )
  parser.add_argument('--output', help='write the figures to this file too')
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
