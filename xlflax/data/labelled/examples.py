"""What one example of each evaluation task is.

Plain values, read from files or SeqIO tasks, without any token. A label,
answer or tree that is not known (a blind test set) is None.
"""

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """Base of examples.

  Attributes:
    id: unique within its file; the number of the example, from 0, where the
      format has none. Translations of an example share its id.
    language: code of the text; of the first text, where there are two.
    KIND: the task family's name.
  """

  KIND: ClassVar[str]

  id: str
  language: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifiedText(Example):
  """A text, or a pair of texts, with a class.

  Attributes:
    text: the premise, the first sentence, the review.
    paired_text: the hypothesis, the second sentence; None for one text.
    paired_language: of `paired_text`; None: `language`.
    label: name of the class, or None.
  """

  KIND = 'classification'

  text: str
  paired_text: str | None = None
  paired_language: str | None = None
  label: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedSentence(Example):
  """Words with a label each: parts of speech, or entities in IOB2.

  Attributes:
    words: W of them.
    tags: W labels, or None.
  """

  KIND = 'tagging'

  words: tuple[str, ...]
  tags: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsedSentence(Example):
  """A dependency tree.

  Attributes:
    words: W of them.
    tags: W universal parts of speech ('_' where the file has none).
    heads: W numbers: 0 for the root, else the head's place counted from 1;
      None where the tree is not known.
    relations: W relations to the head, or None.
  """

  KIND = 'parsing'

  words: tuple[str, ...]
  tags: tuple[str, ...]
  heads: tuple[int, ...] | None = None
  relations: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
  """A span of the context.

  Attributes:
    text: the span.
    start: its first character's place in the context; -1 where the context
      does not hold the text.
  """

  text: str
  start: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question(Example):
  """A question and the text that holds its answer (SQuAD v1.1).

  Attributes:
    language: of the context.
    question_language: of the question; None: `language` (G-XLT differs).
    question: the question.
    context: the paragraph.
    answers: what counts as right, one or more; () for a blind test set.
    title: of the article; '' where the file has none.
  """

  KIND = 'question_answering'

  question: str
  context: str
  answers: tuple[Answer, ...] = ()
  question_language: str | None = None
  title: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignedSentence(Example):
  """A translated sentence with links between its words.

  Attributes:
    language: of the source words.
    target_language: of the target words.
    source_words: the words of one side.
    target_words: of the other.
    sure: links (i, j) from 0 that an aligner must find.
    possible: links that it may find; every sure link is one of them.
  """

  KIND = 'word_alignment'

  target_language: str
  source_words: tuple[str, ...]
  target_words: tuple[str, ...]
  sure: frozenset[tuple[int, int]]
  possible: frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedSentences:
  """Two monolingual collections in which translations are to be found (BUCC).

  Attributes:
    languages: of the two sides; the second is usually English.
    first: id -> sentence.
    second: id -> sentence.
    gold: pairs (id of first, id of second) that are translations; None for a
      blind test set.
  """

  languages: tuple[str, str]
  first: dict[str, str]
  second: dict[str, str]
  gold: frozenset[tuple[str, str]] | None = None
