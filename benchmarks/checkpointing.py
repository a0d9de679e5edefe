"""What saving costs a run: the stall of a step, the write, the restore.

  python -m benchmarks.checkpointing
  python -m benchmarks.checkpointing --megabytes 64,1024 --directory /scratch
  python -m benchmarks.checkpointing --directory gs://bucket/benchmark

A state of parameters and two moments is changed by a step that is donated
what it changes. `stall` is how long the call that saves keeps the next step
from being started, with the state ready; `copy` is the least that it can be:
the copy of the state to the host, timed by itself. Then steps go on while the
files are written, until all is on disk. `blocking` is the same save with
`CheckpointOptions.enable_async_checkpointing=False`. `save plain` and `restore plain` are
`blocking` and `restore` without digests, in turns with those that have them;
so is `run plain` against `run`: the mean of 50 steps of which one saves in the
background, with the wait for the last file at the end.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import tempfile
import time
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.storage import bucket_access, checksums, paths
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoint_reader, checkpoints

_NUM_STEPS = 50  # of a short run with one save
_NUM_ARRAYS = 24  # of each of parameters, first and second moments
_CALLER_THREAD_TIMERS = (
  'copy',
  'stall',
)  # else processor time is of the process


def make_state(megabytes: float) -> train_state.TrainState:
  """A state of so many 10^6 bytes, random so that it does not compress."""
  count = max(1, int(megabytes * 1e6 / 4 / 3 / _NUM_ARRAYS))

  def arrays(seed):
    return {
      f'w{i}': jax.random.normal(
        jax.random.fold_in(jax.random.key(seed), i), [count], jnp.float32
      )
      for i in range(_NUM_ARRAYS)
    }

  return jax.block_until_ready(
    train_state.TrainState(
      step=jnp.int32(0),
      params=arrays(0),
      opt_state={'mu': arrays(1), 'nu': arrays(2)},
      ema=(),
      objective_state={},
    )
  )


def make_step(seconds: float):
  """A jitted step that changes every value and computes for about so long."""
  matrix = jnp.ones([512, 512], jnp.float32) / 512

  def step(state, repeats):
    product = jax.lax.fori_loop(0, repeats, lambda _, a: a @ matrix, matrix)

    def change(leaf):
      return leaf * product[0, 0].astype(leaf.dtype)

    return state.replace(
      step=state.step + 1,
      params=jax.tree.map(change, state.params),
      opt_state=jax.tree.map(change, state.opt_state),
    )

  one = jax.jit(lambda a: a @ matrix)
  jax.block_until_ready(one(matrix))
  start = time.perf_counter()
  for _ in range(10):
    jax.block_until_ready(one(matrix))
  repeats = max(1, int(seconds / (time.perf_counter() - start) * 10))
  jitted = jax.jit(step, donate_argnums=0)
  return lambda state: jax.block_until_ready(jitted(state, repeats))


@contextlib.contextmanager
def record_time(found: dict, name: str):
  """Context that notes its wall and processor seconds."""
  processor = (
    time.thread_time if name in _CALLER_THREAD_TIMERS else time.process_time
  )
  wall, cpu = time.perf_counter(), processor()
  yield
  found.setdefault(name, []).append(time.perf_counter() - wall)
  found.setdefault(f'{name}_cpu', []).append(processor() - cpu)


def copy_to_host(state) -> None:
  """The copy that no checkpoint can do without."""
  for leaf in jax.tree.leaves(state):
    np.array(leaf, copy=True)


def measure_checkpointing(
  directory: pathlib.Path, *, megabytes: float, step_seconds: float, saves: int
) -> dict[str, float]:
  """Median seconds of everything, for one size; see the module's docstring."""
  state, step, found = make_state(megabytes), make_step(step_seconds), {}
  state = step(state)
  for _ in range(3 * saves):
    with record_time(found, 'step'):
      state = step(state)
  for kind in ('asynchronous', 'blocking'):
    place = directory / kind
    saved = checkpoints.Checkpoints(
      place,
      checkpoints.CheckpointOptions(
        max_to_keep=1, enable_async_checkpointing=kind == 'asynchronous'
      ),
    )
    for save in range(saves + 1):  # the first one sets up what all use
      times: dict = {} if save == 0 else found
      with record_time(times, 'copy'):
        copy_to_host(state)
      with record_time(
        times, 'stall' if kind == 'asynchronous' else 'blocking'
      ):
        saved.save(state, {'note': 'benchmark'})
      if kind == 'asynchronous':
        state = _step_while_writing(saved, state, step, times)
      else:
        state = step(state)
    saved.close()
  for _ in range(saves):
    state = _measure_digest_cost(directory, state, step, found)
  return {name: statistics.median(values) for name, values in found.items()}


