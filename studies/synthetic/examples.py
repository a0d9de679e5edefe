"""Meanings of the examples of each family: no two alike, in any split."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from studies.synthetic import alterations, inference, paraphrases, questions
from studies.synthetic.concepts import CONCEPTS
from studies.synthetic.draws import Draws
from studies.synthetic.meaning import Sentence, statement
from studies.synthetic.options import SyntheticOptions
from studies.synthetic.questions import ROLES, Paragraph
from studies.synthetic.rendering import Renderer
from studies.synthetic.sampling import Sampler
from xlflax.utils import errors

_PATIENCE = 10_000
REVIEW_LABELS = ('negative', 'positive')


def draw(
  options: SyntheticOptions, renderer: Renderer, kind: str
) -> dict[str, list]:
  """Split -> examples of a family (`options.FAMILIES`), as meanings.

  Test and dev sets do not depend on the number of training examples.

  Raises:
    ConfigError: there are not so many different ones.
  """
  draw_one = _kinds(options, renderer).get(kind, Sampler.sentence)
  seen: set[Hashable] = set()
  out = {}
  for split in reversed(options.splits(kind)):
    size = options.size(kind, split)
    if kind == 'qa':
      size = -(-size // questions.QUESTIONS_EACH)
    if kind == 'bucc':
      size *= 3  # pairs, and sentences that only one side has
    sampler = Sampler(Draws(options.seed, kind, split))
    out[split] = take(
      functools.partial(draw_one, sampler), size, seen, where=f'{kind}/{split}'
    )
  return out


def lines(
  options: SyntheticOptions, code: str
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields split and monolingual sentences of a language, test first."""
  shift = options.domain_shift * (1 if code == options.codes[0] else -1)
  return _corpus(
    options,
    'mono',
    lambda split: Sampler(
      Draws(options.seed, 'mono', code, split), topic_share=(1 + shift) / 2
    ),
  )


def pairs(
  options: SyntheticOptions, code: str
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields split and sentences to be paired with those of `code`.

  Test and dev are the same sentences for all languages.
  """

  def sampler(split: str) -> Sampler:
    own = (code,) if split == 'train' else ()
    return Sampler(Draws(options.seed, 'parallel', split, *own))

  return _corpus(options, 'parallel', sampler)


def _corpus(
  options: SyntheticOptions, kind: str, sampler: Callable[[str], Sampler]
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields split and sentences; each comes once in all splits."""
  seen: set[Hashable] = set()
  for split in reversed(options.splits(kind)):
    sentence, size = sampler(split).sentence, options.size(kind, split)
    yield split, take(sentence, size, seen, where=f'{kind}/{split}')


def take(
  draw_one: Callable[[], Hashable],
  count: int,
  seen: set[Hashable],
  *,
  where: str,
) -> list:
  """`count` new items; adds them to `seen`."""
  out: list = []
  failures = 0
  while len(out) < count:
    item = draw_one()
    if item in seen:
      failures += 1
      if failures > _PATIENCE:
        raise errors.ConfigError(
          'There are not so many different synthetic examples',
          got=count,
          expected=f'about {len(out)}',
          where=where,
        )
      continue
    seen.add(item)
    out.append(item)
  return out


@dataclasses.dataclass(frozen=True)
class Review:
  """Sentences and what they think of it."""

  sentences: tuple[Sentence, ...]
  label: str


def draw_review(sampler: Sampler) -> Review:
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
  return Review(tuple(sentences), REVIEW_LABELS[good])


def _kinds(
  options: SyntheticOptions, renderer: Renderer
) -> dict[str, Callable[[Sampler], Any]]:
  return {
    'nli': functools.partial(inference.draw, hard_share=options.hard_inference),
    'paraphrase': paraphrases.draw,
    'reviews': draw_review,
    'choices': alterations.draw_choice,
    'unanswerable': questions.draw_open,
    'topics': alterations.draw_topical,
    'similarity': alterations.draw_rated,
    'pairs': alterations.draw_pair,
    'qa': functools.partial(
      _answerable, codes=options.codes, renderer=renderer
    ),
  }


def _answerable(sampler: Sampler, *, codes, renderer) -> Paragraph:
  """A paragraph whose answers occur once in it, in every language."""
  while True:
    paragraph = questions.draw(sampler)
    if all(
      context.count(answer) == 1
      for code in codes
      for context, answers in [contexts(paragraph, renderer, code)]
      for answer in answers
    ):
      return paragraph


def contexts(
  paragraph: Paragraph, renderer: Renderer, code: str
) -> tuple[str, list[str]]:
  """The text of a paragraph in a language, and the answers in order."""
  sentences = [renderer(s, code) for s in paragraph.sentences]
  answers = [
    sentences[query.sentence].phrase(ROLES[query.role])
    for query in paragraph.queries
  ]
  return renderer.join((s.text for s in sentences), code), answers
