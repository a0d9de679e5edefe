"""Generators of the synthetic examples for each task family.

An example is represented by its meaning, which does not depend on a language.
The splits of a task family have no example in common.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from studies.synthetic import inference, paraphrases, questions, similarity
from studies.synthetic.concepts import CONCEPTS
from studies.synthetic.meaning import Sentence, make_statement
from studies.synthetic.options import SyntheticOptions
from studies.synthetic.questions import ROLES, Paragraph
from studies.synthetic.random_generator import RandomGenerator
from studies.synthetic.rendering import Renderer
from studies.synthetic.sampling import Sampler
from xlflax.utils import errors

# Number of duplicates after which drawing fails.
_MAX_DUPLICATES = 10_000
REVIEW_LABELS = ('negative', 'positive')


def draw_examples(
  options: SyntheticOptions, renderer: Renderer, family: str
) -> dict[str, list]:
  """Samples language-independent examples for a task family.

  The test and validation examples do not depend on the number of training
  examples.

  Args:
    options: Options for the languages and their data.
    renderer: Renderer that turns meanings into text in each language.
    family: Name of the task family, one of `options.FAMILIES`.

  Returns:
    The examples by split.

  Raises:
    ConfigError: If more different examples are requested than can be found.
  """
  draw_example = _draw_functions(options, renderer).get(
    family, Sampler.draw_sentence
  )
  drawn_items: set[Hashable] = set()
  examples = {}
  for split in reversed(options.splits(family)):
    size = options.size(family, split)
    if family == 'qa':
      # The size is the number of questions.
      size = -(-size // questions.QUESTIONS_PER_PARAGRAPH)
    if family == 'bucc':
      # The size is the number of pairs. Each language has as many further
      # sentences.
      size *= 3
    sampler = Sampler(RandomGenerator(options.seed, family, split))
    examples[split] = draw_distinct(
      functools.partial(draw_example, sampler),
      size,
      drawn_items,
      where=f'{family}/{split}',
    )
  return examples


def monolingual_sentences(
  options: SyntheticOptions, code: str
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields each split's name and sentences, starting with the test split."""
  shift = options.domain_shift * (1 if code == options.codes[0] else -1)
  return _draw_corpus(
    options,
    'mono',
    lambda split: Sampler(
      RandomGenerator(options.seed, 'mono', code, split),
      first_topic_probability=(1 + shift) / 2,
    ),
  )


def parallel_sentences(
  options: SyntheticOptions, code: str
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields the name of each split and the meanings of its sentence pairs.

  Each pair consists of a sentence in the language and its translation in the
  pivot language. The test and validation sentences are the same for all
  languages.
  """

  def make_sampler(split: str) -> Sampler:
    language_key = (code,) if split == 'train' else ()
    return Sampler(
      RandomGenerator(options.seed, 'parallel', split, *language_key)
    )

  return _draw_corpus(options, 'parallel', make_sampler)


def _draw_corpus(
  options: SyntheticOptions,
  dataset: str,
  make_sampler: Callable[[str], Sampler],
) -> Iterator[tuple[str, list[Sentence]]]:
  """Yields the name and the sentences of each split.

  No sentence occurs in two splits or twice in one split.
  """
  drawn_items: set[Hashable] = set()
  for split in reversed(options.splits(dataset)):
    draw_sentence = make_sampler(split).draw_sentence
    size = options.size(dataset, split)
    yield (
      split,
      draw_distinct(
        draw_sentence, size, drawn_items, where=f'{dataset}/{split}'
      ),
    )


def draw_distinct(
  draw_item: Callable[[], Hashable],
  count: int,
  drawn_items: set[Hashable],
  *,
  where: str,
) -> list:
  """Samples items that differ from each other and from all previous items.

  Args:
    draw_item: Function that samples an item.
    count: Number of items to sample.
    drawn_items: Previously sampled items. The new items are added to this set.
    where: Data set and split, as shown in error messages.

  Raises:
    ConfigError: If more different items are requested than can be found.
  """
  items: list = []
  num_duplicates = 0
  while len(items) < count:
    item = draw_item()
    if item in drawn_items:
      num_duplicates += 1
      if num_duplicates > _MAX_DUPLICATES:
        raise errors.ConfigError(
          'The generator cannot create the requested number of different '
          f'examples. The highest possible number is about {len(items)}',
          got=count,
          where=where,
        )
      continue
    drawn_items.add(item)
    items.append(item)
  return items


@dataclasses.dataclass(frozen=True)
class Review:
  """A review of several sentences, with a sentiment label."""

  sentences: tuple[Sentence, ...]
  label: str


def draw_review(sampler: Sampler) -> Review:
  """Samples a review of two or three sentences that includes one opinion."""
  rng = sampler.rng
  topic = sampler.draw_topic()
  opinion = dataclasses.replace(
    sampler.draw_opinion(topic),
    negated=rng.bernoulli(0.3),
    subjects=(sampler.draw_noun_phrase(topic, determiner='the'),),
  )
  sentences = [make_statement(opinion)]
  for _ in range(1 + rng.integer(2)):
    clause = sampler.draw_clause(topic, is_plain=True)
    while clause.predicate is not None:
      clause = sampler.draw_clause(topic, is_plain=True)
    sentences.append(make_statement(clause))
  rng.shuffle(sentences)
  polarity = CONCEPTS[opinion.predicate or ''].polarity
  is_positive = (polarity > 0) != opinion.negated
  return Review(tuple(sentences), REVIEW_LABELS[is_positive])


def _draw_functions(
  options: SyntheticOptions, renderer: Renderer
) -> dict[str, Callable[[Sampler], Any]]:
  """Returns the functions that draw examples, by family.

  Families without a function use single sentences as examples.
  """
  return {
    'nli': functools.partial(
      inference.draw_inference, hard_probability=options.hard_inference
    ),
    'paraphrase': paraphrases.draw_paraphrase,
    'reviews': draw_review,
    'choices': similarity.draw_choice,
    'unanswerable': questions.draw_open_question,
    'topics': similarity.draw_topical,
    'similarity': similarity.draw_rated_pair,
    'pairs': similarity.draw_translation_pair,
    'qa': functools.partial(
      _draw_unambiguous_paragraph, codes=options.codes, renderer=renderer
    ),
  }


def _draw_unambiguous_paragraph(
  sampler: Sampler, *, codes: Sequence[str], renderer: Renderer
) -> Paragraph:
  """Draws a paragraph in which each answer occurs once in every language."""
  while True:
    paragraph = questions.draw_paragraph(sampler)
    if all(
      context.count(answer) == 1
      for code in codes
      for context, answers in [render_paragraph(paragraph, renderer, code)]
      for answer in answers
    ):
      return paragraph


def render_paragraph(
  paragraph: Paragraph, renderer: Renderer, code: str
) -> tuple[str, list[str]]:
  """Renders a paragraph in a language and returns its text and answers."""
  sentences = [renderer(sentence, code) for sentence in paragraph.sentences]
  answers = [
    sentences[query.sentence].phrase(ROLES[query.role])
    for query in paragraph.queries
  ]
  text = renderer.join((sentence.text for sentence in sentences), code)
  return text, answers
