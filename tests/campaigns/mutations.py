"""Campaign of mutations of stored files.

A case copies a stored artifact, changes one file of it, and reads it as the
library does. The outcome is *noticed* if the library raises an error or falls
back to an earlier checkpoint, and *unread* if the result is identical bit for
bit. Any other outcome is a silent change or a traceback, and violates a
guarantee.
"""

import dataclasses
import pathlib
import random
import shutil
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.campaigns import counts
from tests.training import tiny
from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format, cache_metadata, cache_reader
from xlflax.data.cache import shards as cache_shards
from xlflax.evaluation import eval_task, result_store
from xlflax.interop.huggingface import huggingface_import
from xlflax.storage import checksums
from xlflax.training.checkpointing import (
  checkpoints,
  data_fingerprint,
  objective_config,
  run_directory,
)
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

NOTICED, UNREAD = 'noticed', 'unread'
SILENT, TRACEBACK = 'silent', 'traceback'
ACTIONS = ('flip', 'zero', 'truncate', 'delete', 'swap')
_OPTIMIZER = optimizers.AdamW(learning_rate=0.1)


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of stored artifact.

  Attributes:
    name: Name of the type of artifact.
    make: Function that writes the artifact with a given number into a new
      directory.
    read: Function that reads the artifact into a value that can be compared by
      `==`. It raises XlflaxError if the library rejects the artifact, and
      returns None if the library uses something else instead, such as an
      earlier checkpoint.
  """

  name: str
  make: Callable[[pathlib.Path, int], None]
  read: Callable[[pathlib.Path], Any]


def run_campaign(
  directory: pathlib.Path, *, cases: int, seed: int = 0
) -> counts.Counts:
  """Mutates every kind in turn.

  Args:
    directory: Working directory.
    cases: Total number of mutations.
    seed: Random seed for choosing the mutations.
  """
  rng = random.Random(seed)
  totals = counts.Counts()
  artifacts = [_StoredArtifact(kind, directory / kind.name) for kind in KINDS]
  for case in range(cases):
    artifact = artifacts[case % len(artifacts)]
    action = ACTIONS[case // len(artifacts) % len(ACTIONS)]
    outcome, description = artifact.mutate(action, rng)
    is_violation = outcome in (SILENT, TRACEBACK)
    totals.add(
      outcome, f'{artifact.kind.name}: {description}' if is_violation else ''
    )
  return totals


class _StoredArtifact:
  """An artifact of a kind, stored twice: one to mutate, one to swap with."""

  def __init__(self, kind: Kind, directory: pathlib.Path):
    self.kind, self._directory = kind, directory
    self._sources = [directory / 'a', directory / 'b']
    for number, source in enumerate(self._sources):
      kind.make(source, number)
    self._expected = kind.read(self._fresh_copy())
    self._files = sorted(
      path.relative_to(self._sources[0])
      for path in self._sources[0].rglob('*')
      if path.is_file() and path.stat().st_size
    )

  def _fresh_copy(self) -> pathlib.Path:
    copy = self._directory / 'copy'
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(self._sources[0], copy)
    return copy

  def mutate(self, action: str, rng: random.Random) -> tuple[str, str]:
    """Returns the outcome and the description of one case."""
    copy, file = self._fresh_copy(), rng.choice(self._files)
    _mutate_file(copy / file, action, rng, self._swap_content(file, rng))
    description = f'{action} {file}'
    try:
      result = self.kind.read(copy)
    except errors.XlflaxError:
      return NOTICED, description
    except Exception as error:
      return TRACEBACK, f'{description}: {type(error).__name__}: {error}'
    if result is None:
      return NOTICED, description
    return (UNREAD if result == self._expected else SILENT), description

  def _swap_content(self, file: pathlib.Path, rng: random.Random) -> bytes:
    """Returns the other artifact's file, or any file if names are random."""
    other = self._sources[1] / file
    if not other.is_file():
      siblings = [p for p in sorted(other.parent.glob('*')) if p.is_file()]
      other = rng.choice(siblings) if siblings else self._sources[0] / file
    return other.read_bytes()


def _mutate_file(path, action, rng: random.Random, other: bytes) -> None:
  content = bytearray(path.read_bytes())
  position = rng.randrange(len(content))
  if action == 'flip':
    content[position] ^= 1 << rng.randrange(8)
  elif action == 'zero':
    stop = min(len(content), position + rng.choice((1, 16, 4096)))
    content[position:stop] = bytes(stop - position)
  elif action == 'truncate':
    del content[position:]
  elif action == 'swap':
    content = bytearray(other)
  if action == 'delete':
    path.unlink()
  else:
    path.write_bytes(content)


def _state(number: int, step: int):
  state = tiny.regression_state(_OPTIMIZER, ema=True)
  state = tiny.numbered(state).replace(step=jnp.int32(step))
  return state.replace(params=jax.tree.map(lambda x: x + number, state.params))


def _make_run(directory: pathlib.Path, number: int) -> None:
  run_directory.write_model(
    directory, tiny.make_model(max_position_embeddings=32 + number)
  )
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  for step in (1, 2):
    saved.save(_state(number, step), {'seed': number})
  saved.close()


