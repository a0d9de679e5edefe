"""Dependency parsing metrics: attachment scores over gold words.

Source: the CoNLL 2018 shared task (Zeman et al., 2018, section 5). For UAS, a
word is correct if its head is correct. For LAS, the universal part of its
relation must also be correct. Subtypes after ':' are ignored (`nmod:poss` is
`nmod`). On gold segmentation, precision, recall and F1 are equal.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors, validation


@dataclasses.dataclass(frozen=True)
class Tree:
  """Dependency tree of a sentence.

  Attributes:
    heads: Heads of the W words: 0 for the root, otherwise the position of the
      head from 1.
    relations: Dependency relations of the W words.
    tags: Universal parts of speech of the W words. They are required in gold
      trees if punctuation is excluded.
  """

  heads: Sequence[int]
  relations: Sequence[str]
  tags: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class AttachmentScores:
  """Labeled and unlabeled attachment scores, as fractions.

  Attributes:
    las: Statistics of the labeled attachment score: for each sentence, the
      number of words with a correct head and relation, and the number of scored
      words. `las.value` is the score.
    uas: Statistics of the unlabeled attachment score: for each sentence, the
      number of words with a correct head, and the number of scored words.
      `uas.value` is the score.
    exclude_punctuation: Whether to exclude punctuation from the scores.
  """

  las: example_statistics.Statistics
  uas: example_statistics.Statistics
  exclude_punctuation: bool


def attachment_scores(
  gold: Sequence[Tree],
  predicted: Sequence[Tree],
  *,
  exclude_punctuation: bool = False,
) -> AttachmentScores:
  """Computes labeled and unlabeled attachment scores of predicted trees.

  Args:
    gold: N trees. The items may be any objects with `heads`, `relations` and,
      if punctuation is excluded, `tags`, such as a ParsedSentence.
    predicted: N predicted trees with the same numbers of words as the gold
      trees.
    exclude_punctuation: Whether to score only words whose gold universal part
      of speech is not PUNCT, as in many papers on parsing. By default, all
      words are scored, as in the CoNLL 2017 and 2018 shared tasks.

  Raises:
    CorpusError: If there are no trees, if lengths differ, or if tags are
      missing.
  """
  exclude_punctuation = validation.validate(
    exclude_punctuation, bool, name='exclude_punctuation'
  )
  metric_checks.same_length(gold, predicted, what='trees')
  metric_checks.not_empty(gold, what='trees')
  labeled_rows, unlabeled_rows = [], []
  for number, (gold_tree, predicted_tree) in enumerate(
    zip(gold, predicted, strict=True), 1
  ):
    where = f'sentence {number}'
    _check_lengths(gold_tree, predicted_tree, where=where)
    is_scored = _scored_words(gold_tree, exclude_punctuation, where=where)
    has_head = np.asarray(gold_tree.heads) == np.asarray(predicted_tree.heads)
    has_relation = np.array(
      [
        universal_relation(gold_relation) == universal_relation(relation)
        for gold_relation, relation in zip(
          gold_tree.relations, predicted_tree.relations, strict=True
        )
      ],
      bool,
    )
    is_attached = has_head & is_scored
    labeled_rows.append(((is_attached & has_relation).sum(), is_scored.sum()))
    unlabeled_rows.append((is_attached.sum(), is_scored.sum()))
  ratio = example_statistics.Aggregate.RATIO
  return AttachmentScores(
    las=example_statistics.Statistics(np.array(labeled_rows), ratio),
    uas=example_statistics.Statistics(np.array(unlabeled_rows), ratio),
    exclude_punctuation=exclude_punctuation,
  )


def universal_relation(relation: str) -> str:
  """Removes the subtype from a relation: 'nmod:poss' becomes 'nmod'."""
  return relation.split(':', 1)[0]


def _scored_words(
  gold: Tree, exclude_punctuation: bool, *, where: str
) -> np.ndarray:
  """Returns a bool array of shape [W] that is True for words to score."""
  if not exclude_punctuation:
    return np.ones(len(gold.heads), bool)
  if len(gold.tags) != len(gold.heads) or '_' in gold.tags:
    raise errors.CorpusError(
      'Excluding punctuation requires a universal part-of-speech tag for each '
      'gold word',
      got=tuple(gold.tags),
      where=where,
      fix='Set exclude_punctuation=False (Parsing.exclude_punctuation).',
    )
  return np.array([tag != 'PUNCT' for tag in gold.tags], bool)


def _check_lengths(gold: Tree, predicted: Tree, *, where: str) -> None:
  for field, first, second in (
    ('heads', gold.heads, predicted.heads),
    ('relations', gold.relations, predicted.relations),
    ('words', gold.heads, gold.relations),
  ):
    metric_checks.same_length(first, second, what=field, where=where)
