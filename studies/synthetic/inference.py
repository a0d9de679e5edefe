"""Sentence pairs for natural language inference.

Semantics: A clause states that a matching event exists (`a` is existential,
names are constants, and a clause may be true of several things and places). A
negated clause, or a clause with the subject `no ...`, denies that such an event
exists. Omitting a constituent or generalizing a noun therefore weakens a clause
and strengthens its negation.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from studies.synthetic import concepts
from studies.synthetic.concepts import CONCEPTS
from studies.synthetic.meaning import Clause, Phrase, Tense
from studies.synthetic.sampling import Sampler

LABELS = ('entailment', 'neutral', 'contradiction')
# Pairs of premise and hypothesis for each label. `strong` is a clause, `weak`
# is a weaker clause and `other` is an independent clause. `-` negates a clause.
# `_HARD` needs reasoning under negation.
_EASY = {
  'entailment': (('strong', 'weak'),),
  'contradiction': (('strong', '-weak'),),
  'neutral': (('weak', 'strong'), ('strong', 'other'), ('strong', 'other')),
}
_HARD = {
  'entailment': (('-weak', '-strong'),),
  'contradiction': (('-weak', 'strong'),),
  'neutral': (
    ('weak', '-strong'),
    ('strong', '-other'),
    ('-strong', '-weak'),
    ('-strong', 'weak'),
  ),
}


@dataclasses.dataclass(frozen=True)
class Inference:
  """A premise and a hypothesis, with the label of their relation."""

  premise: Clause
  hypothesis: Clause
  label: str


def draw_inference(sampler: Sampler, *, hard_probability: float) -> Inference:
  """Samples a premise and a hypothesis, with the label of their relation.

  All labels have the same probability, and so have all types of clause pairs
  with the same label.

  Args:
    sampler: Sampler for the sentences.
    hard_probability: Probability that a pair requires reasoning about negation.
      Its premise is negated, or it has a negated hypothesis and is not a
      contradiction. If the probability is 0, contradictions can be identified
      by negation alone.
  """
  rng = sampler.rng
  while not list(_weaker_clauses(strong := _draw_strong_clause(sampler))):
    pass
  label = rng.choice(LABELS)
  pairs = _HARD if rng.bernoulli(hard_probability) else _EASY
  premise, hypothesis = rng.choice(pairs[label])
  clauses = {'strong': strong, 'other': _draw_other_clause(sampler, strong)}
  clauses['weak'] = rng.choice(list(_weaker_clauses(strong)))
  return Inference(
    _select_clause(sampler, clauses, premise),
    _select_clause(sampler, clauses, hypothesis),
    label,
  )


def _select_clause(
  sampler: Sampler, clauses: dict[str, Clause], name: str
) -> Clause:
  """Returns a clause by name, negated if the name starts with `-`."""
  clause = clauses[name.lstrip('-')]
  if not name.startswith('-'):
    return clause
  subject = clause.subjects[0]
  if subject.determiner and sampler.rng.bernoulli(0.3):
    return dataclasses.replace(
      clause, subjects=(dataclasses.replace(subject, determiner='no'),)
    )
  return dataclasses.replace(clause, negated=True)


def _draw_strong_clause(sampler: Sampler) -> Clause:
  """Draws a clause with existential noun phrases."""
  rng = sampler.rng
  topic = sampler.draw_topic()
  is_transitive = rng.bernoulli(0.75)
  subject = _draw_phrase(sampler, topic)
  place = sampler.draw_place(topic) if rng.bernoulli(0.5) else None
  if place is not None and place.determiner:
    place = dataclasses.replace(place, determiner='a')
  return Clause(
    (subject,),
    sampler.draw_verb(topic, is_transitive=is_transitive),
    sampler.draw_different(lambda: _draw_phrase(sampler, topic), subject)
    if is_transitive
    else None,
    place=place,
    adverb=rng.choice(concepts.concepts_of_group('adverb'))
    if rng.bernoulli(0.3)
    else None,
    tense=rng.choice(tuple(Tense)),
  )


def _draw_phrase(sampler: Sampler, topic: int) -> Phrase:
  """Draws a name or an existential noun phrase."""
  if sampler.rng.bernoulli(0.35):
    return sampler.draw_name(sampler.rng.choice(('PER', 'ORG')))
  return sampler.draw_noun_phrase(topic, determiner='a', adjective=0.5)


def _weaker_clauses(clause: Clause) -> Iterator[Clause]:
  """Yields all entailed clauses that differ from `clause` by one change."""
  for phrase in _weaker_phrases(clause.subjects[0]):
    yield dataclasses.replace(clause, subjects=(phrase,))
  if clause.object is not None:
    for phrase in _weaker_phrases(clause.object):
      yield dataclasses.replace(clause, object=phrase)
  if clause.place is not None:
    yield dataclasses.replace(clause, place=None)
  if clause.adverb is not None:
    yield dataclasses.replace(clause, adverb=None)


def _weaker_phrases(phrase: Phrase) -> Iterator[Phrase]:
  """Yields a phrase without its adjective, and one with the noun's hypernym."""
  if phrase.adjective is not None:
    yield dataclasses.replace(phrase, adjective=None)
  noun = CONCEPTS[phrase.head[0]]
  if noun.tag == 'NOUN' and noun.id != noun.group:
    yield dataclasses.replace(phrase, head=(noun.group,))