def _read_run(directory: pathlib.Path) -> Any:
  state = _state(0, 0)
  factory = types.SimpleNamespace(
    abstract=jax.eval_shape(lambda: state),
    abstract_sharded=jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      state,
    ),
  )
  model = run_directory.read_model(directory)
  saved = checkpoints.Checkpoints(directory)
  try:
    restored = saved.restore_last(factory)
  finally:
    saved.close()
  if restored is None or restored.step != 2:
    return None
  leaves = jax.tree.leaves(restored.state)
  return [str(model), restored.meta, *(np.asarray(x).tolist() for x in leaves)]


def _make_files(directory: pathlib.Path, number: int) -> None:
  """Writes the small files of a run."""
  run_directory.write_model(directory, tiny.make_model())
  objective_config.write_objectives(directory, [])
  run_directory.write_json(
    directory / run_directory.TRAINER, {'class': 'x', 'fields': {'n': number}}
  )
  data_fingerprint.record_inputs(
    directory, {'vocabulary': str(number), 'datasets': {}}, {}
  )
  result_store.write_result(
    directory,
    eval_task.EvalResult(metrics={'accuracy': 0.25 + number}),
    step=7,
    identity=_identity(number),
  )
  lines = ''.join(f'{{"step": {s}, "n": {number}}}\n' for s in range(9))
  (directory / run_directory.METRICS).write_text(lines)


def _identity(number: int) -> dict[str, Any]:
  """Returns the identity of a result, including that of the checkpoint."""
  shared = dict.fromkeys(result_store._SHARED, 0)
  task = {'name': 'probe'}
  return {**shared, 'task': task, 'split': 'test', 'checkpoint': str(number)}


_LINES = ''.join(f'{{"step": {s}, "n": 0}}\n' for s in range(9))


def _read_files(directory: pathlib.Path) -> Any:
  text = str(run_directory.read_model(directory))
  trainer = run_directory.read_json(directory / run_directory.TRAINER)
  if trainer['fields'] != {'n': 0}:
    return None  # a resumed run compares it with its own configuration
  result = result_store.read_finished(directory, _identity(0), 7)
  path = directory / run_directory.METRICS
  metrics = path.read_bytes() if path.exists() else b''
  if result is None or metrics != _LINES.encode():
    return None  # evaluated again; resuming reports damaged metrics
  return [text, objective_config.read_objectives(directory), result.metrics]


def _make_cache(directory: pathlib.Path, number: int) -> None:
  """Writes a cache of one task without SeqIO."""
  rng = np.random.default_rng(number)
  lengths = rng.integers(3, 9, 40)
  tokens = rng.integers(5, 60, int(lengths.sum()), dtype=np.int32)
  side = tokenized_examples.Ragged(tokens, lengths)
  batch = tokenized_examples.Examples((side,), np.zeros(40, bool))
  target = cache_format.task_directory(directory, 't', 'train')
  entry = cache_shards.write_shard_file(
    cache_format.shard_file(target, 'part-000000'),
    [batch],
    dtype=np.dtype(np.uint16),
    spec=types.SimpleNamespace(eos_id=2, unk_id=3),
    sides=('targets',),
  )
  meta = cache_format.TaskMeta(
    task='t',
    split='train',
    languages=('en',),
    source_examples=40,
    vocabulary='v',
    fingerprint={},
    shard_size=40,
    shards=(entry,),
  )
  path = cache_format.generation_file(target, 1)
  cache_format.write_json(path, meta.to_json())
  checksums.seal_directory(target)
  task_entry = {'generation': 1, 'digest': checksums.digest_file(path)}
  cache_metadata.Header(
    {'hash': 'v', 'size': 64, 'languages': ['en']},
    [
      cache_metadata.Generation(
        {'m': {'train': {'t': 1.0}}},
        {cache_format.task_key('t', 'train'): task_entry},
      )
    ],
  ).write(directory)


def _read_cache(directory: pathlib.Path) -> Any:
  cache = cache_reader.TokenCache(directory)
  task = cache.open('m', 'train')['t']
  cache.verify('m', 'train')
  arrays = [task.shards.starts_document()]
  examples = sum(entry.examples for entry in task.shards.entries)
  for side in task.sides:
    starts, stops = side.bounds(np.arange(examples))
    arrays += [starts, stops, *side.slices(starts, stops)]
  return [task.meta, cache.mixtures, *(array.tolist() for array in arrays)]


def _make_folder(directory: pathlib.Path, number: int) -> None:
  """Writes an exported model, which is sealed regardless of its content."""
  directory.mkdir(parents=True)
  (directory / 'config.json').write_text(f'{{"model_type": "x{number}"}}')
  (directory / 'model.safetensors').write_bytes(
    bytes(range(200)) * (number + 1)
  )
  checksums.seal_directory(directory)


def _read_folder(directory: pathlib.Path) -> Any:
  if not (directory / checksums.FILE).exists():
    return None  # not an xlflax export, which `xlflax verify` reports
  huggingface_import.check_digests(directory)
  return {
    path.name: path.read_bytes()
    for path in _files(directory)
    if path.name != checksums.FILE
  }


def _files(directory: pathlib.Path) -> Iterator[pathlib.Path]:
  return (path for path in sorted(directory.rglob('*')) if path.is_file())


KINDS = (
  Kind('run', _make_run, _read_run),
  Kind('files', _make_files, _read_files),
  Kind('cache', _make_cache, _read_cache),
  Kind('folder', _make_folder, _read_folder),
)
