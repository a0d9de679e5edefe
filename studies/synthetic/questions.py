"""Paragraphs with questions whose answers are spans that occur once."""

import dataclasses

from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense, statement
from studies.synthetic.sampling import Sampler

ROLES = {'subject': 'c0.subject0', 'object': 'c0.object', 'place': 'c0.place'}
QUESTIONS_EACH = 3
_DETERMINERS = ('the', 'a')


@dataclasses.dataclass(frozen=True)
class Query:
  """A question about a sentence of the paragraph.

  Attributes:
    sentence: which sentence answers, from 0.
    role: of `ROLES`: what it asks for.
    question: the question.
  """

  sentence: int
  role: str
  question: Sentence


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """Sentences that share no noun and no name, and questions about them."""

  sentences: tuple[Sentence, ...]
  queries: tuple[Query, ...]


def draw(sampler: Sampler) -> Paragraph:
  """A paragraph of four sentences with three questions."""
  draws = sampler.draws
  topic = sampler.topic()
  used: set[str] = set()
  clauses: list[Clause] = []
  for _ in range(4):
    # Often a verb comes again, so that it does not tell the sentence alone.
    verb = sampler.verb(topic, transitive=True)
    if clauses and draws.chance(0.4):
      verb = draws.choice(clauses).verb or verb
    clauses.append(
      Clause(
        (_phrase(sampler, topic, used),),
        verb,
        _phrase(sampler, topic, used),
        place=_new(sampler, lambda: sampler.name('LOC'), used)
        if draws.chance(0.7)
        else None,
        tense=draws.choice(tuple(Tense)),
      )
    )
  asked = [
    (i, role)
    for i, clause in enumerate(clauses)
    for role in ROLES
    if role != 'place' or clause.place is not None
  ]
  queries = tuple(
    Query(i, role, _question(clauses[i], role))
    for i, role in draws.sample(asked, QUESTIONS_EACH)
  )
  return Paragraph(tuple(map(statement, clauses)), queries)


def draw_open(sampler: Sampler) -> tuple[Sentence, Query]:
  """A sentence and a question, which asks for a place that may lack."""
  draws, used = sampler.draws, set[str]()
  topic = sampler.topic()
  clause = Clause(
    (_new(sampler, lambda: sampler.name('PER'), used),),
    sampler.verb(topic, transitive=True),
    _phrase(sampler, topic, used),
    place=_new(sampler, lambda: sampler.name('LOC'), used)
    if draws.chance(0.5)
    else None,
    tense=draws.choice(tuple(Tense)),
  )
  role = 'place' if draws.chance(0.75) else 'subject'
  return statement(clause), Query(0, role, _question(clause, role))


def _phrase(sampler: Sampler, topic: int, used: set[str]) -> Phrase:
  determiner = sampler.draws.choice(_DETERMINERS)
  return _new(
    sampler,
    lambda: (
      sampler.name(sampler.draws.choice(('PER', 'ORG')))
      if sampler.draws.chance(0.4)
      else sampler.noun_phrase(topic, determiner=determiner)
    ),
    used,
  )


def _new(sampler: Sampler, draw_phrase, used: set[str]) -> Phrase:
  """A phrase none of whose words but 'company' was used before."""
  while True:
    phrase = draw_phrase()
    words = {w for w in phrase.head if w not in ('company', 'new_place')}
    if not words & used:
      used |= words
      return phrase


def _question(clause: Clause, role: str) -> Sentence:
  """`the dog sees the cat in Rome` -> `who sees the cat?`"""
  asked = {
    'subject': {'subjects': (Phrase(('who',)),), 'place': None},
    'object': {'object': Phrase(('what',)), 'place': None},
    'place': {'place': Phrase(('where',))},
  }[role]
  return Sentence(
    (dataclasses.replace(clause, **asked),),  # type: ignore
    question=True,
  )
