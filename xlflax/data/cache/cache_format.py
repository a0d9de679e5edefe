"""The token cache on disk: names of files, and what they say of themselves.

```
CACHE/cache.json                format, vocabulary, generations: mixtures with
                                their rates, digests of the tasks
CACHE/tasks/<task>/<split>/
  generation-1.json             `TaskMeta`: its shards in order, with digests
  digests.json                  of all files of the task
  shards/<shard>.safetensors    see `shards`; never changed once it is there
  shards/<shard>.json           `ShardEntry`, until the task is sealed
```

A shard's name follows from what it was made from: format, vocabulary, piece of
the source, size of shards and number. So a shard is the same file whoever
writes it, and shards of changed text are other shards. Token ids are uint16
where the vocabulary has at most 65536 entries, else int32. Texts are stored
without special tokens but eos, so one cache serves every layout, length and
order.
"""

import dataclasses
import json
import pathlib
import urllib.parse

import numpy as np

from xlflax.data import tokenized_examples
from xlflax.data.cache import json_schema
from xlflax.storage import checksums, paths
from xlflax.utils import errors

FORMAT = 4
CACHE_FILE = 'cache.json'
SHARDS = 'shards'
SUFFIX = '.safetensors'


@dataclasses.dataclass(frozen=True)
class SideStatistics:
  """Counts of one side of a task; `tokens` and `unknown` without eos."""

  language: str
  sentences: int
  tokens: int
  unknown: int

  @property
  def tokens_per_sentence(self) -> float:
    """Mean tokens of a sentence."""
    return self.tokens / max(self.sentences, 1)

  @property
  def unknown_rate(self) -> float:
    """Share of the tokens that are unknown."""
    return self.unknown / max(self.tokens, 1)

  def to_json(self) -> dict:
    """Returns the values as JSON data."""
    return dataclasses.asdict(self) | {
      'tokens_per_sentence': self.tokens_per_sentence,
      'unknown_rate': self.unknown_rate,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
  """What is known of one shard.

  Attributes:
    name: of its file, without the suffix.
    digest: of its file.
    examples: stored.
    empty: examples left out since they have a side without tokens.
    tokens: of each side, in the task's order of languages, without eos.
    unknown: of these, for each side.
    library: that tokenised it, with its version; '' if that is not known.
    begins: whether a document begins with what follows, since examples that
      began one were left out.
    starts: whether one begins with its first example for that reason; set
      when the task is sealed.
  """

  name: str
  digest: str
  examples: int
  empty: int
  tokens: tuple[int, ...]
  unknown: tuple[int, ...]
  library: str = ''
  begins: bool = False
  starts: bool = False

  def to_json(self) -> dict:
    """Returns the values as JSON data."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, data: dict) -> 'ShardEntry':
    """Returns the entry that `to_json` made; else raises CacheError."""
    json_schema.check_shard_json(data)
    return cls._of(data)

  @classmethod
  def _of(cls, data: dict) -> 'ShardEntry':
    """The same of data that `structure` has looked at."""
    values = {name: data[name] for name in cls.__dataclass_fields__}
    sides = {name: tuple(data[name]) for name in ('tokens', 'unknown')}
    return cls(**values | sides)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskMeta:
  """What a sealed task says of itself.

  Attributes:
    task: its SeqIO name.
    split: 'train', …
    languages: of its sides, in order.
    source_examples: size of the source, N_i of the sampling rates.
    vocabulary: hash of the vocabulary.
    fingerprint: what identifies the source: `files` (path, size, time), the
      kind of the source, names of the preprocessors.
    shard_size: see `cache_writer.write_cache`.
    shards: in the order of the text.
  """

  task: str
  split: str
  languages: tuple[str, ...]
  source_examples: int
  vocabulary: str
  fingerprint: dict
  shard_size: int
  shards: tuple[ShardEntry, ...]

  @property
  def sides(self) -> tuple[str, ...]:
    """The features that hold the sides."""
    return tokenized_examples.SIDES[len(self.languages)]

  @property
  def examples(self) -> int:
    """Stored examples."""
    return sum(shard.examples for shard in self.shards)

  @property
  def empty(self) -> int:
    """Examples left out since they have a side without tokens."""
    return sum(shard.empty for shard in self.shards)

  @property
  def statistics(self) -> tuple[SideStatistics, ...]:
    """For each side."""
    return tuple(
      SideStatistics(
        language,
        self.examples,
        sum(shard.tokens[side] for shard in self.shards),
        sum(shard.unknown[side] for shard in self.shards),
      )
      for side, language in enumerate(self.languages)
    )

  def to_json(self) -> dict:
    """Returns the values as JSON data, with sums over the shards."""
    out = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
    }
    sums = {'examples': self.examples, 'empty': self.empty}
    out['statistics'] = [side.to_json() for side in self.statistics]
    out['shards'] = [shard.to_json() for shard in self.shards]
    return {'format': FORMAT, **sums, **out}

  @classmethod
  def from_json(cls, data: dict) -> 'TaskMeta':
    """Returns the description that `to_json` made; else raises CacheError."""
    json_schema.check_task_json(data)
    names = {f.name for f in dataclasses.fields(cls)}
    return cls(
      **{k: v for k, v in data.items() if k in names}
      | {
        'languages': tuple(data['languages']),
        'shards': tuple(map(ShardEntry._of, data['shards'])),
      }
    )


def token_dtype(vocabulary_size: int) -> np.dtype:
  """The smallest type that the ids fit in."""
  return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


def task_directory(cache, task: str, split: str) -> pathlib.Path:
  """Where a task lies."""
  return (
    paths.to_path(cache)
    / 'tasks'
    / quote_file_name(task)
    / quote_file_name(split)
  )


def quote_file_name(name: str) -> str:
  """A name of a file for any name."""
  return urllib.parse.quote(name, safe='')


def task_key(task: str, split: str) -> str:
  """What cache.json calls a task's split."""
  return f'{quote_file_name(task)}/{quote_file_name(split)}'


def generation_file(directory: pathlib.Path, number: int) -> pathlib.Path:
  """Path of what a task says of itself in a generation."""
  return directory / f'generation-{number}.json'


def shard_file(directory: pathlib.Path, name: str) -> pathlib.Path:
  """Path of a shard in a task's directory."""
  return directory / SHARDS / f'{name}{SUFFIX}'


def entry_file(directory: pathlib.Path, name: str) -> pathlib.Path:
  """Path of what is known of a shard until its task is sealed."""
  return directory / SHARDS / f'{name}.json'


def read_json(path: pathlib.Path) -> dict:
  """The content of one of the cache's own JSON files.

  Raises:
    CacheError: not JSON, or of another format than `FORMAT`.
  """
  try:
    data = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(data, dict) and data.get('format') == FORMAT:
      data = checksums.verify_digest(data)
  except (OSError, ValueError, RecursionError) as error:
    errors.check_system(error, path)
    raise errors.CacheError(
      'A file of the token cache is damaged',
      got=str(error)[:200],
      where=path,
      fix='Delete the cache and write it again',
    ) from error
  if not isinstance(data, dict) or data.get('format') != FORMAT:
    got = data.get('format') if isinstance(data, dict) else data
    raise errors.CacheError(
      'The token cache has another format than this version reads',
      got=got,
      expected=FORMAT,
      where=path,
      fix='Write the cache again with this version',
    )
  return data


def write_json(path: pathlib.Path, data: dict) -> None:
  """Replaces a file in one step, so that it is never seen half-written."""
  text = json.dumps(checksums.add_digest(data), indent=1, ensure_ascii=False)
  paths.write_atomically(path, text)
