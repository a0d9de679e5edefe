"""Sentence pairs with a known similarity, and sentences with known topics."""

import dataclasses

from studies.synthetic import concepts
from studies.synthetic.meaning import (
  Clause,
  Phrase,
  Sentence,
  Tense,
  make_statement,
)
from studies.synthetic.sampling import Sampler

SLOTS = ('subjects', 'verb', 'object', 'place')
TOPICS = ('country', 'town')
# The range of ratings is that of STS.
MAX_RATING = 5.0


@dataclasses.dataclass(frozen=True)
class RatedPair:
  """Two sentences, and the number of slots (such as the verb) that they share.

  The slots of a sentence are its subjects, verb, object and place.
  """

  first: Sentence
  second: Sentence
  num_shared_slots: int

  @property
  def rating(self) -> float:
    """Rating of the sentences' similarity, from 0 to 5."""
    return MAX_RATING * self.num_shared_slots / len(SLOTS)


@dataclasses.dataclass(frozen=True)
class Topical:
  """Sentences whose nouns and verbs all belong to one topic."""

  sentences: tuple[Sentence, ...]
  topic: str


@dataclasses.dataclass(frozen=True)
class Choice:
  """A premise and two sentences, one of which has the premise's topic.

  Attributes:
    premise: Sentence with which the choices are compared.
    choices: Two sentences to choose from.
    label: Index of the choice that has the same topic as the premise.
  """

  premise: Sentence
  choices: tuple[Sentence, Sentence]
  label: int


def draw_rated_pair(sampler: Sampler) -> RatedPair:
  """Samples two sentences that share some slots (such as the verb).

  The number of shared slots is 0 to 4, with equal probabilities.
  """
  clause = _draw_full_clause(sampler, sampler.draw_topic())
  return _change_slots(sampler, clause, sampler.rng.integer(len(SLOTS) + 1))


def draw_translation_pair(sampler: Sampler) -> RatedPair:
  """Samples two sentences with the same meaning, or with only two shared slots.

  A slot is, for example, the verb. The two cases have equal probabilities.
  """
  clause = _draw_full_clause(sampler, sampler.draw_topic())
  num_shared_slots = len(SLOTS) if sampler.rng.bernoulli(0.5) else 2
  return _change_slots(sampler, clause, num_shared_slots)


def draw_topical(sampler: Sampler) -> Topical:
  """Samples three sentences whose words all belong to one topic."""
  topic = sampler.draw_topic()
  sentences = (
    make_statement(_draw_simple_clause(sampler, topic)) for _ in range(3)
  )
  return Topical(tuple(sentences), TOPICS[topic])


def draw_choice(sampler: Sampler) -> Choice:
  """Samples a premise and two sentences, one with the premise's topic."""
  topic, label = sampler.draw_topic(), sampler.rng.integer(2)
  first, second = (
    make_statement(
      _draw_simple_clause(sampler, topic if index == label else 1 - topic)
    )
    for index in range(2)
  )
  premise = make_statement(_draw_simple_clause(sampler, topic))
  return Choice(premise, (first, second), label)


def alter_sentence(sampler: Sampler, sentence: Sentence) -> Sentence:
  """Replaces one word or name in the first clause of a sentence."""
  clause, *other_clauses = sentence.clauses
  if clause.predicate is not None:
    opinions = concepts.concepts_of_group('opinion')
    predicate = sampler.draw_different(
      lambda: sampler.rng.choice(opinions), clause.predicate
    )
    clause = dataclasses.replace(clause, predicate=predicate)
  else:
    topic = concepts.CONCEPTS[clause.verb or ''].topic or 0
    filled_slots = [slot for slot in SLOTS if getattr(clause, slot)]
    slot = sampler.rng.choice(filled_slots)
    clause = _change_slot(sampler, clause, slot, topic)
  return dataclasses.replace(sentence, clauses=(clause, *other_clauses))


def _draw_simple_clause(sampler: Sampler, topic: int) -> Clause:
  """Draws a clause with a subject, a verb and an object."""
  return Clause(
    (sampler.draw_noun_phrase(topic),),
    sampler.draw_verb(topic, is_transitive=True),
    sampler.draw_noun_phrase(topic),
    tense=sampler.rng.choice(tuple(Tense)),
  )


def _draw_full_clause(sampler: Sampler, topic: int) -> Clause:
  """Draws a clause with all slots."""
  clause = _draw_simple_clause(sampler, topic)
  return dataclasses.replace(clause, place=sampler.draw_name('LOC'))


def _change_slots(
  sampler: Sampler, clause: Clause, num_shared_slots: int
) -> RatedPair:
  """Pairs a clause with a clause that differs in random slots."""
  topic = concepts.CONCEPTS[clause.verb or ''].topic or 0
  changed = clause
  for slot in sampler.rng.sample(SLOTS, len(SLOTS) - num_shared_slots):
    changed = _change_slot(sampler, changed, slot, topic)
  return RatedPair(
    make_statement(clause), make_statement(changed), num_shared_slots
  )


def _change_slot(
  sampler: Sampler, clause: Clause, slot: str, topic: int
) -> Clause:
  """Replaces a clause's verb, or the head of one of its phrases."""
  if slot == 'verb':
    is_transitive = clause.object is not None
    value = sampler.draw_different(
      lambda: sampler.draw_verb(topic, is_transitive=is_transitive), clause.verb
    )
  elif slot == 'subjects':
    first_subject = _change_head(sampler, clause.subjects[0], topic)
    value = (first_subject, *clause.subjects[1:])
  else:
    value = _change_head(sampler, getattr(clause, slot), topic)
  return dataclasses.replace(clause, **{slot: value})


def _change_head(sampler: Sampler, phrase: Phrase, topic: int) -> Phrase:
  """Replaces the head of a phrase with a different head of the same type."""
  last = concepts.CONCEPTS[phrase.head[-1]]
  if last.tag == 'NOUN':
    pool = (
      concepts.concepts_of_group('place', topic)
      if last.group == 'place'
      else concepts.list_nouns(topic)
    )
    head = sampler.draw_different(
      lambda: (sampler.rng.choice(pool),), phrase.head
    )
  else:
    entity = {'location': 'LOC', 'function': 'ORG'}.get(last.group, 'PER')
    head = sampler.draw_different(
      lambda: sampler.draw_name(entity).head, phrase.head
    )
  return dataclasses.replace(phrase, head=head)
