"""Where labelled examples come from.

A part of a source is a language, 'fr', or two, 'es-en': context and question,
source and target, or the two collections that are mined.
"""

import dataclasses
import enum
import functools
import hashlib
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

from xlflax import enums, errors
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.labels import check_labels, labels_of
from xlflax.data.labelled.readers import (
    bucc,
    classification,
    conll,
    conllu,
    squad,
    word_alignment,
)
from xlflax.data.labelled.readers.files import Reading

__all__ = ('ExampleSource', 'FileExamples', 'Format', 'MinedFiles',
           'MinedFormat', 'MinedSource', 'check_labels', 'labels_of',
           'read_files')

Paths = str | tuple[str, ...] | list[str]


class Format(enum.Enum):
  """The format of a file of examples; `docs/evaluation_data.md` has them.

  `conll`, `wikiann`, `uner` and `iob1` are one reader
  (`readers.conll.read`) with other defaults.
  """

  TSV = 'tsv'
  JSONL = 'jsonl'
  CONLLU = 'conllu'
  CONLLU_TAGS = 'conllu_tags'
  CONLL = 'conll'
  CONLL_IOB1 = 'conll_iob1'
  CONLL_IOB2 = 'conll_iob2'
  WIKIANN = 'wikiann'
  UNER = 'uner'
  SQUAD = 'squad'
  WORD_ALIGNMENT = 'word_alignment'


_READERS: dict[Format, Callable[..., Reading]] = {
    Format.TSV: classification.read_tsv,
    Format.JSONL: classification.read_jsonl,
    Format.CONLLU: conllu.read_trees,
    Format.CONLLU_TAGS: conllu.read_tags,
    Format.CONLL: conll.read,
    Format.CONLL_IOB1: functools.partial(conll.read, scheme='iob1'),
    Format.CONLL_IOB2: functools.partial(conll.read, scheme='iob2'),
    Format.WIKIANN: functools.partial(
        conll.read, scheme='iob2', prefix='language'),
    Format.UNER: functools.partial(conll.read, word=1, tag=2, scheme='iob2'),
    Format.SQUAD: squad.read,
    Format.WORD_ALIGNMENT: word_alignment.read,
}
_KINDS: dict[Format, str] = {
    Format.TSV: examples_lib.ClassifiedText.KIND,
    Format.JSONL: examples_lib.ClassifiedText.KIND,
    Format.CONLLU: examples_lib.ParsedSentence.KIND,
    Format.SQUAD: examples_lib.Question.KIND,
    Format.WORD_ALIGNMENT: examples_lib.AlignedSentence.KIND,
}


def kind_of(format: Format | str) -> str:
  """The kind of the examples that a format has, such as 'tagging'."""
  format = enums.of_value(format, Format, where='format')
  return _KINDS.get(format, examples_lib.TaggedSentence.KIND)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSource:
  """Base of sources of labelled examples."""

  def languages(self) -> tuple[str, ...]:
    """The parts there are, such as 'fr', or 'es-en' for two languages."""
    raise NotImplementedError

  def load(self, part: str) -> list[examples_lib.Example]:
    """All examples of a part."""
    raise NotImplementedError

  def problems(self, part: str) -> tuple[str, ...]:
    """What is wrong with single examples that were read all the same."""
    del part
    return ()

  def fingerprint(self) -> str:
    """Hash of parts and examples; what can't be read counts as its error."""
    return _fingerprint(self.languages(), self.load)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileExamples(ExampleSource):
  """Examples in files of a public format.

  Attributes:
    format: of the files.
    files: part to its file, or to several that are joined; for word alignments
      to the (text, links) or (source, target, links) that belong together.
    options: arguments of the format's reader (`xlflax.data.labelled.readers`),
      such as columns and labels.
    max_examples: the first so many of a part; None: all.
  """

  format: Format | str
  files: Mapping[str, Paths]
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  max_examples: int | None = None

  def __post_init__(self):
    enums.coerce(self, 'format', Format)
    check_options(self.format, self.options)
    if not self.files:
      raise errors.ConfigError('A source of examples has no files',
                               where='FileExamples.files',
                               expected="such as {'en': 'test-en.tsv'}")

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, part: str) -> list[examples_lib.Example]:
    return self._read(part).examples[:self.max_examples]

  def problems(self, part: str) -> tuple[str, ...]:
    return self._read(part).problems

  def _read(self, part: str) -> Reading:
    return read_files(self.format, _of_part(self.files, part), part,
                      **self.options)


