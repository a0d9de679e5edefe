"""Sentence pairs with the same words, for paraphrase identification.

As in PAWS (Zhang, Baldridge and He 2019), words are moved to create both
paraphrases and non-paraphrases. In a paraphrase, coordinated subjects or
clauses are exchanged, or the place is moved to the start of the sentence. In a
non-paraphrase, the roles of two phrases or their adjectives are exchanged.
"""

import dataclasses

from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense
from studies.synthetic.sampling import Sampler


@dataclasses.dataclass(frozen=True)
class Paraphrase:
  """Two sentences, and whether they have the same meaning."""

  first: Sentence
  second: Sentence
  is_paraphrase: bool


def draw_paraphrase(sampler: Sampler) -> Paraphrase:
  """Samples a sentence pair that is a paraphrase with probability 0.5."""
  rng = sampler.rng
  first = _draw_sentence(sampler)
  is_paraphrase = rng.bernoulli(0.5)
  second = first
  if is_paraphrase or rng.bernoulli(0.5):
    second = _reorder(first)
  if not is_paraphrase:
    second = sampler.draw_different(
      lambda: _swap_roles(sampler, second), second
    )
  if rng.bernoulli(0.5):
    first, second = second, first
  return Paraphrase(first, second, is_paraphrase)


def _draw_sentence(sampler: Sampler) -> Sentence:
  """Draws a sentence that can be reordered."""
  shape = sampler.rng.choice(('joined', 'place', 'clauses'))
  topic = sampler.draw_topic()
  phrases = _draw_phrases(sampler, topic)
  clause = _draw_clause(sampler, topic, phrases[:2])
  if shape == 'joined':
    return Sentence(
      (dataclasses.replace(clause, subjects=(phrases[0], phrases[2])),)
    )
  if shape == 'place':
    return Sentence(
      (
        dataclasses.replace(
          clause,
          place=sampler.draw_place(topic),
          fronted=sampler.rng.bernoulli(0.5),
        ),
      )
    )
  second = _draw_clause(sampler, topic, phrases[2:])
  return Sentence((clause, second), 'while')


def _draw_phrases(sampler: Sampler, topic: int) -> list[Phrase]:
  """Draws four phrases with different heads."""
  phrases: list[Phrase] = []
  while len(phrases) < 4:
    phrase = (
      sampler.draw_name('PER')
      if sampler.rng.bernoulli(0.4)
      else sampler.draw_noun_phrase(topic, determiner='the', adjective=0.5)
    )
    heads = {previous.head[0] for previous in phrases}
    if phrase.head[0] not in heads:
      phrases.append(phrase)
  return phrases


def _draw_clause(sampler: Sampler, topic: int, phrases: list[Phrase]) -> Clause:
  """Draws the verb and tense for a clause with a subject and an object."""
  return Clause(
    (phrases[0],),
    sampler.draw_verb(topic, is_transitive=True),
    phrases[1],
    tense=sampler.rng.choice(tuple(Tense)),
  )


def _reorder(sentence: Sentence) -> Sentence:
  """Returns a sentence with the same meaning but a different word order."""
  if len(sentence.clauses) > 1:
    return dataclasses.replace(sentence, clauses=sentence.clauses[::-1])
  clause = sentence.clauses[0]
  if len(clause.subjects) > 1:
    clause = dataclasses.replace(clause, subjects=clause.subjects[::-1])
  else:
    clause = dataclasses.replace(clause, fronted=not clause.fronted)
  return Sentence((clause,))


def _swap_roles(sampler: Sampler, sentence: Sentence) -> Sentence:
  """Exchanges phrases or adjectives, which changes the meaning.

  If the exchanged adjectives are equal, the sentence is returned unchanged.
  """
  rng = sampler.rng
  clauses = list(sentence.clauses)
  if len(clauses) > 1 and rng.bernoulli(0.5):
    first, second = clauses
    clauses = [
      dataclasses.replace(first, object=second.object),
      dataclasses.replace(second, object=first.object),
    ]
    return dataclasses.replace(sentence, clauses=tuple(clauses))
  clause_index = rng.integer(len(clauses))
  clause = clauses[clause_index]
  subject_index = rng.integer(len(clause.subjects))
  subject, obj = clause.subjects[subject_index], clause.object
  assert obj is not None
  if subject.determiner and obj.determiner and rng.bernoulli(0.4):
    subject, obj = (
      dataclasses.replace(subject, adjective=obj.adjective),
      dataclasses.replace(obj, adjective=subject.adjective),
    )
  else:
    subject, obj = obj, subject
  subjects = list(clause.subjects)
  subjects[subject_index] = subject
  clauses[clause_index] = dataclasses.replace(
    clause, subjects=tuple(subjects), object=obj
  )
  return dataclasses.replace(sentence, clauses=tuple(clauses))
