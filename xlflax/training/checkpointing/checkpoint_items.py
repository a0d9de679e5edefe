"""The items of a checkpoint, each sealed by digests of its files.

Orbax calls `finalize` on an item when all its files are on disk and the
checkpoint has not got its name yet. So a checkpoint that is finished has
digests, and no step waits for them.
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

from xlflax.storage import checksums, manifests, paths, tensorstore_specs
from xlflax.utils import errors

tensorstore_specs.enable_s3_in_orbax()

PARAMS, TRAIN, META = NAMES = ('params', 'train', 'meta')
_META_FILE = 'metadata'  # Orbax's name of the JSON
SCORE = 'metrics/metrics'  # what Orbax chooses the best checkpoint by
_FILES, _SCORED = 'files', 'scored'  # keys of `meta`
_LONGEST_TEXT = 1 << 16
_SMALL = 1 << 20
_CHUNK = 1 << 26  # bytes of an array that are encoded in one


@dataclasses.dataclass(frozen=True)
class Later:
  """An array, float32, that is made when its turn to be written has come."""

  shape: tuple[int, ...]
  make: Callable[[], np.ndarray]
  dtype: ClassVar[np.dtype] = np.dtype(np.float32)

  @property
  def size(self) -> int:
    """The number of its values."""
    return math.prod(self.shape)


class _InTurn(ocp.type_handlers.NumpyHandler):
  """Writes arrays that are made later one after the other."""

  async def serialize(self, values, infos, args=None):
    """See Orbax; returns when all is written."""
    args = args or [ocp.SaveArgs()] * len(values)
    for value, info, arg in zip(values, infos, args, strict=True):
      arg = dataclasses.replace(arg, chunk_byte_size=_CHUNK)
      for one in await super().serialize([value.make()], [info], [arg]):
        one.result()
    return []


_REGISTRY = ocp.type_handlers.create_type_handler_registry(
  (jax.Array, ocp.type_handlers.ArrayHandler()),
  (Later, _InTurn(deepcopy_host_arrays=False)),
)


class _Sealed:
  """What the handlers below add to Orbax's."""

  about: dict[str, Any] = {}  # which checkpoint the next digests are of

  def finalize(self, directory) -> None:
    """Ends the writing of an item."""
    is_first = jax.process_index() == 0
    if is_first:
      paths.wait_until_listed(paths.to_path(directory))
    super().finalize(directory)  # type: ignore[misc]
    if is_first:
      paths.wait_until_listed(paths.to_path(directory))
      checksums.seal_directory(paths.to_path(directory), self.about)


class SealedArrays(_Sealed, ocp.StandardCheckpointHandler):
  """Arrays, written in one go."""


class SealedTree(_Sealed, ocp.PyTreeCheckpointHandler):
  """Arrays, written a few at a time."""


class SealedJson(_Sealed, ocp.JsonCheckpointHandler):
  """Plain JSON."""


