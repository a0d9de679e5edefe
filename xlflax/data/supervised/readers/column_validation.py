"""Checks that columns in files of labeled examples contain the expected data.

A file can be read with the wrong columns without violating its format. For
example, sentences are then read as classes, or words as tags. Data that must be
wrong causes an error, and data that is suspicious causes a warning. Small files
are not checked.
"""

import itertools
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from xlflax.data import corpus_checks
from xlflax.data.corpus import text_language
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import errors, logs

_MAX_ROWS = 2000  # Number of rows of a file that are checked.
_MIN_ROWS_FOR_ERROR = 10
_MIN_ROWS_FOR_WARNING = 20
_MAX_TAGS = 20  # More different tags may be words.
_MIN_TOKENS = 50
# Number of rows from which unused texts are reported, and the similarity of the
# character trigrams of two columns above which they are in the same language.
_MIN_ROWS_FOR_UNUSED_TEXT = 50
_MIN_SIMILARITY = 0.6
# Class names usually have fewer characters than sentences.
_SENTENCE_LENGTH = 25
# The same for characters beyond U+2E80, which are written without spaces.
_WIDE_SENTENCE_LENGTH = 8

Key = int | str


class Columns:
  """Values in the first rows of a file of labeled examples, by column.

  Columns that the reader does not use are included.
  """

  def __init__(self, names: Sequence[str] = ()):
    """Creates columns without values.

    Args:
      names: Names of the columns from the file's header. Empty if the file has
        no header.
    """
    self._names = names
    self._values: dict[Key, list[str]] = {}

  def add(self, row: Iterable[tuple[Key, Any]]) -> None:
    """Adds the values in one row of a file, given as (column, value) pairs."""
    for key, value in row:
      values = self._values.setdefault(key, [])
      if isinstance(value, (str, int, float)) and len(values) < _MAX_ROWS:
        values.append(str(value))

  def find_label_columns(self) -> list[Key]:
    """Returns the columns that seem to contain labels."""
    return [key for key, values in self._values.items() if _are_labels(values)]

  def find_text_columns(self) -> list[Key]:
    """Returns the columns that seem to contain texts."""
    return [key for key, values in self._values.items() if _are_texts(values)]

  def find_sentence_columns(self) -> list[Key]:
    """Returns the columns that seem to contain sentences.

    Unlike `find_text_columns`, a sentence may occur in many rows, as premises
    do in data for natural language inference.
    """
    return [
      key for key, values in self._values.items() if _are_sentences(set(values))
    ]

  def find_unused_texts(self, columns: Mapping[str, Any]) -> list[Key]:
    """Returns the names of columns that may contain the second text of a pair.

    Most of their values are sentences in the language of the text, which differ
    from row to row and do not contain the text itself.

    Args:
      columns: Mapping from example fields to columns of the file. The field
        `text` is read from one column.
    """
    used_columns: set[Key] = set()
    for column in columns.values():
      used_columns.update([column] if isinstance(column, Key) else column)
    keys = {self.get_name(key): key for key in self._values}
    used_names = {self.get_name(column) for column in used_columns}
    texts = self._values.get(keys.get(self.get_name(columns['text']), ''), [])
    return [
      name
      for name, key in keys.items()
      if name not in used_names and _are_paired(texts, self._values[key])
    ]

  def get_name(self, key: Key) -> Key:
    """Returns a column's name, or its key if it has no name."""
    if isinstance(key, int) and key < len(self._names):
      return self._names[key]
    return key


def check_classes(
  examples: Sequence[labeled_examples.ClassifiedText],
  file_columns: Columns,
  columns: Mapping[str, Any],
  path: Any,
) -> None:
  """Rejects labels that seem to be texts, and warns of suspicious labels.

  Args:
    examples: Examples read from the file.
    file_columns: Values of all columns in the file.
    columns: Mapping from example fields to the columns from which they were
      read.
    path: Path of the file, for error messages.

  Raises:
    CorpusError: If the labels are sentences, or if all labels are different and
      another column of the file seems to contain labels.
  """
  labeled = [example for example in examples if example.label is not None]
  labeled = labeled[:_MAX_ROWS]
  labels = [str(example.label) for example in labeled]
  texts = [example.text for example in labeled]
  num_examples = len(labeled)
  num_labels = len(set(labels))
  num_texts = len(set(texts))
  if num_examples < _MIN_ROWS_FOR_ERROR:
    return

  used_columns = {
    file_columns.get_name(column)
    for column in columns.values()
    if isinstance(column, Key)
  }
  label_columns = [
    file_columns.get_name(key) for key in file_columns.find_label_columns()
  ]
  unused_label_columns = [
    key for key in label_columns if key not in used_columns
  ]
  if _are_texts(labels) and (
    label_columns or _mean_length(labels) >= _mean_length(texts)
  ):
    raise _wrong_columns_error(
      file_columns, columns, labels, label_columns, path
    )

  if num_examples < _MIN_ROWS_FOR_WARNING:
    return
  if num_labels == num_examples and unused_label_columns:
    raise _wrong_columns_error(
      file_columns, columns, labels, unused_label_columns, path
    )
  if num_labels > num_examples / 2 or num_labels == 1:
    _warn(
      path,
      f'{num_examples} examples have {num_labels} different labels',
      labels,
    )
  if num_texts <= num_examples / 10 and _are_labels(texts):
    _warn(
      path, f'{num_examples} examples have {num_texts} different texts', texts
    )


def check_unused_texts(
  file_columns: Columns, columns: Mapping[str, Any], path: Any
) -> None:
  """Warns if the second text of pairs does not seem to be read.

  Args:
    file_columns: Values of all columns in the file.
    columns: Mapping from example fields to the columns from which they are
      read. If it has the field `paired_text`, or if the text is read from
      several columns, there is no warning.
    path: Path of the file, for the warning.
  """
  if 'paired_text' in columns or not isinstance(columns['text'], Key):
    return
  names = file_columns.find_unused_texts(columns)
  if not names:
    return
  options = dict(columns) | {'paired_text': names[0]}
  logging.warning(
    '%s: The text of %s %s is not used. If it is the second text of pairs, '
    "such as the hypothesis of natural language inference, add 'paired_text' "
    "to the columns: {'columns': %s}. %s",
    path,
    'the column' if len(names) == 1 else 'the columns',
    ', '.join(map(repr, names)),
    options,
    file_reading.OPTION_MACROS,
    extra=logs.ONCE,
  )


def check_scores(
  examples: Sequence[labeled_examples.RatedPair], path: Any
) -> None:
  """Rejects scores that seem to be line numbers, and warns of unusual ranges.

  Raises:
    CorpusError: If the scores of all examples are their line numbers, counted
      from 0 or 1, or if a score is infinite.
  """
  scores = [example.score for example in examples if example.score is not None]
  start = scores[0] if scores else 0.0
  are_line_numbers = (
    len(scores) >= _MIN_ROWS_FOR_ERROR
    and start in (0, 1)
    and scores == [start + i for i in range(len(scores))]
  )
  if are_line_numbers or any(abs(score) == float('inf') for score in scores):
    raise errors.CorpusError(
      'The score column must contain similarity scores, such as numbers from '
      '0 to 5, but it seems to contain line numbers or infinite values',
      got=', '.join(f'{score:g}' for score in scores[:5]) + ', …',
      where=str(path),
      fix='Set the index of the score column: columns={…, "label": NUMBER}.',
    )
  suspicious = [score for score in scores if not -1 <= score <= 100]
  if suspicious:
    _warn(
      path,
      f'{len(suspicious)} scores are outside the range -1 to 100',
      map(str, suspicious),
    )


def check_tags(
  examples: Sequence[labeled_examples.TaggedSentence], path: Any
) -> None:
  """Rejects tags that seem to be words.

  Raises:
    CorpusError: If the file contains far more different tags than different
      words, or if most tags equal their words.
  """
  pairs = [
    (word, tag)
    for example in examples[:_MAX_ROWS]
    for word, tag in zip(example.words, example.tags or (), strict=False)
  ]
  if len(pairs) < _MIN_TOKENS:
    return
  distinct_words = {word for word, _ in pairs}
  tags = {tag for _, tag in pairs}
  num_equal = sum(word.lower() == tag.lower() for word, tag in pairs)
  if len(tags) > _MAX_TAGS and (
    len(tags) > 2 * len(distinct_words) or num_equal > 0.8 * len(pairs)
  ):
    raise errors.CorpusError(
      'The tag column of the file seems to contain words instead of tags. It '
      f'contains {len(tags)} different values for {len(distinct_words)} '
      'different words',
      got=', '.join(map(repr, sorted(tags)[:3])),
      where=str(path),
      fix='Set the indices of the word and tag columns, counted from 0: '
      'word=NUMBER, tag=NUMBER.',
    )
  if len(tags) > len(pairs) / 2:
    _warn(path, f'{len(pairs)} words have {len(tags)} different tags', tags)


