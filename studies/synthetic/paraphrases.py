"""Pairs of sentences of the same words that mean the same, or do not.

As in PAWS (Zhang, Baldridge and He 2019), both kinds are made by moving words:
what keeps the meaning (joined subjects or clauses change places, the place
opens the sentence) and what changes it (roles or adjectives are swapped).
"""

import dataclasses

from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense
from studies.synthetic.sampling import Sampler


@dataclasses.dataclass(frozen=True)
class Paraphrase:
  """Two sentences and whether they mean the same."""

  first: Sentence
  second: Sentence
  same: bool


def draw(sampler: Sampler) -> Paraphrase:
  """A pair; half of them mean the same."""
  draws = sampler.draws
  first = _sentence(sampler)
  same = draws.chance(0.5)
  second = first
  if same or draws.chance(0.5):
    second = _moved(sampler, first)
  if not same:
    second = sampler.other(lambda: _swapped(sampler, second), second)
  if draws.chance(0.5):
    first, second = second, first
  return Paraphrase(first, second, same)


def _sentence(sampler: Sampler) -> Sentence:
  shape = sampler.draws.choice(('joined', 'place', 'clauses'))
  topic = sampler.topic()
  phrases = _phrases(sampler, topic)
  clause = _clause(sampler, topic, phrases[:2])
  if shape == 'joined':
    return Sentence(
      (dataclasses.replace(clause, subjects=(phrases[0], phrases[2])),)
    )
  if shape == 'place':
    return Sentence(
      (
        dataclasses.replace(
          clause, place=sampler.place(topic), fronted=sampler.draws.chance(0.5)
        ),
      )
    )
  second = _clause(sampler, topic, phrases[2:])
  return Sentence((clause, second), 'while')


def _phrases(sampler: Sampler, topic: int) -> list[Phrase]:
  """Four phrases with different heads; two adjectives differ."""
  out: list[Phrase] = []
  while len(out) < 4:
    phrase = (
      sampler.name('PER')
      if sampler.draws.chance(0.4)
      else sampler.noun_phrase(topic, determiner='the', adjective=0.5)
    )
    if not any(phrase.head[0] == p.head[0] for p in out):
      out.append(phrase)
  return out


def _clause(sampler: Sampler, topic: int, phrases: list[Phrase]) -> Clause:
  return Clause(
    (phrases[0],),
    sampler.verb(topic, transitive=True),
    phrases[1],
    tense=sampler.draws.choice(tuple(Tense)),
  )


def _moved(sampler: Sampler, sentence: Sentence) -> Sentence:
  """The same meaning in another order."""
  if len(sentence.clauses) > 1:
    return dataclasses.replace(sentence, clauses=sentence.clauses[::-1])
  clause = sentence.clauses[0]
  if len(clause.subjects) > 1:
    clause = dataclasses.replace(clause, subjects=clause.subjects[::-1])
  else:
    clause = dataclasses.replace(clause, fronted=not clause.fronted)
  return Sentence((clause,))


def _swapped(sampler: Sampler, sentence: Sentence) -> Sentence:
  """Another meaning by a swap; the sentence itself if the swap is void."""
  draws = sampler.draws
  clauses = list(sentence.clauses)
  if len(clauses) > 1 and draws.chance(0.5):
    one, two = clauses
    clauses = [
      dataclasses.replace(one, object=two.object),
      dataclasses.replace(two, object=one.object),
    ]
    return dataclasses.replace(sentence, clauses=tuple(clauses))
  at = draws.below(len(clauses))
  clause = clauses[at]
  who = draws.below(len(clause.subjects))
  subject, obj = clause.subjects[who], clause.object
  assert obj is not None
  if subject.determiner and obj.determiner and draws.chance(0.4):
    subject, obj = (
      dataclasses.replace(subject, adjective=obj.adjective),
      dataclasses.replace(obj, adjective=subject.adjective),
    )
  else:
    subject, obj = obj, subject
  subjects = list(clause.subjects)
  subjects[who] = subject
  clauses[at] = dataclasses.replace(
    clause, subjects=tuple(subjects), object=obj
  )
  return dataclasses.replace(sentence, clauses=tuple(clauses))