@ocp.args.register_with_handler(SealedArrays, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveArrays(ocp.args.StandardSave):
  """Arguments of a save."""


@ocp.args.register_with_handler(SealedTree, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveTree(ocp.args.PyTreeSave):
  """Arguments of a save."""


@ocp.args.register_with_handler(SealedJson, for_save=True, for_restore=True)
@dataclasses.dataclass
class SaveJson(ocp.args.JsonSave):
  """Arguments of a save."""


def make_handlers(write_concurrent_gb: int | None) -> dict[str, Any]:
  """Item -> what writes it; see `CheckpointOptions.write_concurrent_gb`."""
  return {
    PARAMS: SealedArrays()
    if write_concurrent_gb is None
    else SealedTree(
      save_concurrent_gb=write_concurrent_gb,
      use_compression=False,
      type_handler_registry=_REGISTRY,
    ),
    TRAIN: SealedArrays(),
    META: SealedJson(),
  }


def read_arrays(checkpoint: pathlib.Path, item: str, abstract: Any) -> Any:
  """All arrays of an item, as `abstract` describes them."""
  return ocp.StandardCheckpointHandler().restore(
    paths.to_absolute_path(checkpoint) / item,
    args=ocp.args.StandardRestore(abstract),
  )


def read_meta(checkpoint: pathlib.Path) -> dict[str, Any]:
  """The item `meta`.

  Raises:
    OSError, ValueError: it cannot be read.
  """
  path = paths.to_absolute_path(checkpoint) / META / _META_FILE
  meta = json.loads(path.read_text(encoding='utf-8'))
  if not isinstance(meta, dict):
    raise ValueError(f'{path} holds no JSON object')
  return meta


def given_meta(meta: dict[str, Any]) -> dict[str, Any]:
  """What was given to be kept as `meta`, without `own_meta`."""
  return {k: v for k, v in meta.items() if k not in (_FILES, _SCORED)}


def own_meta(
  model_dir: pathlib.Path, scored: dict[str, float] | None
) -> dict[str, Any]:
  """What every checkpoint's `meta` has of itself.

  Args:
    model_dir: the run, whose small files are kept, for `xlflax verify` to
      write them again.
    scored: the metric by which the best checkpoint is chosen.
  """
  files = dict(manifests.iterate_texts(model_dir, longest=_LONGEST_TEXT))
  return {_FILES: files, _SCORED: scored}


def kept_files(checkpoint: pathlib.Path) -> dict[str, str]:
  """Name -> text of the run's small files when a checkpoint was written.

  Raises:
    OSError, ValueError: `meta` cannot be read.
  """
  return read_meta(checkpoint).get(_FILES, {})


def score_text(checkpoint: pathlib.Path) -> str | None:
  """What the file `SCORE` has to say; None where there is to be none.

  Raises:
    OSError, ValueError: `meta` cannot be read.
  """
  scored = read_meta(checkpoint).get(_SCORED)
  return None if scored is None else json.dumps(scored)


def score_problem(checkpoint: pathlib.Path) -> str:
  """What is wrong with the file `SCORE`; '' where nothing is."""
  try:
    expected_text = score_text(checkpoint)
  except (OSError, ValueError, RecursionError):
    return ''  # `meta` is damaged, which its digest says
  if expected_text is None:
    return ''
  try:
    stored_score = json.loads((checkpoint / SCORE).read_text(encoding='utf-8'))
  except FileNotFoundError:
    return f'{SCORE} is missing'
  except (OSError, ValueError, RecursionError) as error:
    return f'{SCORE} cannot be read ({error})'
  same = json.dumps(stored_score) == expected_text
  return '' if same else f'{SCORE} has another content than was written'


def read_seal_metadata(checkpoint: pathlib.Path) -> dict[str, Any]:
  """What a checkpoint's parameters were sealed with; {} if that is damaged."""
  try:
    return checksums.read_seal(checkpoint / PARAMS).about
  except (OSError, ValueError, RecursionError):
    return {}


def checkpoint_identity(checkpoint: pathlib.Path) -> str:
  """What tells a checkpoint's arrays from all others; '' without any."""
  try:
    seals = [(checkpoint / item / checksums.FILE) for item in (PARAMS, TRAIN)]
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
  """Refuses items of which a file is not as it was written.

  Args:
    checkpoint: a finished checkpoint's directory.
    *items: of `NAMES`.
    run: which run it must be of; '' does not matter.
    share: (i, n) looks at each n-th file, from the i-th on.

  Raises:
    CheckpointError: files have changed or are missing, or the items are not
      of one checkpoint; all is listed.
  """
  problems = [
    f'{item}/{problem}'
    for item in items
    for problem in _problems(checkpoint / item, share)
  ]
  if not problems:
    of = [checksums.read_seal(checkpoint / item).about for item in items]
    if any(about != of[0] for about in of):
      problems = [f'{", ".join(items)} are of different checkpoints']
    elif of[0].get('step') != int(checkpoint.name):
      problems = [f'it is the checkpoint of step {of[0].get("step")}']
    elif run and of[0].get('run') != run:
      problems = ["it is another run's, or model.json is"]
  if problems:
    raise _damaged(checkpoint, problems)


def verify_description(checkpoint: pathlib.Path, item: str) -> None:
  """As `verify_items`, of the small files, which say what arrays there are."""
  problems = checksums.find_problems(checkpoint / item, largest=_SMALL)
  if problems:
    raise _damaged(checkpoint, [f'{item}/{problem}' for problem in problems])


def _damaged(
  checkpoint: pathlib.Path, problems: list[str]
) -> errors.CheckpointError:
  return errors.CheckpointError(
    'A checkpoint is damaged',
    got='; '.join(problems[:20]),
    expected='the files as they were written',
    where=str(checkpoint),
    fix='use another checkpoint, or copy this one again',
  )


# Directory -> size and time of each file when all were found whole.
_WHOLE: dict[str, Any] = {}


def _problems(directory: pathlib.Path, share: tuple[int, int]) -> list[str]:
  """As `checksums.find_problems`; what a process has read once is only listed."""
  if paths.is_bucket(directory):
    return checksums.find_problems(directory, share=share)
  listing = _listed(directory)
  if listing is not None and _WHOLE.get(str(directory)) == (share, listing):
    return []
  problems = checksums.find_problems(directory, share=share)
  if not problems:
    _WHOLE[str(directory)] = (share, listing)
  return problems


def _listed(directory: pathlib.Path) -> list[tuple[str, int, int]] | None:
  """Name, size and time of each sealed file; None where one is missing."""
  try:
    names = [checksums.FILE, *checksums.read_seal(directory).files]
    stats = [(name, (directory / name).stat()) for name in names]
  except (OSError, ValueError):
    return None
  return [(name, status.st_size, status.st_mtime_ns) for name, status in stats]
