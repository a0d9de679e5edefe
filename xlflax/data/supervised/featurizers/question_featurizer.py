"""Featurizer for questions whose answers are spans of a context."""

import dataclasses
import enum
import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import char_offsets, featurizer
from xlflax.utils import class_registry, errors, logs, plurals, validation

_MAX_LISTED = 10  # Number of question ids in a warning.


class NoAnswer(enum.Enum):
  """Labeling of context windows that do not contain the answer.

  CLS_TOKEN: Start and end positions are 0, the position of `<s>`.
  DROP: The window is dropped.
  """

  CLS_TOKEN = 'cls_token'
  DROP = 'drop'


class Window(NamedTuple):
  """Sequence with a question and one window of its context.

  Attributes:
    row: Sequence of question and window, without the labels `start_positions`
      and `end_positions`.
    offset: Index of the window's first context token in the sequence.
    first: Index of the window's first token among all tokens of the context.
    spans: Tokens of the entire context with their character spans.
  """

  row: featurizer.Row
  offset: int
  first: int
  spans: char_offsets.TokenSpans

  @property
  def num_tokens(self) -> int:
    """Number of context tokens in the sequence."""
    return int(self.row[batch_keys.CONTEXT_MASK].sum())

  def characters(self, start: int, end: int) -> tuple[int, int]:
    """Returns the character span in the context for a range of tokens.

    Args:
      start: Position of the first token in the sequence.
      end: Position of the last token in the sequence.
    """
    shift = self.first - self.offset
    return (
      int(self.spans.starts[start + shift]),
      int(self.spans.ends[end + shift]),
    )

  def positions(self, start: int, stop: int) -> tuple[int, int] | None:
    """Returns the first and last token position for a range of characters.

    Returns None if the window does not contain the complete range.
    """
    return self.token_positions(self.spans.cover(start, stop))

  def token_positions(
    self, covered: tuple[int, int] | None
  ) -> tuple[int, int] | None:
    """Converts a range of context tokens to positions in the sequence.

    Args:
      covered: First and last token of the range, as indices into all tokens of
        the context. None if no token is in the range.

    Returns:
      Positions of the first and last token in the sequence. None if the window
      does not contain all of the tokens.
    """
    if (
      covered is None
      or covered[0] < self.first
      or (covered[1] >= self.first + self.num_tokens)
    ):
      return None
    shift = self.offset - self.first
    return covered[0] + shift, covered[1] + shift


