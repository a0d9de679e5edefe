"""Language-independent meanings of phrases and sentences."""

import dataclasses
import enum


class Tense(enum.Enum):
  """Tense of a clause. The present tense is unmarked."""

  PAST = 'past'
  PRESENT = 'present'
  FUTURE = 'future'


@dataclasses.dataclass(frozen=True)
class Phrase:
  """Meaning of a noun phrase.

  Attributes:
    head: Concepts that form the head: one noun, or the words of a name.
    determiner: Determiner or numeral. It is None for names.
    adjective: Adjective that expresses a quality.
    owner: Possessor of the noun. A possessor cannot have a possessor itself.
    relative: Relative clause that modifies the phrase, with a verb, a tense and
      a simple object.
  """

  head: tuple[str, ...]
  determiner: str | None = None
  adjective: str | None = None
  owner: 'Phrase | None' = None
  relative: 'Clause | None' = None


@dataclasses.dataclass(frozen=True)
class Clause:
  """Meaning of a clause whose predicate is a verb or an adjective.

  Attributes:
    subjects: One phrase, or two coordinated phrases. It is empty in a relative
      clause.
    verb: Verb of the clause. If None, the clause has an adjective as predicate.
    object: Object of a transitive verb.
    predicate: Adjective that serves as the predicate of a clause without a
      verb.
    place: Noun phrase that denotes the place of the event.
    fronted: Whether the noun phrase in `place` is moved to the start of the
      clause.
    adverb: Adverb of manner or time.
    tense: Tense of the clause.
    negated: Whether the clause is negated.
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
  """Meaning of a statement or a question.

  Attributes:
    clauses: One clause, or two clauses that are coordinated.
    joint: Conjunction between two coordinated clauses, such as 'but'.
    question: Whether the sentence is a question.
  """

  clauses: tuple[Clause, ...]
  joint: str = 'but'
  question: bool = False


def make_statement(clause: Clause) -> Sentence:
  """Returns a statement that consists of one clause."""
  return Sentence((clause,))
