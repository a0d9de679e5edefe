"""How the text of a task is divided into shards.

Which examples are in a shard, and in which order, follows from their keys
alone, so it does not matter who writes it, when, or beside whom:

- The key of a line of a plain text file is the file and the byte at which the
  line begins. Shard k of the file holds the lines that begin at the bytes
  k S .. (k + 1) S - 1, S being the size of shards. Nothing before them is read.
- Everything else (compressed files, which are read from their beginning;
  tasks with steps or sources of their own) has the number of an example in the
  file or task as its key. Shard k holds S / 256 consecutive examples.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence

from xlflax.data.cache import cache_format
from xlflax.data.corpus import corpus_files
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.plain_text import text_tasks

_BYTES_PER_EXAMPLE = 256


@dataclasses.dataclass(frozen=True)
class Part:
  """A file of a task, or all of the task.

  Attributes:
    prefix: of the names of its shards; holds all that they depend on.
    text: what is read, as JSON text, for messages.
    path: of the file; None: all of the task.
    num_bytes: of the file, where it is divided by bytes; else None.
    shards: how many it has; None where only reading tells.
  """

  prefix: str
  text: str
  path: pathlib.Path | None
  num_bytes: int | None
  shards: int | None

  def name(self, number: int) -> str:
    """Of a shard."""
    return f'{self.prefix}-{number:06d}'

  def piece(self, number: int, size: int) -> text_tasks.FilePiece | None:
    """What a shard is read from."""
    if self.path is None:
      return None
    if self.num_bytes is None:
      return text_tasks.FilePiece(self.path, None)
    span = corpus_lines.Span(number * size, (number + 1) * size)
    return text_tasks.FilePiece(self.path, span)


def examples_in_shard(size: int) -> int:
  """Examples in a shard of S = `size`, of a part that is divided by them."""
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
  """The parts of a task, in the order of its text.

  Args:
    tasks: the task among them.
    task: its name.
    split: of the task.
    fingerprint: see `text_tasks.Tasks.fingerprint`.
    vocabulary: hash.
    languages: of its sides.
    size: of shards.
  """
  common = [
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
      Part(_prefix('all', common, files), _text(files), None, None, None),
    )
  return tuple(
    _file_part(path, file, common, size)
    for path, file in zip(paths, fingerprint['files'], strict=True)
  )


def _file_part(path: pathlib.Path, file: list, common: list, size: int) -> Part:
  num_bytes = None if corpus_files.is_sequential(path) else int(file[1])
  return Part(
    _prefix(path.name, common, file),
    _text(file),
    path,
    num_bytes,
    None if num_bytes is None else max(1, -(-num_bytes // size)),
  )


def _text(value: list) -> str:
  return json.dumps(value, ensure_ascii=False)


def _prefix(name: str, common: list, text: list) -> str:
  key = hashlib.sha256(json.dumps([common, text]).encode()).hexdigest()
  return f'{cache_format.quote_file_name(name)[:60]}-{key[:16]}'
