"""One token cache by every engine: are the files the same, and what it took.

  python -m benchmarks.cache_engines --work=DIR --data=DATA --megabytes=1000

Makes a corpus (`large_text`) and a vocabulary, unless they are there, and
writes its cache by one process, by four, on Beam's DirectRunner with two
processes, on Beam over a Dask cluster of two workers (`pip install dask
distributed`), and by four shares on a Slurm of two nodes (see
`tests/launch/slurm_cluster.py` for what that needs). `--kills=20` writes it
that often by three shares which are killed at random. The files of each cache
are compared byte for byte with those of the first.
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
_NUM_KILLED_SHARDS = 3  # shares that are killed

WriteFunction = Callable[[pathlib.Path, Sequence[str]], None]


def compare_engines(
  work: pathlib.Path, flags: Sequence[str], engines: Sequence[str]
) -> Iterator[dict]:
  """Writes a cache by each engine, and yields what it was like.

  Args:
    work: directory for the caches.
    flags: of `xlflax cache`, without its output.
    engines: names in `ENGINES`.

  Yields:
    Engine, seconds, processor seconds (of Slurm's jobs they are not known),
    digest of all files, and whether it is that of the first.
  """
  first = None
  for engine in engines:
    output = work / f'cache-{engine}'
    shutil.rmtree(output, ignore_errors=True)
    start, used = time.perf_counter(), _child_cpu_seconds()
    _WRITERS[engine](output, flags)
    seconds = time.perf_counter() - start
    used = _child_cpu_seconds() - used
    found = compute_digest(output)
    first = first or found
    yield {
      'engine': engine,
      'seconds': round(seconds, 1),
      'processor_seconds': None if engine == 'slurm' else round(used, 1),
      'digest': found[:16],
      'equal': found == first,
    }


def measure_with_kills(
  work: pathlib.Path,
  flags: Sequence[str],
  tries: int,
  *,
  seconds: float,
  expected: str,
) -> dict:
  """Writes a cache by shares that are killed at random, again and again.

  Args:
    work: directory for the cache.
    flags: as of `compare`.
    tries: caches.
    seconds: a share is killed within so many; three times at least one is.
    expected: digest of the files.

  Returns:
    Tries, those that ended in the same files, and kills.
  """
  equal = kills = 0
  for seed in range(tries):
    output = work / 'cache-killed'
    shutil.rmtree(output, ignore_errors=True)
    kills += _write_with_kills(output, flags, random.Random(seed), seconds)
    _run_xlflax('cache', 'finalize', *flags, f'--output={output}')
    equal += compute_digest(output) == expected
  return {'tries': tries, 'equal': equal, 'kills': kills}


def compute_digest(directory: pathlib.Path) -> str:
  """SHA-256 over the names and contents of a cache's files."""
  found = hashlib.sha256()
  for path in sorted(directory.rglob('*')):
    if path.is_file() and not path.name.startswith('.'):
      with path.open('rb') as file:
        content = hashlib.file_digest(file, 'sha256').hexdigest()
      found.update(f'{path.relative_to(directory)} {content}\n'.encode())
  return found.hexdigest()


def _write_with_kills(output, flags, rng: random.Random, seconds) -> int:
  """Each share is killed up to four times; returns how often it happened."""
  left, kills = set(range(_NUM_KILLED_SHARDS)), 0
  while left:
    running = {
      share: subprocess.Popen(
        [
          *_XLFLAX,
          'cache',
          *flags,
          f'--output={output}',
          f'--shard_index={share}',
          f'--num_shards={_NUM_KILLED_SHARDS}',
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
      )
      for share in sorted(left)
    }
    for share, process in running.items():
      if kills < 4 * _NUM_KILLED_SHARDS:
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(rng.random() * seconds)
        if process.poll() is None:
          process.kill()
          kills += 1
      message = process.communicate()[1].decode()
      if process.returncode == 0:
        left.remove(share)
      elif process.returncode > 0:
        raise RuntimeError(message)
  return kills


def _run_xlflax(
  *arguments: str, environment: dict[str, str] | None = None
) -> str:
  done = subprocess.run(
    [*_XLFLAX, *arguments],
    env=os.environ | (environment or {}),
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise RuntimeError(f'{arguments}: {done.stderr[-3000:]}')
  return done.stdout


def _make_local_writer(count: int) -> WriteFunction:
  def write(output: pathlib.Path, flags: Sequence[str]) -> None:
    _run_xlflax('cache', *flags, f'--output={output}', f'--num_workers={count}')

  return write


def _write_with_beam(
  output: pathlib.Path, flags: Sequence[str], options=_DIRECT_RUNNER_OPTIONS
):
  _run_xlflax(
    'cache',
    *flags,
    f'--output={output}',
    '--runner=beam',
    f'--beam_options={options}',
  )


def _write_with_dask(output: pathlib.Path, flags: Sequence[str]) -> None:
  import distributed

  with distributed.LocalCluster(
    n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
  ) as cluster:
    _write_with_beam(
      output, flags, _DASK_RUNNER_OPTIONS + cluster.scheduler_address
    )


def _write_with_slurm(output: pathlib.Path, flags: Sequence[str]) -> None:
  from tests.launch import slurm_cluster, slurm_jobs

  folder = output.with_name('slurm')
  with slurm_cluster.TinyCluster(folder) as cluster:
    answer = _run_xlflax(
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
    number = answer.rpartition('Submitted batch job ')[2].strip()
    state = slurm_jobs.Job(cluster, number).wait(24 * 3600)
    if state != 'COMPLETED':
      raise RuntimeError(f'{state}: {slurm_jobs.log(folder / "logs")[-3000:]}')
  _run_xlflax('cache', 'finalize', *flags, f'--output={output}')


_WRITERS: dict[str, WriteFunction] = {
  'one': _make_local_writer(1),
  'four': _make_local_writer(4),
  'beam': _write_with_beam,
  'dask': _write_with_dask,
  'slurm': _write_with_slurm,
}


def _child_cpu_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def prepare_inputs(args: argparse.Namespace) -> list[str]:
  """Makes corpus and vocabulary; returns the flags that name them."""
  corpus, vocabulary = args.work / 'corpus', args.work / 'vocabulary'
  if not corpus.exists():
    making = corpus.with_name('corpus.making')
    shutil.rmtree(making, ignore_errors=True)
    large_text.write_corpus(making, args.data, args.megabytes)
    making.rename(corpus)
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
  """Prints a line of JSON for each engine, when it has finished."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', type=pathlib.Path, required=True)
  parser.add_argument('--data', type=pathlib.Path)
  parser.add_argument('--megabytes', type=float, default=1000)
  parser.add_argument('--size', type=int, default=16_000)
  parser.add_argument('--sentences', type=int, default=60_000)
  parser.add_argument('--shard_size', type=int, default=1 << 24)
  parser.add_argument('--engines', default=','.join(ENGINES))
  parser.add_argument('--kills', type=int, default=0)
  parser.add_argument('--kill_seconds', type=float, default=30)
  args = parser.parse_args(arguments)
  args.work = args.work.absolute()
  flags = prepare_inputs(args)
  size = large_text.count_bytes(args.work / 'corpus')
  print(json.dumps({'corpus_bytes': size}), flush=True)
  for row in compare_engines(args.work, flags, args.engines.split(',')):
    print(json.dumps(row), flush=True)
  if args.kills:
    found = measure_with_kills(
      args.work,
      flags,
      args.kills,
      seconds=args.kill_seconds,
      expected=compute_digest(
        args.work / f'cache-{args.engines.partition(",")[0]}'
      ),
    )
    print(json.dumps(found), flush=True)


if __name__ == '__main__':
  main()
