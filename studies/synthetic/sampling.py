"""Sampling of random meanings for synthetic phrases and sentences."""

from collections.abc import Callable
from typing import TypeVar

from studies.synthetic import concepts
from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense
from studies.synthetic.random_generator import RandomGenerator

_Item = TypeVar('_Item')
# Relative frequencies.
_DETERMINERS = {
  'the': 4.0,
  'a': 4.0,
  'every': 1.0,
  'no': 0.7,
  'many': 1.0,
  'two': 1.0,
  'three': 1.0,
}
_TENSES = {Tense.PAST: 1.0, Tense.PRESENT: 1.0, Tense.FUTURE: 1.0}


class Sampler:
  """Sampler for meanings of sentences and their parts.

  Attributes:
    rng: Random number generator.
    first_topic_probability: Probability that a sentence is about the first of
      the two topics.
  """

  def __init__(
    self, rng: RandomGenerator, *, first_topic_probability: float = 0.5
  ):
    self.rng = rng
    self.first_topic_probability = first_topic_probability

  def draw_topic(self) -> int:
    """Samples a topic, which is 0 or 1."""
    return 0 if self.rng.bernoulli(self.first_topic_probability) else 1

  def draw_name(self, entity: str) -> Phrase:
    """Samples a name of one or two words.

    Args:
      entity: Type of the named entity: 'PER', 'LOC' or 'ORG'.
    """
    if entity == 'ORG':
      return Phrase((self._draw_concept('organisation'), 'company'))
    if entity == 'LOC':
      prefix = ('new_place',) if self.rng.bernoulli(0.3) else ()
      return Phrase((*prefix, self._draw_concept('location')))
    has_last_name = self.rng.bernoulli(0.5)
    last_name = (self._draw_concept('last_name'),) if has_last_name else ()
    return Phrase((self._draw_concept('first_name'), *last_name))

  def _draw_concept(self, group: str) -> str:
    return self.rng.choice(concepts.concepts_of_group(group))

  def draw_noun_phrase(
    self, topic: int, *, determiner: str | None = None, adjective: float = 0.35
  ) -> Phrase:
    """Samples a common noun with a determiner and possibly an adjective.

    Args:
      topic: Topic of the noun and the adjective, 0 or 1.
      determiner: Determiner of the noun. If None, the determiner is sampled.
      adjective: Probability that the phrase has an adjective.
    """
    return Phrase(
      (self.rng.choice(concepts.list_nouns(topic)),),
      determiner or self.rng.weighted_choice(_DETERMINERS),
      self.rng.choice(concepts.concepts_of_group('quality', topic))
      if self.rng.bernoulli(adjective)
      else None,
    )

  def draw_phrase(self, topic: int) -> Phrase:
    """Samples a noun phrase, or the name of a person or an organization."""
    phrase_type = self.rng.weighted_choice(
      {'noun': 0.6, 'PER': 0.25, 'ORG': 0.15}
    )
    if phrase_type == 'noun':
      return self.draw_noun_phrase(topic)
    return self.draw_name(phrase_type)

  def draw_place(self, topic: int) -> Phrase:
    """Samples the name of a place, or a noun phrase that denotes a place."""
    if self.rng.bernoulli(0.6):
      return self.draw_name('LOC')
    return Phrase(
      (self.rng.choice(concepts.concepts_of_group('place', topic)),),
      self.rng.choice(('the', 'a')),
    )

  def draw_clause(self, topic: int, *, is_plain: bool = False) -> Clause:
    """Samples a clause with words from one topic.

    Args:
      topic: Topic of the nouns, the verb and the adjectives, 0 or 1.
      is_plain: Whether to exclude possessors, relative clauses and second
        subjects.
    """
    rng = self.rng
    if rng.bernoulli(0.12):
      return self.draw_opinion(topic)
    is_transitive = rng.bernoulli(0.7)
    subject = self.draw_phrase(topic)
    subjects: tuple[Phrase, ...] = (subject,)
    if not is_plain:
      shape = rng.weighted_choice(
        {'joined': 0.15, 'owner': 0.15, 'relative': 0.15, 'simple': 0.55}
      )
      if shape == 'joined':
        second_subject = self.draw_different(
          lambda: self.draw_phrase(topic), subject
        )
        subjects = (subject, second_subject)
      elif subject.determiner:
        subjects = (self._add_modifier(subject, shape, topic),)
    place = self.draw_place(topic) if rng.bernoulli(0.35) else None
    return Clause(
      subjects,
      self.draw_verb(topic, is_transitive=is_transitive),
      self.draw_phrase(topic) if is_transitive else None,
      place=place,
      fronted=place is not None and rng.bernoulli(0.3),
      adverb=rng.choice(concepts.concepts_of_group('adverb'))
      if rng.bernoulli(0.25)
      else None,
      tense=rng.weighted_choice(_TENSES),
      negated=rng.bernoulli(0.15),
    )

  def draw_verb(self, topic: int, *, is_transitive: bool) -> str:
    """Samples a verb from a topic."""
    group = 'transitive' if is_transitive else 'intransitive'
    return self.rng.choice(concepts.concepts_of_group(group, topic))

  def draw_opinion(self, topic: int) -> Clause:
    """Samples a clause whose predicate is a positive or negative adjective."""
    return Clause(
      (self.draw_phrase(topic),),
      tense=self.rng.weighted_choice(_TENSES),
      predicate=self.rng.choice(concepts.concepts_of_group('opinion')),
      negated=self.rng.bernoulli(0.15),
    )

  def draw_sentence(self) -> Sentence:
    """Samples a statement with one or two clauses."""
    topic = self.draw_topic()
    if self.rng.bernoulli(0.2):
      return Sentence(
        (
          self.draw_clause(topic, is_plain=True),
          self.draw_clause(topic, is_plain=True),
        ),
        self.rng.choice(('but', 'while')),
      )
    return Sentence((self.draw_clause(topic),))

  def draw_different(
    self, draw: Callable[[], _Item], *excluded: object
  ) -> _Item:
    """Calls `draw` repeatedly until the result is not an excluded item."""
    while (item := draw()) in excluded:
      pass
    return item

  def _add_modifier(self, subject: Phrase, shape: str, topic: int) -> Phrase:
    """Adds the modifier that `shape` specifies, such as a relative clause."""
    if shape == 'owner':
      owner = (
        self.draw_name('PER')
        if self.rng.bernoulli(0.5)
        else self.draw_noun_phrase(topic, adjective=0.2)
      )
      return Phrase(
        subject.head, subject.determiner, subject.adjective, owner=owner
      )
    if shape == 'relative':
      clause = Clause(
        (),
        self.draw_verb(topic, is_transitive=True),
        self.draw_noun_phrase(topic, adjective=0.2),
        tense=self.rng.choice((Tense.PAST, Tense.PRESENT)),
      )
      return Phrase(
        subject.head, subject.determiner, subject.adjective, relative=clause
      )
    return subject
