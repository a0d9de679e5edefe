"""File format of token caches.

```
CACHE/cache.json                format, vocabulary, and generations with the
                                rates of mixtures and the digests of tasks
CACHE/tasks/<task>/<split>/
  generation-1.json             `TaskMeta`: shards in order, with digests
  digests.json                  digests of all files of the task
  shards/<shard>.safetensors    see `shards`; never changed after creation
  shards/<shard>.json           `ShardEntry`, until the task is finalized
```

A shard's name is derived from its inputs: format, vocabulary, range of the
source, shard size and shard number. A shard is therefore the same file
regardless of the process that writes it, and changed text results in shards
with different names. Token ids are uint16 if the vocabulary has at most 65536
tokens, and int32 otherwise. Texts are stored without special tokens except eos,
so that the same cache can be read with any layout, sequence length and order.
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
  """Statistics of a task's texts in one language.

  Attributes:
    language: Language code of the texts.
    sentences: Number of sentences.
    tokens: Number of tokens in the texts, without eos tokens.
    unknown: Number of unknown tokens.
  """

  language: str
  sentences: int
  tokens: int
  unknown: int

  @property
  def tokens_per_sentence(self) -> float:
    """Mean number of tokens per sentence."""
    return self.tokens / max(self.sentences, 1)

  @property
  def unknown_rate(self) -> float:
    """Fraction of all tokens that are unknown."""
    return self.unknown / max(self.tokens, 1)

  def to_json(self) -> dict:
    """Returns the statistics as JSON data."""
    return dataclasses.asdict(self) | {
      'tokens_per_sentence': self.tokens_per_sentence,
      'unknown_rate': self.unknown_rate,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
  """Metadata of a single shard.

  Attributes:
    name: Name of the shard's file, without the suffix.
    digest: Digest of the shard's file.
    examples: Number of examples stored in the shard.
    empty: Number of examples that were omitted because one of their texts has
      no tokens.
    tokens: Number of tokens in each of the task's languages, without eos.
    unknown: Number of unknown tokens in each of the task's languages.
    library: Name and version of the tokenization library. Empty if unknown.
    begins: Whether the next example after this shard starts a document. It does
      if the example that originally started the document was omitted at the end
      of this shard.
    starts: Whether the first example of the shard must be treated as the start
      of a document. This applies to the first shard of a task, and to a shard
      before which the example that started the document was omitted. It is set
      when the task is finalized.
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
    """Returns the metadata of the shard as JSON data."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, data: dict) -> 'ShardEntry':
    """Creates shard metadata from JSON data written by `to_json`.

    Raises:
      CacheError: If the data does not describe valid shard metadata.
    """
    json_schema.check_shard_json(data)
    return cls._from_valid_json(data)

  @classmethod
  def _from_valid_json(cls, data: dict) -> 'ShardEntry':
    """Returns the entry for data that `json_schema` has validated."""
    values = {name: data[name] for name in cls.__dataclass_fields__}
    sides = {name: tuple(data[name]) for name in ('tokens', 'unknown')}
    return cls(**values | sides)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskMeta:
  """Metadata of a finalized task.

  Attributes:
    task: SeqIO name of the task.
    split: Name of the split, such as 'train'.
    languages: Language codes of the source and target texts, in order.
    source_examples: Number of examples in the source (N_i). The sampling rates
      are computed from these numbers.
    vocabulary: Hash of the vocabulary that encoded the text.
    fingerprint: Description of the source that identifies its content: its
      type, its `files` (path, size, and modification time or content digest)
      and its preprocessors. `code` contains hashes of the user's modules that
      define the task. It is only used for warnings.
    shard_size: Amount of text in each shard in bytes; see `cache_writer.Plan`.
    shards: Metadata of the shards, in the order of the text.
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
    """Names of the text features: `targets`, or `inputs` and `targets`."""
    return tokenized_examples.SIDES[len(self.languages)]

  @property
  def examples(self) -> int:
    """Number of examples stored in all shards."""
    return sum(shard.examples for shard in self.shards)

  @property
  def empty(self) -> int:
    """Number of examples omitted because one of their texts has no tokens."""
    return sum(shard.empty for shard in self.shards)

  @property
  def statistics(self) -> tuple[SideStatistics, ...]:
    """Statistics of the texts in each language."""
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
    """Returns the metadata as JSON data, including sums over the shards."""
    fields = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
    }
    sums = {'examples': self.examples, 'empty': self.empty}
    fields['statistics'] = [side.to_json() for side in self.statistics]
    fields['shards'] = [shard.to_json() for shard in self.shards]
    return {'format': FORMAT, **sums, **fields}

  @classmethod
  def from_json(cls, data: dict) -> 'TaskMeta':
    """Creates task metadata from JSON data written by `to_json`.

    Raises:
      CacheError: If the data does not describe valid task metadata.
    """
    json_schema.check_task_json(data)
    names = {f.name for f in dataclasses.fields(cls)}
    return cls(
      **{k: v for k, v in data.items() if k in names}
      | {
        'languages': tuple(data['languages']),
        'shards': tuple(
          ShardEntry._from_valid_json(shard) for shard in data['shards']
        ),
      }
    )


def token_dtype(vocabulary_size: int) -> np.dtype:
  """Returns the smallest dtype that can represent a vocabulary's ids."""
  return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


def task_directory(cache, task: str, split: str) -> pathlib.Path:
  """Returns the directory for a split of a task."""
  return (
    paths.to_path(cache)
    / 'tasks'
    / quote_file_name(task)
    / quote_file_name(split)
  )


def quote_file_name(name: str) -> str:
  """Converts any name to a valid file name."""
  return urllib.parse.quote(name, safe='')


def task_key(task: str, split: str) -> str:
  """Returns the key in `cache.json` for a split of a task."""
  return f'{quote_file_name(task)}/{quote_file_name(split)}'


def generation_file(directory: pathlib.Path, number: int) -> pathlib.Path:
  """Returns the path of a task's metadata file in a generation of the cache."""
  return directory / f'generation-{number}.json'


def shard_file(directory: pathlib.Path, name: str) -> pathlib.Path:
  """Returns a shard's path in the directory of its task."""
  return directory / SHARDS / f'{name}{SUFFIX}'


def entry_file(directory: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a shard's metadata file, which finalization removes."""
  return directory / SHARDS / f'{name}.json'


def read_json(path: pathlib.Path) -> dict:
  """Reads a JSON file in a cache and verifies its digest.

  Raises:
    CacheError: If the file is damaged, or if its format is unknown.
  """
  try:
    data = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(data, dict) and data.get('format') == FORMAT:
      data = checksums.verify_digest(data)
  except (OSError, ValueError, RecursionError) as error:
    errors.raise_if_system_error(error, path)
    raise errors.CacheError(
      'A file of the token cache is damaged',
      got=str(error)[:200],
      where=path,
      fix='Delete the cache and write it again.',
    ) from error
  if not isinstance(data, dict) or data.get('format') != FORMAT:
    got = data.get('format') if isinstance(data, dict) else data
    raise errors.CacheError(
      'The format of the token cache is not supported',
      got=got,
      expected=FORMAT,
      where=path,
      fix='Write the cache again with this version of xlflax.',
    )
  return data


def write_json(path: pathlib.Path, data: dict) -> None:
  """Adds a digest to JSON data and writes the file atomically."""
  text = json.dumps(checksums.add_digest(data), indent=1, ensure_ascii=False)
  paths.write_atomically(path, text)
