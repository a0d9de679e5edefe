"""What a command left on disk, comparable with what another call left."""

import csv
import io
import json
import pathlib
from typing import Any

import numpy as np

from xlflax.storage import manifests

# What two calls never have in common: times, and the random names of runs,
# with the digests of the files that they are in.
_OWN = {'run', 'digest', 'seconds', 'speed'}
_NAME_ONLY = ('.html', '.png')  # they show times


def behind(directory: pathlib.Path) -> dict[str, Any]:
  """Path -> content of every file in and below a directory.

  Of checkpoints the arrays of the newest one are compared; of its files, and
  of the older ones, the names. Data files of Orbax have random names.
  """
  found: dict[str, Any] = {}
  for path in sorted(directory.rglob('*')):
    name = path.relative_to(directory).as_posix()
    if path.is_dir():
      found[name] = None
    elif path.parent.name == 'd' and 'checkpoints' in path.parts:
      continue
    elif 'checkpoints' in path.parts or path.suffix in _NAME_ONLY:
      found[name] = None
    else:
      found[name] = _content(path)
  for path in directory.rglob('checkpoints'):
    newest = max((step for step in path.iterdir()), key=lambda s: int(s.name))
    run = path.parent.relative_to(directory).as_posix()
    for item in ('params', 'train'):
      arrays = _arrays(newest / item)
      found |= {f'{run}: {name}': value for name, value in arrays.items()}
  return found


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
  """What differs, in words; '' for nothing."""
  for what, names in (
    ('left behind', ours.keys() - theirs.keys()),
    ('missing', theirs.keys() - ours.keys()),
    (
      'other content',
      {n for n in ours.keys() & theirs.keys() if ours[n] != theirs[n]},
    ),
  ):
    if names:
      return f'{what}: {", ".join(sorted(names)[:5])}'
  return ''


def damage(directory: pathlib.Path) -> str:
  """What `xlflax verify` says of an artifact; '' where it is whole."""
  from xlflax import integrity

  found = integrity.verify_directory(directory)
  return '' if found.is_valid else integrity.format_report(found)


def _content(path: pathlib.Path) -> Any:
  """Bytes, or JSON and CSV without what is a call's own."""
  content = path.read_bytes()
  if path.name == manifests.FILE:  # digests of what is compared by itself
    return sorted(json.loads(content)['files'])
  if path.suffix == '.json':
    return _shared(json.loads(content))
  if path.suffix == '.jsonl':
    return [_shared(json.loads(line)) for line in content.splitlines()]
  if path.suffix == '.csv':
    return _shared(list(csv.DictReader(io.StringIO(content.decode()))))
  return content


def _shared(value: Any) -> Any:
  if isinstance(value, list):
    return [_shared(item) for item in value]
  if isinstance(value, dict):
    return {k: _shared(v) for k, v in value.items() if k not in _OWN}
  return value


def _arrays(item: pathlib.Path) -> dict[str, Any]:
  """Name -> type, shape and bytes of the arrays of a checkpoint's item."""
  import jax
  import orbax.checkpoint as ocp

  with ocp.PyTreeCheckpointer() as checkpointer:
    tree = checkpointer.restore(item.absolute())
  return {
    f'{item.name}{jax.tree_util.keystr(path)}': (
      np.asarray(leaf).dtype.str,
      np.shape(leaf),
      np.asarray(leaf).tobytes(),
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }
