"""Orbax handlers for checkpoint items, and digests that verify their files.

Orbax calls `finalize` on an item after all its files are written and before the
checkpoint gets its final name. Every finished checkpoint therefore has digests,
and no training step waits for their computation.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from xlflax.models import adapter_config
from xlflax.storage import checksums, manifests, paths, tensorstore_specs
from xlflax.training import param_tree
from xlflax.utils import errors

tensorstore_specs.enable_s3_in_orbax()

PARAMS, TRAIN, META = NAMES = ('params', 'train', 'meta')
ADAPTERS = 'adapters'  # Item of a model with adapters.
_META_FILE = 'metadata'  # File name that Orbax gives to the JSON.
SCORE = 'metrics/metrics'  # File by which Orbax selects the best checkpoint.
_FILES, _SCORED = 'files', 'scored'  # Keys of the item `meta`.
_MAX_TEXT_BYTES = 1 << 16
_MAX_METADATA_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 26  # Bytes of an array that are encoded at once.


@dataclasses.dataclass(frozen=True)
class LazyArray:
  """Float32 array that is computed only when it is written to a checkpoint.

  Attributes:
    shape: Shape of the array.
    make: Function that computes the array's values.
  """

  shape: tuple[int, ...]
  make: Callable[[], np.ndarray]
  dtype: ClassVar[np.dtype] = np.dtype(np.float32)

  @property
  def size(self) -> int:
    """Number of elements in the array."""
    return math.prod(self.shape)


class _SequentialHandler(ocp.type_handlers.NumpyHandler):
  """Handler that computes and writes lazy arrays one after the other."""

  async def serialize(self, values, infos, args=None):
    """See base class. Returns after all arrays are written."""
    args = args or [ocp.SaveArgs()] * len(values)
    for value, info, arg in zip(values, infos, args, strict=True):
      arg = dataclasses.replace(arg, chunk_byte_size=_CHUNK_BYTES)
      futures = await super().serialize([value.make()], [info], [arg])
      for future in futures:
        future.result()
    return []


_REGISTRY = ocp.type_handlers.create_type_handler_registry(
  (jax.Array, ocp.type_handlers.ArrayHandler()),
  (LazyArray, _SequentialHandler(deepcopy_host_arrays=False)),
)


class _SealingMixin:
  """Extension of an Orbax handler that also writes digests of the item's files.

  Attributes:
    about: Metadata that identifies the checkpoint whose digests are written
      next.
  """

  about: dict[str, Any] = {}

  def finalize(self, directory) -> None:
    """Completes a checkpoint item and writes the digests of its files."""
    is_first = jax.process_index() == 0
    if is_first:
      paths.wait_until_listed(paths.to_path(directory))
    super().finalize(directory)  # type: ignore[misc]
    if is_first:
      paths.wait_until_listed(paths.to_path(directory))
      checksums.seal_directory(paths.to_path(directory), self.about)


class SealedArrays(_SealingMixin, ocp.StandardCheckpointHandler):
  """Orbax handler that writes all arrays of an item at once."""


class SealedTree(_SealingMixin, ocp.PyTreeCheckpointHandler):
  """Orbax handler that saves memory by writing a few arrays at a time."""


class SealedJson(_SealingMixin, ocp.JsonCheckpointHandler):
  """Orbax handler for items that contain plain JSON."""


@ocp.args.register_with_handler(SealedArrays, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveArrays(ocp.args.StandardSave):
  """Orbax arguments for saving an item with the handler `SealedArrays`."""


@ocp.args.register_with_handler(SealedTree, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveTree(ocp.args.PyTreeSave):
  """Orbax arguments for saving an item with the handler `SealedTree`."""


@ocp.args.register_with_handler(SealedJson, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveJson(ocp.args.JsonSave):
  """Orbax arguments for saving an item with the handler `SealedJson`."""


def make_handlers(save_concurrent_gb: int | None) -> dict[str, Any]:
  """Returns the Orbax handler for each item of a checkpoint.

  Args:
    save_concurrent_gb: Maximum total size of the parameters that are written at
      the same time, in units of 10^9 bytes. If None, there is no limit (see
      `CheckpointOptions`).
  """
  return {
    PARAMS: SealedArrays()
    if save_concurrent_gb is None
    else SealedTree(
      save_concurrent_gb=save_concurrent_gb,
      use_compression=False,
      type_handler_registry=_REGISTRY,
    ),
    TRAIN: SealedArrays(),
    ADAPTERS: SealedArrays(),
    META: SealedJson(),
  }


def split_params(params: Any) -> dict[str, Any]:
  """Splits parameters into the checkpoint items 'params' and 'adapters'.

  The item 'adapters' exists only if the parameters contain adapters.

  Args:
    params: Parameters `{'model': ..., 'heads': ...}`, or a part of them.
  """
  named: dict[str, dict[str, Any]] = {PARAMS: {}}
  for name, leaf in param_tree.flatten_params(params).items():
    is_adapter = adapter_config.adapter_name(name) is not None
    named.setdefault(ADAPTERS if is_adapter else PARAMS, {})[name] = leaf
  if ADAPTERS not in named:
    return {PARAMS: params}
  return {
    item: param_tree.unflatten_params(leaves) for item, leaves in named.items()
  }


def join_params(*parts: Any) -> Any:
  """Joins parts of a parameter tree. This is the inverse of `split_params`."""
  if len(parts) == 1:
    return parts[0]
  return param_tree.unflatten_params(
    {
      name: leaf
      for part in parts
      for name, leaf in param_tree.flatten_params(part).items()
    }
  )


def has_adapters(checkpoint: pathlib.Path) -> bool:
  """Returns whether a checkpoint has the item 'adapters'."""
  return (checkpoint / ADAPTERS).is_dir()


def item_of(checkpoint: pathlib.Path, parameter: str) -> str:
  """Returns the name of the checkpoint item that contains a parameter."""
  is_adapter = adapter_config.adapter_name(parameter) is not None
  return ADAPTERS if is_adapter and has_adapters(checkpoint) else PARAMS


def read_arrays(checkpoint: pathlib.Path, item: str, abstract: Any) -> Any:
  """Reads all arrays of a checkpoint item.

  Args:
    checkpoint: Directory that contains a finished checkpoint.
    item: Name of the checkpoint item.
    abstract: Tree of ShapeDtypeStructs that has the item's structure.
  """
  return ocp.StandardCheckpointHandler().restore(
    paths.to_absolute_path(checkpoint) / item,
    args=ocp.args.StandardRestore(abstract),
  )


def read_meta(checkpoint: pathlib.Path) -> dict[str, Any]:
  """Reads the JSON item `meta` of a checkpoint.

  Raises:
    OSError, ValueError: If the item is unreadable.
  """
  path = paths.to_absolute_path(checkpoint) / META / _META_FILE
  meta = json.loads(path.read_text(encoding='utf-8'))
  if not isinstance(meta, dict):
    raise ValueError(f'The file {path} does not contain a JSON object')
  return meta


def strip_meta(meta: dict[str, Any]) -> dict[str, Any]:
  """Returns the metadata without the entries that `make_meta` adds."""
  return {
    key: value for key, value in meta.items() if key not in (_FILES, _SCORED)
  }


def make_meta(
  model_dir: pathlib.Path, scored: dict[str, float] | None
) -> dict[str, Any]:
  """Returns the JSON entries that xlflax adds to each checkpoint's `meta` item.

  Args:
    model_dir: Model directory of the run. The texts of its small files are
      included, so that `xlflax verify` can restore them.
    scored: Name and value of the metric by which the best checkpoint is
      selected. If None, no best checkpoint is selected.
  """
  files = dict(manifests.iterate_texts(model_dir, max_bytes=_MAX_TEXT_BYTES))
  return {_FILES: files, _SCORED: scored}


def read_run_files(checkpoint: pathlib.Path) -> dict[str, str]:
  """Returns the copies of the run's small files that a checkpoint contains.

  Args:
    checkpoint: Directory that contains a finished checkpoint.

  Returns:
    Mapping from relative paths to texts.

  Raises:
    OSError, ValueError: If `meta` is unreadable.
  """
  return read_meta(checkpoint).get(_FILES, {})


def expected_score(checkpoint: pathlib.Path) -> str | None:
  """Returns the text that a checkpoint's `SCORE` file must contain.

  Returns None if no score was saved.

  Raises:
    OSError, ValueError: If `meta` is unreadable.
  """
  scored = read_meta(checkpoint).get(_SCORED)
  return None if scored is None else json.dumps(scored)


def find_score_problem(checkpoint: pathlib.Path) -> str:
  """Describes a problem with a checkpoint's `SCORE` file.

  Returns '' if there is no problem.
  """
  try:
    expected_text = expected_score(checkpoint)
  except (OSError, ValueError, RecursionError):
    return ''  # The digest of `meta` reveals this damage.
  if expected_text is None:
    return ''
  try:
    stored_score = json.loads((checkpoint / SCORE).read_text(encoding='utf-8'))
  except FileNotFoundError:
    return f'{SCORE} is missing'
  except (OSError, ValueError, RecursionError) as error:
    return f'{SCORE} is unreadable ({error})'
  if json.dumps(stored_score) != expected_text:
    return f'{SCORE} has changed since it was written'
  return ''


def read_seal_metadata(checkpoint: pathlib.Path) -> dict[str, Any]:
  """Returns the metadata in `params/digests.json`, or {} if it is damaged."""
  try:
    return checksums.read_seal(checkpoint / PARAMS).about
  except (OSError, ValueError, RecursionError):
    return {}


def checkpoint_identity(checkpoint: pathlib.Path) -> str:
  """Returns an identifier of a checkpoint's arrays, or '' if none exists."""
  try:
    items = (PARAMS, TRAIN) + (ADAPTERS,) * has_adapters(checkpoint)
    seals = [(checkpoint / item / checksums.FILE) for item in items]
    return checksums.digest_json([seal.read_text('utf-8') for seal in seals])[
      -16:
    ]
  except (FileNotFoundError, NotADirectoryError):
    return ''


