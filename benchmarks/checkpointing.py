"""Cost of checkpointing: delay of the next step, write time and restore time.

  python -m benchmarks.checkpointing
  python -m benchmarks.checkpointing --megabytes 64,1024 --directory /scratch
  python -m benchmarks.checkpointing --directory gs://bucket/benchmark

The state consists of parameters and two moments, and each step donates its
buffers. `stall` is the time by which a save delays the next step after the
state is ready. Its lower bound is `copy`, the time to copy the state to the
host, which is measured separately. Steps then continue while the files are
written. `blocking` is the same save with
`CheckpointOptions.enable_async_checkpointing=False`. `save plain` and `restore
plain` are `save` and `restore` without digests. Measurements with and without
digests alternate. `run` is the mean time of 50 steps, one of which saves in the
background, including the time until the last file is written. `run plain` is
the same without digests.
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

_NUM_STEPS = 50  # Steps of a short run with one save.
_NUM_ARRAYS = 24  # Arrays of the parameters and of each moment.
# Measurements whose CPU time is that of the calling thread, not the process.
_CALLER_THREAD_TIMERS = ('copy', 'stall')


def make_state(megabytes: float) -> train_state.TrainState:
  """Returns a training state of about `megabytes` * 10^6 bytes.

  The values are random, so that they cannot be compressed.
  """
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
  """Returns a jitted training step that modifies every value in the state.

  Args:
    seconds: Approximate computation time of the step in seconds.
  """
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

  multiply = jax.jit(lambda a: a @ matrix)
  jax.block_until_ready(multiply(matrix))
  start = time.perf_counter()
  for _ in range(10):
    jax.block_until_ready(multiply(matrix))
  repeats = max(1, int(seconds / (time.perf_counter() - start) * 10))
  jitted = jax.jit(step, donate_argnums=0)
  return lambda state: jax.block_until_ready(jitted(state, repeats))


@contextlib.contextmanager
def record_time(timings: dict, name: str):
  """Context manager that adds its body's wall and CPU time to `timings`."""
  cpu_clock = (
    time.thread_time if name in _CALLER_THREAD_TIMERS else time.process_time
  )
  wall, cpu = time.perf_counter(), cpu_clock()
  yield
  timings.setdefault(name, []).append(time.perf_counter() - wall)
  timings.setdefault(f'{name}_cpu', []).append(cpu_clock() - cpu)


def copy_to_host(state) -> None:
  """Copies every array in a state to the host, as a checkpoint save does."""
  for leaf in jax.tree.leaves(state):
    np.array(leaf, copy=True)


def measure_checkpointing(
  directory: pathlib.Path, *, megabytes: float, step_seconds: float, saves: int
) -> dict[str, float]:
  """Measures how long it takes to save and to restore a train state.

  Args:
    directory: Directory for the checkpoints.
    megabytes: Approximate size of the train state in MB.
    step_seconds: Approximate computation time of a step in seconds.
    saves: Number of saves that are timed.

  Returns:
    Median seconds for each measurement in the module docstring.
  """
  state, step, timings = make_state(megabytes), make_step(step_seconds), {}
  state = step(state)
  for _ in range(3 * saves):
    with record_time(timings, 'step'):
      state = step(state)
  for mode in ('asynchronous', 'blocking'):
    checkpoint_dir = directory / mode
    checkpointer = checkpoints.Checkpoints(
      checkpoint_dir,
      checkpoints.CheckpointOptions(
        max_to_keep=1, enable_async_checkpointing=mode == 'asynchronous'
      ),
    )
    for save in range(saves + 1):  # The first save is not timed.
      save_timings: dict = {} if save == 0 else timings
      with record_time(save_timings, 'copy'):
        copy_to_host(state)
      with record_time(
        save_timings, 'stall' if mode == 'asynchronous' else 'blocking'
      ):
        checkpointer.save(state, {'note': 'benchmark'})
      if mode == 'asynchronous':
        state = _step_while_writing(checkpointer, state, step, save_timings)
      else:
        state = step(state)
    checkpointer.close()
  for _ in range(saves):
    state = _measure_digest_cost(directory, state, step, timings)
  return {name: statistics.median(values) for name, values in timings.items()}