def check_answers(
  examples: Sequence[labeled_examples.Question], path: Any
) -> None:
  """Rejects questions if most answers do not occur in their contexts.

  Raises:
    CorpusError: If most answers do not occur in their contexts.
  """
  answers = [
    (example, answer)
    for example in examples
    for answer in example.answers
    if answer.text
  ]
  missing = [
    (example, answer) for example, answer in answers if answer.start < 0
  ]
  if len(answers) < _MIN_ROWS_FOR_ERROR or len(missing) <= len(answers) / 2:
    return
  num_in_questions = sum(
    answer.text in example.question for example, answer in missing
  )
  raise errors.CorpusError(
    'The questions and contexts of the file seem to be swapped, because '
    f'{len(missing)} of {len(answers)} answers do not occur in their contexts'
    if num_in_questions > len(missing) / 2
    else f'Answers must be spans of their contexts, but {len(missing)} of '
    f'{len(answers)} answers in the file do not occur in their contexts',
    where=str(path),
    fix='Check that the key "context" contains the text in which the answer '
    'occurs.',
  )


def check_languages(
  languages: Sequence[str | None], sides: Sequence[Sequence[str]], path: Any
) -> None:
  """Rejects text pairs whose languages seem to be swapped.

  Args:
    languages: Language codes of the first and the second texts.
    sides: Two sequences: the first texts and the second texts of all pairs.
    path: Path of the file, for error messages.

  Raises:
    CorpusError: If the texts in each language are written in the script of the
      other language. Swapped languages with the same script are not detected.
  """
  if None in languages or len(set(languages)) < 2:
    return
  first, second = map(str, languages)
  texts = [' '.join(side[: corpus_checks.LINES]) for side in sides]
  if text_language.scripts_are_exchanged((first, second), texts):
    raise errors.CorpusError(
      'The two languages of the file seem to be swapped: most letters of the '
      f'text in {first!r} are {text_language.dominant_script(texts[0])}, and '
      f'most letters of the text in {second!r} are '
      f'{text_language.dominant_script(texts[1])}',
      where=str(path),
      fix='Swap the two columns or files, or rename the language split to '
      f'{second}-{first}.',
    )


def check_translations(
  languages: Sequence[str | None], sides: Sequence[Sequence[str]], path: Any
) -> None:
  """Checks that two columns or files contain translations of each other.

  A warning is logged if translations seem to be in other lines, or if the
  lengths of both sides are almost uncorrelated.

  Args:
    languages: Language codes of the first and the second texts.
    sides: Two sequences: the first texts and the second texts of all pairs.
    path: Path of the file, for messages.

  Raises:
    CorpusError: If the languages seem to be swapped (see `check_languages`).
  """
  check_languages(languages, sides, path)
  pairs = list(zip(*sides, strict=True))
  message = corpus_checks.describe_misalignment(languages, pairs, str(path))
  if message is not None:
    logging.warning('%s', message, extra=logs.ONCE)


def check_text(language: str, texts: Iterable[str], path: Any) -> None:
  """Warns if encoding, escape sequences or script of the texts seem to be wrong.

  Languages with the same script are not distinguished.

  Args:
    language: Language code of the texts.
    texts: Texts of the file. The first texts are checked.
    path: Path of the file, for the warning.
  """
  first_texts = list(itertools.islice(texts, corpus_checks.LINES))
  if len(first_texts) < _MIN_ROWS_FOR_ERROR:
    return
  wrong_encoding = corpus_checks.describe_wrong_encoding(
    [(text,) for text in first_texts], str(path)
  )
  if wrong_encoding is not None:
    logging.warning('%s', wrong_encoding, extra=logs.ONCE)
    return
  escape_sequences = corpus_checks.describe_escape_sequences(
    [(text,) for text in first_texts], str(path)
  )
  if escape_sequences is not None:
    logging.warning('%s', escape_sequences, extra=logs.ONCE)
  script = text_language.dominant_script(' '.join(first_texts))
  scripts = text_language.scripts_of_language(language)
  if script is not None and scripts is not None and script not in scripts:
    logging.warning(
      '%s: The text is mostly written in %s letters, but the language %r is '
      'written in %s letters. Check the language code for which the file is '
      'passed.',
      path,
      script,
      language,
      ' or '.join(scripts),
      extra=logs.ONCE,
    )


