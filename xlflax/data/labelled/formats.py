"""The formats of files of examples, each with its reader."""

import dataclasses
import enum
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

from xlflax import enums, errors
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.readers import (
  classification,
  conll,
  conllu,
  reviews,
  squad,
  word_alignment,
)
from xlflax.data.labelled.readers.files import Reading

Paths = str | tuple[str, ...] | list[str]


class Format(enum.Enum):
  """The format of a file of examples; `docs/evaluation_data.md` has them.

  `conll`, `wikiann`, `uner` and `iob1` are one reader
  (`readers.conll.read`) with other defaults.
  """

  TSV = 'tsv'
  JSONL = 'jsonl'
  WEBIS_CLS = 'webis_cls'
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
  Format.WEBIS_CLS: reviews.read,
  Format.CONLLU: conllu.read_trees,
  Format.CONLLU_TAGS: conllu.read_tags,
  Format.CONLL: conll.read,
  Format.CONLL_IOB1: functools.partial(conll.read, scheme='iob1'),
  Format.CONLL_IOB2: functools.partial(conll.read, scheme='iob2'),
  Format.WIKIANN: functools.partial(
    conll.read, scheme='iob2', prefix='language'
  ),
  Format.UNER: functools.partial(conll.read, word=1, tag=2, scheme='iob2'),
  Format.SQUAD: squad.read,
  Format.WORD_ALIGNMENT: word_alignment.read,
}
_KINDS: dict[Format, str] = {
  Format.TSV: examples_lib.ClassifiedText.KIND,
  Format.JSONL: examples_lib.ClassifiedText.KIND,
  Format.WEBIS_CLS: examples_lib.ClassifiedText.KIND,
  Format.CONLLU: examples_lib.ParsedSentence.KIND,
  Format.SQUAD: examples_lib.Question.KIND,
  Format.WORD_ALIGNMENT: examples_lib.AlignedSentence.KIND,
}


# Formats of two texts: their parts may name the second's language; by which
# option the reader is told.
_SECOND = {
  Format.TSV: 'paired_language',
  Format.JSONL: 'paired_language',
  Format.SQUAD: 'question_language',
}


def kind_of(format: Format | str) -> str:
  """The kind of the examples that a format has, such as 'tagging'."""
  format = enums.of_value(format, Format, where='format')
  return _KINDS.get(format, examples_lib.TaggedSentence.KIND)


def read_files(
  format: Format | str, paths: Paths, part: str, **options
) -> Reading:
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
  if len(languages) == 2:
    options = {_SECOND[format]: languages[1]} | options
  readings = [reader(path, languages[0], **options) for path in several]
  examples, seen = [], set()
  for path, reading in zip(several, readings, strict=True):
    for example in reading.examples:
      if example.id in seen and len(several) > 1:
        example = dataclasses.replace(
          example, id=f'{os.path.basename(path)}:{example.id}'
        )
      seen.add(example.id)
      examples.append(example)
  return Reading(
    examples,
    tuple(
      itertools.chain.from_iterable(reading.problems for reading in readings)
    ),
  )


def check_options(format: Format | str, options: Mapping[str, Any]) -> None:
  """Raises a ConfigError for an option that the format's reader lacks."""
  format = enums.of_value(format, Format, where='format')
  known = [
    name
    for name, parameter in inspect.signature(
      _READERS[format]
    ).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
  ]
  unknown = sorted(set(options) - set(known))
  if unknown:
    raise errors.ConfigError(
      f'Files of the format {format.value!r} have no such option',
      got=', '.join(unknown),
      expected=', '.join(known) or 'none',
    )


def two_languages(part: str) -> tuple[str, str]:
  """('fr', 'en') of 'fr-en'; a ConfigError for another name of a part."""
  languages = part.split('-')
  if len(languages) != 2 or not all(languages):
    raise errors.ConfigError(
      'A part of a source is named wrongly',
      got=part,
      expected='two codes such as fr-en',
    )
  return languages[0], languages[1]


def _languages(part: str, format: Format) -> tuple[str, ...]:
  if format is Format.WORD_ALIGNMENT:
    return two_languages(part)
  languages = tuple(part.split('-'))
  if not all(languages) or len(languages) > 1 + (format in _SECOND):
    raise errors.ConfigError(
      'A part of a source is named wrongly',
      got=part,
      expected="a language's code such as fr or zh_Hans"
      + (', or two such as es-en' if format in _SECOND else ''),
    )
  return languages
