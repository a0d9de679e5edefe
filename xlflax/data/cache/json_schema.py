"""Validation of the types, names and numbers in a token cache's JSON files.

A file's digest shows only that the file is not damaged. It does not show that
the file was written by a trusted program.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from xlflax.utils import errors

# Names of shards must not contain directories.
_SHARD_NAME = re.compile(r'[\w.-]+', re.ASCII)
_MAX_COUNT = 1 << 40  # examples or tokens


def check_shard_json(data: Any) -> None:
  """Checks that JSON data describes a valid `ShardEntry`.

  Raises:
    CacheError: If a field of the JSON data is missing or invalid.
  """
  _check(
    'shard',
    data,
    {
      'name': lambda v: isinstance(v, str) and bool(_SHARD_NAME.fullmatch(v)),
      'digest': _is_text,
      'examples': _is_count,
      'empty': _is_count,
      'tokens': _list_of(_is_count),
      'unknown': _list_of(_is_count),
      'library': _is_text,
      'begins': _is_bool,
      'starts': _is_bool,
    },
  )
  if not 1 <= len(data['tokens']) == len(data['unknown']) <= 2:
    raise _invalid_error('shard', 'tokens', data['tokens'])


def check_task_json(data: Any) -> None:
  """Checks that JSON data describes a valid `TaskMeta`.

  Raises:
    CacheError: If a field of the JSON data is missing or invalid.
  """
  _check(
    'task',
    data,
    {
      'task': _is_text,
      'split': _is_text,
      'languages': lambda v: _list_of(_is_text)(v) and 1 <= len(v) <= 2,
      'source_examples': _is_count,
      'vocabulary': _is_text,
      'fingerprint': _is_fingerprint,
      'shard_size': _is_count,
      'shards': _list_of(lambda v: isinstance(v, dict)),
    },
  )
  for shard in data['shards']:
    check_shard_json(shard)
    if len(shard['tokens']) != len(data['languages']):
      raise _invalid_error('shard', 'tokens', shard['tokens'])


def check_header_json(data: Any) -> None:
  """Checks that JSON data is the valid content of a `cache.json` file.

  Raises:
    CacheError: If a field of the JSON data is missing or invalid.
  """
  _check(
    'header',
    data,
    {
      'vocabulary': lambda v: isinstance(v, dict),
      'generations': _list_of(lambda v: isinstance(v, dict)),
    },
  )
  _check(
    'header',
    data['vocabulary'],
    {'hash': _is_text, 'size': _is_count, 'languages': _list_of(_is_text)},
  )
  is_task_dict = _dict_of(
    lambda v: (
      isinstance(v, dict)
      and _is_count(v.get('generation'))
      and _is_text(v.get('digest'))
    )
  )
  for generation in data['generations']:
    _check(
      'generation',
      generation,
      {
        'mixtures': _dict_of(_dict_of(_dict_of(_is_rate))),
        'tasks': is_task_dict,
      },
    )


def _check(
  kind: str, data: Any, fields: Mapping[str, Callable[[Any], bool]]
) -> None:
  """Checks the fields of a JSON object.

  Args:
    kind: Noun that describes the object in the error message, such as 'shard'.
    data: Value to check, which must be a JSON object.
    fields: Mapping from the name of each required field to a function that
      returns whether a value is valid.

  Raises:
    CacheError: If the data is not an object, or if a field is invalid.
  """
  if not isinstance(data, dict):
    raise _invalid_error(kind, 'JSON object', data)
  for name, is_valid in fields.items():
    if name not in data or not is_valid(data[name]):
      raise _invalid_error(kind, name, data.get(name))


def _invalid_error(kind: str, field: str, value: Any) -> errors.CacheError:
  return errors.CacheError(
    f'The metadata of a {kind} in the token cache is invalid',
    got=repr(value)[:200],
    where=field,
    fix='Delete the cache and write it again.',
  )


def _is_text(value: Any) -> bool:
  return isinstance(value, str)


def _is_bool(value: Any) -> bool:
  return isinstance(value, bool)


def _is_count(value: Any) -> bool:
  return type(value) is int and 0 <= value < _MAX_COUNT


def _is_rate(value: Any) -> bool:
  return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _list_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
  """Returns a function that recognizes lists of valid elements."""
  return lambda value: isinstance(value, list) and all(map(is_valid, value))


def _dict_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
  """Returns a function that recognizes dicts of valid values."""
  return lambda value: (
    isinstance(value, dict) and all(map(is_valid, value.values()))
  )


def _is_fingerprint(value: Any) -> bool:
  """Returns whether a value is the fingerprint of a source.

  A fingerprint contains the source's preprocessing steps and its files, with
  each file's size and its modification time or content digest.
  """

  def is_file(entry: Any) -> bool:
    return (
      isinstance(entry, list)
      # Sources that are not files on disk have a name only.
      and len(entry) in (1, 3)
      and _is_text(entry[0])
      and all(type(number) is int for number in entry[1:])
    )

  return (
    isinstance(value, dict)
    and _list_of(is_file)(value.get('files', []))
    and isinstance(value.get('preprocessors', []), list)
    and isinstance(value.get('code', {}), dict)
  )