@class_registry.register('question_answering_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnsweringFeaturizer(featurizer.Featurizer):
  """Featurizer for questions that creates one sequence per context window.

  This is the input format of Devlin et al. (2019). `text_row` documents the
  tokens. The question is followed by the window. `start_positions` and
  `end_positions` are the positions in the sequence of the first and last token
  of the answer. If there are several answers, the first is used for training.
  If the window does not contain the answer, both are 0, the position of `<s>`.
  `context_mask` is 1 at the tokens of the window.

  For example, the question `a b` and the context `c d e f` with the answer `d`,
  a length of 9, a `doc_stride` of 2 and SpecialTokenTemplate.XLMR give
  `<s> a b </s> </s> c d e </s>` with start and end 6, and
  `<s> a b </s> </s> e f </s>` with start and end 0.

  For a question that the context does not answer (SQuAD v2), no window contains
  the answer. Examples without a known answer (blind test sets) produce no
  sequence. Examples whose context does not contain the answer at the given
  position also produce no sequence, and their number is logged.

  Attributes:
    doc_stride: Number of context tokens between the starts of two consecutive
      windows. If a window has fewer tokens than this, the next window starts
      where the window ends.
    max_question_length: Maximum number of question tokens. Longer questions are
      truncated.
    no_answer: Treatment of windows that do not contain the answer: CLS_TOKEN
      labels `<s>` as their answer, and DROP drops them.
  """

  reads_pairs = True
  doc_stride: validation.PositiveInt = 128
  max_question_length: validation.PositiveInt = 64
  no_answer: NoAnswer = NoAnswer.CLS_TOKEN

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
    is_usable = [
      example.is_unanswerable
      or (
        bool(example.answers) and contains_answer(example, example.answers[0])
      )
      for example in examples
    ]
    skipped_ids = [
      example.id
      for example, usable in zip(examples, is_usable, strict=True)
      if example.answers and not usable
    ]
    if skipped_ids:
      _warn_of_skipped(skipped_ids)
    usable_examples = list(itertools.compress(examples, is_usable))
    windows = iter(self.windows(usable_examples, vocabulary, length=length))
    return [
      self._add_answer(next(windows), example) if usable else []
      for example, usable in zip(examples, is_usable, strict=True)
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
    """Returns all context windows of each question, with or without an answer.

    A question with an empty context has no windows.

    Raises:
      ConfigError: If the length leaves no space for the context.
      VocabularyError: If encoding requires a language that the vocabulary does
        not have.
    """
    codes = [
      (example.question_language or example.language, example.language)
      for example in examples
    ]
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
    contexts = _encode_contexts(examples, vocabulary)
    return [
      self._split_context(
        question[: self.max_question_length],
        contexts[example.language, example.context],
        language_ids,
        vocabulary.spec,
        length,
      )
      for example, question, language_ids in zip(
        examples, questions, languages, strict=True
      )
    ]

  def _split_context(
    self, question, spans, languages, spec, length: int
  ) -> list[Window]:
    """Splits the context of a question into windows."""
    num_special = featurizer.num_special(2, self.separator)
    capacity = length - num_special - len(question)
    if capacity < 1:
      raise errors.ConfigError(
        f'The sequence length {length} leaves no space for the context, '
        f'because the number of tokens in the question is {len(question)} and '
        f'the number of special tokens is {num_special}',
        fix='Increase the length, or decrease max_question_length.',
      )
    num_tokens = len(spans.token_ids)
    if not num_tokens:
      return []
    stride = min(self.doc_stride, capacity)
    num_windows = 1 + max(0, math.ceil((num_tokens - capacity) / stride))
    return [
      self._make_window(question, spans, stride * i, capacity, languages, spec)
      for i in range(num_windows)
    ]

  def _make_window(
    self, question, spans, first, capacity, languages, spec
  ) -> Window:
    """Returns the window that starts at context token `first`."""
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

  def _add_answer(
    self, windows: Sequence[Window], example: labeled_examples.Question
  ) -> list[featurizer.Row]:
    """Adds the answer positions to the windows of an example."""
    rows: list[featurizer.Row] = []
    answer = example.answers[0]
    covered = (
      windows[0].spans.cover(answer.start, answer.start + len(answer.text))
      if windows and not example.is_unanswerable
      else None
    )
    for window in windows:
      answer_span = window.token_positions(covered)
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
  """Returns whether the answer's text occurs at its position in the context."""
  return (
    answer.start >= 0
    and bool(answer.text.strip())
    and (example.context.startswith(answer.text, answer.start))
  )


def find_answer_mismatches(
  examples: Iterable[labeled_examples.Question],
) -> list[str]:
  """Returns the ids of questions whose answer positions are wrong."""
  return [
    example.id
    for example in examples
    if not example.is_unanswerable
    and not all(contains_answer(example, answer) for answer in example.answers)
  ]


def _encode_contexts(
  examples, vocabulary
) -> dict[tuple[str, str], char_offsets.TokenSpans]:
  """Returns the tokens of each distinct pair (language, context)."""
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


def _warn_of_skipped(question_ids: Sequence[str]) -> None:
  """Logs the ids of questions whose answer is not at its position."""
  logging.warning(
    'Skipping %s without the answer at its stated position in the context: '
    '%s%s',
    plurals.format_count(len(question_ids), 'question'),
    ', '.join(question_ids[:_MAX_LISTED]),
    ', …' if len(question_ids) > _MAX_LISTED else '',
    extra=logs.ONCE,
  )
