"""Rows of questions and the text that holds their answers."""

import dataclasses
import enum
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import char_offsets, featurizer
from xlflax.utils import class_registry, errors, validation

_MAX_LISTED = 10


class NoAnswer(enum.Enum):
  """What becomes of a window of the context that does not hold the answer."""

  FIRST_POSITION = 'first_position'  # start and end are <s>
  DROP = 'drop'


class Window(NamedTuple):
  """One row of a question, with a part of its context.

  Attributes:
    row: the batch's keys but the answer's.
    offset: place in the row of the context's first token here.
    first: which of the context's tokens that is.
    spans: the tokens of all of the context.
  """

  row: featurizer.Row
  offset: int
  first: int
  spans: char_offsets.TokenSpans

  @property
  def num_tokens(self) -> int:
    """Tokens of the context in the row."""
    return int(self.row[batch_keys.CONTEXT_MASK].sum())

  def characters(self, start: int, end: int) -> tuple[int, int]:
    """The characters of the context from position `start` through `end`."""
    shift = self.first - self.offset
    return (
      int(self.spans.starts[start + shift]),
      int(self.spans.ends[end + shift]),
    )

  def positions(self, start: int, stop: int) -> tuple[int, int] | None:
    """The positions of first and last token of characters start:stop.

    None where the window does not hold all of them.
    """
    return self.places(self.spans.cover(start, stop))

  def places(self, covered: tuple[int, int] | None) -> tuple[int, int] | None:
    """The positions of the context's tokens covered[0] through covered[1]."""
    if (
      covered is None
      or covered[0] < self.first
      or (covered[1] >= self.first + self.num_tokens)
    ):
      return None
    shift = self.offset - self.first
    return covered[0] + shift, covered[1] + shift


