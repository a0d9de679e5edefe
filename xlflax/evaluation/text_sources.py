"""Text to evaluate on: where it lies, and how its languages are named."""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import pydantic

from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised.readers import (
  column_validation,
  file_reading,
  parallel_reader,
)
from xlflax.utils import class_registry, errors, name_suggestions, validation

Pair = tuple[str, str]


class PairedText(NamedTuple):
  """Sentences of two languages: `first[i]` and `second[i]` mean the same."""

  first: Sequence[str]
  second: Sequence[str]


@class_registry.register('pair_source')
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSource:
  """Base of sources of sentence pairs."""

  @classmethod
  def from_options(
    cls,
    corpus: str | None = None,
    mixture: str | None = None,
    split: str = 'test',
    languages: tuple[str, ...] | None = None,
    max_examples: int | None = None,
  ) -> 'PairSource':
    """Creates the source from the options of `xlflax evaluate`.

    Args:
      corpus: Corpus directory.
      mixture: SeqIO mixture or task that is read instead of the corpus.
      split: Split of the text.
      languages: Codes of languages, or pairs such as 'de-fr'. If None, all.
      max_examples: Maximum number of sentence pairs per language pair.

    Raises:
      ConfigError: If neither a corpus nor a mixture is given.
    """
    settings: dict[str, Any] = dict(
      split=split, languages=languages, max_pairs=max_examples
    )
    if mixture:
      task_pairs = class_registry.class_of('task_pairs')  # in `task_sources`
      return task_pairs(mixture=mixture, **settings)
    return CorpusPairs(directory=_require_corpus(corpus), **settings)

  def pairs(self) -> tuple[Pair, ...]:
    """The language pairs there are."""
    raise NotImplementedError

  def load(self, pair: Pair) -> PairedText:
    """All sentence pairs of a language pair."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Hash of languages and text; text that cannot be read counts as none."""
    return _fingerprint(
      (pair, lambda pair=pair: itertools.chain(*self.load(pair)))
      for pair in self.pairs()
    )


