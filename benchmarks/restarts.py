"""Goodput of a training run, and the time that the run loses to failures.

  python -m benchmarks.restarts
  python -m benchmarks.restarts --failures task,coordinator --rounds 3
  python -m benchmarks.restarts --goodput 300 --every 60 --restart_by both

A tiny model is trained on CPUs in several processes, with a checkpoint every
few steps. Each type of failure is injected into a separate run:

- task, coordinator: `kill -9` of a process, or of process 0;
- stopped: SIGSTOP of a process;
- supervisor: `kill -9` of the second node's supervisor, in a job with two
  nodes;
- node: `kill -9` of the second node's supervisor and of all processes on this
  node;
- first_supervisor: `kill -9` of the first node's supervisor.

`detect` is the time from the failure until the launcher detects it. The other
phases and process 0's CPU seconds are read from the `restart` rows in the run's
metrics. If a supervisor exits, this script restarts it, as Slurm does with a
job step. `total` is the time from the failure until the run computes its first
new step, after repeating the lost steps. The losses are then compared bit by
bit with those of an undisturbed run. `--goodput` measures the fraction of time
in which new steps are computed. For this measurement, either the launcher
restarts the processes, or a loop restarts the launcher, as an otherwise empty
job queue does.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from xlflax.launch import supervisor

FAILURES = (
  'task',
  'coordinator',
  'stopped',
  'supervisor',
  'node',
  'first_supervisor',
)
# Failures that are injected into jobs with two nodes.
_NODE_FAILURES = ('supervisor', 'node', 'first_supervisor')
_PHASES = ('agree', 'start', 'restore', 'compile', 'repeat')
_TINY_BINDINGS = {
  'EncoderConfig.num_layers': 1,
  'EncoderConfig.hidden_dim': 16,
  'EncoderConfig.mlp_dim': 32,
  'EncoderConfig.num_heads': 2,
  'EncoderConfig.max_position_embeddings': 32,
  'LENGTH': 16,
  'BATCH_SIZE': 8,
  'WARMUP_STEPS': 2,
  'TRAIN_STEPS': 100000,
  'trainer.Trainer.log_metrics_every': 1,
  'checkpoints.CheckpointOptions.save_interval_steps': 20,
}


@dataclasses.dataclass
class Job:
  """A training run with several processes, and the launchers that start them.

  Attributes:
    folder: Parent directory of the corpus, vocabulary, cache, compiled programs
      and runs.
    name: Name of the run.
    processes: Number of training processes.
    nodes: Number of nodes, each of which runs a supervisor. If 1, the run is
      started by `launch local`.
    restarts: Maximum number of times that the launcher restarts the run.
    launchers: Launchers that are currently running.
  """

  folder: pathlib.Path
  name: str
  processes: int = 4
  nodes: int = 1
  restarts: int = 1000
  launchers: list[subprocess.Popen] = dataclasses.field(default_factory=list)

  @property
  def directory(self) -> pathlib.Path:
    """Model directory of the run."""
    return self.folder / 'runs' / self.name

  def start(self, *extra_flags: str) -> None:
    """Starts the launchers of all nodes.

    Args:
      *extra_flags: Additional flags for `xlflax train`.
    """
    command = [sys.executable, '-m', 'xlflax.cli', 'launch']
    common_flags = [
      f'--nproc_per_node={self.processes // self.nodes}',
      '--cpu_devices=1',
      f'--max_restarts={self.restarts}',
    ]
    train = [
      '--',
      'train',
      *make_flags(self.folder, self.directory),
      *extra_flags,
    ]
    endpoint = f'localhost:{supervisor.free_port()}'
    for node in range(self.nodes):
      node_flags = [
        f'--nnodes={self.nodes}',
        f'--node_rank={node}',
        f'--rdzv_endpoint={endpoint}',
      ]
      launcher_flags = (
        ['node', *common_flags, *node_flags]
        if self.nodes > 1
        else ['local', *common_flags]
      )
      self.directory.parent.mkdir(parents=True, exist_ok=True)
      with self.directory.with_suffix('.log').open('ab') as log:
        self.launchers.append(
          subprocess.Popen(
            [*command, *launcher_flags, *train], stdout=log, stderr=log
          )
        )

  def keep_running(self) -> bool:
    """Restarts all launchers if one has failed, as a job queue does.

    Returns:
      Whether the launchers were restarted.
    """
    if not any(launcher.poll() for launcher in self.launchers):
      return False
    for launcher in self.launchers:
      launcher.wait()
    self.launchers.clear()
    self.start()
    return True

  def rows(self) -> list[dict]:
    """Returns the complete lines of the run's metrics file."""
    try:
      text = (self.directory / 'metrics.jsonl').read_text()
    except OSError:
      return []
    return [
      json.loads(line) for line in text.splitlines(True) if line.endswith('\n')
    ]

  def step(self) -> int:
    """Returns the last step in the run's metrics file."""
    return max((row['step'] for row in self.rows()), default=0)

  def losses(self) -> dict[int, float]:
    """Returns a map from step to training loss."""
    return {
      row['step']: row['train']['loss'] for row in self.rows() if 'train' in row
    }

  def pid_of(self, process: int) -> int:
    """Returns the process ID of a training process."""
    expected_arguments = {
      f'--process_id={process}',
      f'--model_dir={self.directory}',
    }
    pids = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
      with contextlib.suppress(OSError):
        if expected_arguments <= set(path.read_bytes().decode().split('\0')):
          pids.append(int(path.parent.name))
    return min(pids)

  def inject_failure(self, failure: str) -> None:
    """Injects a failure. `failure` must be one of `FAILURES`."""
    pids = {
      'task': lambda: [self.pid_of(self.processes - 1)],
      'coordinator': lambda: [self.pid_of(0)],
      'stopped': lambda: [self.pid_of(1)],
      'supervisor': lambda: [self.launchers[-1].pid],
      'first_supervisor': lambda: [self.launchers[0].pid],
      'node': lambda: [
        self.launchers[-1].pid,
        *map(self.pid_of, range(self.processes // 2, self.processes)),
      ],
    }[failure]()
    signal_number = signal.SIGSTOP if failure == 'stopped' else signal.SIGKILL
    for pid in pids:
      os.kill(pid, signal_number)

  def wait_past(self, step: int, seconds: float = 600) -> None:
    """Waits until the run passes a step, restarting failed launchers meanwhile.

    Raises:
      RuntimeError: If the run does not pass the step within `seconds`.
    """
    end = time.monotonic() + seconds
    while self.step() <= step:
      self.keep_running()
      if time.monotonic() > end:
        raise RuntimeError(
          f'The run in {self.directory} did not advance past step {step} '
          f'within {seconds:.0f} seconds.'
        )
      time.sleep(0.1)

  def stop(self) -> None:
    """Interrupts the launchers and waits until they exit."""
    for launcher in self.launchers:
      launcher.send_signal(signal.SIGINT)
    for launcher in self.launchers:
      launcher.wait()


def make_flags(folder: pathlib.Path, directory: pathlib.Path) -> list[str]:
  """Returns the flags for `xlflax train`.

  Args:
    folder: Parent directory of the corpus, vocabulary and cache.
    directory: Model directory.
  """
  return [
    '--gin_file=pretrain/mlm.gin',
    '--gin_file=models/tiny.gin',
    *(f'--gin.{name}={value}' for name, value in _TINY_BINDINGS.items()),
    f'--model_dir={directory}',
    f'--corpus={folder / "corpus"}',
    f'--vocabulary={folder / "vocabulary"}',
    f'--cache={folder / "cache"}',
    f'--compilation_cache={folder / "compiled"}',
  ]


def measure_failure(job: Job, failure: str, after: float) -> dict[str, float]:
  """Injects a failure into a run and returns the seconds lost in each phase.

  Args:
    job: Training run, which this function starts and stops.
    failure: Type of failure, one of `FAILURES`.
    after: Delay of the failure in seconds, measured from step 30 of the run.
  """
  job.start()
  job.wait_past(30)
  time.sleep(after)
  num_restarts = sum('restart' in row for row in job.rows())
  step, failure_time = job.step(), time.time()
  job.inject_failure(failure)
  while failure in _NODE_FAILURES and not job.keep_running():
    time.sleep(0.1)
  job.wait_past(max(step, job.step()))
  seconds = {'total': time.time() - failure_time}
  time.sleep(2)
  for row in [
    restart_row['restart']
    for restart_row in job.rows()
    if 'restart' in restart_row
  ][num_restarts:]:
    seconds |= {'detect': row['noticed'] - failure_time}
    seconds |= {name: row[name] for name in _PHASES}
    seconds['processor'] = sum(
      value for key, value in row.items() if key.startswith('processor/')
    )
  job.stop()
  return seconds


def measure_goodput(job: Job, seconds: float, every: float) -> dict[str, float]:
  """Measures the goodput, the fraction of time spent on computing new steps.

  Args:
    job: Training run, which this function starts and stops.
    seconds: Duration of the measurement in seconds.
    every: Interval between two kills in seconds. Each kill ends a random
      process.

  Returns:
    The goodput, the number of kills, the duration, the seconds lost per kill,
    and the number of steps.
  """
  rng, lost_seconds, kills = random.Random(1), 0.0, 0
  job.start()
  job.wait_past(0)
  start = time.time()
  while time.time() < start + seconds:
    time.sleep(max(0.0, start + (kills + 1) * every - time.time()))
    job.wait_past(job.step())  # The job may be restarting.
    step, failure_time = job.step(), time.time()
    pid = job.pid_of(rng.randrange(job.processes))
    os.kill(pid, signal.SIGKILL)
    kills += 1
    job.wait_past(step)
    lost_seconds += time.time() - failure_time
  total_seconds = time.time() - start
  job.stop()
  return {
    'goodput': 1 - lost_seconds / total_seconds,
    'kills': kills,
    'seconds': total_seconds,
    'lost_each': lost_seconds / kills,
    'steps': job.step(),
  }


def count_loss_differences(job: Job, reference_losses: dict[int, float]) -> int:
  """Counts the steps whose loss differs from the loss in an undisturbed run."""
  return sum(
    reference_losses.get(step, loss) != loss
    for step, loss in job.losses().items()
  )


def _run_without_failures(folder: pathlib.Path, processes: int, steps: int):
  """Trains without failures and returns the losses."""
  job = Job(folder, 'whole', processes)
  job.start(f'--stop_after_steps={steps}')
  job.launchers[0].wait()
  return job.losses()


def _format_load() -> str:
  """Returns the load average of this machine as text."""
  return f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores'


def _measure_failures(args, folder: pathlib.Path) -> list[dict]:
  """Measures the selected failures and prints a table."""
  reference_losses = _run_without_failures(folder, args.processes, args.steps)
  results: list[dict] = []
  columns = ('detect', *_PHASES, 'total', 'processor')
  print('| failure | ' + ' | '.join(columns) + ' | other losses | load |')
  print('| --- ' * (len(columns) + 3) + '|')
  for failure in args.failures.split(','):
    for round_index in range(args.rounds):
      nodes = 2 if failure in _NODE_FAILURES else 1
      job = Job(folder, f'{failure}{round_index}', args.processes, nodes)
      seconds = measure_failure(job, failure, args.after)
      results.append({'failure': failure, **seconds})
      cells = [
        f'{seconds[column]:.1f}' if column in seconds else '-'
        for column in columns
      ]
      differences = f'{count_loss_differences(job, reference_losses)} of {len(job.losses())}'
      print(
        '|', ' | '.join([failure, *cells, differences, _format_load()]), '|'
      )
  return results


def _measure_goodputs(args, folder: pathlib.Path) -> list[dict]:
  """Measures and prints the goodput of the selected restart methods."""
  launchers = {'launcher': 1000, 'loop': 0}
  if args.restart_by != 'both':
    launchers = {args.restart_by: launchers[args.restart_by]}
  results = []
  for launcher, restarts in launchers.items():
    job = Job(folder, launcher, args.processes, restarts=restarts)
    figures = measure_goodput(job, args.goodput, args.every)
    results.append({'restart_by': launcher, **figures})
    print(
      f'Restarts by the {launcher}: goodput {figures["goodput"]:.2f}, '
      f'{figures["lost_each"]:.1f} s lost by each of {figures["kills"]} kills, '
      f'{figures["steps"]} steps in {figures["seconds"]:.0f} s; {_format_load()}'
    )
  return results


def main(arguments=None) -> None:
  """Measures the cost of failures or the goodput, and prints the results."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--processes', type=int, default=4, help='Number of training processes.')
  add(
    '--failures',
    default=','.join(FAILURES),
    help='Failures to inject, separated by commas.',
  )
  add('--rounds', type=int, default=1, help='Number of runs per failure.')
  add(
    '--steps',
    type=int,
    default=400,
    help='Number of steps in the reference run.',
  )
  add(
    '--after',
    type=float,
    default=30,
    help='Seconds from step 30 to the failure.',
  )
  add(
    '--goodput',
    type=float,
    metavar='SECONDS',
    help='Measure the goodput for this number of seconds instead of single '
    'failures.',
  )
  add(
    '--every',
    type=float,
    default=60,
    help='Seconds between two kills when goodput is measured.',
  )
  add(
    '--restart_by',
    choices=['launcher', 'loop', 'both'],
    default='launcher',
    help='Restart method when goodput is measured.',
  )
  add(
    '--folder', help='Directory for the runs. Default: a temporary directory.'
  )
  add('--output', help='JSON file to which the measurements are written.')
  args = parser.parse_args(arguments)
  from benchmarks import input_pipeline

  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(args.folder or name)
    if not (folder / 'cache').exists():
      input_pipeline.prepare_data(folder, 2000)
    results = (_measure_goodputs if args.goodput else _measure_failures)(
      args, folder
    )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(results, file, indent=2)


if __name__ == '__main__':
  main()
