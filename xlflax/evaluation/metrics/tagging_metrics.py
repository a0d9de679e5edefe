"""Token labels: accuracy of tags, F1 of entities as seqeval defines it."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from seqeval.metrics import sequence_labeling

from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors

Tags = Sequence[Sequence[str]]
Span = tuple[str, int, int]
_PREFIXES = ('B-', 'I-', 'E-', 'S-')


@dataclasses.dataclass(frozen=True)
class TypeScores:
  """Scores of one entity type, or of all.

  Attributes:
    precision: share of the predicted spans that are right.
    recall: share of the gold spans that were found.
    f1: their harmonic mean.
    gold: number of gold spans.
    predicted: number of predicted spans.
  """

  precision: float
  recall: float
  f1: float
  gold: int
  predicted: int


@dataclasses.dataclass(frozen=True, eq=False)
class EntityScores:
  """Micro-averaged scores of spans, and one row of them for each type.

  Attributes:
    overall: over the spans of all types.
    types: type -> its scores, sorted by name.
    statistics: (correct, predicted, gold) spans of each sentence.
  """

  overall: TypeScores
  types: dict[str, TypeScores]
  statistics: corpus_statistics.Statistics


def token_accuracy(gold: Tags, predicted: Tags) -> corpus_statistics.Statistics:
  """Share of right tags over all words; `.value` is the number.

  Args:
    gold: tags of N sentences.
    predicted: as many sentences of as many tags.
  """
  _check(gold, predicted)
  rows = [
    (sum(a == b for a, b in zip(g, p, strict=True)), len(g))
    for g, p in zip(gold, predicted, strict=True)
  ]
  return corpus_statistics.Statistics(
    np.array(rows), corpus_statistics.Aggregate.RATIO
  )


def entity_scores(gold: Tags, predicted: Tags) -> EntityScores:
  """Scores of entity spans, equal to seqeval's default mode.

  A span is right if its type, its first and its last word are. Tags are read
  as conlleval does: an I-X that continues nothing begins an entity.

  Args:
    gold: tags of N sentences: O, and B-X or I-X (also E-X, S-X).
    predicted: as many sentences of as many tags.

  Raises:
    CorpusError: lengths differ, or a tag is none of these.
  """
  _check(gold, predicted)
  for number, tags in enumerate((*gold, *predicted)):
    _check_entity_tags(tags, where=f'sentence {number % len(gold) + 1}')
  return _span_scores(gold, predicted)


def run_scores(gold: Tags, predicted: Tags) -> EntityScores:
  """XTREME's F1 of parts of speech: micro-averaged over runs of equal tags.

  `NOUN NOUN` is right or wrong as a whole, so the number differs from the
  accuracy of the same predictions. `tag_runs` says what counts as a run. This is
  what seqeval 0.0.12 computes, the version of XTREME's time; versions from
  1.0 on cut the first letter off such tags and join CCONJ and SCONJ.
  """
  _check(gold, predicted)
  return _span_scores(gold, predicted, tag_runs)


def repair_iob2(tags: Iterable[str]) -> list[str]:
  """Makes a sequence of predicted tags valid IOB2.

  Before: `O I-PER O B-PER I-LOC I-ORG`; after: `O B-PER O B-ORG I-ORG I-ORG`.
  A run of I tags belongs to the B before it, if there is one, and all take
  the type of the run's last tag (Wu et al., 2020, ECS, section 3).
  """
  out = list(tags)
  start = 0
  while start < len(out):
    end = start + 1
    if not out[start].startswith(('B-', 'I-')):
      start = end
      continue
    while end < len(out) and out[end].startswith('I-'):
      end += 1
    kind = out[end - 1][2:]
    out[start:end] = [f'B-{kind}'] + [f'I-{kind}'] * (end - start - 1)
    start = end
  return out


def join_neighboring_entities(tags: Iterable[str]) -> list[str]:
  """IOB2 in which neighbouring words of one type are one entity.

  Before: `B-time B-time O I-day`; after: `B-time I-time O B-day`. MASSIVE's
  words have types without borders.
  """
  kinds = [tag[2:] for tag in tags]
  return [
    ('I-' if kind == before else 'B-') + kind if kind else 'O'
    for before, kind in zip(['', *kinds], kinds, strict=False)
  ]


def tag_runs(tags: Sequence[str]) -> list[Span]:
  """The (tag, first word, last word) of each run of equal tags.

  Words whose tag begins with B, E or S (SCONJ, SYM) are a run each, and those
  whose tag begins with O or a full stop are none: seqeval takes these letters
  for marks of entities.

  Before: `DET NOUN NOUN SYM SYM`; after: DET 0-0, NOUN 1-2, SYM 3-3, SYM 4-4.
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
  """The (type, first word, last word) of each entity, as seqeval reads it."""
  return sequence_labeling.get_entities(list(tags))


def _span_scores(
  gold: Tags,
  predicted: Tags,
  spans_of: Callable[[Sequence[str]], list[Span]] = entity_spans,
) -> EntityScores:
  rows = []
  counts: tuple[Counter, Counter, Counter] = Counter(), Counter(), Counter()
  for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
    right, predicted_spans = (
      set(spans_of(gold_tags)),
      set(spans_of(predicted_tags)),
    )
    sets = (right & predicted_spans, predicted_spans, right)
    rows.append([len(s) for s in sets])
    for counter, members in zip(counts, sets, strict=True):
      counter.update(kind for kind, _, _ in members)
  names = sorted({*counts[1], *counts[2]})
  table = {name: _type_scores(*(c[name] for c in counts)) for name in names}
  return EntityScores(
    _type_scores(*(c.total() for c in counts)),
    table,
    corpus_statistics.Statistics(
      np.array(rows), corpus_statistics.Aggregate.F1
    ),
  )


def _type_scores(correct: int, predicted: int, gold: int) -> TypeScores:
  divide = corpus_statistics.safe_divide
  return TypeScores(
    precision=float(divide(correct, predicted, empty=0.0)),
    recall=float(divide(correct, gold, empty=0.0)),
    f1=float(divide(2 * correct, predicted + gold, empty=0.0)),
    gold=gold,
    predicted=predicted,
  )


def _check(gold: Tags, predicted: Tags) -> None:
  metric_checks.same_length(gold, predicted, what='sentences')
  metric_checks.not_empty(gold, what='sentences')
  for number, (g, p) in enumerate(zip(gold, predicted, strict=True), 1):
    metric_checks.same_length(g, p, what='tags', where=f'sentence {number}')


def _check_entity_tags(tags: Sequence[str], *, where: str) -> None:
  for tag in tags:
    if tag != 'O' and not (tag.startswith(_PREFIXES) and len(tag) > 2):
      raise errors.CorpusError(
        'A tag is not one of an entity',
        got=repr(tag),
        expected="'O', or 'B-' or 'I-' and the entity's type",
        where=where,
      )
