"""Sources of evaluation text, and names for languages and language pairs."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import pydantic

from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised.readers import (
  column_validation,
  file_reading,
  parallel_reader,
)
from xlflax.storage import paths
from xlflax.utils import class_registry, errors, name_suggestions, validation

Pair = tuple[str, str]


class PairedText(NamedTuple):
  """Sentences in two languages that are translations of each other.

  Attributes:
    first: Sentences in the first language.
    second: Sentences in the second language. `second[i]` is the translation of
      `first[i]`.
  """

  first: Sequence[str]
  second: Sequence[str]


@class_registry.register('pair_source')
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSource:
  """Base class for sources of sentence pairs."""

  OPENED_BY: ClassVar[str] = 'xlflax.evaluation.ParallelCorpus(directory={})'

  @classmethod
  def from_options(
    cls,
    corpus: str | None = None,
    mixture: str | None = None,
    split: str = 'test',
    languages: tuple[str, ...] | None = None,
    max_examples: int | None = None,
  ) -> 'PairSource':
    """Creates a source of sentence pairs from options of `xlflax evaluate`.

    Args:
      corpus: Path to the corpus directory.
      mixture: Name of a SeqIO mixture or task to read instead of a corpus.
      split: Data split to read.
      languages: Language codes, or pairs such as 'de-fr'. If None, all
        languages are read.
      max_examples: Maximum number of sentence pairs to read per language pair.

    Raises:
      ConfigError: If neither a corpus nor a mixture is given.
    """
    settings: dict[str, Any] = dict(
      split=split, languages=languages, max_pairs=max_examples
    )
    if mixture:
      task_pairs = class_registry.find_class('seqio_pairs')  # in `task_sources`
      return task_pairs(mixture=mixture, **settings)
    return ParallelCorpus(directory=_require_corpus(corpus), **settings)

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the available language pairs."""
    raise NotImplementedError

  def load(self, pair: Pair) -> PairedText:
    """Reads all sentence pairs of a language pair."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Returns a hash that identifies the languages and their text.

    If a text cannot be read, the error message is hashed instead.
    """
    return _fingerprint(
      (pair, lambda pair=pair: itertools.chain(*self.load(pair)))
      for pair in self.pairs()
    )


