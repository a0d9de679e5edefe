"""Sentences that are alike to a known degree, topics, and choices by topic."""

import dataclasses

from studies.synthetic import concepts
from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense, statement
from studies.synthetic.sampling import Sampler

SLOTS = ('subjects', 'verb', 'object', 'place')
TOPICS = ('country', 'town')
HIGHEST = 5.0  # a rating, as in STS


@dataclasses.dataclass(frozen=True)
class Rated:
  """Two sentences, and how many of the four slots they share."""

  first: Sentence
  second: Sentence
  shared: int

  @property
  def rating(self) -> float:
    """0 to 5."""
    return HIGHEST * self.shared / len(SLOTS)


@dataclasses.dataclass(frozen=True)
class Topical:
  """Sentences whose nouns and verbs are of one topic."""

  sentences: tuple[Sentence, ...]
  topic: str


@dataclasses.dataclass(frozen=True)
class Choice:
  """A sentence, and two others of which one is of the same topic."""

  premise: Sentence
  choices: tuple[Sentence, Sentence]
  right: int


def draw_rated(sampler: Sampler) -> Rated:
  """Two sentences that share 0 to 4 slots, each number alike."""
  clause = _whole(sampler, sampler.topic())
  return _rated(sampler, clause, sampler.draws.below(len(SLOTS) + 1))


def draw_pair(sampler: Sampler) -> Rated:
  """A sentence and itself, or one that shares two of its slots with it."""
  clause = _whole(sampler, sampler.topic())
  return _rated(sampler, clause, len(SLOTS) if sampler.draws.chance(0.5) else 2)


def draw_topical(sampler: Sampler) -> Topical:
  """Three sentences of one topic's words alone."""
  topic = sampler.topic()
  sentences = (statement(_plain(sampler, topic)) for _ in range(3))
  return Topical(tuple(sentences), TOPICS[topic])


def draw_choice(sampler: Sampler) -> Choice:
  """A premise and two sentences of different topics."""
  topic, right = sampler.topic(), sampler.draws.below(2)
  first, second = (
    statement(_plain(sampler, topic if place == right else 1 - topic))
    for place in range(2)
  )
  return Choice(statement(_plain(sampler, topic)), (first, second), right)


def altered(sampler: Sampler, sentence: Sentence) -> Sentence:
  """The sentence with one word or name of its first clause replaced."""
  clause, *others = sentence.clauses
  if clause.predicate is not None:
    opinions = concepts.of_group('opinion')
    new = sampler.other(
      lambda: sampler.draws.choice(opinions), clause.predicate
    )
    clause = dataclasses.replace(clause, predicate=new)
  else:
    topic = concepts.CONCEPTS[clause.verb or ''].topic or 0
    there = [name for name in SLOTS if getattr(clause, name)]
    clause = _changed(sampler, clause, sampler.draws.choice(there), topic)
  return dataclasses.replace(sentence, clauses=(clause, *others))


def _plain(sampler: Sampler, topic: int) -> Clause:
  return Clause(
    (sampler.noun_phrase(topic),),
    sampler.verb(topic, transitive=True),
    sampler.noun_phrase(topic),
    tense=sampler.draws.choice(tuple(Tense)),
  )


def _whole(sampler: Sampler, topic: int) -> Clause:
  return dataclasses.replace(_plain(sampler, topic), place=sampler.name('LOC'))


def _rated(sampler: Sampler, clause: Clause, shared: int) -> Rated:
  topic = concepts.CONCEPTS[clause.verb or ''].topic or 0
  other = clause
  for name in sampler.draws.sample(SLOTS, len(SLOTS) - shared):
    other = _changed(sampler, other, name, topic)
  return Rated(statement(clause), statement(other), shared)


def _changed(sampler: Sampler, clause: Clause, slot: str, topic: int) -> Clause:
  """The clause with another verb, or with another head of a phrase."""
  if slot == 'verb':
    transitive = clause.object is not None
    value = sampler.other(
      lambda: sampler.verb(topic, transitive=transitive), clause.verb
    )
  elif slot == 'subjects':
    value = (_renamed(sampler, clause.subjects[0], topic), *clause.subjects[1:])
  else:
    value = _renamed(sampler, getattr(clause, slot), topic)
  return dataclasses.replace(clause, **{slot: value})


def _renamed(sampler: Sampler, phrase: Phrase, topic: int) -> Phrase:
  """The phrase with another head of its kind."""
  last = concepts.CONCEPTS[phrase.head[-1]]
  if last.tag == 'NOUN':
    pool = (
      concepts.of_group('place', topic)
      if last.group == 'place'
      else concepts.nouns(topic)
    )
    new = sampler.other(lambda: (sampler.draws.choice(pool),), phrase.head)
  else:
    kind = {'location': 'LOC', 'function': 'ORG'}.get(last.group, 'PER')
    new = sampler.other(lambda: sampler.name(kind).head, phrase.head)
  return dataclasses.replace(phrase, head=new)
