"""Division of a task's text into shards.

Each example has a key, and the examples in a shard and their order depend only
on these keys. They do not depend on which process writes the shard, when it is
written, or which other processes are running.

- The key of a line in a plain text file is the file and the byte at which the
  line starts. Shard k of the file contains the lines that start at bytes k S ..
  (k + 1) S - 1, where S is the size of shards. Earlier bytes are not read.
- The key of any other example is its number in the file or task. This applies
  to compressed files, which are read from their beginning, and to tasks with
  preprocessing steps or sources of their own. Shard k contains S / 256
  consecutive examples.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence

from xlflax.data.cache import cache_format
from xlflax.data.corpus import corpus_files, line_reader
from xlflax.data.plain_text import text_tasks

_BYTES_PER_EXAMPLE = 256


@dataclasses.dataclass(frozen=True)
class Part:
  """Text that is divided into shards: a file of a task, or the complete task.

  Attributes:
    prefix: Prefix of the shards' names. It contains a hash of all inputs on
      which the shards depend.
    text: Fingerprint of the source file or files as JSON text, used in
      messages.
    path: Path of the file that is divided into shards. If None, the complete
      task is divided.
    num_bytes: Size of the file in bytes. If None, the part is divided by
      examples rather than by bytes.
    shards: Number of shards. If None, it is not known before the part has been
      read.
  """

  prefix: str
  text: str
  path: pathlib.Path | None
  num_bytes: int | None
  shards: int | None

  def name(self, number: int) -> str:
    """Returns the name of the shard with the given number."""
    return f'{self.prefix}-{number:06d}'

  def piece(self, number: int, size: int) -> text_tasks.FilePiece | None:
    """Returns the file or byte range that contains the text of a shard.

    The result is None if the part is a complete task.

    Args:
      number: Index of the shard within the part, counted from 0.
      size: Amount of text in each shard, in bytes (S in the module's
        docstring).
    """
    if self.path is None:
      return None
    if self.num_bytes is None:
      return text_tasks.FilePiece(self.path, None)
    span = line_reader.Span(number * size, (number + 1) * size)
    return text_tasks.FilePiece(self.path, span)


def examples_in_shard(size: int) -> int:
  """Converts a shard size in bytes to a number of examples.

  This is used for sources whose shards are not ranges of bytes.

  Args:
    size: Amount of text in each shard, in bytes (S in the module's docstring).
  """
  return max(1, size // _BYTES_PER_EXAMPLE)


def split_into_shards(
  tasks: text_tasks.Tasks,
  task: str,
  split: str,
  *,
  fingerprint: dict,
  vocabulary: str,
  languages: Sequence[str],
  size: int,
) -> tuple[Part, ...]:
  """Divides a task into parts, one for each file that can be read separately.

  Args:
    tasks: Registered tasks, including this task.
    task: Name of the task.
    split: Name of the split, such as 'train'.
    fingerprint: Fingerprint of the source; see `text_tasks.Tasks.fingerprint`.
    vocabulary: Hash of the vocabulary that encodes the text.
    languages: Language codes of the source and target texts.
    size: Amount of text in each shard, in bytes (S in the module's docstring).
  """
  common_inputs = [
    cache_format.FORMAT,
    vocabulary,
    list(languages),
    size,
    fingerprint['source'],
    fingerprint['preprocessors'],
  ]
  paths = tasks.files(task, split)
  if paths is None:
    files = fingerprint['files']
    return (
      Part(
        prefix=_make_prefix('all', common_inputs, files),
        text=_format_json(files),
        path=None,
        num_bytes=None,
        shards=None,
      ),
    )
  return tuple(
    _make_file_part(path, file, common_inputs, size)
    for path, file in zip(paths, fingerprint['files'], strict=True)
  )


def _make_file_part(
  path: pathlib.Path, fingerprint: list, common_inputs: list, size: int
) -> Part:
  """Returns the part of a task that consists of one file.

  Args:
    path: Path of the file.
    fingerprint: Path and size of the file, and its modification time or content
      digest.
    common_inputs: Values on which all shards of the task depend, such as the
      vocabulary's hash, as JSON data.
    size: Amount of text in each shard, in bytes (S in the module's docstring).
  """
  num_bytes = num_shards = None
  if not corpus_files.is_sequential(path):
    num_bytes = int(fingerprint[1])
    num_shards = max(1, -(-num_bytes // size))
  return Part(
    prefix=_make_prefix(path.name, common_inputs, fingerprint),
    text=_format_json(fingerprint),
    path=path,
    num_bytes=num_bytes,
    shards=num_shards,
  )


def _format_json(value: list) -> str:
  return json.dumps(value, ensure_ascii=False)


def _make_prefix(name: str, common_inputs: list, fingerprint: list) -> str:
  """Returns a shard name prefix that contains a hash of the shards' inputs."""
  inputs = json.dumps([common_inputs, fingerprint])
  key = hashlib.sha256(inputs.encode()).hexdigest()
  return f'{cache_format.quote_file_name(name)[:60]}-{key[:16]}'