def _measure_digest_cost(directory, state, step, timings):
  """Measures a save, a restore and a run with and without digests."""
  for name, context in (('', contextlib.nullcontext), (' plain', _no_digests)):
    with context():
      checkpoint_dir = directory / 'compared'
      checkpointer = checkpoints.Checkpoints(
        checkpoint_dir,
        checkpoints.CheckpointOptions(
          max_to_keep=1, enable_async_checkpointing=False
        ),
      )
      state = step(state)
      with record_time(timings, f'save{name}'):
        checkpointer.save(state, {'note': 'benchmark'})
      checkpointer.close()
      with record_time(timings, f'restore{name}'):
        _restore(checkpoint_dir, state)
      paths.remove_directory(checkpoint_dir)
      state = _measure_training(
        checkpoint_dir, state, step, timings, f'run{name}'
      )
  return state


def _measure_training(checkpoint_dir, state, step, timings, name: str):
  """Measures the mean time of `_NUM_STEPS` steps that include one save."""
  checkpointer = checkpoints.Checkpoints(
    checkpoint_dir, checkpoints.CheckpointOptions(max_to_keep=1)
  )
  run_timings: dict = {}
  with record_time(run_timings, 'all'):
    for step_index in range(_NUM_STEPS):
      state = step(state)
      if step_index == 1:
        checkpointer.save(state, {'note': 'benchmark'})
    checkpointer.wait()
  checkpointer.close()
  paths.remove_directory(checkpoint_dir)
  timings.setdefault(name, []).append(run_timings['all'][0] / _NUM_STEPS)
  timings.setdefault(f'{name}_cpu', []).append(
    run_timings['all_cpu'][0] / _NUM_STEPS
  )
  return state


@contextlib.contextmanager
def _no_digests():
  """Disables computing and verifying digests within the context."""
  with (
    mock.patch.object(checksums, 'seal_directory', lambda *unused: None),
    mock.patch.object(
      checkpoint_reader, 'verify_checkpoint', lambda *unused: None
    ),
  ):
    yield


def _step_while_writing(checkpointer, state, step, timings):
  """Trains until the checkpoint has been written, for at least one step."""
  with record_time(timings, 'write'):
    for _ in range(1000):
      with record_time(timings, 'step_while_writing'):
        state = step(state)
      if not checkpointer.is_writing:
        break
    checkpointer.wait()
  return state


def _restore(directory: pathlib.Path, state) -> None:
  """Restores the last checkpoint in a directory."""
  abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=leaf.sharding
    ),
    state,
  )
  checkpointer = checkpoints.Checkpoints(directory)
  restored = checkpointer.restore_last(
    types.SimpleNamespace(abstract=abstract, abstract_sharded=abstract)
  )
  checkpointer.close()
  assert restored is not None
  jax.block_until_ready(restored.state)


def format_table(results: dict[str, dict[str, float]]) -> str:
  """Formats the results as a Markdown table of wall and CPU milliseconds.

  CPU times are in parentheses. For `copy` and `stall`, only the CPU time of the
  waiting thread is counted.
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
  for megabytes, timings in results.items():
    cells = [
      f'{1000 * timings[name]:,.0f} ({1000 * timings[f"{name}_cpu"]:,.0f})'
      for name in columns
    ]
    lines.append(f'| {megabytes} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)


def main(arguments=None) -> None:
  """Measures checkpointing for states of several sizes and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--megabytes',
    default='10,100,400',
    help='Sizes of the state in MB, separated by commas (default: '
    '%(default)s).',
  )
  parser.add_argument(
    '--saves', type=int, default=5, help='Number of saves that are timed.'
  )
  parser.add_argument(
    '--step_seconds',
    type=float,
    default=0.1,
    help='Approximate computation time of a step in seconds.',
  )
  parser.add_argument(
    '--directory',
    help='Directory or bucket for the checkpoints. Default: a temporary '
    'directory.',
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  args = parser.parse_args(arguments)
  with tempfile.TemporaryDirectory() as temporary:
    directory = paths.to_path(args.directory or temporary)
    bucket_access.check_usable(directory)
    results = {}
    for megabytes in args.megabytes.split(','):
      folder = directory / f'{megabytes}MB'
      results[megabytes] = measure_checkpointing(
        folder,
        megabytes=float(megabytes),
        step_seconds=args.step_seconds,
        saves=args.saves,
      )
      paths.remove_directory(folder)
  print(
    f'{jax.devices()[0].device_kind}; wall time in ms (CPU time in ms)\n\n'
    f'{format_table(results)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(results, file, indent=2)


if __name__ == '__main__':
  main()
