"""File digests, which detect files that changed after they were written.

A digest has the form `SIZE-KIND:CHECKSUM`. The checksum of short content (up to
64 KiB) is SHA-256. The checksum of longer content is CRC-32C (RFC 3720,
appendix B.4) over chunks of 64 MiB. For an object in a bucket, it is the
CRC-32C of the complete object that the bucket stores, so the object does not
need to be read. Sealing a directory means writing a file `digests.json` with
the digest of every other file and a digest of its own content. The checksums
detect corruption, not forgery.
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

from xlflax.storage import paths
from xlflax.utils import errors

FILE = 'digests.json'
OWN = 'digest'  # Key of a JSON object's own digest.
_PIECE = 1 << 26  # Bytes per piece. Each piece is read by one thread.
_BUFFER = 1 << 18  # Bytes per read, which fit the processor's cache.
_SHORT = 1 << 16  # Size in bytes up to which the cost of SHA-256 is negligible.
_SHA256, _PIECES, _CRC32C = 'sha256', 'crc32c64', 'crc32c'


class Seal(NamedTuple):
  """Content of `digests.json`: the digests of a directory's files.

  Attributes:
    files: Mapping from the files' paths, relative to the directory, to their
      digests.
    about: JSON metadata that the writer of the directory added.
  """

  files: dict[str, str]
  about: dict[str, Any]


def digest_content(content: bytes | str, *, like: str = '') -> str:
  """Computes the digest of a file with the given content.

  Args:
    content: Bytes, or text, which is encoded as UTF-8.
    like: Digest with which the result will be compared. It determines the type
      of checksum. If '', the cheapest type is used.
  """
  if isinstance(content, str):
    content = content.encode('utf-8')
  size = len(content)
  if f'-{_CRC32C}:' in like:
    return f'{size}-{_CRC32C}:{google_crc32c.value(content):08x}'
  if size <= _SHORT:
    return f'{size}-{_SHA256}:{hashlib.sha256(content).hexdigest()}'
  return _combine(
    size,
    [
      google_crc32c.value(content[start : start + _PIECE])
      for start in range(0, size, _PIECE)
    ],
  )


def digest_chunks(chunks: Sequence[bytes | memoryview]) -> str:
  """Computes a file's digest from consecutive chunks of its content."""
  size = sum(len(chunk) for chunk in chunks)
  if size <= _SHORT:
    return digest_content(b''.join(chunks))
  sums, free = [0], _PIECE
  for chunk in chunks:
    remaining = memoryview(chunk)
    while remaining:
      if not free:
        sums, free = [*sums, 0], _PIECE
      part, remaining = remaining[:free], remaining[free:]
      sums[-1] = google_crc32c.extend(sums[-1], bytes(part))
      free -= len(part)
  return _combine(size, sums)


def digest_json(value: Any) -> str:
  """Computes a JSON value's digest, which does not depend on formatting."""
  return digest_content(json.dumps(value, sort_keys=True, ensure_ascii=True))


def digest_file(path: pathlib.Path, *, like: str = '') -> str:
  """Computes the digest of a file on disk or in a bucket.

  Args:
    path: File on disk or in a bucket.
    like: Digest with which the result will be compared. It determines the type
      of checksum. If '', the cheapest type is used.

  Raises:
    OSError: If the file cannot be read.
  """
  stored = _stored_digest(path) if paths.is_bucket(path) else None
  needs_crc32c = f'-{_CRC32C}:' in like
  if stored and (needs_crc32c or not like):
    return stored
  if needs_crc32c or paths.is_bucket(path):
    return digest_content(path.read_bytes(), like=like)
  return digest_files([path])[path]


