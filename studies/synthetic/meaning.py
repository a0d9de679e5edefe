"""Meanings of phrases and sentences, the same for all languages."""

import dataclasses
import enum


class Tense(enum.Enum):
  """When it happens; the present is not marked."""

  PAST = 'past'
  PRESENT = 'present'
  FUTURE = 'future'


@dataclasses.dataclass(frozen=True)
class Phrase:
  """A noun phrase.

  Attributes:
    head: concepts of its head: one noun, or the words of a name.
    determiner: a determiner or numeral; None for names.
    adjective: a quality.
    owner: of whom or of what, without an owner of its own.
    relative: a clause whose subject this is: verb, tense and a plain object.
  """

  head: tuple[str, ...]
  determiner: str | None = None
  adjective: str | None = None
  owner: 'Phrase | None' = None
  relative: 'Clause | None' = None


@dataclasses.dataclass(frozen=True)
class Clause:
  """Somebody does something, or is somehow.

  Attributes:
    subjects: one phrase or two that are joined; () in a relative clause.
    verb: a verb; None where `predicate` is the root.
    object: of a transitive verb.
    predicate: an adjective that the subject is said to be.
    place: where.
    fronted: whether the place opens the clause.
    adverb: how or when.
    tense: see `Tense`.
    negated: whether it is denied.
  """

  subjects: tuple[Phrase, ...]
  verb: str | None = None
  object: Phrase | None = None
  predicate: str | None = None
  place: Phrase | None = None
  fronted: bool = False
  adverb: str | None = None
  tense: Tense = Tense.PRESENT
  negated: bool = False


@dataclasses.dataclass(frozen=True)
class Sentence:
  """One clause or two that are joined; a statement or a question."""

  clauses: tuple[Clause, ...]
  joint: str = 'but'
  question: bool = False


def statement(clause: Clause) -> Sentence:
  """The sentence of one clause."""
  return Sentence((clause,))
