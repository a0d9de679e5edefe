"""Dependency parsing: attachment scores for maximum spanning trees."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ufal import chu_liu_edmonds

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import parsing_featurizer, word_level
from xlflax.evaluation import head_predictions, label_checks
from xlflax.evaluation.label_checks import UnseenLabelPolicy
from xlflax.evaluation.metrics import clas, example_statistics, parsing_metrics
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import head_task, tagging_task
from xlflax.objectives.finetuning import dependency_parsing
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Parsing(head_task.HeadTask):
  """Labeled and unlabeled attachment scores of predicted dependency trees.

  The metrics of each part (language or file) of the source are `las/<part>`,
  `uas/<part>`, and those of the CoNLL 2018 shared task: `clas/<part>`, the F1
  of content words, `mlas/<part>`, which also compares tags and features and
  requires gold tags, and `blex/<part>`, which also compares lemmas and requires
  gold lemmas. There are two baselines: `right_branching/<part>`, the UAS of
  trees in which each word depends on the preceding word, and
  `left_branching/<part>`, in which each word depends on the following word.
  `<metric>/mean` is the mean over parts. Subtypes of relations are ignored. A
  note states whether punctuation is scored.

  The file `<part>.conllu` contains the predicted trees. A part without trees (a
  blind test set) yields predictions only.

  Trees are maximum spanning trees with a single root. A sentence that exceeds
  the maximum length is parsed in several parts, and the roots of all but the
  first part become dependents of the first part's root. A note counts such
  sentences.

  Attributes:
    exclude_punctuation: Whether LAS and UAS exclude punctuation, which consists
      of words whose gold universal part of speech is PUNCT.
    unseen: Treatment of gold relations that the head was not trained with.
      Subtypes of relations are ignored. By default, words with such a relation
      count as wrong, because treebanks differ in their relations.
  """

  METRICS = (
    Metric(
      'las',
      Better.HIGHER,
      title='LAS',
      unit=Unit.FRACTION,
      description='Labeled attachment score: fraction of words with the '
      'correct head and relation.',
    ),
    Metric(
      'uas',
      Better.HIGHER,
      title='UAS',
      unit=Unit.FRACTION,
      description='Unlabeled attachment score: fraction of words with the '
      'correct head.',
    ),
    Metric(
      'clas',
      Better.HIGHER,
      title='CLAS',
      unit=Unit.FRACTION,
      description='F1 of the attachments and relations of content words.',
    ),
    Metric(
      'mlas',
      Better.HIGHER,
      title='MLAS',
      unit=Unit.FRACTION,
      description='F1 of content words whose tags and features are also '
      'correct.',
    ),
    Metric(
      'blex',
      Better.HIGHER,
      title='BLEX',
      unit=Unit.FRACTION,
      description='F1 of content words whose lemmas are also correct.',
    ),
    Metric(
      'right_branching',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='UAS of trees in which each word depends on the preceding '
      'word. It does not depend on the model.',
    ),
    Metric(
      'left_branching',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='UAS of trees in which each word depends on the following '
      'word. It does not depend on the model.',
    ),
  )
  EXAMPLE = labeled_examples.ParsedSentence
  HEAD = dependency_parsing.DependencyParsing
  name: str = 'parsing'
  objective: str = 'dependency_parsing'
  exclude_punctuation: bool = False
  unseen: UnseenLabelPolicy = UnseenLabelPolicy.WRONG

  def general_notes(self) -> tuple[str, ...]:
    """Returns notes for the result that apply to all languages or files."""
    punctuation = 'excluded' if self.exclude_punctuation else 'included'
    return (
      f'punctuation is {punctuation}; subtypes of relations do not count',
    )

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    self.check_labels(objective, part, examples, notes)
    trees = self._predictions(eval_model, objective, examples, part, notes)
    gold, _ = self.add_scores(part, examples, trees, result, notes)
    if gold:
      for name, step in (('right_branching', -1), ('left_branching', 1)):
        chains = [_chain(tree, step=step) for tree in gold]
        scores = parsing_metrics.attachment_scores(
          gold, chains, exclude_punctuation=self.exclude_punctuation
        )
        result.metrics[f'{name}/{part}'] = scores.uas.value

  def check_labels(self, objective, part, examples, notes) -> None:
    label_checks.check_labels_known(
      examples,
      objective.relations,
      self.unseen,
      part=part,
      notes=notes,
      name=parsing_metrics.universal_relation,
      source=self.source,
    )

  def example_statistics(self, gold, predictions):
    attachment = parsing_metrics.attachment_scores(
      gold, predictions, exclude_punctuation=self.exclude_punctuation
    )
    content = clas.content_word_scores(gold, predictions)
    return {
      'las': attachment.las,
      'uas': attachment.uas,
      **_available_scores(content),
    }

  def _predictions(
    self, eval_model, objective, examples, part, notes
  ) -> list[parsing_metrics.Tree]:
    """Returns the predicted tree of each sentence."""
    length = head_predictions.length_of(eval_model, self.length)
    rows = word_level.text_rows(examples, eval_model.vocabulary, length=length)
    tagging_task.note_split_sentences(rows, part, notes)
    indexed_rows = [
      (i, k, row)
      for i, sequences in enumerate(rows)
      for k, row in enumerate(sequences)
    ]
    partial_trees: list[list[_PartialTree]] = [
      [_EMPTY_TREE] * len(sequences) for sequences in rows
    ]
    maker = parsing_featurizer.ParsingFeaturizer(relations=objective.relations)
    features = [
      [parsing_featurizer.with_words(row) for row in sequences]
      for sequences in rows
    ]
    for index, arcs in self.predict(
      eval_model, objective, examples, features, maker, length
    ):
      sentence, k, row = indexed_rows[index]
      partial_trees[sentence][k] = _decode_row(arcs, row, objective.relations)
    return [_join_trees(trees) for trees in partial_trees]


def _available_scores(
  content: clas.ContentScores,
) -> dict[str, example_statistics.Statistics]:
  """Returns the content-word scores that have gold annotations, by name."""
  return {
    field.name: value
    for field in dataclasses.fields(content)
    if (value := getattr(content, field.name)) is not None
  }


class _PartialTree(NamedTuple):
  """Dependency tree over consecutive words of a sentence.

  Attributes:
    first: Index of the tree's first word in the sentence.
    heads: Head of each word, an int array of shape [w]. 0 is the root, and the
      remaining values are positions among the w words, counted from 1.
    relations: Name of the dependency relation between each word and its head.
    nonroot_relations: Name of the dependency relation between each word and the
      best head that is not the root.
  """

  first: int
  heads: np.ndarray
  relations: list[str]
  nonroot_relations: list[str]


_EMPTY_TREE = _PartialTree(0, np.zeros(0, np.int64), [], [])


def _decode_row(
  arcs: dependency_parsing.Arcs, row: word_level.WordRow, names: Sequence[str]
) -> _PartialTree:
  """Returns the best tree over the words in a sequence.

  Args:
    arcs: Predicted scores of arcs and relations.
    row: Words of a sentence, or of a part of a sentence.
    names: Names of the dependency relations.
  """
  count = len(row.starts) + 1
  scores = np.asarray(arcs.scores)
  heads = decode_tree(scores[:count, :count])
  word_indices = np.arange(1, count)
  if count > 2:
    nonroot_heads = scores[1:count, 1:count].argmax(-1) + 1
  else:
    nonroot_heads = heads  # The only word has no other head.

  def relation_names(heads):
    return [names[index] for index in arcs.relations[word_indices, heads]]

  return _PartialTree(
    row.first, heads, relation_names(heads), relation_names(nonroot_heads)
  )


def _join_trees(trees: Sequence[_PartialTree]) -> parsing_metrics.Tree:
  """Joins the partial trees of a sentence.

  The roots of later trees become dependents of the root of the first tree.
  """
  heads: list[int] = []
  relations: list[str] = []
  root = 1 + int(np.flatnonzero(trees[0].heads == 0)[0])
  for tree in trees:
    for head, relation, nonroot_relation in zip(
      tree.heads.tolist(), tree.relations, tree.nonroot_relations, strict=True
    ):
      if head != 0:
        heads.append(head + tree.first)
        relations.append(relation)
      elif tree.first > 0:
        heads.append(root)
        relations.append(nonroot_relation)
      else:
        heads.append(0)
        relations.append(relation)
  return parsing_metrics.Tree(heads, relations)


def _chain(
  example: labeled_examples.ParsedSentence, *, step: int
) -> parsing_metrics.Tree:
  """Returns a tree in which words depend on the previous or next word.

  Args:
    example: Sentence that contains the words.
    step: Offset of the head: -1 for the previous word, 1 for the next word.
  """
  count = len(example.words)
  heads = np.arange(1, count + 1) + step
  return parsing_metrics.Tree(
    np.where(heads > count, 0, heads).tolist(), ['_'] * count
  )


_MIN_SCORE = -1e6  # Score of impossible arcs.


def decode_tree(scores: np.ndarray) -> np.ndarray:
  """Returns the highest-scoring tree in which the root has exactly one child.

  The tree is Chu-Liu/Edmonds' maximum spanning arborescence (Chu and Liu, 1965;
  Edmonds, 1967). The scores of all arcs from the root are lowered by the same
  amount, which is so large that the best tree contains only one of them
  (Stanojević and Cohen, 2021, section 4).

  For example, the scores `[[., ., .], [1, ., 5], [3, 2, .]]` yield the heads
  [2, 0] with a total score of 5 + 3.

  Args:
    scores: Scores of shape [W + 1, W + 1]. Element (i, j) is the score of word
      j as the head of word i, and 0 is the root. The diagonal and row 0 are
      ignored. Scores below -1e6 count as -1e6.

  Returns:
    The head of each word, of shape [W], int.
  """
  count = len(scores) - 1
  matrix = np.maximum(np.asarray(scores, np.float64), _MIN_SCORE)
  np.fill_diagonal(matrix, np.nan)
  matrix[0] = np.nan
  if count == 1:
    return np.zeros(1, np.int64)
  spread = np.nanmax(matrix[1:]) - np.nanmin(matrix[1:])
  matrix[1:, 0] -= 1 + count * spread
  heads, _ = chu_liu_edmonds.chu_liu_edmonds(matrix)
  return np.array(heads[1:], np.int64)
