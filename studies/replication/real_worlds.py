"""Real languages: a user's corpora and treebanks as the experiments take them."""

import dataclasses
import functools
import pathlib
import random
from collections.abc import Iterable

import numpy as np
from scipy import stats

from studies.replication import held_out
from studies.replication.conditions import Condition
from studies.replication.worlds import FIRST, Text, World
from xlflax.data.plain_text.corpus_directory_tasks import ALPHA
from xlflax.data.supervised.sources.example_source import FileDataset
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.evaluation.metrics import string_overlap
from xlflax.storage import content_hash, paths
from xlflax.utils import errors

_PAIRS = 8000  # of each two languages: every n-th, the first so many
_TAGGED = 300  # test sentences of each language


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
  """Files of a user's own; results hang on what they hold, not on their place.

  Attributes:
    corpora: folder with two corpus directories, as `xlflax build-corpus
      libreoffice` writes them: `disjoint`, whose languages have no page in
      common, and `parallel`, all pages with their translations.
    treebanks: folder with files `CODE_…-ud-….conllu` of Universal
      Dependencies: English ones to train on, and one of each to test on.
    merges: of each language's vocabulary.
    dictionaries: folder with bilingual dictionaries of these languages, which
      runs that take one read; None: there is none.
    digest: of what all runs read.
    words: of the dictionaries, for runs that take one.
  """

  corpora: pathlib.Path = dataclasses.field(compare=False)
  treebanks: pathlib.Path = dataclasses.field(compare=False)
  merges: int = 1000
  dictionaries: pathlib.Path | None = dataclasses.field(
    default=None, compare=False
  )
  digest: str = ''
  words: str = ''

  @classmethod
  def of(
    cls,
    corpora: pathlib.Path | None,
    treebanks: pathlib.Path | None,
    dictionaries: pathlib.Path | None = None,
  ) -> 'Texts':
    """The files of folders.

    Raises:
      ConfigError: a folder or file is missing.
    """
    if corpora is None or treebanks is None:
      raise errors.ConfigError(
        'Real languages need both corpora and treebanks',
        got='one of them',
        expected='--corpora=DIR and --treebanks=DIR',
      )
    found = cls(corpora=corpora, treebanks=treebanks, dictionaries=dictionaries)
    digest = content_hash.hash_paths(
      [
        [corpora / kind / 'mono' for kind in ('disjoint', 'parallel')],
        [corpora / 'parallel' / split / 'parallel' for split in ('.', 'test')],
        found.treebank('train', FIRST),
        [found.treebank('test', code) for code in (FIRST, *found.seconds)],
      ]
    )
    if digest is None or not found.seconds:
      raise errors.ConfigError(
        'Files of real languages are missing',
        got=', '.join(found.seconds) or 'no language beside English',
        expected='disjoint/mono, parallel/mono, parallel/parallel and '
        'parallel/test/parallel',
        where=str(corpora),
        fix='write them by `xlflax build-corpus libreoffice`, by both modes',
      )
    words = content_hash.hash_paths([dictionaries]) if dictionaries else ''
    if words is None:
      raise errors.ConfigError(
        'There are no dictionaries',
        got=str(dictionaries),
        where='--dictionaries',
      )
    return dataclasses.replace(found, digest=digest, words=words)

  def read_by(self, chain: Iterable[Condition]) -> 'Texts':
    """What runs depend on that begin one from the other."""
    read = any(one.reads_dictionary for one in chain)
    return self if read else dataclasses.replace(self, words='')

  @property
  def seconds(self) -> tuple[str, ...]:
    """The languages beside English."""
    names = {
      path.stem for path in (self.corpora / 'disjoint' / 'mono').glob('*.txt')
    }
    return tuple(sorted(names - {FIRST}))

  def translated(self, split: str, second: str) -> pathlib.Path:
    """`first<TAB>second`, a pair a line; split '.' or 'test'."""
    folder = self.corpora / 'parallel' / split / 'parallel'
    return folder / f'{FIRST}-{second}.tsv'

  def treebank(self, split: str, code: str) -> pathlib.Path:
    """The one treebank of a language and split.

    Raises:
      ConfigError: there is none, or several.
    """
    found = sorted(self.treebanks.glob(f'**/{code}_*-{split}*.conllu'))
    if len(found) != 1:
      raise errors.ConfigError(
        f'One treebank for {split} is needed of each language',
        got=', '.join(map(str, found)) or 'none',
        expected=f'one file {code}_…-{split}….conllu',
        where=str(self.treebanks),
      )
    return found[0]

  def world(self, work: pathlib.Path, text: Text) -> World:
    """The languages in a working directory."""
    return RealWorld(work, text, self)