def _are_labels(values: Sequence[str]) -> bool:
  """Returns whether there are few different values and no sentences."""
  distinct = set(values)
  return (
    len(values) >= _MIN_ROWS_FOR_ERROR
    and 2 <= len(distinct) <= max(3, len(values) // 5)
    and not any(map(_is_sentence, distinct))
  )


def _are_texts(values: Sequence[str]) -> bool:
  """Returns whether most values are different and most are sentences."""
  distinct = set(values)
  return len(distinct) > len(values) / 2 and _are_sentences(distinct)


def _are_paired(texts: Sequence[str], others: Sequence[str]) -> bool:
  """Returns whether two columns seem to contain the two texts of pairs.

  Variants of the text, such as the text with annotations, and translations are
  not the second text of pairs.
  """
  distinct = set(others)
  if (
    len(texts) != len(others)
    or len(texts) < _MIN_ROWS_FOR_UNUSED_TEXT
    or len(distinct) <= len(others) / 5
    or not _are_sentences(distinct)
  ):
    return False
  num_variants = sum(
    map(
      _is_variant, texts[: corpus_checks.LINES], others[: corpus_checks.LINES]
    )
  )
  if num_variants > len(texts[: corpus_checks.LINES]) / 2:
    return False
  counts = [
    text_language.count_trigrams(' '.join(column[: corpus_checks.NUM_PAIRS]))
    for column in (texts, others)
  ]
  return text_language.trigram_similarity(*counts) > _MIN_SIMILARITY


def _is_variant(first: str, second: str) -> bool:
  """Returns whether the words of one text occur in this order in the other."""
  words = [re.findall(r'\w+', text.lower()) for text in (first, second)]
  shorter, longer = sorted(words, key=len)
  remaining_words = iter(longer)
  return all(word in remaining_words for word in shorter)


def _are_sentences(distinct: Collection[str]) -> bool:
  """Returns whether most of the different values are sentences."""
  return sum(map(_is_sentence, distinct)) > len(distinct) / 2


def _is_sentence(value: str) -> bool:
  """Returns whether a value has the length of a sentence."""
  num_wide = sum(ord(character) > 0x2E80 for character in value)
  return (
    len(value.split()) >= 3
    or len(value) >= _SENTENCE_LENGTH
    or num_wide >= _WIDE_SENTENCE_LENGTH
  )


def _mean_length(values: Sequence[str]) -> float:
  """Returns the mean number of characters of the values."""
  return sum(map(len, values)) / max(1, len(values))


def _warn(path: Any, problem: str, values: Iterable[str]) -> None:
  """Logs a warning that shows the first three distinct suspicious values."""
  shown_values = ', '.join(
    repr(value[:40]) for value in list(dict.fromkeys(values))[:3]
  )
  logging.warning(
    '%s: %s, such as %s. Check that the correct column is read.',
    path,
    problem,
    shown_values,
    extra=logs.ONCE,
  )


def _wrong_columns_error(
  file_columns: Columns,
  columns: Mapping[str, Any],
  labels,
  label_columns: list[Key],
  path,
) -> errors.CorpusError:
  """Returns the error for labels that are texts, with suggested columns."""
  text_keys = (
    file_columns.find_sentence_columns()
    if 'paired_text' in columns
    else file_columns.find_text_columns()
  )
  text_columns = [
    name
    for name in map(file_columns.get_name, text_keys)
    if name not in label_columns[:1]
  ]
  suggestion = dict(zip(('text', 'paired_text'), text_columns, strict=False))
  hint = ''
  if label_columns:
    suggestion['label'] = label_columns[0]
    hint = f' The column {label_columns[0]!r} seems to contain the class names.'
  options = {'columns': suggestion}
  return errors.CorpusError(
    'The label column of the file seems to contain texts or line numbers '
    f'instead of class names. With columns={dict(columns)}, it contains '
    f'{len(set(labels))} different labels for {len(labels)} examples',
    got=repr(labels[0][:60]),
    where=str(path),
    fix='Add the columns to the options of this file, such as '
    f'--gin.OPTIONS="{options}" if it has no other options, or set the option '
    f'labels to the class names.{hint} {file_reading.OPTION_MACROS}',
  )
