"""What failures cost: seconds by phase, and goodput with a kill a minute.

  python -m benchmarks.restarts
  python -m benchmarks.restarts --failures task,coordinator --rounds 3
  python -m benchmarks.restarts --goodput 300 --every 60 --restart_by both

A tiny model trains on CPUs in several processes, with a checkpoint every few
steps. Each failure strikes a run of its own:

- task, coordinator: `kill -9` of a process, or of process 0;
- stopped: SIGSTOP of a process;
- supervisor: `kill -9` of the supervisor of the second of two nodes;
- node: the same, and of the processes of the node;
- first_supervisor: `kill -9` of the supervisor of the first node.

`detect` is the time from the failure until the launcher sees it; the other
phases are those of the run's own `restart` lines, and so are the processor
seconds of process 0. This script restarts supervisors that end, as the
step of a Slurm job is; `total` is from the failure to the first step past those
that were lost. What the run computed then is compared with a run that nothing
disturbed, bit by bit. `--goodput` is the share of the time in which new steps
were made, with the processes started again by the launcher, or by a loop
around it (as by a queue that has no other jobs).
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
_NODE_FAILURES = (
  'supervisor',
  'node',
  'first_supervisor',
)  # failures of jobs with two nodes
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
  """A run of several processes, and what started them.

  Attributes:
    folder: of corpus, vocabulary, cache and compiled programs.
    name: of the run.
    processes: how many train.
    nodes: Number of nodes with a supervisor each; 1 uses `launch local`.
    restarts: of the launcher.
  """

  folder: pathlib.Path
  name: str
  processes: int = 4
  nodes: int = 1
  restarts: int = 1000
  launchers: list[subprocess.Popen] = dataclasses.field(default_factory=list)

  @property
  def directory(self) -> pathlib.Path:
    return self.folder / 'runs' / self.name

  def start(self, *more: str) -> None:
    command = [sys.executable, '-m', 'xlflax.cli', 'launch']
    each = [
      f'--nproc_per_node={self.processes // self.nodes}',
      '--cpu_devices=1',
      f'--max_restarts={self.restarts}',
    ]
    train = ['--', 'train', *make_flags(self.folder, self.directory), *more]
    endpoint = f'localhost:{supervisor.free_port()}'
    for node in range(self.nodes):
      own = [
        f'--nnodes={self.nodes}',
        f'--node_rank={node}',
        f'--rdzv_endpoint={endpoint}',
      ]
      kind = ['node', *each, *own] if self.nodes > 1 else ['local', *each]
      self.directory.parent.mkdir(parents=True, exist_ok=True)
      with self.directory.with_suffix('.log').open('ab') as log:
        self.launchers.append(
          subprocess.Popen([*command, *kind, *train], stdout=log, stderr=log)
        )

  def keep_running(self) -> bool:
    """Starts the launchers again that a failure has ended, as a queue does."""
    if not any(one.poll() for one in self.launchers):
      return False
    for one in self.launchers:
      one.wait()
    self.launchers.clear()
    self.start()
    return True

  def rows(self) -> list[dict]:
    try:
      text = (self.directory / 'metrics.jsonl').read_text()
    except OSError:
      return []
    return [json.loads(x) for x in text.splitlines(True) if x.endswith('\n')]

  def step(self) -> int:
    return max((row['step'] for row in self.rows()), default=0)

  def losses(self) -> dict[int, float]:
    return {x['step']: x['train']['loss'] for x in self.rows() if 'train' in x}

  def pid_of(self, process: int) -> int:
    """Returns the process ID of a training process."""
    wanted = {f'--process_id={process}', f'--model_dir={self.directory}'}
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
      with contextlib.suppress(OSError):
        if wanted <= set(path.read_bytes().decode().split('\0')):
          found.append(int(path.parent.name))
    return min(found)

  def inject_failure(self, failure: str) -> None:
    """Has something fail."""
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
    number = signal.SIGSTOP if failure == 'stopped' else signal.SIGKILL
    for pid in pids:
      os.kill(pid, number)

  def wait_past(self, step: int, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while self.step() <= step:
      self.keep_running()
      if time.monotonic() > end:
        raise RuntimeError(f'{self.directory} did not pass step {step}')
      time.sleep(0.1)

  def stop(self) -> None:
    for one in self.launchers:
      one.send_signal(signal.SIGINT)
    for one in self.launchers:
      one.wait()


def make_flags(folder: pathlib.Path, directory: pathlib.Path) -> list[str]:
  """Of `xlflax train`, in a directory of its own."""
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
  """Seconds by phase that a failure costs, which strikes after some time."""
  job.start()
  job.wait_past(30)
  time.sleep(after)
  known = sum('restart' in row for row in job.rows())
  step, struck = job.step(), time.time()
  job.inject_failure(failure)
  while failure in _NODE_FAILURES and not job.keep_running():
    time.sleep(0.1)
  job.wait_past(max(step, job.step()))
  found = {'total': time.time() - struck}
  time.sleep(2)
  for row in [x['restart'] for x in job.rows() if 'restart' in x][known:]:
    found |= {'detect': row['noticed'] - struck}
    found |= {name: row[name] for name in _PHASES}
    found['processor'] = sum(
      v for k, v in row.items() if k.startswith('processor/')
    )
  job.stop()
  return found


def measure_goodput(job: Job, seconds: float, every: float) -> dict[str, float]:
  """The share of the time in which new steps are made, with regular kills."""
  draw, lost, kills = random.Random(1), 0.0, 0
  job.start()
  job.wait_past(0)
  begun = time.time()
  while time.time() < begun + seconds:
    time.sleep(max(0.0, begun + (kills + 1) * every - time.time()))
    job.wait_past(job.step())  # it may be between two starts
    step, struck = job.step(), time.time()
    pid = job.pid_of(draw.randrange(job.processes))
    os.kill(pid, signal.SIGKILL)
    kills += 1
    job.wait_past(step)
    lost += time.time() - struck
  spent = time.time() - begun
  job.stop()
  return {
    'goodput': 1 - lost / spent,
    'kills': kills,
    'seconds': spent,
    'lost_each': lost / kills,
    'steps': job.step(),
  }


def count_loss_differences(job: Job, whole: dict[int, float]) -> int:
  """How many steps have another loss than in the run of before."""
  return sum(
    whole.get(step, loss) != loss for step, loss in job.losses().items()
  )


def _run_without_failures(folder: pathlib.Path, processes: int, steps: int):
  job = Job(folder, 'whole', processes)
  job.start(f'--stop_after_steps={steps}')
  job.launchers[0].wait()
  return job.losses()


def _format_load() -> str:
  return f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores'


def _measure_failures(args, folder: pathlib.Path) -> list[dict]:
  whole = _run_without_failures(folder, args.processes, args.steps)
  results: list[dict] = []
  columns = ('detect', *_PHASES, 'total', 'processor')
  print('| failure | ' + ' | '.join(columns) + ' | other losses | load |')
  print('| --- ' * (len(columns) + 3) + '|')
  for failure in args.failures.split(','):
    for i in range(args.rounds):
      nodes = 2 if failure in _NODE_FAILURES else 1
      job = Job(folder, f'{failure}{i}', args.processes, nodes)
      found = measure_failure(job, failure, args.after)
      results.append({'failure': failure, **found})
      cells = [f'{found[c]:.1f}' if c in found else '-' for c in columns]
      others = f'{count_loss_differences(job, whole)} of {len(job.losses())}'
      print('|', ' | '.join([failure, *cells, others, _format_load()]), '|')
  return results


def _measure_goodputs(args, folder: pathlib.Path) -> list[dict]:
  kinds = {'launcher': 1000, 'loop': 0}
  if args.restart_by != 'both':
    kinds = {args.restart_by: kinds[args.restart_by]}
  results = []
  for kind, restarts in kinds.items():
    job = Job(folder, kind, args.processes, restarts=restarts)
    found = measure_goodput(job, args.goodput, args.every)
    results.append({'restart_by': kind, **found})
    print(
      f'restarts by the {kind}: goodput {found["goodput"]:.2f}, '
      f'{found["lost_each"]:.1f} s lost by each of {found["kills"]} kills, '
      f'{found["steps"]} steps in {found["seconds"]:.0f} s; {_format_load()}'
    )
  return results


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--processes', type=int, default=4)
  parser.add_argument('--failures', default=','.join(FAILURES))
  parser.add_argument('--rounds', type=int, default=1)
  parser.add_argument(
    '--steps', type=int, default=400, help='of the run to compare with'
  )
  parser.add_argument(
    '--after', type=float, default=30, help='seconds from step 30 to a failure'
  )
  parser.add_argument('--goodput', type=float, help='for so many seconds')
  parser.add_argument('--every', type=float, default=60)
  parser.add_argument(
    '--restart_by', choices=['launcher', 'loop', 'both'], default='launcher'
  )
  parser.add_argument('--folder', help='of the runs, kept (default: temporary)')
  parser.add_argument('--output', help='write the figures to this file too')
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
