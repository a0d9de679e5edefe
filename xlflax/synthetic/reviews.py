"""Short texts that praise or blame: one opinion among other sentences."""

import dataclasses

from xlflax.synthetic.concepts import CONCEPTS
from xlflax.synthetic.meaning import Sentence, statement
from xlflax.synthetic.sampling import Sampler

LABELS = ('negative', 'positive')


@dataclasses.dataclass(frozen=True)
class Review:
  """Sentences and what they think of it."""

  sentences: tuple[Sentence, ...]
  label: str


def draw(sampler: Sampler) -> Review:
  """A review of two or three sentences; its opinion may be negated."""
  draws = sampler.draws
  topic = sampler.topic()
  opinion = dataclasses.replace(
    sampler.opinion(topic),
    negated=draws.chance(0.3),
    subjects=(sampler.noun_phrase(topic, determiner='the'),),
  )
  sentences = [statement(opinion)]
  for _ in range(1 + draws.below(2)):
    clause = sampler.clause(topic, plain=True)
    while clause.predicate is not None:
      clause = sampler.clause(topic, plain=True)
    sentences.append(statement(clause))
  draws.shuffle(sentences)
  good = (CONCEPTS[opinion.predicate or ''].polarity > 0) != opinion.negated
  return Review(tuple(sentences), LABELS[good])