@class_registry.register('question_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionRows(featurizer.RowMaker):
  """Rows of a question and a window of its context each (Devlin et al. 2019).

  `text_row` shows the tokens: the question first, then the window.
  `start_positions` and `end_positions` are the places in the row of the first
  and the last token of the answer (of several the first is learnt), and 0, of
  `<s>`, where the window lacks it. `context_mask` is 1 at the window's tokens.

  Before: question `a b`, context `c d e f` with the answer `d`, a length of 9
  and `doc_stride` 2; after, with Separator.XLMR: `<s> a b </s> </s> c d e
  </s>` with start and end 6, and `<s> a b </s> </s> e f </s>` with 0 and 0.

  The windows of a question that its context does not answer (SQuAD v2) all
  lack the answer. Examples without a known answer (blind test sets), or with
  one that its context does not have at its place, give no row; the latter are
  counted in the log.

  Attributes:
    doc_stride: tokens of the context from one window's first to the next's.
      A window that is shorter is followed by the next without a gap.
    max_question_length: tokens of a question; longer ones are cut.
    no_answer: what becomes of windows without the answer.
  """

  reads_pairs = True
  doc_stride: validation.PositiveInt = 128
  max_question_length: validation.PositiveInt = 64
  no_answer: NoAnswer = NoAnswer.FIRST_POSITION

  @property
  def leaves_rows_out(self) -> bool:
    return self.no_answer is NoAnswer.DROP

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.CONTEXT_MASK: featurizer.Field((length,)),
      batch_keys.START_POSITIONS: featurizer.Field(()),
      batch_keys.END_POSITIONS: featurizer.Field(()),
    }

  def make(self, examples, vocabulary, *, length):
    wrong = find_answer_mismatches(examples)
    if wrong:
      _warn(wrong)
    usable = [
      e.is_unanswerable
      or (bool(e.answers) and contains_answer(e, e.answers[0]))
      for e in examples
    ]
    windows = iter(
      self.windows(
        [e for e, use in zip(examples, usable, strict=True) if use],
        vocabulary,
        length=length,
      )
    )
    return [
      self._answered(next(windows), example) if use else []
      for example, use in zip(examples, usable, strict=True)
    ]

  def texts(self, examples, vocabulary, *, length):
    return [
      [window.row for window in windows]
      for windows in self.windows(examples, vocabulary, length=length)
    ]

  def windows(
    self,
    examples: Sequence[labeled_examples.Question],
    vocabulary,
    *,
    length: int,
  ) -> list[list[Window]]:
    """The rows of each question, answered or not; [] for an empty context.

    Raises:
      ConfigError: the length leaves no room for the context.
      VocabularyError: the language is needed, and the vocabulary lacks it.
    """
    codes = [(e.question_language or e.language, e.language) for e in examples]
    ids = {
      code: featurizer.language_id(vocabulary, code)
      for code in {code for pair in codes for code in pair}
    }
    languages = [
      (ids[question_code], ids[context_code])
      for question_code, context_code in codes
    ]
    questions = vocabulary.encode_each(
      [example.question for example in examples],
      [question_code for question_code, _ in languages],
    )
    contexts = _contexts(examples, vocabulary)
    return [
      self._windows(
        question[: self.max_question_length],
        contexts[example.language, example.context],
        pair,
        vocabulary.spec,
        length,
      )
      for example, question, pair in zip(
        examples, questions, languages, strict=True
      )
    ]

  def _windows(
    self, question, spans, languages, spec, length: int
  ) -> list[Window]:
    special = featurizer.num_special(2, self.separator)
    capacity = length - special - len(question)
    if capacity < 1:
      raise errors.ConfigError(
        'Rows have no room for the context',
        got=f'{length} tokens, '
        f'{len(question)} of the question, {special} special ones',
        fix='raise the length, or lower max_question_length',
      )
    total = len(spans.token_ids)
    step = min(self.doc_stride, capacity)
    count = 1 + max(0, -(-(total - capacity) // step)) if total else 0
    return [
      self._window(question, spans, step * i, capacity, languages, spec)
      for i in range(count)
    ]

  def _window(
    self, question, spans, first, capacity, languages, spec
  ) -> Window:
    context_ids = spans.token_ids[first : first + capacity]
    row = featurizer.text_row(
      [question, context_ids],
      languages,
      spec,
      separator=self.separator,
      positions=self.positions,
    )
    size = len(row[batch_keys.TOKEN_IDS])
    offset = size - 1 - len(context_ids)
    mask = np.zeros(size, np.int32)
    mask[offset:-1] = 1
    return Window(row | {batch_keys.CONTEXT_MASK: mask}, offset, first, spans)

  def _answered(
    self, windows: Sequence[Window], example: labeled_examples.Question
  ) -> list[featurizer.Row]:
    rows: list[featurizer.Row] = []
    answer = example.answers[0]
    covered = (
      windows[0].spans.cover(answer.start, answer.start + len(answer.text))
      if windows and not example.is_unanswerable
      else None
    )
    for window in windows:
      answer_span = window.places(covered)
      if answer_span is None and self.no_answer is NoAnswer.DROP:
        continue
      start, end = answer_span or (0, 0)
      rows.append(
        window.row
        | {
          batch_keys.START_POSITIONS: np.asarray(start, np.int32),
          batch_keys.END_POSITIONS: np.asarray(end, np.int32),
        }
      )
    return rows


def contains_answer(
  example: labeled_examples.Question, answer: labeled_examples.Answer
) -> bool:
  """Whether the context has an answer where it says."""
  return (
    answer.start >= 0
    and bool(answer.text.strip())
    and (example.context.startswith(answer.text, answer.start))
  )


def find_answer_mismatches(
  examples: Iterable[labeled_examples.Question],
) -> list[str]:
  """Ids of the questions of which an answer is not where it says."""
  return [
    example.id
    for example in examples
    if not example.is_unanswerable
    and not all(contains_answer(example, answer) for answer in example.answers)
  ]


def _contexts(
  examples, vocabulary
) -> dict[tuple[str, str], char_offsets.TokenSpans]:
  """(language, context) -> its tokens; each context is encoded once."""
  by_language: dict[str, dict[str, None]] = {}
  for example in examples:
    by_language.setdefault(example.language, {})[example.context] = None
  return {
    (language, text): spans
    for language, texts in by_language.items()
    for text, spans in zip(
      texts,
      char_offsets.encode_with_offsets(vocabulary, list(texts), language),
      strict=True,
    )
  }


def _warn(wrong: Sequence[str]) -> None:
  logging.warning(
    '%d questions are left out, as their context does not have the '
    'answer where they say: %s%s',
    len(wrong),
    ', '.join(wrong[:_MAX_LISTED]),
    ', …' if len(wrong) > _MAX_LISTED else '',
  )
