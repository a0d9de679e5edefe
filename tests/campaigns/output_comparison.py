"""Comparison of the files that two calls of a command wrote."""

import csv
import io
import json
import pathlib
from typing import Any

import numpy as np

from xlflax.storage import manifests

# Fields that differ in every call: times, and the random names of runs with the
# digests of the files that contain them.
_VOLATILE_FIELDS = {'run', 'digest', 'seconds', 'speed'}
_NAME_ONLY = ('.html', '.png')  # these files contain times


def read_outputs(
  directory: pathlib.Path, *, older_checkpoints: bool = True
) -> dict[str, Any]:
  """Returns a mapping from path to content of every file below a directory.

  For checkpoints, the arrays of the newest one are compared. For its files and
  for older checkpoints, only the names are compared, because the data files of
  Orbax have random names.

  Args:
    directory: Directory with the output of a command.
    older_checkpoints: Whether to include all checkpoints. If False, the result
      contains only the arrays of the newest one. A run that was stopped by a
      signal has a checkpoint of the step at which it stopped, which can replace
      a periodic one.
  """
  contents: dict[str, Any] = {}
  for path in sorted(directory.rglob('*')):
    name = path.relative_to(directory).as_posix()
    if 'checkpoints' in path.parts and not older_checkpoints:
      continue
    if path.is_dir():
      contents[name] = None
    elif path.parent.name == 'd' and 'checkpoints' in path.parts:
      continue
    elif 'checkpoints' in path.parts or path.suffix in _NAME_ONLY:
      contents[name] = None
    else:
      contents[name] = _content(path)
  for path in directory.rglob('checkpoints'):
    newest = max((step for step in path.iterdir()), key=lambda s: int(s.name))
    run = path.parent.relative_to(directory).as_posix()
    for item in ('params', 'train'):
      arrays = _arrays(newest / item)
      contents |= {f'{run}: {name}': value for name, value in arrays.items()}
  return contents


def describe_difference(
  actual: dict[str, Any], expected: dict[str, Any]
) -> str:
  """Returns a description of the differences, or '' if there are none."""
  for label, names in (
    ('additional', actual.keys() - expected.keys()),
    ('missing', expected.keys() - actual.keys()),
    (
      'other content',
      {n for n in actual.keys() & expected.keys() if actual[n] != expected[n]},
    ),
  ):
    if names:
      return f'{label}: {", ".join(sorted(names)[:5])}'
  return ''


def verify_outputs(directory: pathlib.Path) -> str:
  """Returns the report of `xlflax verify`, or '' if the artifact is valid."""
  from xlflax import integrity

  report = integrity.verify_directory(directory)
  return '' if report.is_valid else integrity.format_report(report)


def _content(path: pathlib.Path) -> Any:
  """Returns bytes, or parsed JSON and CSV without volatile fields."""
  content = path.read_bytes()
  if path.name == manifests.FILE:  # their files are compared directly
    return sorted(json.loads(content)['files'])
  if path.suffix == '.json':
    return _remove_volatile_fields(json.loads(content))
  if path.suffix == '.jsonl':
    return [
      _remove_volatile_fields(json.loads(line)) for line in content.splitlines()
    ]
  if path.suffix == '.csv':
    return _remove_volatile_fields(
      list(csv.DictReader(io.StringIO(content.decode())))
    )
  return content


def _remove_volatile_fields(value: Any) -> Any:
  if isinstance(value, list):
    return [_remove_volatile_fields(item) for item in value]
  if isinstance(value, dict):
    return {
      k: _remove_volatile_fields(v)
      for k, v in value.items()
      if k not in _VOLATILE_FIELDS
    }
  return value


def _arrays(item: pathlib.Path) -> dict[str, Any]:
  """Returns the type, shape and bytes of each array of a checkpoint item."""
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
