"""Pairs of sentences of which one entails, contradicts or leaves open the
other.

What sentences mean here: there is a doing or happening as the clause says it
(`a` is existential, names are constants, a clause may hold of several things
and places); a negated clause, or one of `no`, denies all of it. So leaving
something out, or a more general noun, weakens a clause and strengthens its
denial.
"""

import dataclasses
from collections.abc import Callable, Iterator

from studies.synthetic import concepts
from studies.synthetic.concepts import CONCEPTS
from studies.synthetic.meaning import Clause, Phrase, Tense
from studies.synthetic.sampling import Sampler

LABELS = ('entailment', 'neutral', 'contradiction')
# (premise, hypothesis) of a strong clause, one that is weaker and one that is
# independent; `-` denies. Without and with reasoning under negation.
_EASY = {
  'entailment': ('strong weak',),
  'contradiction': ('strong -weak',),
  'neutral': ('weak strong', 'strong other', 'strong other'),
}
_HARD = {
  'entailment': ('-weak -strong',),
  'contradiction': ('-weak strong',),
  'neutral': ('weak -strong', 'strong -other', '-strong -weak', '-strong weak'),
}


@dataclasses.dataclass(frozen=True)
class Inference:
  """A premise, a hypothesis and what follows."""

  premise: Clause
  hypothesis: Clause
  label: str


def draw(sampler: Sampler, *, hard_share: float) -> Inference:
  """A pair; each label is as likely, and so is each label's kind of change.

  Args:
    sampler: draws the sentences.
    hard_share: share of pairs with a negated premise, or a negated
      hypothesis that is no contradiction. At 0 negation tells contradictions.
  """
  draws = sampler.draws
  while not list(_weaker(strong := _strong(sampler))):
    pass
  label = draws.choice(LABELS)
  recipes = _HARD if draws.chance(hard_share) else _EASY
  premise, hypothesis = draws.choice(recipes[label]).split()
  clauses = {'strong': strong, 'other': _other(sampler, strong)}
  clauses['weak'] = draws.choice(list(_weaker(strong)))
  return Inference(
    _said(sampler, clauses, premise), _said(sampler, clauses, hypothesis), label
  )


def _said(sampler: Sampler, clauses: dict[str, Clause], name: str) -> Clause:
  clause = clauses[name.lstrip('-')]
  if not name.startswith('-'):
    return clause
  subject = clause.subjects[0]
  if subject.determiner and sampler.draws.chance(0.3):
    return dataclasses.replace(
      clause, subjects=(dataclasses.replace(subject, determiner='no'),)
    )
  return dataclasses.replace(clause, negated=True)


def _strong(sampler: Sampler) -> Clause:
  draws = sampler.draws
  topic = sampler.topic()
  transitive = draws.chance(0.75)
  subject = _phrase(sampler, topic)
  place = sampler.place(topic) if draws.chance(0.5) else None
  if place is not None and place.determiner:
    place = dataclasses.replace(place, determiner='a')
  return Clause(
    (subject,),
    sampler.verb(topic, transitive=transitive),
    sampler.other(lambda: _phrase(sampler, topic), subject)
    if transitive
    else None,
    place=place,
    adverb=draws.choice(concepts.of_group('adverb'))
    if draws.chance(0.3)
    else None,
    tense=draws.choice(tuple(Tense)),
  )


def _phrase(sampler: Sampler, topic: int) -> Phrase:
  if sampler.draws.chance(0.35):
    return sampler.name(sampler.draws.choice(('PER', 'ORG')))
  return sampler.noun_phrase(topic, determiner='a', adjective=0.5)


def _weaker(clause: Clause) -> Iterator[Clause]:
  """All that follow from the clause by one change."""
  change = lambda **to: dataclasses.replace(clause, **to)  # noqa: E731
  for phrase in _weaker_phrases(clause.subjects[0]):
    yield change(subjects=(phrase,))
  if clause.object is not None:
    for phrase in _weaker_phrases(clause.object):
      yield change(object=phrase)
  if clause.place is not None:
    yield change(place=None)
  if clause.adverb is not None:
    yield change(adverb=None)


def _weaker_phrases(phrase: Phrase) -> Iterator[Phrase]:
  if phrase.adjective is not None:
    yield dataclasses.replace(phrase, adjective=None)
  noun = CONCEPTS[phrase.head[0]]
  if noun.tag == 'NOUN' and noun.id != noun.group:
    yield dataclasses.replace(phrase, head=(noun.group,))


def _other(sampler: Sampler, clause: Clause) -> Clause:
  """A clause with another filler of one role; nothing follows from either."""
  draws = sampler.draws
  verb = CONCEPTS[clause.verb or '']
  roles = ['subject', 'verb', 'tense']
  if clause.object is not None:
    roles += ['object', 'swap']
  if clause.place is not None:
    roles.append('place')
  role = draws.choice(roles)
  change = lambda **to: dataclasses.replace(clause, **to)  # noqa: E731
  if role == 'subject':
    return change(subjects=(_other_phrase(sampler, clause.subjects[0]),))
  if role == 'object':
    return change(object=_other_phrase(sampler, clause.object))
  if role == 'swap':
    return change(subjects=(clause.object,), object=clause.subjects[0])
  if role == 'verb':
    return change(
      verb=sampler.other(
        lambda: sampler.verb(
          verb.topic or 0, transitive=clause.object is not None
        ),
        verb.id,
      )
    )
  if role == 'place':
    return change(place=_other_place(sampler, clause.place))
  return change(
    tense=sampler.other(lambda: draws.choice(tuple(Tense)), clause.tense)
  )


def _other_phrase(sampler: Sampler, phrase: Phrase | None) -> Phrase:
  """Another name of the kind, or a noun of another family."""
  assert phrase is not None
  noun = CONCEPTS[phrase.head[0]]
  if noun.tag == 'PROPN':
    kind = 'ORG' if noun.group == 'organisation' else 'PER'
    return _until(
      lambda: sampler.name(kind), lambda name: name.head[0] != phrase.head[0]
    )
  others = [
    name
    for name in concepts.nouns(noun.topic)
    if CONCEPTS[name].group != noun.group
  ]
  return dataclasses.replace(phrase, head=(sampler.draws.choice(others),))


def _other_place(sampler: Sampler, place: Phrase | None) -> Phrase:
  assert place is not None
  return _until(
    lambda: sampler.name('LOC'), lambda name: name.head[-1] != place.head[-1]
  )


def _until(
  draw_phrase: Callable[[], Phrase], accepts: Callable[[Phrase], bool]
) -> Phrase:
  while not accepts(phrase := draw_phrase()):
    pass
  return phrase
