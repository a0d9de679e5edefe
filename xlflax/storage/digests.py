"""Digests of files: whether what was written is what is read.

A digest is `SIZE-KIND:CHECKSUM`. Of short content (64 KiB) the checksum is
SHA-256, of longer content CRC-32C (RFC 3720, appendix B.4) over pieces of
64 MiB; of an object in a bucket it is the CRC-32C of the whole that the bucket
keeps, so that nothing is read for it. A directory is sealed by a file of its
own, `digests.json`, with the digest of every other file and a digest of
itself. Checksums find damage, not forgery.
"""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import google_crc32c

from xlflax.foundation import errors
from xlflax.storage import paths

FILE = 'digests.json'
OWN = 'digest'  # key of a JSON object's own digest
_PIECE = 1 << 26  # bytes that one thread reads at a time
_BUFFER = 1 << 18  # stays in the processor's cache between read and sum
_SHORT = 1 << 16  # bytes of which SHA-256 costs next to nothing
_SHA256, _PIECES, _CRC32C = 'sha256', 'crc32c64', 'crc32c'


class Seal(NamedTuple):
  """What `digests.json` says.

  Attributes:
    files: path below the directory -> digest.
    about: plain JSON that whoever sealed it added.
  """

  files: dict[str, str]
  about: dict[str, Any]


def of_content(content: bytes | str, *, like: str = '') -> str:
  """The digest that a file with this content has.

  Args:
    content: text is encoded as UTF-8.
    like: as of `of_file`.
  """
  if isinstance(content, str):
    content = content.encode('utf-8')
  size = len(content)
  if f'-{_CRC32C}:' in like:
    return f'{size}-{_CRC32C}:{google_crc32c.value(content):08x}'
  if size <= _SHORT:
    return f'{size}-{_SHA256}:{hashlib.sha256(content).hexdigest()}'
  return _joined(
    size,
    [
      google_crc32c.value(content[start : start + _PIECE])
      for start in range(0, size, _PIECE)
    ],
  )


def of_chunks(chunks: Sequence[bytes | memoryview]) -> str:
  """The digest of a file with these contents, one after the other."""
  size = sum(len(chunk) for chunk in chunks)
  if size <= _SHORT:
    return of_content(b''.join(chunks))
  sums, room = [0], _PIECE
  for chunk in chunks:
    rest = memoryview(chunk)
    while rest:
      if not room:
        sums, room = [*sums, 0], _PIECE
      part, rest = rest[:room], rest[room:]
      sums[-1] = google_crc32c.extend(sums[-1], bytes(part))
      room -= len(part)
  return _joined(size, sums)


def of_json(value: Any) -> str:
  """The digest of plain JSON, however it is laid out in a file."""
  return of_content(json.dumps(value, sort_keys=True, ensure_ascii=True))


def of_file(path: pathlib.Path, *, like: str = '') -> str:
  """The digest of a file.

  Args:
    path: on disk or in a bucket.
    like: a digest to compare with, which says the kind of checksum; '' takes
      what is cheapest there.

  Raises:
    OSError: the file cannot be read.
  """
  known = _kept_by_bucket(path) if paths.is_bucket(path) else None
  of_whole = f'-{_CRC32C}:' in like
  if known and (of_whole or not like):
    return known
  if of_whole or paths.is_bucket(path):
    return of_content(path.read_bytes(), like=like)
  return of_files([path])[path]