@class_registry.register('corpus_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusPairs(PairSource):
  """The parallel text of a corpus directory.

  Attributes:
    directory: the corpus directory.
    split: 'train', 'validation' or 'test'.
    languages: languages to take the pairs with English of, or pairs such as
      'de-fr'; None: all there are.
    max_pairs: the first so many sentence pairs of a language pair; None: all.
  """

  directory: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_pairs: validation.PositiveInt | None = None

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs of the source."""
    available = _corpus(self.directory).parallel_pairs(self.split)
    return chosen_pairs(available, self.languages, _where(self))

  def load(self, pair: Pair) -> PairedText:
    """Returns the sentences of a language or pair."""
    lines = _corpus(self.directory).parallel(*pair, self.split)
    pair_lines = list(itertools.islice(lines, self.max_pairs))
    return PairedText(
      [pair.source for pair in pair_lines], [pair.target for pair in pair_lines]
    )


@class_registry.register('text_source')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSource:
  """Base of sources of text in one language each."""

  @classmethod
  def from_options(
    cls,
    corpus: str | None = None,
    mixture: str | None = None,
    split: str = 'test',
    languages: tuple[str, ...] | None = None,
    max_examples: int | None = None,
  ) -> 'TextSource':
    """Creates the source from options; see `PairSource.from_options`."""
    settings: dict[str, Any] = dict(
      split=split, languages=languages, max_lines=max_examples
    )
    if mixture:
      task_text = class_registry.class_of('task_text')  # in `task_sources`
      return task_text(mixture=mixture, **settings)
    return CorpusText(directory=_require_corpus(corpus), **settings)

  def languages_found(self) -> tuple[str, ...]:
    """The languages there are."""
    raise NotImplementedError

  def load(self, language: str) -> list[str]:
    """The lines of a language."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Hash of languages and text; text that cannot be read counts as none."""
    return _fingerprint(
      (language, lambda language=language: self.load(language))
      for language in self.languages_found()
    )


@class_registry.register('corpus_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusText(TextSource):
  """The monolingual text of a corpus directory.

  Attributes:
    directory: the corpus directory.
    split: 'train', 'validation' or 'test'.
    languages: codes to take; None: all there are.
    max_lines: the first so many lines of a language; None: all.
  """

  directory: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the languages of the source."""
    available = _corpus(self.directory).monolingual_languages(self.split)
    return chosen_languages(available, self.languages, _where(self))

  def load(self, language: str) -> list[str]:
    """Returns the sentences of a language or pair."""
    lines = _corpus(self.directory).monolingual(language, self.split)
    return [line.text for line in itertools.islice(lines, self.max_lines)]


@class_registry.register('file_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FileText(TextSource):
  """Text in files, a sentence a line; no corpus directory is needed.

  Attributes:
    files: language to its file.
    max_lines: the first so many lines of a language; None: all.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'sw': 'sw.txt'}"
    ),
  ]
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the languages of the source."""
    return chosen_languages(tuple(self.files), None, 'FileText.files')

  def load(self, language: str) -> list[str]:
    """Returns the sentences of a language."""
    lines = file_reading.read_lines(self.files[language])
    return [line for _, line in itertools.islice(lines, self.max_lines)]


def _require_corpus(corpus: str | None) -> str:
  if corpus is None:
    raise errors.ConfigError(
      'The evaluation task requires text',
      expected='--corpus=DIR or --mixture=NAME',
    )
  return corpus


def pair_name(pair: Pair) -> str:
  """('de', 'fr') -> 'de-fr'; with English the other side: 'de'."""
  other_languages = [language for language in pair if language != 'en']
  return other_languages[0] if len(other_languages) == 1 else '-'.join(pair)


@functools.lru_cache(maxsize=8)
def _corpus(directory: str) -> corpus_directory.Corpus:
  return corpus_directory.Corpus(directory)


def chosen_pairs(
  found: tuple[Pair, ...], wanted: tuple[str, ...] | None, where: str
) -> tuple[Pair, ...]:
  """Pairs named as 'de-fr', or all of whose languages but English are named.

  Raises:
    CorpusError: nothing was found, or a name is in no pair that was.
  """
  _check_any(found, where)
  if wanted is None:
    return check_directions(found, where)
  chosen = tuple(
    pair
    for pair in found
    if '-'.join(pair) in wanted or set(pair) - {'en'} <= set(wanted)
  )
  names = {name for pair in chosen for name in (*pair, '-'.join(pair))}
  _check_missing(set(wanted) - names, map('-'.join, found), where)
  return check_directions(chosen, where)


def check_directions(pairs: tuple[Pair, ...], where: str) -> tuple[Pair, ...]:
  """Returns the pairs; ConfigError where two would have one name."""
  if len(set(map(pair_name, pairs))) < len(pairs):
    raise errors.ConfigError(
      'Two directions of a pair would have one result',
      got=', '.join(map('-'.join, pairs)),
      where=where,
      fix='evaluate one direction, and the other in a task of another `name`',
    )
  return pairs


def chosen_languages(
  found: tuple[str, ...], wanted: tuple[str, ...] | None, where: str
) -> tuple[str, ...]:
  """The languages that are wanted.

  Raises:
    CorpusError: nothing was found, or not all that is wanted.
  """
  _check_any(found, where)
  _check_missing(set(wanted or ()) - set(found), found, where)
  return found if wanted is None else tuple(wanted)


def _check_any(found: tuple, where: str) -> None:
  if not found:
    raise errors.CorpusError(
      'There is no text to evaluate on',
      where=where,
      fix='give another split, or add files to it',
    )


def _check_missing(missing: set[str], known: Iterable[str], where: str) -> None:
  if missing:
    known = tuple(known)
    names = {part for name in known for part in (name, *name.split('-'))}
    raise errors.CorpusError(
      'There is no text of some languages to evaluate on',
      got=', '.join(sorted(missing)),
      expected='some of ' + ', '.join(known),
      where=where,
      fix=name_suggestions.suggest_languages(sorted(missing), sorted(names)),
    )


def _where(source) -> str:
  return f'the {source.split} split of {source.directory}'


def _fingerprint(parts: Iterable) -> str:
  digest = hashlib.sha256()
  for name, load in parts:
    digest.update(repr(name).encode())
    try:
      for text in load():
        digest.update(text.encode() + b'\n')
    except errors.XlflaxError as error:
      digest.update(str(error).encode())
  return digest.hexdigest()[:16]


@class_registry.register('file_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FilePairs(PairSource):
  """Translations in files; no corpus directory is needed.

  Attributes:
    files: pair, such as 'en-ja', to a file of columns separated by tabs, or to
      two files with a translation in the same line.
    columns: of the pair's two languages in the former.
    max_pairs: the first so many of a pair; None: all.
  """

  files: Annotated[
    Mapping[str, str | tuple[str, str]],
    pydantic.Field(
      description="a mapping of pairs to files, such as {'en-ja': 'en-ja.tsv'}"
    ),
  ]
  columns: tuple[validation.NonNegativeInt, validation.NonNegativeInt] = (0, 1)
  max_pairs: validation.PositiveInt | None = None

  def __post_init__(self):
    for name in self.files:
      if len(name.split('-')) != 2:
        raise errors.ConfigError(
          'A pair of languages is named wrongly',
          got=name,
          where='FilePairs.files',
          expected='two codes such as en-ja',
        )

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs of the source."""
    available = tuple(
      (first, second)
      for first, second in (name.split('-') for name in self.files)
    )
    return chosen_pairs(available, None, 'FilePairs.files')

  def load(self, pair: Pair) -> PairedText:
    """Returns the sentences of a language or pair."""
    paths = self.files['-'.join(pair)]
    read = (
      parallel_reader.read_tsv(paths, columns=self.columns)
      if isinstance(paths, str)
      else parallel_reader.read_lines(paths)
    )
    pair_lines = list(itertools.islice(read, self.max_pairs))
    paired_text = PairedText(
      [pair.source for pair in pair_lines], [pair.target for pair in pair_lines]
    )
    column_validation.check_languages(pair, paired_text, paths)
    return paired_text