class RealWorld(World):
  """English and other languages as `Texts` holds them.

  Monolingual text is of pages that no two languages share, but for
  `Text.SAME_PAGES`: as many lines of the first pages, in each language.
  """

  COVERAGE = 0.9995
  LENGTH = 64
  TESTED = 400

  amounts: Texts

  @property
  def seconds(self) -> tuple[str, ...]:
    return self.amounts.seconds

  def write(self) -> None:
    """Writes the corpus, unless it is there."""
    done = self.folder / 'done'
    if done.exists() and done.read_text() == self.amounts.digest:
      return
    if self.folder.exists():  # of other files
      paths.remove_directory(self.folder)
    corpus = pathlib.Path(self.corpus)
    for code in (FIRST, *self.seconds):
      lines, whole = (
        _lines(self.amounts.corpora / kind / 'mono' / f'{code}.txt')
        for kind in ('disjoint', 'parallel')
      )
      if self.text is Text.SAME_PAGES:
        lines = whole[: len(lines)]
      _write(corpus / 'mono' / f'{code}.txt', lines)
    for code in self.seconds:
      lines = _lines(self.amounts.translated('.', code))
      path = corpus / 'parallel' / f'{FIRST}-{code}.tsv'
      _write(path, lines[:: max(1, len(lines) // _PAIRS)][:_PAIRS])
      if self.text is Text.WRONG_PAIRS:
        held_out.misalign(path)
    done.write_text(self.amounts.digest)

  def tagged(self, split: str, *parts: str) -> FileDataset:
    """Sentences with universal parts of speech."""
    return FileDataset(
      format='conllu_tags',
      files={code: str(self.amounts.treebank(split, code)) for code in parts},
      max_examples=_TAGGED if split == 'test' else None,
    )

  def dictionary(self) -> pathlib.Path:
    """The folder of dictionaries."""
    assert self.amounts.dictionaries is not None  # else no such run is made
    return self.amounts.dictionaries

  def translations(self, second: str) -> list[tuple[str, str]]:
    """Held-out pairs that share no string, each sentence once, at random."""
    seen: set[str] = set()
    found = []
    for line in _lines(self.amounts.translated('test', second)):
      pair = line.split('\t')
      kind = string_overlap.overlap_kind(*pair)
      if kind is string_overlap.Kind.UNSHARED and seen.isdisjoint(pair):
        seen.update(pair)
        found.append((pair[0], pair[1]))
    return random.Random(0).sample(found, len(found))

  def probes(self, vocabulary: Vocabulary | None) -> dict[str, float]:
    """The entropy of token frequencies, in nats, as languages are drawn.

    The loss of a model of text that has learned nothing else.
    """
    assert vocabulary is not None  # experiments have one
    found, weights = [], []
    for code in (FIRST, *self.seconds):
      lines = _lines(pathlib.Path(self.corpus) / 'mono' / f'{code}.txt')
      ids, _ = vocabulary.encode_ragged(lines, language=code)
      found.append(stats.entropy(np.bincount(ids)))
      weights.append(sum(map(bool, lines)) ** ALPHA)
    return {'entropy': float(np.average(found, weights=weights))}


@functools.lru_cache(maxsize=32)
def _lines(path: pathlib.Path) -> list[str]:
  return path.read_text(encoding='utf-8').splitlines()


def _write(path: pathlib.Path, lines: list[str]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_atomically(path, '\n'.join(lines) + '\n')