def read_files(format: Format | str, paths: Paths, part: str,
               **options) -> Reading:
  """Reads the files of one part; see `FileExamples`.

  Examples of later files whose id an earlier one has get their file's name
  before it.

  Raises:
    ConfigError: no such format or option, or a part of too many languages.
    CorpusError: see the readers.
  """
  format = enums.of_value(format, Format, where='format')
  check_options(format, options)
  languages = _languages(part, format)
  several = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
  reader = _READERS[format]
  if format is Format.WORD_ALIGNMENT:
    return reader(several, languages, **options)
  if format is Format.SQUAD and len(languages) == 2:
    options = {'question_language': languages[1]} | options
  readings = [reader(path, languages[0], **options) for path in several]
  examples, seen = [], set()
  for path, reading in zip(several, readings, strict=True):
    for example in reading.examples:
      if example.id in seen and len(several) > 1:
        example = dataclasses.replace(
            example, id=f'{os.path.basename(path)}:{example.id}')
      seen.add(example.id)
      examples.append(example)
  return Reading(examples, tuple(itertools.chain.from_iterable(
      reading.problems for reading in readings)))


def check_options(format: Format | str, options: Mapping[str, Any]) -> None:
  """Raises a ConfigError for an option that the format's reader lacks."""
  format = enums.of_value(format, Format, where='format')
  known = [name for name, parameter in inspect.signature(
      _READERS[format]).parameters.items()
           if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
  unknown = sorted(set(options) - set(known))
  if unknown:
    raise errors.ConfigError(
        f'Files of the format {format.value!r} have no such option',
        got=', '.join(unknown), expected=', '.join(known) or 'none')


class MinedFormat(enum.Enum):
  """BUCC: `id<TAB>sentence` and pairs of ids; LINES: one sentence a line."""

  BUCC = 'bucc'
  LINES = 'lines'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedSource:
  """Base of sources of collections in which translations are to be found."""

  def languages(self) -> tuple[str, ...]:
    """The parts there are, such as 'fr-en'."""
    raise NotImplementedError

  def load(self, part: str) -> examples_lib.MinedSentences:
    """The two collections of a part."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Hash of parts and sentences; what can't be read counts as its error."""
    return _fingerprint(self.languages(), self.load)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedFiles(MinedSource):
  """Collections in files.

  Attributes:
    files: part, such as 'fr-en', to (first, second) or, with the pairs that
      are translations, (first, second, gold).
    format: of the files; LINES has no gold pairs.
  """

  files: Mapping[str, tuple[str, ...]]
  format: MinedFormat | str = MinedFormat.BUCC

  def __post_init__(self):
    enums.coerce(self, 'format', MinedFormat)

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, part: str) -> examples_lib.MinedSentences:
    paths = _of_part(self.files, part)
    bucc_format = self.format is MinedFormat.BUCC
    if isinstance(paths, str) or len(paths) not in (2, 2 + bucc_format):
      raise errors.ConfigError(
          'The files of two collections are wrong', got=repr(paths),
          where=f'part {part}', expected='(first, second)'
          + (' or (first, second, gold)' if bucc_format else ''))
    first, second = _two_languages(part)
    read = bucc.read if bucc_format else bucc.read_lines
    return read(*paths, languages=(first, second))


def _of_part(files_: Mapping[str, Any], part: str) -> Any:
  if part not in files_:
    raise errors.CorpusError('A source has no file of a language', got=part,
                             expected='one of ' + ', '.join(files_))
  return files_[part]


def _languages(part: str, format: Format) -> tuple[str, ...]:
  if format is Format.WORD_ALIGNMENT:
    return _two_languages(part)
  languages = tuple(part.split('-'))
  if not all(languages) or len(languages) > 1 + (format is Format.SQUAD):
    raise errors.ConfigError(
        'A part of a source is named wrongly', got=part,
        expected="a language's code such as fr or zh_Hans"
        + (', or two such as es-en (context and question)'
           if format is Format.SQUAD else ''))
  return languages


def _two_languages(part: str) -> tuple[str, str]:
  languages = part.split('-')
  if len(languages) != 2 or not all(languages):
    raise errors.ConfigError('A part of a source is named wrongly', got=part,
                             expected='two codes such as fr-en')
  return languages[0], languages[1]


def _fingerprint(parts: tuple[str, ...], load: Callable[[str], Any]) -> str:
  digest = hashlib.sha256()
  for part in parts:
    try:
      held = _stable(load(part))
    except errors.XlflaxError as error:
      held = str(error)
    digest.update(repr((part, held)).encode('utf-8', 'surrogatepass'))
  return digest.hexdigest()[:16]


def _stable(value: Any) -> Any:
  """The same value without sets, whose order is another in each process."""
  if isinstance(value, list):
    return [_stable(item) for item in value]
  if dataclasses.is_dataclass(value):
    return [(f.name, _stable(getattr(value, f.name)))
            for f in dataclasses.fields(value)]
  return sorted(value) if isinstance(value, frozenset) else value