def verify_items(
  checkpoint: pathlib.Path,
  *items: str,
  run: str = '',
  share: tuple[int, int] = (0, 1),
) -> None:
  """Verifies that checkpoint items have not changed since they were written.

  The item `adapters`, if it exists, is verified together with `params`.

  Args:
    checkpoint: Directory that contains a finished checkpoint.
    *items: Names of items, from `NAMES`.
    run: Identifier of the run to which the checkpoint must belong. If '', any
      run is accepted.
    share: Pair (i, n) that limits the verification to every n-th file, starting
      with the i-th, where i starts at 0.

  Raises:
    CheckpointError: If files have changed or are missing, or the items belong
      to different checkpoints. The message lists the problems.
  """
  if PARAMS in items and (
    has_adapters(checkpoint) or read_seal_metadata(checkpoint).get(ADAPTERS)
  ):
    items = (*items, ADAPTERS)
  problems = [
    f'{item}/{problem}'
    for item in items
    for problem in _find_problems(checkpoint / item, share)
  ]
  if not problems:
    metadata = [checksums.read_seal(checkpoint / item).about for item in items]
    first = metadata[0]
    if any(item_metadata != first for item_metadata in metadata):
      problems = [f'{", ".join(items)} belong to different checkpoints']
    elif first.get('step') != int(checkpoint.name):
      problems = [f'the checkpoint belongs to step {first.get("step")}']
    elif run and first.get('run') != run:
      problems = ['the checkpoint or model.json belongs to a different run']
  if problems:
    raise _make_damage_error(checkpoint, problems)