def of_files(files: list[pathlib.Path]) -> dict[pathlib.Path, str]:
  """Digests of files on disk, read by several threads.

  Raises:
    OSError: a file cannot be read.
  """
  sizes = {path: path.stat().st_size for path in files}
  pieces = [
    (path, start)
    for path, size in sizes.items()
    if size > _SHORT
    for start in range(0, size, _PIECE)
  ]
  if len(pieces) < 3 or sum(sizes.values()) < _PIECE // 8:
    sums = [_sum(*piece) for piece in pieces]
  else:
    with concurrent.futures.ThreadPoolExecutor(
      min(8, os.cpu_count() or 1)
    ) as pool:
      sums = list(pool.map(lambda piece: _sum(*piece), pieces))
  of_path: dict[pathlib.Path, list[int]] = {path: [] for path in files}
  for (path, _), found in zip(pieces, sums, strict=True):
    of_path[path].append(found)
  return {
    path: _joined(sizes[path], found)
    if found
    else of_content(path.read_bytes())
    for path, found in of_path.items()
  }


def seal(directory: pathlib.Path, about: Mapping[str, Any] = {}) -> None:
  """Writes `digests.json` for all files in and below a directory."""
  files = [directory / name for name in _names(directory)]
  if paths.is_bucket(directory):
    found = {path: of_file(path) for path in files}
  else:
    found = of_files(files)
  write_seal(
    directory,
    {_relative(path, directory): digest for path, digest in found.items()},
    about,
  )


def write_seal(
  directory: pathlib.Path,
  files: Mapping[str, str],
  about: Mapping[str, Any] = {},
) -> None:
  """Writes `digests.json` from digests that are known."""
  content = {'files': dict(sorted(files.items())), 'about': dict(about)}
  paths.write_atomically(
    directory / FILE, json.dumps(with_own(content), indent=1) + '\n'
  )


def read_seal(directory: pathlib.Path) -> Seal:
  """What `digests.json` says.

  Raises:
    FileNotFoundError: there is none.
    ValueError: it is damaged.
  """
  content = checked(json.loads((directory / FILE).read_text(encoding='utf-8')))
  files, about = content.get('files'), content.get('about')
  if not isinstance(files, dict) or not isinstance(about, dict):
    raise ValueError('it lists no files')
  for name, digest in files.items():
    parts = pathlib.PurePosixPath(name).parts
    if not isinstance(digest, str) or not parts or {'..', '/'} & set(parts):
      raise ValueError(f'{name!r} is no file of the directory')
  return Seal(files, about)


def problems(
  directory: pathlib.Path,
  *,
  share: tuple[int, int] = (0, 1),
  largest: int | None = None,
) -> list[str]:
  """What is not as it was sealed, a line each; none where all is whole.

  Args:
    directory: sealed by `seal`.
    share: (i, n) checks each n-th file, beginning with the i-th.
    largest: of longer files, in bytes, only the length is checked.
  """
  try:
    files = read_seal(directory).files
  except FileNotFoundError:
    return [f'{FILE} is missing']
  except (OSError, ValueError, RecursionError) as error:
    _check_passing(error, directory / FILE)
    return [f'{FILE} is damaged ({_short(error)})']
  chosen = sorted(files)[share[0] :: share[1]]
  return list(
    changes(
      directory, {name: files[name] for name in chosen}, largest=largest
    ).values()
  )


def with_own(content: Mapping[str, Any]) -> dict[str, Any]:
  """A JSON object with its own digest, as `checked` takes it."""
  rest = {key: value for key, value in content.items() if key != OWN}
  return {**rest, OWN: of_json(rest)}


def checked(content: Any) -> dict[str, Any]:
  """The JSON object that `with_own` was given.

  Raises:
    ValueError: it is none, or has been changed.
  """
  if not isinstance(content, dict) or OWN not in content:
    raise ValueError('it has no digest of its own')
  rest = {key: value for key, value in content.items() if key != OWN}
  if content[OWN] != of_json(rest):
    raise ValueError('its content has changed')
  return rest


