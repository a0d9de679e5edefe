"""Dependency parsing: attachment scores of the best trees."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ufal import chu_liu_edmonds

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import parsing_featurizer, word_level
from xlflax.evaluation import head_predictions, label_checks
from xlflax.evaluation.label_checks import Unseen
from xlflax.evaluation.metrics import clas, corpus_statistics, parsing_metrics
from xlflax.evaluation.metrics.metric import Metric
from xlflax.evaluation.metrics.parsing_metrics import Punctuation
from xlflax.evaluation.tasks import head_task, tagging_task
from xlflax.objectives.finetuning import dependency_parsing
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Parsing(head_task.HeadTask):
  """Labelled and unlabelled attachment scores on gold words.

  Metrics, for each part of the source: `las/<part>`, `uas/<part>`; the F1 of
  content words `clas/<part>`, with gold tags and features `mlas/<part>`, with
  gold lemmas `blex/<part>` (the CoNLL 2018 shared task's); and as
  baselines `right_branching/<part>`, the UAS of trees whose words all depend
  on the word before, and `left_branching/<part>`, on the word after. Means
  over parts are `<metric>/mean`. Relations count without subtypes, and
  punctuation as `punctuation` says, which a note repeats.

  The file `<part>.conllu` has the predicted trees. A part without trees (a
  blind test set) gives nothing else.

  Trees are maximum spanning trees with one root. A sentence that does not fit
  into a row is parsed in several rows, and the roots of all but the first
  become dependents of the first row's root; a note counts such sentences.

  Attributes:
    punctuation: whether it is scored.
    unseen: what is done about gold relations that the head does not have,
      subtypes aside. Treebanks differ in relations, so they count as wrong.
  """

  METRICS = (
    Metric('las', title='LAS'),
    Metric('uas', title='UAS'),
    Metric('clas', title='CLAS'),
    Metric('mlas', title='MLAS'),
    Metric('blex', title='BLEX'),
    Metric('right_branching'),
    Metric('left_branching'),
  )
  EXAMPLE = labeled_examples.ParsedSentence
  HEAD = dependency_parsing.DependencyParsing
  name: str = 'parsing'
  objective: str = 'dependency_parsing'
  punctuation: Punctuation = Punctuation.INCLUDED
  unseen: Unseen = Unseen.WRONG

  def facts(self) -> tuple[str, ...]:
    """Returns notes that hold for all parts."""
    return (
      f'punctuation is {self.punctuation.value}; subtypes of relations '
      'do not count',
    )

  def score_part(
    self, subject, objective, part, examples, result, notes
  ) -> None:
    """Adds a part's predictions and scores to the result."""
    label_checks.check_labels_known(
      examples,
      objective.relations,
      self.unseen,
      part=part,
      notes=notes,
      name=parsing_metrics.universal_relation,
    )
    trees = self._predictions(subject, objective, examples, part, notes)
    gold, _ = self.add_scores(part, examples, trees, result, notes)
    if gold:
      for name, step in (('right_branching', -1), ('left_branching', 1)):
        chains = [_chain(tree, step=step) for tree in gold]
        scores = parsing_metrics.attachment_scores(
          gold, chains, punctuation=self.punctuation
        )
        result.metrics[f'{name}/{part}'] = scores.uas.value

  def example_statistics(self, gold, predictions):
    attachment = parsing_metrics.attachment_scores(
      gold, predictions, punctuation=self.punctuation
    )
    content = clas.content_word_scores(gold, predictions)
    return {'las': attachment.las, 'uas': attachment.uas, **_known(content)}

  def _predictions(
    self, subject, objective, examples, part, notes
  ) -> list[parsing_metrics.Tree]:
    """The tree of each sentence."""
    length = head_predictions.length_of(subject, self.length)
    rows = word_level.text_rows(examples, subject.vocabulary, length=length)
    tagging_task.note_split(rows, part, notes)
    flat = [
      (i, k, row)
      for i, sequences in enumerate(rows)
      for k, row in enumerate(sequences)
    ]
    sentence_parts: list[list[_Part]] = [
      [_NOTHING] * len(sequences) for sequences in rows
    ]
    maker = parsing_featurizer.ParsingRows(relations=objective.relations)
    features = [
      [parsing_featurizer.with_words(row) for row in sequences]
      for sequences in rows
    ]
    for index, arcs in self.predict(
      subject, objective, examples, features, maker, length
    ):
      sentence, k, row = flat[index]
      sentence_parts[sentence][k] = _decode(arcs, row, objective.relations)
    return [_join(parts) for parts in sentence_parts]


def _known(
  content: clas.ContentScores,
) -> dict[str, corpus_statistics.Statistics]:
  """The scores that gold tags and lemmas allow, by name."""
  return {
    field.name: value
    for field in dataclasses.fields(content)
    if (value := getattr(content, field.name)) is not None
  }


class _Part(NamedTuple):
  """Some words of a sentence, parsed by themselves.

  Attributes:
    first: number of the first of them, from 0.
    heads: int [w], 0 for the root, else the place in these words from 1.
    relations: names of relations.
    to_word: what each would be called if its head was not the root.
  """

  first: int
  heads: np.ndarray
  relations: list[str]
  to_word: list[str]


_NOTHING = _Part(0, np.zeros(0, np.int64), [], [])


def _decode(
  arcs: dependency_parsing.Arcs, row: word_level.WordRow, names: Sequence[str]
) -> _Part:
  """The tree over the words of a row."""
  count = len(row.starts) + 1
  scores = np.asarray(arcs.scores)
  heads = decode_tree(scores[:count, :count])
  word_indices = np.arange(1, count)
  second_heads = scores[1:count, 1:count].argmax(-1) + 1

  def named(heads):
    return [names[n] for n in arcs.relations[word_indices, heads]]

  return _Part(
    row.first, heads, named(heads), named(second_heads if count > 2 else heads)
  )


def _join(parts: Sequence[_Part]) -> parsing_metrics.Tree:
  """One tree; roots of later parts depend on the root of the first."""
  heads: list[int] = []
  relations: list[str] = []
  root = 1 + int(np.flatnonzero(parts[0].heads == 0)[0])
  for part in parts:
    for head, relation, to_word in zip(
      part.heads.tolist(), part.relations, part.to_word, strict=True
    ):
      moved = head == 0 and part.first > 0
      heads.append(root if moved else head and head + part.first)
      relations.append(to_word if moved else relation)
  return parsing_metrics.Tree(heads, relations)


def _chain(
  example: labeled_examples.ParsedSentence, *, step: int
) -> parsing_metrics.Tree:
  """Each word depends on the one before (-1) or after (1) it."""
  count = len(example.words)
  heads = np.arange(1, count + 1) + step
  return parsing_metrics.Tree(
    np.where(heads > count, 0, heads).tolist(), ['_'] * count
  )


_LOWEST = -1e6  # stands for arcs that cannot be


def decode_tree(scores: np.ndarray) -> np.ndarray:
  """The best tree in which one word depends on the root.

  Chu-Liu/Edmonds' maximum spanning arborescence (Chu and Liu, 1965; Edmonds,
  1967). Arcs from the root are made so much worse, all by the same, that the
  best tree has one of them (Stanojević and Cohen, 2021, section 4).

  Before: `[[., ., .], [1, ., 5], [3, 2, .]]`; after: [2, 0], of 5 + 3.

  Args:
    scores: [W + 1, W + 1]; place (i, j) scores word j as the head of word i,
      0 is the root. The diagonal and row 0 are ignored; very low and infinite
      numbers count as -1e6.

  Returns:
    int [W], the head of each word.
  """
  count = len(scores) - 1
  matrix = np.maximum(np.asarray(scores, np.float64), _LOWEST)
  np.fill_diagonal(matrix, np.nan)
  matrix[0] = np.nan
  if count == 1:
    return np.zeros(1, np.int64)
  used = matrix[1:]
  spread = np.nanmax(used) - np.nanmin(used)
  matrix[1:, 0] -= 1 + count * spread
  heads, _ = chu_liu_edmonds.chu_liu_edmonds(matrix)
  return np.array(heads[1:], np.int64)
