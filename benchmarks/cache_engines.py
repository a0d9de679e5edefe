"""Time and output of each execution engine that can write a token cache.

  python -m benchmarks.cache_engines --work=DIR --data=DATA --megabytes=1000

Creates a corpus (`large_text`) and a vocabulary unless they exist. Then writes
the token cache with each engine: one process, four processes, Beam's
DirectRunner with two processes, Beam on a Dask cluster with two workers (`pip
install dask distributed`), and four shards on a Slurm cluster with two nodes
(see `tests/launch/slurm_cluster.py` for its requirements). `--kills=20` also
writes the cache 20 times with three shards whose processes are killed at
random. Each cache's files are compared byte for byte with those that the first
engine wrote.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks import large_text

ENGINES = ('one', 'four', 'beam', 'dask', 'slurm')
_XLFLAX = (sys.executable, '-m', 'xlflax.cli')
_DIRECT_RUNNER_OPTIONS = (
  '--runner=DirectRunner --direct_num_workers=2 '
  '--direct_running_mode=multi_processing'
)
_DASK_RUNNER_OPTIONS = (
  '--runner=apache_beam.runners.dask.dask_runner.DaskRunner '
  '--dask_client_address='
)
_NUM_SLURM_SHARDS = 4
_NUM_KILLED_SHARDS = 3

WriteFunction = Callable[[pathlib.Path, Sequence[str]], None]


def compare_engines(
  work: pathlib.Path, flags: Sequence[str], engines: Sequence[str]
) -> Iterator[dict]:
  """Writes a cache with each execution engine and yields the measurements.

  Args:
    work: Directory for the caches.
    flags: Flags for `xlflax cache`, without `--output`.
    engines: Names of the engines to measure, from `ENGINES`.

  Yields:
    The engine, its wall seconds and CPU seconds (None for Slurm, where they are
    unknown), the digest of all files, and whether the digest equals that of the
    first engine.
  """
  reference_digest = None
  for engine in engines:
    output = work / f'cache-{engine}'
    shutil.rmtree(output, ignore_errors=True)
    start, cpu_seconds = time.perf_counter(), _child_cpu_seconds()
    _WRITERS[engine](output, flags)
    seconds = time.perf_counter() - start
    cpu_seconds = _child_cpu_seconds() - cpu_seconds
    cache_digest = compute_digest(output)
    reference_digest = reference_digest or cache_digest
    yield {
      'engine': engine,
      'seconds': round(seconds, 1),
      'cpu_seconds': None if engine == 'slurm' else round(cpu_seconds, 1),
      'digest': cache_digest[:16],
      'equal': cache_digest == reference_digest,
    }


def measure_with_kills(
  work: pathlib.Path,
  flags: Sequence[str],
  num_caches: int,
  *,
  seconds: float,
  expected: str,
) -> dict:
  """Writes a cache several times and kills the writer processes at random.

  Args:
    work: Directory for the cache.
    flags: Flags for `xlflax cache`, without `--output`.
    num_caches: Number of caches to write.
    seconds: Maximum time in seconds for which a process runs before it is
      killed. The actual time is random.
    expected: Digest that a correctly written cache must have.

  Returns:
    The number of caches written, the number with the expected files, and the
    number of kills.
  """
  equal = kills = 0
  for seed in range(num_caches):
    output = work / 'cache-killed'
    shutil.rmtree(output, ignore_errors=True)
    kills += _write_with_kills(output, flags, random.Random(seed), seconds)
    _run_xlflax('cache', 'finalize', *flags, f'--output={output}')
    equal += compute_digest(output) == expected
  return {'tries': num_caches, 'equal': equal, 'kills': kills}


def compute_digest(directory: pathlib.Path) -> str:
  """Returns a SHA-256 digest of the names and contents of a cache's files."""
  directory_hash = hashlib.sha256()
  for path in sorted(directory.rglob('*')):
    if path.is_file() and not path.name.startswith('.'):
      with path.open('rb') as file:
        file_digest = hashlib.file_digest(file, 'sha256').hexdigest()
      directory_hash.update(
        f'{path.relative_to(directory)} {file_digest}\n'.encode()
      )
  return directory_hash.hexdigest()


