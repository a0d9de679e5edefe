"""Dependency parsing: attachment scores on gold words.

Source: the CoNLL 2018 shared task (Zeman et al., 2018, section 5): a word is
right for UAS if its head is, for LAS if also the universal part of its
relation is; subtypes after ':' don't count (`nmod:poss` is `nmod`). On gold
segmentation precision, recall and F1 are one number.
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors, validation


class Punctuation(enum.Enum):
  """Whether punctuation is scored.

  INCLUDED: every word counts, as in the CoNLL 2017 and 2018 shared tasks.
  EXCLUDED: words whose gold universal part of speech is PUNCT don't, as many
    parsing papers have it.
  """

  INCLUDED = 'included'
  EXCLUDED = 'excluded'


@dataclasses.dataclass(frozen=True)
class Tree:
  """One sentence's heads and relations.

  Attributes:
    heads: W numbers: 0 for the root, else the head's place from 1.
    relations: W names of relations.
    tags: W universal parts of speech; only gold trees need them, and only
      where punctuation is excluded.
  """

  heads: Sequence[int]
  relations: Sequence[str]
  tags: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class AttachmentScores:
  """Attachment scores, fractions.

  Attributes:
    las: (right head and relation, counted) words of each sentence; `.value`
      is the score.
    uas: (right head, counted) words of each sentence.
    punctuation: what was counted.
  """

  las: corpus_statistics.Statistics
  uas: corpus_statistics.Statistics
  punctuation: Punctuation


def attachment_scores(
  gold: Sequence[Tree],
  predicted: Sequence[Tree],
  *,
  punctuation: Punctuation | str = Punctuation.INCLUDED,
) -> AttachmentScores:
  """LAS and UAS of predicted trees.

  Args:
    gold: N trees. Anything with `heads`, `relations` and, where punctuation
      is excluded, `tags`, such as a ParsedSentence.
    predicted: N trees of as many words.
    punctuation: which words count.

  Raises:
    CorpusError: nothing to score, lengths differ, or tags are missing.
  """
  kind = validation.validate(punctuation, Punctuation, name='punctuation')
  metric_checks.same_length(gold, predicted, what='trees')
  metric_checks.not_empty(gold, what='trees')
  labelled, attached = [], []
  for number, (right, guess) in enumerate(zip(gold, predicted, strict=True), 1):
    _check(right, guess, where=f'sentence {number}')
    counted = _counted(right, kind, where=f'sentence {number}')
    heads = np.asarray(right.heads) == np.asarray(guess.heads)
    pairs = zip(right.relations, guess.relations, strict=True)
    same = np.array(
      [universal_relation(a) == universal_relation(b) for a, b in pairs], bool
    )
    labelled.append(((heads & same & counted).sum(), counted.sum()))
    attached.append(((heads & counted).sum(), counted.sum()))
  ratio = corpus_statistics.Aggregate.RATIO
  return AttachmentScores(
    corpus_statistics.Statistics(np.array(labelled), ratio),
    corpus_statistics.Statistics(np.array(attached), ratio),
    kind,
  )


def universal_relation(relation: str) -> str:
  """A relation without its subtype: nmod:poss -> nmod."""
  return relation.split(':', 1)[0]


def _counted(gold: Tree, kind: Punctuation, *, where: str) -> np.ndarray:
  """[W] booleans: the words that are scored."""
  if kind is Punctuation.INCLUDED:
    return np.ones(len(gold.heads), bool)
  if len(gold.tags) != len(gold.heads) or '_' in gold.tags:
    raise errors.CorpusError(
      'Punctuation cannot be excluded without the parts of speech',
      got=f'tags {tuple(gold.tags)}',
      where=where,
      expected='a universal part of speech for each gold word',
      fix="Score with punctuation='included'",
    )
  return np.array([tag != 'PUNCT' for tag in gold.tags], bool)


def _check(gold: Tree, predicted: Tree, *, where: str) -> None:
  for field, first, second in (
    ('heads', gold.heads, predicted.heads),
    ('relations', gold.relations, predicted.relations),
    ('words', gold.heads, gold.relations),
  ):
    metric_checks.same_length(first, second, what=field, where=where)