def verify_description(checkpoint: pathlib.Path, item: str) -> None:
  """Verifies the metadata files that describe a checkpoint item's arrays.

  Raises:
    CheckpointError: If files have changed or are missing.
  """
  problems = checksums.find_problems(
    checkpoint / item, largest=_MAX_METADATA_BYTES
  )
  if problems:
    raise _make_damage_error(
      checkpoint, [f'{item}/{problem}' for problem in problems]
    )


def _make_damage_error(
  checkpoint: pathlib.Path, problems: list[str]
) -> errors.CheckpointError:
  return errors.CheckpointError(
    'The checkpoint is damaged. Its files must be unchanged and must belong to '
    'the same checkpoint',
    got='; '.join(problems[:20]),
    where=str(checkpoint),
    fix='Use a different checkpoint, or copy this checkpoint again.',
  )


# Sizes and times of the files at the last successful verification, by item
# directory.
_VERIFIED: dict[str, Any] = {}


def _find_problems(
  directory: pathlib.Path, share: tuple[int, int]
) -> list[str]:
  """Calls `checksums.find_problems` unless the files were verified before.

  Files on disk are read once per process. Later calls compare sizes and times.
  """
  if paths.is_bucket(directory):
    return checksums.find_problems(directory, share=share)
  listing = _list_files(directory)
  if listing is not None and _VERIFIED.get(str(directory)) == (share, listing):
    return []
  problems = checksums.find_problems(directory, share=share)
  if not problems:
    _VERIFIED[str(directory)] = (share, listing)
  return problems


def _list_files(
  directory: pathlib.Path,
) -> list[tuple[str, *tuple[int, ...]]] | None:
  """Returns the states of files in `digests.json`, or None if one is missing.

  The state consists of the name, the size, the inode, and the times of the last
  modification and of the last change. An edit that restores the size and the
  modification time changes the last of these times.
  """
  try:
    names = [checksums.FILE, *checksums.read_seal(directory).files]
    stats = [(name, (directory / name).stat()) for name in names]
  except (OSError, ValueError):
    return None
  return [
    (
      name,
      status.st_size,
      status.st_ino,
      status.st_mtime_ns,
      status.st_ctime_ns,
    )
    for name, status in stats
  ]
