"""Whether what a cache's JSON says can be: types, names and numbers.

A digest of its own tells that a file has not been damaged, not that its writer
meant well.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from xlflax.utils import errors

_SHARD = re.compile(r'[\w.-]+', re.ASCII)  # no folders
_MOST = 1 << 40  # examples or tokens


def check_shard_json(data: Any) -> None:
  """Raises CacheError unless this is a `ShardEntry` as JSON."""
  _check(
    'shard',
    data,
    {
      'name': lambda v: isinstance(v, str) and bool(_SHARD.fullmatch(v)),
      'digest': _text,
      'examples': _count,
      'empty': _count,
      'tokens': _list_of(_count),
      'unknown': _list_of(_count),
      'library': _text,
      'begins': _truth,
      'starts': _truth,
    },
  )
  if not 1 <= len(data['tokens']) == len(data['unknown']) <= 2:
    raise _impossible('shard', 'tokens', data['tokens'])


def check_task_json(data: Any) -> None:
  """Raises CacheError unless this is a `TaskMeta` as JSON."""
  _check(
    'task',
    data,
    {
      'task': _text,
      'split': _text,
      'languages': lambda v: _list_of(_text)(v) and 1 <= len(v) <= 2,
      'source_examples': _count,
      'vocabulary': _text,
      'fingerprint': _fingerprint,
      'shard_size': _count,
      'shards': _list_of(lambda v: isinstance(v, dict)),
    },
  )
  for shard in data['shards']:
    check_shard_json(shard)
    if len(shard['tokens']) != len(data['languages']):
      raise _impossible('shard', 'tokens', shard['tokens'])


def check_header_json(data: Any) -> None:
  """Raises CacheError unless this is the content of cache.json."""
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
    {'hash': _text, 'size': _count, 'languages': _list_of(_text)},
  )
  of_task = _dict_of(
    lambda v: (
      isinstance(v, dict)
      and _count(v.get('generation'))
      and _text(v.get('digest'))
    )
  )
  for generation in data['generations']:
    _check(
      'generation',
      generation,
      {'mixtures': _dict_of(_dict_of(_dict_of(_rate))), 'tasks': of_task},
    )


def _check(
  what: str, data: Any, fields: Mapping[str, Callable[[Any], bool]]
) -> None:
  if not isinstance(data, dict):
    raise _impossible(what, 'all of it', data)
  for name, fits in fields.items():
    if name not in data or not fits(data[name]):
      raise _impossible(what, name, data.get(name))


def _impossible(what: str, name: str, got: Any) -> errors.CacheError:
  return errors.CacheError(
    f'A file of the token cache says something impossible of a {what}',
    got=repr(got)[:200],
    where=name,
    fix='Delete the cache and write it again',
  )


def _text(value: Any) -> bool:
  return isinstance(value, str)


def _truth(value: Any) -> bool:
  return isinstance(value, bool)


def _count(value: Any) -> bool:
  return type(value) is int and 0 <= value < _MOST


def _rate(value: Any) -> bool:
  return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
  return lambda value: isinstance(value, list) and all(map(fits, value))


def _dict_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
  return lambda value: (
    isinstance(value, dict) and all(map(fits, value.values()))
  )


def _fingerprint(value: Any) -> bool:
  """Of the source: its files, with size and time, and the steps after it."""

  def is_file(one: Any) -> bool:
    return (
      isinstance(one, list)
      and len(one) in (1, 3)  # size and time are those of files
      and _text(one[0])
      and all(type(number) is int for number in one[1:])
    )

  return (
    isinstance(value, dict)
    and _list_of(is_file)(value.get('files', []))
    and isinstance(value.get('preprocessors', []), list)
  )