def _draw_other_clause(sampler: Sampler, clause: Clause) -> Clause:
  """Changes one element of a clause, so that neither entails the other."""
  rng = sampler.rng
  verb = CONCEPTS[clause.verb or '']
  roles = ['subject', 'verb', 'tense']
  if clause.object is not None:
    roles += ['object', 'swap']
  if clause.place is not None:
    roles.append('place')
  role = rng.choice(roles)
  changes: dict[str, Any]
  if role == 'subject':
    subject = _draw_other_phrase(sampler, clause.subjects[0])
    changes = {'subjects': (subject,)}
  elif role == 'object':
    changes = {'object': _draw_other_phrase(sampler, clause.object)}
  elif role == 'swap':
    changes = {'subjects': (clause.object,), 'object': clause.subjects[0]}
  elif role == 'verb':
    is_transitive = clause.object is not None
    new_verb = sampler.draw_different(
      lambda: sampler.draw_verb(verb.topic or 0, is_transitive=is_transitive),
      verb.id,
    )
    changes = {'verb': new_verb}
  elif role == 'place':
    changes = {'place': _draw_other_place(sampler, clause.place)}
  else:
    tense = sampler.draw_different(
      lambda: rng.choice(tuple(Tense)), clause.tense
    )
    changes = {'tense': tense}
  return dataclasses.replace(clause, **changes)


def _draw_other_phrase(sampler: Sampler, phrase: Phrase | None) -> Phrase:
  """Draws a different name, or a noun from a different semantic family."""
  assert phrase is not None
  noun = CONCEPTS[phrase.head[0]]
  if noun.tag == 'PROPN':
    entity = 'ORG' if noun.group == 'organisation' else 'PER'
    return _draw_until(
      lambda: sampler.draw_name(entity),
      lambda name: name.head[0] != phrase.head[0],
    )
  other_nouns = [
    name
    for name in concepts.list_nouns(noun.topic)
    if CONCEPTS[name].group != noun.group
  ]
  return dataclasses.replace(phrase, head=(sampler.rng.choice(other_nouns),))


def _draw_other_place(sampler: Sampler, place: Phrase | None) -> Phrase:
  """Draws the name of a different place."""
  assert place is not None
  return _draw_until(
    lambda: sampler.draw_name('LOC'),
    lambda name: name.head[-1] != place.head[-1],
  )


def _draw_until(
  draw_phrase: Callable[[], Phrase], accepts: Callable[[Phrase], bool]
) -> Phrase:
  """Draws phrases until one is accepted, and returns it."""
  while not accepts(phrase := draw_phrase()):
    pass
  return phrase
