"""Whether columns of labelled files hold what their roles say.

A file that is read in another order of columns is still well-formed: sentences
become classes, and words become tags. What cannot be otherwise is an error,
what may be meant so is a warning. Few examples say nothing and pass.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlflax.data import corpus_checks
from xlflax.data.supervised import labeled_examples
from xlflax.utils import errors

_ROWS = 2000  # of a file that are looked at
_FEW = 10  # fewer examples say nothing
_SOME = 20  # fewer say nothing of what is only odd
_TOKENS = 50
_SENTENCE = 25  # characters that no name of a class has, as a rule
_WIDE = 8  # the same of characters beyond U+2E80, which need no spaces

Key = int | str


class Columns:
  """The values of a file's columns, whatever they are used for."""

  def __init__(self, names: Sequence[str] = ()):
    """Args: names: of the columns, if the file's first line has them."""
    self._names = names
    self._values: dict[Key, list[str]] = {}

  def add(self, row: Iterable[tuple[Key, Any]]) -> None:
    """Takes in a row's (column, value) pairs."""
    for key, value in row:
      values = self._values.setdefault(key, [])
      if isinstance(value, (str, int, float)) and len(values) < _ROWS:
        values.append(str(value))

  def like_labels(self) -> list[Key]:
    """The columns of few different values, none of which is a sentence."""
    return [key for key, values in self._values.items() if _are_labels(values)]

  def like_texts(self) -> list[Key]:
    """The columns of many different sentences."""
    return [key for key, values in self._values.items() if _are_texts(values)]

  def known_as(self, key: Key) -> Key:
    """A column's name where it has one."""
    named = isinstance(key, int) and key < len(self._names)
    return self._names[int(key)] if named else key


def check_classes(
  examples: Sequence[labeled_examples.ClassifiedText],
  found: Columns,
  columns: Mapping[str, Any],
  path: Any,
) -> None:
  """Refuses classes that are texts; warns of other odd ones.

  Args:
    examples: of the file.
    found: all of its columns.
    columns: what they are used for.
    path: of the file.

  Raises:
    CorpusError: the labels are sentences, or a running number beside a column
      of labels.
  """
  labeled = [example for example in examples if example.label is not None][
    :_ROWS
  ]
  labels, texts = (
    [str(example.label) for example in labeled],
    [example.text for example in labeled],
  )
  count, kinds = len(labeled), len(set(labels))
  if count < _FEW:
    return
  used = {found.known_as(c) for c in columns.values() if isinstance(c, Key)}
  label_columns = [found.known_as(key) for key in found.like_labels()]
  unused = [key for key in label_columns if key not in used]
  if _are_texts(labels) and (
    label_columns or _length(labels) >= _length(texts)
  ):
    raise _wrong_columns(found, columns, labels, label_columns, path)
  if kinds == count >= _SOME and unused:
    raise _wrong_columns(found, columns, labels, unused, path)
  if count >= _SOME and (kinds > count / 2 or kinds == 1):
    _warn(path, f'{count} examples have {kinds} different labels', labels)
  if count >= _SOME and len(set(texts)) <= count / 10 and _are_labels(texts):
    _warn(path, f'{count} examples have {len(set(texts))} texts', texts)


def check_scores(
  examples: Sequence[labeled_examples.RatedPair], path: Any
) -> None:
  """Refuses scores that are running numbers; warns of odd ranges.

  Raises:
    CorpusError: score i is i, or i + 1, of all examples, or one is infinite.
  """
  scores = [example.score for example in examples if example.score is not None]
  start = scores[0] if scores else 0.0
  counted = scores == [start + i for i in range(len(scores))]
  if any(abs(score) == float('inf') for score in scores) or (
    len(scores) >= _FEW and start in (0, 1) and counted
  ):
    raise errors.CorpusError(
      'The scores of a file of rated pairs are none',
      got=', '.join(f'{score:g}' for score in scores[:5]) + ', …',
      expected='how alike the texts are, such as 0 to 5',
      where=str(path),
      fix='name the column of the scores: columns={…, "label": NUMBER}',
    )
  odd = [score for score in scores if not -1 <= score <= 100]
  if odd:
    _warn(path, f'{len(odd)} scores lie outside of -1 to 100', map(str, odd))