@class_registry.register('parallel_corpus')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelCorpus(PairSource):
  """Sentence pairs from the parallel text in a corpus directory.

  Attributes:
    directory: Path to the corpus directory.
    split: Data split: 'train', 'validation' or 'test'.
    languages: Languages whose pairs with English are read, or pairs such as
      'de-fr'. If None, all pairs are read.
    max_pairs: Maximum number of sentence pairs per language pair. If None, all
      sentence pairs are read.
  """

  directory: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_pairs: validation.PositiveInt | None = None

  def has_text(self) -> bool:
    """Returns whether the split contains parallel text in any language."""
    corpus = corpus_directory.Corpus(self.directory)
    return bool(corpus.parallel_pairs(self.split))

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs that this source provides."""
    available = corpus_directory.Corpus(self.directory).parallel_pairs(
      self.split
    )
    return chosen_pairs(available, self.languages, _where(self), _suggest(self))

  def load(self, pair: Pair) -> PairedText:
    """Reads the sentences of a language pair."""
    pairs = corpus_directory.Corpus(self.directory).parallel(*pair, self.split)
    lines = list(itertools.islice(pairs, self.max_pairs))
    paired_text = PairedText(
      [line.source for line in lines], [line.target for line in lines]
    )
    check_pairs(pair, paired_text, _where(self))
    return paired_text


@validation.validate_call
def pairs_in_directory(
  directory: str,
  corpus: str,
  *,
  split: str = 'test',
  languages: tuple[str, ...] | None = None,
) -> ParallelCorpus:
  """Returns a `ParallelCorpus` for a corpus in a subdirectory.

  Args:
    directory: Directory that contains the corpus directory.
    corpus: Path of the corpus directory in `directory`, such as 'iwslt14'.
    split: Data split: 'train', 'validation' or 'test'.
    languages: Languages whose pairs with English are read, or pairs such as
      'de-fr'. If None, all pairs are read.
  """
  return ParallelCorpus(
    directory=str(paths.to_path(directory) / corpus),
    split=split,
    languages=languages,
  )


@class_registry.register('text_source')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSource:
  """Base class for sources of monolingual text."""

  OPENED_BY: ClassVar[str] = 'xlflax.evaluation.CorpusText(directory={})'

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
      task_text = class_registry.find_class('task_text')  # in `task_sources`
      return task_text(mixture=mixture, **settings)
    return CorpusText(directory=_require_corpus(corpus), **settings)

  def languages_found(self) -> tuple[str, ...]:
    """Returns the available languages."""
    raise NotImplementedError

  def load(self, language: str) -> list[str]:
    """Reads the lines of a language."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Returns a hash that identifies the languages and their text.

    If a text cannot be read, the error message is hashed instead.
    """
    return _fingerprint(
      (language, lambda language=language: self.load(language))
      for language in self.languages_found()
    )


@class_registry.register('corpus_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusText(TextSource):
  """Monolingual text in a corpus directory.

  Attributes:
    directory: Path to the corpus directory.
    split: Data split: 'train', 'validation' or 'test'.
    languages: Codes of the languages to read. If None, all languages are read.
    max_lines: Maximum number of lines per language. If None, all lines are
      read.
  """

  directory: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_lines: validation.PositiveInt | None = None

  def has_text(self) -> bool:
    """Returns whether the split contains monolingual text in any language."""
    corpus = corpus_directory.Corpus(self.directory)
    return bool(corpus.monolingual_languages(self.split))

  def languages_found(self) -> tuple[str, ...]:
    """Returns the language codes of the source."""
    available = corpus_directory.Corpus(self.directory).monolingual_languages(
      self.split
    )
    return chosen_languages(
      available, self.languages, _where(self), _suggest(self)
    )

  def load(self, language: str) -> list[str]:
    """Reads the lines of a language."""
    lines = corpus_directory.Corpus(self.directory).monolingual(
      language, self.split
    )
    return [line.text for line in itertools.islice(lines, self.max_lines)]


@class_registry.register('file_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FileText(TextSource):
  """Monolingual text in files with one sentence per line.

  Attributes:
    files: Path to the text file of each language.
    max_lines: Maximum number of lines per language. If None, all lines are
      read.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'sw': 'sw.txt'}"
    ),
  ]
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the language codes of the source."""
    return chosen_languages(tuple(self.files), None, 'FileText.files')

  def load(self, language: str) -> list[str]:
    """Reads the sentences of a language."""
    lines = file_reading.read_lines(self.files[language])
    return [line for _, line in itertools.islice(lines, self.max_lines)]


def check_pairs(pair: Pair, paired_text: PairedText, where: str) -> None:
  """Checks sentence pairs for swapped languages and misaligned lines.

  Args:
    pair: The two languages.
    paired_text: Sentences in both languages. A warning is logged if their lines
      seem to be misaligned.
    where: Location of the text, such as 'the test split of corpus'.

  Raises:
    CorpusError: If the languages seem to be swapped.
  """
  column_validation.check_translations(
    pair, paired_text, f'{"-".join(pair)} in {where}'
  )


def _require_corpus(corpus: str | None) -> str:
  """Returns the corpus directory after checking that it was given."""
  if corpus is None:
    raise errors.ConfigError(
      'The evaluation task requires a source of text',
      fix='Pass --corpus=DIR or --mixture=NAME.',
    )
  return corpus


def pair_name(pair: Pair) -> str:
  """Returns the name of a language pair for use in metric names.

  A pair with English is named after its non-English language: ('de', 'fr')
  becomes 'de-fr', and ('de', 'en') becomes 'de'.
  """
  other_languages = [language for language in pair if language != 'en']
  return other_languages[0] if len(other_languages) == 1 else '-'.join(pair)


def chosen_pairs(
  available: tuple[Pair, ...],
  requested: tuple[str, ...] | None,
  where: str,
  suggestion: str | None = None,
) -> tuple[Pair, ...]:
  """Returns the requested language pairs.

  Args:
    available: Language pairs that exist in the text.
    requested: Pair names such as 'de-fr', and language codes. A pair is
      selected by its name, or if all of its languages other than English are
      requested. If None, all pairs are selected.
    where: Location of the text to report in error messages.
    suggestion: Hint for the error if no text is available. If None, the hint is
      to select a different split.

  Raises:
    CorpusError: If no language pair is available, or if a requested name does
      not match any pair.
    ConfigError: If two pairs have the same name in metrics.
  """
  _check_not_empty(available, where, suggestion)
  if requested is None:
    return check_directions(available, where)
  pairs = tuple(
    pair
    for pair in available
    if '-'.join(pair) in requested or set(pair) - {'en'} <= set(requested)
  )
  missing = set(requested) - _names_of_pairs(pairs)
  # English alone selects no pair, but is not the cause if others are missing.
  unknown = missing - _names_of_pairs(available)
  _check_missing(unknown or missing, map('-'.join, available), where)
  return check_directions(pairs, where)


def _names_of_pairs(pairs: Iterable[Pair]) -> set[str]:
  """Returns the languages of language pairs and the names of the pairs."""
  return {name for pair in pairs for name in (*pair, '-'.join(pair))}


def check_directions(pairs: tuple[Pair, ...], where: str) -> tuple[Pair, ...]:
  """Returns language pairs after checking that their names are distinct.

  Raises:
    ConfigError: If two pairs have the same name in metrics.
  """
  if len(set(map(pair_name, pairs))) < len(pairs):
    raise errors.ConfigError(
      'An evaluation task can evaluate only one direction of a language pair',
      got=', '.join(map('-'.join, pairs)),
      where=where,
      fix='Evaluate the reverse direction in a task with a different `name`.',
    )
  return pairs


def chosen_languages(
  available: tuple[str, ...],
  requested: tuple[str, ...] | None,
  where: str,
  suggestion: str | None = None,
) -> tuple[str, ...]:
  """Returns the requested languages.

  Args:
    available: Codes of the languages in which the text is available.
    requested: Language codes. If None, all languages are selected.
    where: Location of the text to report in error messages.
    suggestion: Hint for the error if no text is available. If None, the hint is
      to select a different split.

  Raises:
    CorpusError: If no language is available, or if a requested language is
      missing.
  """
  _check_not_empty(available, where, suggestion)
  _check_missing(set(requested or ()) - set(available), available, where)
  return available if requested is None else tuple(requested)


def missing_text_error(
  source: CorpusText | ParallelCorpus, task: str, other_tasks: Sequence[str]
) -> errors.CorpusError:
  """Returns the error for a split that lacks the text a task requires.

  Args:
    source: Source of the task's text. Its method `has_text` returns False.
    task: Name of the task.
    other_tasks: Names of the selected tasks that can be evaluated.
  """
  kinds = ['monolingual', 'parallel']
  suggestion = 'retrieval'
  other_source: CorpusText | ParallelCorpus = ParallelCorpus(
    directory=source.directory, split=source.split
  )
  if isinstance(source, ParallelCorpus):
    kinds.reverse()
    suggestion = 'perplexity'
    other_source = CorpusText(directory=source.directory, split=source.split)
  folder = paths.to_path(source.directory)
  if source.split != corpus_directory.TRAIN:
    folder /= corpus_directory.FOLDERS[source.split]
  folder /= 'parallel' if isinstance(source, ParallelCorpus) else 'mono'

  fix = f'Add files to {folder}'
  if other_tasks:
    fix += f', or select only other tasks with --tasks={",".join(other_tasks)}'
  elif other_source.has_text():
    fix += (
      f', or select a task that reads {kinds[1]} text, such as '
      f'--tasks={suggestion}'
    )
  for split in corpus_directory.SPLITS:
    if (
      split not in (source.split, corpus_directory.TRAIN)
      and dataclasses.replace(source, split=split).has_text()
    ):
      fix += f', or select a different split with --split={split}'
  return errors.CorpusError(
    f'The evaluation task {task!r} requires {kinds[0]} text, but the '
    f'{source.split} split of the corpus contains none',
    where=str(folder),
    fix=_suggest(source) or f'{fix}.',
  )


def _check_not_empty(
  available: tuple, where: str, suggestion: str | None
) -> None:
  if not available:
    raise errors.CorpusError(
      'The source does not contain any text to evaluate',
      where=where,
      fix=suggestion or 'Select a different split, or add files to this split.',
    )


def _check_missing(
  missing: set[str], available: Iterable[str], where: str
) -> None:
  if missing:
    available = tuple(available)
    names = {part for name in available for part in (name, *name.split('-'))}
    raise errors.CorpusError(
      'Some of the requested languages do not have any text to evaluate',
      got=', '.join(sorted(missing)),
      expected=_describe_available(available),
      where=where,
      fix=name_suggestions.suggest_languages(sorted(missing), sorted(names)),
    )


def _describe_available(available: tuple[str, ...]) -> str:
  """Describes the available languages, or language pairs such as 'de-en'."""
  if not any('-' in name for name in available):
    return 'one or more of the languages ' + ', '.join(available)
  languages = sorted({code for name in available for code in name.split('-')})
  return (
    f'one or more of the languages {", ".join(languages)}, or of the pairs '
    f'{", ".join(available)}'
  )


def _suggest(source) -> str | None:
  return corpus_directory.suggest_parent(source.directory)


def _where(source) -> str:
  return f'the {source.split} split of {source.directory}'


def _fingerprint(parts: Iterable) -> str:
  """Returns a hash of names and texts.

  Args:
    parts: Pairs that consist of a name and a function that loads the texts.
  """
  digest = hashlib.sha256()
  for name, load in parts:
    digest.update(repr(name).encode())
    try:
      for text in load():
        digest.update(text.encode() + b'\n')
    except errors.XlflaxError as error:
      digest.update(str(error).encode())
  return digest.hexdigest()[:16]


@class_registry.register('parallel_files')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelFiles(PairSource):
  """Sentence pairs from text files.

  Attributes:
    files: Files by language pair, such as 'en-ja'. A pair has either one file
      with columns separated by tabs, or two files in which lines with the same
      number are translations of each other.
    columns: Indices of the columns that contain the pair's two languages, for a
      file with columns.
    max_pairs: Maximum number of sentence pairs per language pair. If None, all
      sentence pairs are read.
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
          'Each key of `files` must consist of two language codes, such as '
          'en-ja',
          got=name,
          where=errors.field_location(self, 'files'),
        )

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs that this source provides."""
    available = tuple(
      (first, second)
      for first, second in (name.split('-') for name in self.files)
    )
    return chosen_pairs(available, None, 'ParallelFiles.files')

  def load(self, pair: Pair) -> PairedText:
    """Reads the sentences of a language pair."""
    paths = self.files['-'.join(pair)]
    pairs = (
      parallel_reader.read_tsv(paths, columns=self.columns)
      if isinstance(paths, str)
      else parallel_reader.read_lines(paths)
    )
    lines = list(itertools.islice(pairs, self.max_pairs))
    paired_text = PairedText(
      [line.source for line in lines], [line.target for line in lines]
    )
    column_validation.check_translations(pair, paired_text, paths)
    return paired_text
