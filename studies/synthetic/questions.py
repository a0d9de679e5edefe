"""Paragraphs, with questions that are answered by spans of the paragraph.

Each answer occurs only once in its paragraph.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from studies.synthetic.meaning import (
  Clause,
  Phrase,
  Sentence,
  Tense,
  make_statement,
)
from studies.synthetic.sampling import Sampler

# Map from the role of an answer to the key of its phrase (see `syntax.Node`).
ROLES = {'subject': 'c0.subject0', 'object': 'c0.object', 'place': 'c0.place'}
QUESTIONS_PER_PARAGRAPH = 3
_DETERMINERS = ('the', 'a')


@dataclasses.dataclass(frozen=True)
class Query:
  """A question about a sentence in a paragraph.

  Attributes:
    sentence: Index of the sentence with the answer, counted within the
      paragraph.
    role: Grammatical role of the answer in the sentence, a key of `ROLES`.
    question: Language-independent meaning of the question.
  """

  sentence: int
  role: str
  question: Sentence


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """A paragraph with questions about it.

  No common noun or name occurs in two of its sentences.
  """

  sentences: tuple[Sentence, ...]
  queries: tuple[Query, ...]


def draw_paragraph(sampler: Sampler) -> Paragraph:
  """Samples a paragraph of four sentences, with three questions about it."""
  rng = sampler.rng
  topic = sampler.draw_topic()
  used: set[str] = set()
  clauses: list[Clause] = []
  for _ in range(4):
    # Verbs are often repeated, so that the verb of a question alone does not
    # identify its sentence.
    verb = sampler.draw_verb(topic, is_transitive=True)
    if clauses and rng.bernoulli(0.4):
      verb = rng.choice(clauses).verb or verb
    clauses.append(
      Clause(
        (_draw_new_phrase(sampler, topic, used),),
        verb,
        _draw_new_phrase(sampler, topic, used),
        place=_draw_new(lambda: sampler.draw_name('LOC'), used)
        if rng.bernoulli(0.7)
        else None,
        tense=rng.choice(tuple(Tense)),
      )
    )
  candidates = [
    (i, role)
    for i, clause in enumerate(clauses)
    for role in ROLES
    if role != 'place' or clause.place is not None
  ]
  queries = tuple(
    Query(i, role, _make_question(clauses[i], role))
    for i, role in rng.sample(candidates, QUESTIONS_PER_PARAGRAPH)
  )
  return Paragraph(tuple(map(make_statement, clauses)), queries)


def draw_open_question(sampler: Sampler) -> tuple[Sentence, Query]:
  """Samples a sentence and a question that may have no answer.

  The question asks for the subject or the place. If the sentence has no place,
  the question has no answer.
  """
  rng, used = sampler.rng, set[str]()
  topic = sampler.draw_topic()
  clause = Clause(
    (_draw_new(lambda: sampler.draw_name('PER'), used),),
    sampler.draw_verb(topic, is_transitive=True),
    _draw_new_phrase(sampler, topic, used),
    place=_draw_new(lambda: sampler.draw_name('LOC'), used)
    if rng.bernoulli(0.5)
    else None,
    tense=rng.choice(tuple(Tense)),
  )
  role = 'place' if rng.bernoulli(0.75) else 'subject'
  query = Query(0, role, _make_question(clause, role))
  return make_statement(clause), query


def _draw_new_phrase(sampler: Sampler, topic: int, used: set[str]) -> Phrase:
  """Draws a name or a noun phrase with words that are not in `used`."""
  determiner = sampler.rng.choice(_DETERMINERS)
  return _draw_new(
    lambda: (
      sampler.draw_name(sampler.rng.choice(('PER', 'ORG')))
      if sampler.rng.bernoulli(0.4)
      else sampler.draw_noun_phrase(topic, determiner=determiner)
    ),
    used,
  )


def _draw_new(draw_phrase: Callable[[], Phrase], used: set[str]) -> Phrase:
  """Draws a phrase with words that are not in `used`, and adds them to it.

  The general words in names, 'company' and 'new_place', may be repeated.
  """
  while True:
    phrase = draw_phrase()
    concept_ids = set(phrase.head) - {'company', 'new_place'}
    if not concept_ids & used:
      used |= concept_ids
      return phrase


def _make_question(clause: Clause, role: str) -> Sentence:
  """Turns a clause into a question that asks for one of its roles.

  For example, `the dog sees the cat in Rome` becomes `who sees the cat?`.
  """
  changes: dict[str, dict[str, Any]] = {
    'subject': {'subjects': (Phrase(('who',)),), 'place': None},
    'object': {'object': Phrase(('what',)), 'place': None},
    'place': {'place': Phrase(('where',))},
  }
  return Sentence(
    (dataclasses.replace(clause, **changes[role]),), question=True
  )
