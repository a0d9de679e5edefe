"""The token cache on disk: names of files, and what they say of themselves.

```
CACHE/cache.json                    format, vocabulary, mixtures with their rates,
                                    digests of the tasks
CACHE/tasks/<task>/<split>/
  meta.json                         `TaskMeta`
  targets.npy, targets.offsets.npy  token ids of all texts, each followed by
                                    eos, one after the other; where each begins
  inputs.npy, inputs.offsets.npy    the first side, of parallel tasks only
  starts_document.npy               bool [examples]
  digests.json                      of these files
CACHE/work/                         shards of tasks that are being written
```

A task's directory appears in one rename when it is complete. Token ids are
uint16 where the vocabulary has at most 65536 entries, else int32; offsets are
int64 [examples + 1]. Texts are stored without special tokens but eos, so one
cache serves every layout, length and order.
"""

import dataclasses
import json
import pathlib
import urllib.parse

import numpy as np

from xlflax import digests, errors, paths
from xlflax.data import examples

FORMAT = 2
CACHE_FILE = 'cache.json'
META_FILE = 'meta.json'
STARTS_FILE = 'starts_document.npy'


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
class TaskMeta:
  """What a complete task says of itself in meta.json.

  Attributes:
    task: its SeqIO name.
    split: 'train', …
    languages: of its sides, in order.
    examples: stored examples.
    empty: examples left out since they have a side without tokens.
    source_examples: size of the source, N_i of the sampling rates.
    statistics: for each side.
    vocabulary: hash of the vocabulary.
    fingerprint: what identifies the source: `files` (path, size, time), the
      kind of the source, names of the preprocessors.
    shard_size: source examples in one shard of the writing.
  """

  task: str
  split: str
  languages: tuple[str, ...]
  examples: int
  empty: int
  source_examples: int
  statistics: tuple[SideStatistics, ...]
  vocabulary: str
  fingerprint: dict
  shard_size: int

  @property
  def sides(self) -> tuple[str, ...]:
    """The features that hold the sides."""
    return examples.SIDES[len(self.languages)]

  def to_json(self) -> dict:
    """Returns the values as JSON data."""
    out = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
    }
    out['statistics'] = [side.to_json() for side in self.statistics]
    return {'format': FORMAT, **out}

  @classmethod
  def from_json(cls, data: dict) -> 'TaskMeta':
    """Returns the description that `to_json` made."""
    names = {f.name for f in dataclasses.fields(cls)}
    counts = [f.name for f in dataclasses.fields(SideStatistics)]
    data = {k: v for k, v in data.items() if k in names}
    return cls(
      **data
      | {
        'languages': tuple(data['languages']),
        'statistics': tuple(
          SideStatistics(**{name: side[name] for name in counts})
          for side in data['statistics']
        ),
      }
    )


def token_dtype(vocabulary_size: int) -> np.dtype:
  """The smallest type that the ids fit in."""
  return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


def task_directory(cache, task: str, split: str) -> pathlib.Path:
  """Where a complete task lies."""
  return pathlib.Path(cache) / 'tasks' / _quote(task) / _quote(split)


def work_directory(cache, task: str, split: str) -> pathlib.Path:
  """Where the shards of a task lie while it is written."""
  return pathlib.Path(cache) / 'work' / _quote(task) / _quote(split)


def _quote(name: str) -> str:
  return urllib.parse.quote(name, safe='')


def task_key(task: str, split: str) -> str:
  """What cache.json calls a task's split."""
  return f'{_quote(task)}/{_quote(split)}'


def token_file(directory: pathlib.Path, side: str) -> pathlib.Path:
  """Path of a side's token ids."""
  return directory / f'{side}.npy'


def offset_file(directory: pathlib.Path, side: str) -> pathlib.Path:
  """Path of where each text of a side begins."""
  return directory / f'{side}.offsets.npy'


def read_json(path: pathlib.Path) -> dict:
  """The content of cache.json or meta.json.

  Raises:
    CacheError: not JSON, or of another format than `FORMAT`.
  """
  try:
    data = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(data, dict) and data.get('format') == FORMAT:
      data = digests.checked(data)
  except (OSError, ValueError, RecursionError) as error:
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
  text = json.dumps(digests.with_own(data), indent=1, ensure_ascii=False)
  paths.write_atomically(path, text)