def check_tags(
  examples: Sequence[labeled_examples.TaggedSentence], path: Any
) -> None:
  """Refuses tags that are words.

  Raises:
    CorpusError: the tags have far more kinds than the words, or are the words.
  """
  pairs = [
    (word, tag)
    for example in examples[:_ROWS]
    for word, tag in zip(example.words, example.tags or (), strict=False)
  ]
  distinct_words, tags = ({pair[i] for pair in pairs} for i in (0, 1))
  same = sum(word.lower() == tag.lower() for word, tag in pairs)
  if len(pairs) < _TOKENS:
    return
  if (len(tags) > _SOME and len(tags) > 2 * len(distinct_words)) or (
    len(tags) > _SOME and same > 0.8 * len(pairs)
  ):
    raise errors.CorpusError(
      'The tags of a file look like words',
      got=f'{len(tags)} different tags of {len(distinct_words)} different words, such '
      'as ' + ', '.join(map(repr, sorted(tags)[:3])),
      expected='few different tags',
      where=str(path),
      fix='name the columns of words and tags, from 0: word=NUMBER, tag=NUMBER',
    )
  if len(tags) > len(pairs) / 2:
    _warn(path, f'{len(pairs)} words have {len(tags)} different tags', tags)


def check_answers(
  examples: Sequence[labeled_examples.Question], path: Any
) -> None:
  """Refuses questions whose answers are not in their contexts.

  Raises:
    CorpusError: of most answers it is so.
  """
  answers = [
    (example, answer)
    for example in examples
    for answer in example.answers
    if answer.text
  ]
  lost = [pair for pair in answers if pair[1].start < 0]
  if len(answers) < _FEW or len(lost) <= len(answers) / 2:
    return
  in_questions = sum(
    answer.text in example.question for example, answer in lost
  )
  raise errors.CorpusError(
    'Questions and contexts look exchanged'
    if in_questions > len(lost) / 2
    else 'The answers belong to other contexts',
    got=f'{len(lost)} of {len(answers)} answers that are not in their contexts',
    expected='spans of the contexts',
    where=str(path),
    fix='write the text that holds the answer as "context"',
  )


def check_languages(
  languages: Sequence[str | None], sides: Sequence[Sequence[str]], path: Any
) -> None:
  """Refuses two sides each of which is in the other's script.

  Args:
    languages: codes of the sides.
    sides: their texts, one after the other.
    path: of the file.

  Raises:
    CorpusError: it is so; languages of one script say nothing.
  """
  if None in languages or len(set(languages)) < 2:
    return
  first, second = map(str, languages)
  texts = [' '.join(side[: corpus_checks.LINES]) for side in sides]
  if corpus_checks.scripts_are_exchanged((first, second), texts):
    raise errors.CorpusError(
      'The two languages of a file look exchanged',
      got=f'{corpus_checks.dominant_script(texts[0])} letters as {first}, '
      f'{corpus_checks.dominant_script(texts[1])} letters as {second}',
      where=str(path),
      fix=f'exchange the two columns or files, or call the part '
      f'{second}-{first}',
    )


def _are_labels(values: Sequence[str]) -> bool:
  """Whether these are few different short values."""
  kinds = set(values)
  return (
    len(values) >= _FEW
    and 2 <= len(kinds) <= max(3, len(values) // 5)
    and not any(map(_is_sentence, kinds))
  )


def _are_texts(values: Sequence[str]) -> bool:
  """Whether most of these are sentences, and different ones."""
  kinds = set(values)
  return (
    len(kinds) > len(values) / 2
    and sum(map(_is_sentence, kinds)) > len(kinds) / 2
  )


def _is_sentence(value: str) -> bool:
  wide = sum(ord(letter) > 0x2E80 for letter in value)
  return len(value.split()) >= 3 or len(value) >= _SENTENCE or wide >= _WIDE


def _length(values: Sequence[str]) -> float:
  return sum(map(len, values)) / max(1, len(values))


def _warn(path: Any, what: str, values: Iterable[str]) -> None:
  some = ', '.join(
    repr(value[:40]) for value in list(dict.fromkeys(values))[:3]
  )
  logging.warning(
    '%s: %s, such as %s: is it the column meant?', path, what, some
  )


def _wrong_columns(
  found: Columns, columns: Mapping[str, Any], labels, others: list[Key], path
) -> errors.CorpusError:
  """The error, with the columns as they are rather."""
  texts = [found.known_as(key) for key in found.like_texts()]
  rather = dict(zip(('text', 'paired_text'), texts, strict=False))
  if others:
    rather['label'] = others[0]
  return errors.CorpusError(
    'The labels of a file look like texts or numbers of its lines',
    got=f'{len(set(labels))} different labels of {len(labels)} examples, such '
    f'as {labels[0][:60]!r}, with columns={dict(columns)}',
    expected='few different names of classes'
    + (f'; column {others[0]!r} looks like the label' if others else ''),
    where=str(path),
    fix=f'set the option columns, such as columns={rather}, or name the '
    'classes by the option labels',
  )