def digest_files(files: list[pathlib.Path]) -> dict[pathlib.Path, str]:
  """Computes the digests of files on disk, reading them in several threads.

  Raises:
    OSError: If a file cannot be read.
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
  sums_by_path: dict[pathlib.Path, list[int]] = {path: [] for path in files}
  for (path, _), checksums in zip(pieces, sums, strict=True):
    sums_by_path[path].append(checksums)
  return {
    path: _combine(sizes[path], checksums)
    if checksums
    else digest_content(path.read_bytes())
    for path, checksums in sums_by_path.items()
  }


def seal_directory(
  directory: pathlib.Path, about: Mapping[str, Any] = {}
) -> None:
  """Writes `digests.json` for all files of a directory and its subdirectories."""
  files = [directory / name for name in _list_files(directory)]
  if paths.is_bucket(directory):
    digest_by_path = {path: digest_file(path) for path in files}
  else:
    digest_by_path = digest_files(files)
  write_seal(
    directory,
    {
      _relative(path, directory): digest
      for path, digest in digest_by_path.items()
    },
    about,
  )


def write_seal(
  directory: pathlib.Path,
  files: Mapping[str, str],
  about: Mapping[str, Any] = {},
) -> None:
  """Writes `digests.json` with digests that have already been computed."""
  content = {'files': dict(sorted(files.items())), 'about': dict(about)}
  paths.write_atomically(
    directory / FILE, json.dumps(add_digest(content), indent=1) + '\n'
  )


def read_seal(directory: pathlib.Path) -> Seal:
  """Reads and verifies the `digests.json` file in a directory.

  Raises:
    FileNotFoundError: If the file does not exist.
    ValueError: If the file is corrupt.
  """
  content = verify_digest(
    json.loads((directory / FILE).read_text(encoding='utf-8'))
  )
  files, about = content.get('files'), content.get('about')
  if not isinstance(files, dict) or not isinstance(about, dict):
    raise ValueError('The file does not contain a list of digests')
  for name, digest in files.items():
    parts = pathlib.PurePosixPath(name).parts
    if not isinstance(digest, str) or not parts or {'..', '/'} & set(parts):
      raise ValueError(
        f'{name!r} is not the relative path of a file in the directory'
      )
  return Seal(files, about)


def find_problems(
  directory: pathlib.Path,
  *,
  share: tuple[int, int] = (0, 1),
  largest: int | None = None,
) -> list[str]:
  """Describes each file that differs from its digest in `digests.json`.

  Args:
    directory: Directory for which `seal_directory` wrote `digests.json`.
    share: Pair (i, n) that limits the check to every n-th file, starting with
      the i-th, where i starts at 0.
    largest: Size in bytes above which only a file's size is checked. If
      None, all contents are checked.
  """
  try:
    files = read_seal(directory).files
  except FileNotFoundError:
    return [f'{FILE} is missing']
  except (OSError, ValueError, RecursionError) as error:
    _raise_transient(error, directory / FILE)
    return [f'{FILE} is damaged ({_short(error)})']
  chosen = sorted(files)[share[0] :: share[1]]
  return list(
    find_changes(
      directory, {name: files[name] for name in chosen}, largest=largest
    ).values()
  )


def add_digest(content: Mapping[str, Any]) -> dict[str, Any]:
  """Adds a digest to a JSON object, as expected by `verify_digest`."""
  content_without_digest = {
    key: value for key, value in content.items() if key != OWN
  }
  return {**content_without_digest, OWN: digest_json(content_without_digest)}


def verify_digest(content: Any) -> dict[str, Any]:
  """Verifies a JSON object's digest and returns the object without the digest.

  Raises:
    ValueError: If the object has no digest, or its content has changed.
  """
  if not isinstance(content, dict) or OWN not in content:
    raise ValueError(
      f'The JSON object does not contain its own digest (the field {OWN!r})'
    )
  content_without_digest = {
    key: value for key, value in content.items() if key != OWN
  }
  if content[OWN] != digest_json(content_without_digest):
    raise ValueError('The content does not match its own digest')
  return content_without_digest


def read_json(
  path: pathlib.Path,
  *,
  error: type[errors.XlflaxError],
  message: str = 'The file is damaged',
  has_digest: bool = False,
  fix: str | None = None,
  convert: Callable[[Any], Any] = lambda value: value,
) -> Any:
  """Reads a JSON file written by xlflax.

  Args:
    path: File on disk or in a bucket.
    error: Class of the error to raise.
    message: First sentence of the error message.
    has_digest: Whether the JSON value contains its own digest (see
      `add_digest`), which is then verified.
    fix: Hint for the error message that explains how to solve the problem.
    convert: Function that is applied to the parsed JSON value. Its result is
      returned.

  Raises:
    XlflaxError: If the file cannot be read, is not JSON, or has changed, or if
      `convert` raises an error. The class of the raised error is `error`.
  """
  try:
    value = json.loads(path.read_text(encoding='utf-8'))
    return convert(verify_digest(value) if has_digest else value)
  except (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
  ) as cause:
    errors.raise_if_system_error(cause, path)
    raise error(
      f'{message}. It must be a JSON file that xlflax has written',
      got=_short(cause),
      where=str(path),
      fix=fix,
    ) from cause


def find_changes(
  directory: pathlib.Path,
  files: Mapping[str, str],
  *,
  largest: int | None = None,
) -> dict[str, str]:
  """Finds files that do not match their digests and describes their changes.

  Args:
    directory: Directory that contains the files.
    files: Mapping from the files' paths, relative to the directory, to their
      digests.
    largest: Size in bytes above which only a file's size is checked. If
      None, all contents are checked.

  Returns:
    Mapping from the relative path of each changed, missing or unreadable file
    to a description such as 'a.txt is missing'.
  """
  descriptions: dict[str, str] = {}
  current: dict[str, str] = {}
  in_bucket = paths.is_bucket(directory)
  for name, digest in files.items():
    try:
      if in_bucket or f'-{_CRC32C}:' in digest:
        current[name] = digest_file(directory / name, like=digest)
      elif (length := os.stat(f'{directory}/{name}').st_size) != parse_size(
        digest
      ):
        descriptions[name] = (
          f'{name} has {length} bytes, not {parse_size(digest)}'
        )
      elif largest is None or parse_size(digest) <= largest:
        current[name] = ''
    except OSError as error:
      _raise_transient(error, directory / name)
      if isinstance(error, FileNotFoundError | NotADirectoryError):
        descriptions[name] = f'{name} is missing'
      else:
        descriptions[name] = f'{name} is unreadable ({_short(error)})'
  unread = [name for name, digest in current.items() if not digest]
  sums = digest_files([directory / name for name in unread])
  current |= {name: sums[directory / name] for name in unread}
  for name, digest in current.items():
    if digest != files[name]:
      descriptions[name] = f'{name} has changed since it was written'
  return descriptions


def _raise_transient(error: Exception, path: pathlib.Path) -> None:
  """Raises transient errors of the system, which do not indicate corruption."""
  if errors.is_temporary(error):
    errors.raise_if_system_error(error, path)


def _list_files(directory: pathlib.Path) -> list[str]:
  """Returns the visible files below a directory, except `digests.json`."""
  names: list[str] = []
  for path in paths.list_directory(directory):
    if path.name == FILE or path.name.startswith('.'):
      continue
    if path.is_dir():
      names += [f'{path.name}/{name}' for name in _list_files(path)]
    else:
      names.append(path.name)
  return names


def _relative(path: pathlib.Path, directory: pathlib.Path) -> str:
  return path.relative_to(directory).as_posix()


def _sum(path: pathlib.Path, start: int) -> int:
  """Computes the checksum of one chunk of a file."""
  total, remaining = 0, _PIECE
  with path.open('rb', buffering=0) as file:
    file.seek(start)
    while remaining > 0 and (content := file.read(min(remaining, _BUFFER))):
      total = google_crc32c.extend(total, content)
      remaining -= len(content)
  return total


def _combine(size: int, sums: list[int]) -> str:
  """Combines the checksums of a file's chunks into the file's digest."""
  total = sums[0]
  if len(sums) > 1:
    total = google_crc32c.value(
      b''.join(part.to_bytes(4, 'little') for part in sums)
    )
  return f'{size}-{_PIECES}:{total:08x}'


def _stored_digest(path: pathlib.Path) -> str | None:
  """Returns the digest that a bucket stores for an object, or None."""
  checksum, size = paths.read_stored_checksum(path)
  return (
    f'{size}-{_CRC32C}:{base64.b64decode(checksum).hex()}' if checksum else None
  )


def parse_size(digest: str) -> int:
  """Returns the size in bytes recorded in a digest, or -1 if it is invalid."""
  start = digest.partition('-')[0]
  return int(start) if start.isdecimal() else -1


def _short(error: Exception) -> str:
  return f'{type(error).__name__}: {str(error)[:200]}'
