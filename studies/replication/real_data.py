"""Experiment data in real languages, from the user's corpora and treebanks."""

import dataclasses
import functools
import pathlib
import random
from collections.abc import Iterable

import numpy as np
from scipy import stats

from studies.replication import test_sets
from studies.replication.conditions import Condition
from studies.replication.study_data import (
  FIRST_LANGUAGE,
  StudyData,
  TextVariant,
)
from xlflax.data.plain_text.corpus_directory_tasks import ALPHA
from xlflax.data.supervised.sources.example_source import FileDataset
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.evaluation.metrics import string_overlap
from xlflax.storage import content_hash, paths
from xlflax.utils import errors

# Number of pairs per language. They are taken at equal distances.
_NUM_PAIRS = 8000
_NUM_TEST_SENTENCES = 300  # Tagged test sentences per language.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealSpec:
  """Specification of the user's files that an experiment reads.

  Results depend on the files' content, but not on their location.

  Attributes:
    corpora: Folder with two corpus directories written by `xlflax build-corpus
      libreoffice`. In `disjoint`, no two languages share a page. `parallel`
      contains all pages with their translations.
    treebanks: Folder with Universal Dependencies files `CODE_…-ud-….conllu`:
      an English training treebank, and a test treebank for each language.
    merges: Number of BPE merges per language when the vocabulary is trained.
    dictionaries: Folder with bilingual dictionaries for the languages of the
      corpora, which are read by conditions that use a dictionary. If None, no
      dictionaries are available.
    digest: Digest of the files that all runs read.
    words: Digest of the dictionaries. It is empty for a run that reads no
      dictionary.
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
  def from_folders(
    cls,
    corpora: pathlib.Path | None,
    treebanks: pathlib.Path | None,
    dictionaries: pathlib.Path | None = None,
  ) -> 'RealSpec':
    """Creates a specification and computes the digests of its files.

    Args:
      corpora: Folder that contains the corpora.
      treebanks: Folder that contains the treebanks.
      dictionaries: Folder that contains the dictionaries. If None, no
        dictionaries are available.

    Raises:
      ConfigError: If a folder or file is missing.
    """
    if corpora is None or treebanks is None:
      raise errors.ConfigError(
        'The study in real languages requires a folder with corpora and a '
        'folder with treebanks',
        got=f'--corpora={corpora}, --treebanks={treebanks}',
        fix='Pass both --corpora=DIR and --treebanks=DIR.',
      )
    spec = cls(corpora=corpora, treebanks=treebanks, dictionaries=dictionaries)
    digest = content_hash.hash_paths(
      [
        [corpora / kind / 'mono' for kind in ('disjoint', 'parallel')],
        [corpora / 'parallel' / split / 'parallel' for split in ('.', 'test')],
        spec.treebank('train', FIRST_LANGUAGE),
        [
          spec.treebank('test', language)
          for language in (FIRST_LANGUAGE, *spec.other_languages)
        ],
      ]
    )
    if digest is None or not spec.other_languages:
      raise errors.ConfigError(
        'The folders disjoint/mono, parallel/mono, parallel/parallel and '
        'parallel/test/parallel in the folder given with --corpora must '
        'contain text in English and in at least one other language',
        got=', '.join(spec.other_languages) or 'English alone',
        where=str(corpora),
        fix=(
          'Run `xlflax build-corpus libreoffice` once with --mode=disjoint '
          'and once with --mode=parallel.'
        ),
      )
    dictionary_digest = (
      content_hash.hash_paths([dictionaries]) if dictionaries else ''
    )
    if dictionary_digest is None:
      raise errors.ConfigError(
        'The bilingual dictionaries were not found',
        got=str(dictionaries),
        where='--dictionaries',
      )
    return dataclasses.replace(spec, digest=digest, words=dictionary_digest)

  def restrict_to(self, chain: Iterable[Condition]) -> 'RealSpec':
    """Returns a copy of the specification without fields that a run ignores.

    Args:
      chain: Conditions of the run and of the runs that initialize it.
    """
    if any(condition.reads_dictionary for condition in chain):
      return self
    return dataclasses.replace(self, words='')

  @property
  def other_languages(self) -> tuple[str, ...]:
    """Languages other than English."""
    names = {
      path.stem for path in (self.corpora / 'disjoint' / 'mono').glob('*.txt')
    }
    return tuple(sorted(names - {FIRST_LANGUAGE}))

  def parallel_file(self, split: str, language: str) -> pathlib.Path:
    """Returns the path of a file with sentence pairs `first<TAB>second`.

    Args:
      split: Split of the file: '.' for training, or 'test'.
      language: Language of the second sentences.
    """
    folder = self.corpora / 'parallel' / split / 'parallel'
    return folder / f'{FIRST_LANGUAGE}-{language}.tsv'

  def treebank(self, split: str, language: str) -> pathlib.Path:
    """Returns the treebank for a language and split.

    Raises:
      ConfigError: If there is no treebank for the language and split, or more
        than one.
    """
    matches = sorted(self.treebanks.glob(f'**/{language}_*-{split}*.conllu'))
    if len(matches) != 1:
      raise errors.ConfigError(
        f'Each language requires exactly one treebank for the split {split!r}',
        got=', '.join(map(str, matches)) or 'no file',
        expected=f'The file name must match {language}_*-{split}*.conllu',
        where=str(self.treebanks),
      )
    return matches[0]

  def create_data(self, work: pathlib.Path, text: TextVariant) -> StudyData:
    """Creates the experiment data that this specification describes."""
    return RealStudyData(work, text, self)


class RealStudyData(StudyData):
  """Experiment data in English and other real languages, read from files.

  No two languages share a page in their monolingual text. With
  `TextVariant.SAME_PAGES`, the text consists of the first pages in each
  language, with the same number of lines.
  """

  CHARACTER_COVERAGE = 0.9995
  MAX_LENGTH = 64
  NUM_TEST_PAIRS = 400

  spec: RealSpec

  @property
  def other_languages(self) -> tuple[str, ...]:
    """Languages other than English."""
    return self.spec.other_languages

  def write(self) -> None:
    """Writes the corpus unless it exists."""
    done = self.folder / 'done'
    if done.exists() and done.read_text() == self.spec.digest:
      return
    if self.folder.exists():  # The folder was written from other files.
      paths.remove_directory(self.folder)

    corpus = pathlib.Path(self.corpus)
    for language in (FIRST_LANGUAGE, *self.other_languages):
      lines, parallel_lines = (
        _read_lines(self.spec.corpora / kind / 'mono' / f'{language}.txt')
        for kind in ('disjoint', 'parallel')
      )
      if self.text is TextVariant.SAME_PAGES:
        lines = parallel_lines[: len(lines)]
      _write_lines(corpus / 'mono' / f'{language}.txt', lines)

    for language in self.other_languages:
      lines = _read_lines(self.spec.parallel_file('.', language))
      path = corpus / 'parallel' / f'{FIRST_LANGUAGE}-{language}.tsv'
      distance = max(1, len(lines) // _NUM_PAIRS)
      _write_lines(path, lines[::distance][:_NUM_PAIRS])
      if self.text is TextVariant.WRONG_PAIRS:
        test_sets.misalign_pairs(path)
    done.write_text(self.spec.digest)

  def tagged_sentences(self, split: str, *languages: str) -> FileDataset:
    """Returns sentences in a language with universal part-of-speech tags.

    Args:
      split: Data split: 'train' or 'test'.
      *languages: Language codes.
    """
    return FileDataset(
      format='conllu_tags',
      files={
        language: str(self.spec.treebank(split, language))
        for language in languages
      },
      max_examples=_NUM_TEST_SENTENCES if split == 'test' else None,
    )

  def dictionary(self) -> pathlib.Path:
    """Returns the folder that contains the dictionaries."""
    # Claims that need a dictionary are not run without this folder.
    assert self.spec.dictionaries is not None
    return self.spec.dictionaries

  def held_out_translations(self, language: str) -> list[tuple[str, str]]:
    """Returns shuffled held-out translation pairs without string overlap.

    No sentence occurs in more than one pair.

    Args:
      language: Language of the second sentence of each pair.
    """
    used: set[str] = set()
    pairs = []
    for line in _read_lines(self.spec.parallel_file('test', language)):
      first, second = pair = line.split('\t')
      kind = string_overlap.overlap_kind(first, second)
      if kind is string_overlap.Kind.UNSHARED and used.isdisjoint(pair):
        used.update(pair)
        pairs.append((first, second))
    return random.Random(0).sample(pairs, len(pairs))

  def measure_corpus(self, vocabulary: Vocabulary | None) -> dict[str, float]:
    """Returns the mean entropy of the languages' token frequencies, in nats.

    This is the loss of a model that has learned only the token frequencies. The
    languages are weighted by their sampling rates.

    Args:
      vocabulary: Vocabulary of the run.
    """
    assert vocabulary is not None  # Every experiment has a vocabulary.
    entropies, weights = [], []
    for language in (FIRST_LANGUAGE, *self.other_languages):
      path = pathlib.Path(self.corpus) / 'mono' / f'{language}.txt'
      lines = _read_lines(path)
      token_ids, _ = vocabulary.encode_ragged(lines, language=language)
      entropies.append(stats.entropy(np.bincount(token_ids)))
      weights.append(sum(map(bool, lines)) ** ALPHA)
    return {'entropy': float(np.average(entropies, weights=weights))}


@functools.lru_cache(maxsize=32)
def _read_lines(path: pathlib.Path) -> list[str]:
  return path.read_text(encoding='utf-8').splitlines()


def _write_lines(path: pathlib.Path, lines: list[str]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_atomically(path, '\n'.join(lines) + '\n')