def _write_with_kills(output, flags, rng: random.Random, seconds) -> int:
  """Writes a cache while killing processes, and returns the number of kills.

  At most `4 * _NUM_KILLED_SHARDS` processes are killed.
  """
  remaining_shards, kills = set(range(_NUM_KILLED_SHARDS)), 0
  while remaining_shards:
    running = {
      shard: subprocess.Popen(
        [
          *_XLFLAX,
          'cache',
          *flags,
          f'--output={output}',
          f'--shard_index={shard}',
          f'--num_shards={_NUM_KILLED_SHARDS}',
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
      )
      for shard in sorted(remaining_shards)
    }
    for shard, process in running.items():
      if kills < 4 * _NUM_KILLED_SHARDS:
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(rng.random() * seconds)
        if process.poll() is None:
          process.kill()
          kills += 1
      message = process.communicate()[1].decode()
      if process.returncode == 0:
        remaining_shards.remove(shard)
      elif process.returncode > 0:
        raise RuntimeError(f'Writing shard {shard} failed:\n{message}')
  return kills


def _run_xlflax(
  *arguments: str, environment: dict[str, str] | None = None
) -> str:
  """Runs `xlflax` and returns its output."""
  process = subprocess.run(
    [*_XLFLAX, *arguments],
    env=os.environ | (environment or {}),
    capture_output=True,
    text=True,
    check=False,
  )
  if process.returncode:
    raise RuntimeError(
      f'`xlflax {" ".join(arguments)}` failed:\n{process.stderr[-3000:]}'
    )
  return process.stdout


def _make_local_writer(count: int) -> WriteFunction:
  """Returns a function that writes a cache with local processes."""

  def write(output: pathlib.Path, flags: Sequence[str]) -> None:
    _run_xlflax('cache', *flags, f'--output={output}', f'--num_workers={count}')

  return write


def _write_with_beam(
  output: pathlib.Path, flags: Sequence[str], options=_DIRECT_RUNNER_OPTIONS
):
  """Writes a cache on Apache Beam."""
  _run_xlflax(
    'cache',
    *flags,
    f'--output={output}',
    '--runner=beam',
    f'--beam_options={options}',
  )


def _write_with_dask(output: pathlib.Path, flags: Sequence[str]) -> None:
  """Writes a cache on Apache Beam with a local Dask cluster."""
  import distributed

  with distributed.LocalCluster(
    n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
  ) as cluster:
    _write_with_beam(
      output, flags, _DASK_RUNNER_OPTIONS + cluster.scheduler_address
    )


def _write_with_slurm(output: pathlib.Path, flags: Sequence[str]) -> None:
  """Writes a cache with an array job on a local Slurm cluster."""
  from tests.launch import slurm_cluster, slurm_jobs

  folder = output.with_name('slurm')
  with slurm_cluster.TinyCluster(folder) as cluster:
    output_text = _run_xlflax(
      'launch',
      'slurm',
      f'--array=0-{_NUM_SLURM_SHARDS - 1}',
      f'--logs={folder / "logs"}',
      f'--entrypoint={" ".join(_XLFLAX)}',
      '--',
      'cache',
      '--shard_from_env',
      *flags,
      f'--output={output}',
      environment={'SLURM_CONF': cluster.environment['SLURM_CONF']},
    )
    job_id = output_text.rpartition('Submitted batch job ')[2].strip()
    state = slurm_jobs.Job(cluster, job_id).wait(24 * 3600)
    if state != 'COMPLETED':
      raise RuntimeError(
        f'Slurm job {job_id} ended in state {state}:\n'
        f'{slurm_jobs.log(folder / "logs")[-3000:]}'
      )
  _run_xlflax('cache', 'finalize', *flags, f'--output={output}')


_WRITERS: dict[str, WriteFunction] = {
  'one': _make_local_writer(1),
  'four': _make_local_writer(4),
  'beam': _write_with_beam,
  'dask': _write_with_dask,
  'slurm': _write_with_slurm,
}


def _child_cpu_seconds() -> float:
  """Returns the CPU seconds of all child processes that have ended."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


def prepare_inputs(args: argparse.Namespace) -> list[str]:
  """Creates the corpus and the vocabulary unless they exist.

  Args:
    args: Parsed arguments of the command line.

  Returns:
    The `xlflax cache` flags that select them.
  """
  corpus, vocabulary = args.work / 'corpus', args.work / 'vocabulary'
  if not corpus.exists():
    unfinished = corpus.with_name('corpus.making')
    shutil.rmtree(unfinished, ignore_errors=True)
    large_text.write_corpus(unfinished, args.data, args.megabytes)
    unfinished.rename(corpus)
  if not vocabulary.exists():
    _run_xlflax(
      'vocab',
      f'--corpus={corpus}',
      f'--output={vocabulary}',
      f'--size={args.size}',
      f'--max_sentences={args.sentences}',
    )
  return [
    f'--corpus={corpus}',
    f'--vocabulary={vocabulary}',
    f'--shard_size={args.shard_size}',
  ]


def main(arguments: list[str] | None = None) -> None:
  """Prints a line of JSON for each engine as soon as it has finished."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--work',
    type=pathlib.Path,
    required=True,
    help='Working directory for all outputs.',
  )
  add(
    '--data', type=pathlib.Path, help='Folder that contains public data sets.'
  )
  add('--megabytes', type=float, default=1000, help='Size of the corpus in MB.')
  add('--size', type=int, default=16_000, help='Vocabulary size.')
  add(
    '--sentences',
    type=int,
    default=60_000,
    help='Number of sentences on which the vocabulary is trained.',
  )
  add(
    '--shard_size',
    type=int,
    default=1 << 24,
    help='Value of --shard_size for `xlflax cache`.',
  )
  add(
    '--engines',
    default=','.join(ENGINES),
    help='Engines to measure, separated by commas.',
  )
  add(
    '--kills',
    type=int,
    default=0,
    help='Number of caches to write while shards are killed.',
  )
  add(
    '--kill_seconds',
    type=float,
    default=30,
    help='Maximum seconds after which a shard is killed.',
  )
  args = parser.parse_args(arguments)
  args.work = args.work.absolute()
  flags = prepare_inputs(args)
  size = large_text.count_bytes(args.work / 'corpus')
  print(json.dumps({'corpus_bytes': size}), flush=True)
  for row in compare_engines(args.work, flags, args.engines.split(',')):
    print(json.dumps(row), flush=True)
  if args.kills:
    kill_counts = measure_with_kills(
      args.work,
      flags,
      args.kills,
      seconds=args.kill_seconds,
      expected=compute_digest(
        args.work / f'cache-{args.engines.partition(",")[0]}'
      ),
    )
    print(json.dumps(kill_counts), flush=True)


if __name__ == '__main__':
  main()