def read_json(
  path: pathlib.Path,
  *,
  error: type[errors.XlflaxError],
  what: str = 'A file is damaged',
  own: bool = False,
  fix: str | None = None,
  into: Callable[[Any], Any] = lambda value: value,
) -> Any:
  """The value of a JSON file that xlflax wrote.

  Args:
    path: the file.
    error: what is raised.
    what: the message's first sentence.
    own: whether the value has its own digest, as of `with_own`.
    fix: what to do about it.
    into: makes of the value what is returned.

  Raises:
    XlflaxError: of the kind `error`: the file cannot be read, is no JSON, has
      been changed, or holds what `into` can make nothing of.
  """
  try:
    value = json.loads(path.read_text(encoding='utf-8'))
    return into(checked(value) if own else value)
  except (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
  ) as found:
    errors.check_system(found, path)
    raise error(
      what,
      got=_short(found),
      expected='JSON, as xlflax wrote it',
      where=str(path),
      fix=fix,
    ) from found


def changes(
  directory: pathlib.Path,
  files: Mapping[str, str],
  *,
  largest: int | None = None,
) -> dict[str, str]:
  """File -> what is wrong with it, of files that differ from their digests.

  Args:
    directory: of the files.
    files: path below the directory -> digest.
    largest: as of `problems`.
  """
  found: dict[str, str] = {}
  there: dict[str, str] = {}
  in_bucket = paths.is_bucket(directory)
  for name, digest in files.items():
    try:
      if in_bucket or f'-{_CRC32C}:' in digest:
        there[name] = of_file(directory / name, like=digest)
      elif (length := os.stat(f'{directory}/{name}').st_size) != size(digest):
        found[name] = f'{name} has {length} bytes, not {size(digest)}'
      elif largest is None or size(digest) <= largest:
        there[name] = ''
    except OSError as error:
      _check_passing(error, directory / name)
      missing = isinstance(error, FileNotFoundError | NotADirectoryError)
      found[name] = f'{name} ' + ('is missing' if missing else _short(error))
  plain = [name for name, digest in there.items() if not digest]
  sums = of_files([directory / name for name in plain])
  there |= {name: sums[directory / name] for name in plain}
  for name, digest in there.items():
    if digest != files[name]:
      found[name] = f'{name} has another content than was written'
  return found


def _check_passing(error: Exception, path: pathlib.Path) -> None:
  """Raises what the system refuses for now, which is no damage."""
  if errors.is_passing(error):
    errors.check_system(error, path)


def _names(directory: pathlib.Path) -> list[str]:
  """Files in and below a directory, but `digests.json` and hidden ones."""
  found: list[str] = []
  for path in paths.children(directory):
    if path.name == FILE or path.name.startswith('.'):
      continue
    if path.is_dir():
      found += [f'{path.name}/{name}' for name in _names(path)]
    else:
      found.append(path.name)
  return found


def _relative(path: pathlib.Path, directory: pathlib.Path) -> str:
  return path.relative_to(directory).as_posix()


def _sum(path: pathlib.Path, start: int) -> int:
  """The checksum of one piece of a file."""
  total, left = 0, _PIECE
  with path.open('rb', buffering=0) as file:
    file.seek(start)
    while left > 0 and (content := file.read(min(left, _BUFFER))):
      total = google_crc32c.extend(total, content)
      left -= len(content)
  return total


def _joined(size: int, sums: list[int]) -> str:
  """A digest: the checksum of the pieces' where there are several."""
  total = sums[0]
  if len(sums) > 1:
    total = google_crc32c.value(
      b''.join(part.to_bytes(4, 'little') for part in sums)
    )
  return f'{size}-{_PIECES}:{total:08x}'


def _kept_by_bucket(path: pathlib.Path) -> str | None:
  """The digest that a bucket keeps of an object, where it tells it."""
  known, size = paths.kept_checksum(path)
  return f'{size}-{_CRC32C}:{base64.b64decode(known).hex()}' if known else None


def size(digest: str) -> int:
  """The bytes of a file with a digest; -1 of what is no digest."""
  start = digest.partition('-')[0]
  return int(start) if start.isdecimal() else -1


def _short(error: Exception) -> str:
  return f'{type(error).__name__}: {str(error)[:200]}'