def _measure_digest_cost(directory, state, step, found):
  """A save and a restore with digests, and the same without."""
  for name, context in (('', contextlib.nullcontext), (' plain', _no_digests)):
    with context():
      place = directory / 'compared'
      saved = checkpoints.Checkpoints(
        place,
        checkpoints.CheckpointOptions(
          max_to_keep=1, enable_async_checkpointing=False
        ),
      )
      state = step(state)
      with record_time(found, f'save{name}'):
        saved.save(state, {'note': 'benchmark'})
      saved.close()
      with record_time(found, f'restore{name}'):
        _restore(place, state)
      paths.remove_directory(place)
      state = _measure_training(place, state, step, found, f'run{name}')
  return state


def _measure_training(place, state, step, found, name: str):
  """`_STEPS` steps with a save among them, of which the mean is noted."""
  saved = checkpoints.Checkpoints(
    place, checkpoints.CheckpointOptions(max_to_keep=1)
  )
  times: dict = {}
  with record_time(times, 'all'):
    for number in range(_NUM_STEPS):
      state = step(state)
      if number == 1:
        saved.save(state, {'note': 'benchmark'})
    saved.wait()
  saved.close()
  paths.remove_directory(place)
  found.setdefault(name, []).append(times['all'][0] / _NUM_STEPS)
  found.setdefault(f'{name}_cpu', []).append(times['all_cpu'][0] / _NUM_STEPS)
  return state


@contextlib.contextmanager
def _no_digests():
  """Context in which no digest is made or compared."""
  with (
    mock.patch.object(checksums, 'seal_directory', lambda *unused: None),
    mock.patch.object(
      checkpoint_reader, 'verify_checkpoint', lambda *unused: None
    ),
  ):
    yield


def _step_while_writing(saved, state, step, times):
  """Steps until all is on disk; at least one."""
  with record_time(times, 'write'):
    for _ in range(1000):
      with record_time(times, 'step_while_writing'):
        state = step(state)
      if not saved.is_writing:
        break
    saved.wait()
  return state


def _restore(directory: pathlib.Path, state) -> None:
  abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=leaf.sharding
    ),
    state,
  )
  saved = checkpoints.Checkpoints(directory)
  restored = saved.restore_last(
    types.SimpleNamespace(abstract=abstract, abstract_sharded=abstract)
  )
  saved.close()
  assert restored is not None
  jax.block_until_ready(restored.state)


def format_table(results: dict[str, dict[str, float]]) -> str:
  """Markdown, in milliseconds: wall, and processor in brackets.

  For copy and stall the processor time is that of the thread that waits.
  """
  columns = (
    'copy',
    'stall',
    'step',
    'step_while_writing',
    'write',
    'blocking',
    'save',
    'save plain',
    'restore',
    'restore plain',
    'run',
    'run plain',
  )
  lines = [
    '| state, MB | '
    + ' | '.join(name.replace('_', ' ') for name in columns)
    + ' |',
    '| --- ' * (len(columns) + 1) + '|',
  ]
  for megabytes, found in results.items():
    cells = [
      f'{1000 * found[name]:,.0f} ({1000 * found[f"{name}_cpu"]:,.0f})'
      for name in columns
    ]
    lines.append(f'| {megabytes} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--megabytes',
    default='10,100,400',
    help='sizes of the state (default: %(default)s)',
  )
  parser.add_argument('--saves', type=int, default=5)
  parser.add_argument('--step_seconds', type=float, default=0.1)
  parser.add_argument(
    '--directory', help='where to write; default: a temporary directory'
  )
  parser.add_argument('--output', help='write the figures to this file too')
  args = parser.parse_args(arguments)
  with tempfile.TemporaryDirectory() as temporary:
    place = paths.to_path(args.directory or temporary)
    bucket_access.check_usable(place)
    results = {}
    for megabytes in args.megabytes.split(','):
      folder = place / f'{megabytes}MB'
      results[megabytes] = measure_checkpointing(
        folder,
        megabytes=float(megabytes),
        step_seconds=args.step_seconds,
        saves=args.saves,
      )
      paths.remove_directory(folder)
  print(
    f'{jax.devices()[0].device_kind}; milliseconds, processor in '
    f'brackets\n\n{format_table(results)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(results, file, indent=2)


if __name__ == '__main__':
  main()
