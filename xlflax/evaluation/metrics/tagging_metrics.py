"""Tagging metrics: tag accuracy, and entity F1 as in seqeval."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from seqeval.metrics import sequence_labeling

from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors

Tags = Sequence[Sequence[str]]
Span = tuple[str, int, int]
_PREFIXES = ('B-', 'I-', 'E-', 'S-')


@dataclasses.dataclass(frozen=True)
class TypeScores:
  """Scores for entity spans of one type or all types.

  Attributes:
    precision: Fraction of the predicted spans that are correct.
    recall: Fraction of the gold spans that are predicted.
    f1: Harmonic mean of precision and recall.
    gold: Number of gold entity spans.
    predicted: Number of predicted entity spans.
  """

  precision: float
  recall: float
  f1: float
  gold: int
  predicted: int


@dataclasses.dataclass(frozen=True, eq=False)
class EntityScores:
  """Micro-averaged scores for entity spans.

  Attributes:
    overall: Scores over all entity types.
    types: Scores for each entity type, sorted by the type's name.
    statistics: Numbers of correct, predicted and gold spans for each sentence.
  """

  overall: TypeScores
  types: dict[str, TypeScores]
  statistics: example_statistics.Statistics


def token_accuracy(
  gold: Tags, predicted: Tags
) -> example_statistics.Statistics:
  """Counts the correct tags and the words in each sentence.

  The `value` of the statistics is the accuracy over all words.

  Args:
    gold: Gold tags of N sentences.
    predicted: Predicted tags for the same words as `gold`.
  """
  _check_lengths(gold, predicted)
  rows = [
    (
      sum(
        gold_tag == predicted_tag
        for gold_tag, predicted_tag in zip(
          gold_tags, predicted_tags, strict=True
        )
      ),
      len(gold_tags),
    )
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True)
  ]
  return example_statistics.Statistics(
    np.array(rows), example_statistics.Aggregate.RATIO
  )


def entity_scores(gold: Tags, predicted: Tags) -> EntityScores:
  """Computes the entity-span scores of seqeval's default mode.

  A span is correct if its type, its first word and its last word are correct.
  Tags are interpreted as by conlleval: an I-X that does not continue an entity
  of type X starts a new entity.

  Args:
    gold: Gold entity tags of N sentences, in a scheme such as IOB2 or IOBES:
      'O', or an entity type after 'B-', 'I-', 'E-' or 'S-'.
    predicted: Predicted tags for the same words as `gold`.

  Raises:
    CorpusError: If the numbers of sentences or of tags in a sentence differ
      between `gold` and `predicted`, or if a tag has an unsupported format.
  """
  _check_lengths(gold, predicted)
  for number, tags in enumerate((*gold, *predicted)):
    _check_entity_tags(tags, where=f'sentence {number % len(gold) + 1}')
  return _span_scores(gold, predicted)


def run_scores(gold: Tags, predicted: Tags) -> EntityScores:
  """Computes XTREME's part-of-speech F1, which scores spans of equal tags.

  A span consists of adjacent words with the same tag; see `tag_runs`.

  The score is micro-averaged. `NOUN NOUN` is correct or wrong as a unit, so the
  score differs from the accuracy of the same predictions. seqeval 0.0.12, the
  version at the time of XTREME, computes this score. Versions from 1.0 on
  remove the first letter of such tags and join CCONJ and SCONJ.
  """
  _check_lengths(gold, predicted)
  return _span_scores(gold, predicted, tag_runs)


def repair_iob2(tags: Iterable[str]) -> list[str]:
  """Converts predicted tags to valid IOB2 tags.

  A run of I tags belongs to the preceding B tag, if there is one. All tags in
  the run get the type of the run's last tag (Wu et al., 2020, ECS, section 3).

  For example, `O I-PER O B-PER I-LOC I-ORG` becomes
  `O B-PER O B-ORG I-ORG I-ORG`.
  """
  repaired = list(tags)
  start = 0
  while start < len(repaired):
    end = start + 1
    if not repaired[start].startswith(('B-', 'I-')):
      start = end
      continue
    while end < len(repaired) and repaired[end].startswith('I-'):
      end += 1
    entity_type = repaired[end - 1][2:]
    num_inside = end - start - 1
    repaired[start:end] = [
      f'B-{entity_type}',
      *[f'I-{entity_type}'] * num_inside,
    ]
    start = end
  return repaired


def join_neighboring_entities(tags: Iterable[str]) -> list[str]:
  """Converts tags to IOB2 and joins adjacent words with the same entity type.

  For example, `B-time B-time O I-day` becomes `B-time I-time O B-day`. MASSIVE
  annotates the types of words without the boundaries of entities.
  """
  types = [tag[2:] for tag in tags]
  joined = []
  for previous_type, entity_type in zip(['', *types], types, strict=False):
    if not entity_type:
      joined.append('O')
    elif entity_type == previous_type:
      joined.append(f'I-{entity_type}')
    else:
      joined.append(f'B-{entity_type}')
  return joined


def tag_runs(tags: Sequence[str]) -> list[Span]:
  """Returns the spans of adjacent words that have the same tag.

  A span consists of a tag and the positions of its first and last word.

  A word whose tag starts with B, E or S (SCONJ, SYM) is a separate span, and a
  word whose tag starts with O or a full stop is not part of a span, because
  seqeval interprets these characters as entity prefixes.

  For example, `DET NOUN NOUN SYM SYM` has the spans DET 0-0, NOUN 1-2, SYM 3-3
  and SYM 4-4.
  """
  spans: list[Span] = []
  for index, tag in enumerate(tags):
    last = spans[-1] if spans else None
    if tag.startswith(('O', '.')):
      continue
    if (
      last is not None
      and (last[0], last[2]) == (tag, index - 1)
      and not tag.startswith(('B', 'E', 'S'))
    ):
      spans[-1] = (tag, last[1], index)
    else:
      spans.append((tag, index, index))
  return spans


def entity_spans(tags: Sequence[str]) -> list[Span]:
  """Returns each entity's type and its first and last word positions.

  The tags are interpreted by seqeval.
  """
  return sequence_labeling.get_entities(list(tags))


def is_entity_tag(tag: str) -> bool:
  """Returns whether a tag is 'O' or a prefixed entity type such as 'B-PER'."""
  return tag == 'O' or (tag.startswith(_PREFIXES) and len(tag) > 2)


def _span_scores(
  gold: Tags,
  predicted: Tags,
  find_spans: Callable[[Sequence[str]], list[Span]] = entity_spans,
) -> EntityScores:
  """Computes micro-averaged scores of the spans that tag sequences define."""
  rows = []
  num_correct: Counter[str] = Counter()
  num_predicted: Counter[str] = Counter()
  num_gold: Counter[str] = Counter()
  for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
    gold_spans = set(find_spans(gold_tags))
    predicted_spans = set(find_spans(predicted_tags))
    correct_spans = gold_spans & predicted_spans
    rows.append([len(correct_spans), len(predicted_spans), len(gold_spans)])
    num_correct.update(name for name, _, _ in correct_spans)
    num_predicted.update(name for name, _, _ in predicted_spans)
    num_gold.update(name for name, _, _ in gold_spans)
  return EntityScores(
    _type_scores(num_correct.total(), num_predicted.total(), num_gold.total()),
    {
      name: _type_scores(num_correct[name], num_predicted[name], num_gold[name])
      for name in sorted({*num_predicted, *num_gold})
    },
    example_statistics.Statistics(
      np.array(rows), example_statistics.Aggregate.F1
    ),
  )


def _type_scores(correct: int, predicted: int, gold: int) -> TypeScores:
  """Computes precision, recall and F1 from numbers of spans."""
  divide = example_statistics.safe_divide
  return TypeScores(
    precision=float(divide(correct, predicted, empty=0.0)),
    recall=float(divide(correct, gold, empty=0.0)),
    f1=float(divide(2 * correct, predicted + gold, empty=0.0)),
    gold=gold,
    predicted=predicted,
  )


def _check_lengths(gold: Tags, predicted: Tags) -> None:
  metric_checks.same_length(gold, predicted, what='sentences')
  metric_checks.not_empty(gold, what='sentences')
  for number, (gold_tags, predicted_tags) in enumerate(
    zip(gold, predicted, strict=True), 1
  ):
    metric_checks.same_length(
      gold_tags, predicted_tags, what='tags', where=f'sentence {number}'
    )


def _check_entity_tags(tags: Sequence[str], *, where: str) -> None:
  for tag in tags:
    if not is_entity_tag(tag):
      raise errors.CorpusError(
        "An entity tag must be 'O', or an entity type with the prefix 'B-', "
        "'I-', 'E-' or 'S-', such as 'B-PER'",
        got=repr(tag),
        where=where,
      )
