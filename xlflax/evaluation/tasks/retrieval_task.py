"""Sentence retrieval: find the translation among all sentences of a test set.

Source: the Tatoeba task of Artetxe and Schwenk (2019, LASER) and XTREME (Hu et
al., 2020): accuracy@1 by cosine, here for the states of every layer and in
both directions, of centred states, and apart for pairs that share strings.
"""

import collections
import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from xlflax.evaluation import eval_task, tatoeba_pairs, text_sources
from xlflax.evaluation.metrics import (
  corpus_statistics,
  retrieval_metrics,
  string_overlap,
)
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  BEST_LAYER,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.evaluation.sentence_embedding import Centre
from xlflax.evaluation.tasks import head_task, sentence_task
from xlflax.similarity import cosine, neighbors
from xlflax.utils import errors, validation

# Columns of the table that are metrics at `layer`.
_BY_LAYER = [
  'accuracy',
  'accuracy_top10',
  'accuracy_unshared',
  'accuracy_shared',
  'csls',
  'csls_unshared',
  'pair_cosine',
  'other_cosine',
]
_OVERLAP = ('string_overlap', 'string_overlap_unshared')


class LeaveOut(enum.Enum):
  """Which pairs of a test set are not scored."""

  TRIVIAL = 'trivial'  # equal sides, or a side without letters
  NOTHING = 'nothing'


class _TestSet(NamedTuple):
  """The N sentence pairs that are scored.

  Attributes:
    first: Sentences of the first language.
    second: Their translations.
    kinds: `Kind` of each pair: which strings its sentences have in common.
    counts: Number of scored pairs, and of all pairs of each kind.
  """

  first: list[str]
  second: list[str]
  kinds: np.ndarray
  counts: eval_task.Row


class _LayerScores(NamedTuple):
  """Scores of the vectors of one layer.

  In both directions: first, sentences of the first language are the queries;
  then, those of the second language.

  Attributes:
    rows: Metrics of each direction.
    is_nearest: Whether the translation of each query is its nearest neighbor,
      of shape [2, N].
    is_in_top10: Whether it is among the ten nearest, of shape [2, N].
  """

  rows: list[eval_task.Row]
  is_nearest: np.ndarray
  is_in_top10: np.ndarray


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(sentence_task.SentenceTask):
  """Accuracy@1 of translation retrieval.

  Metrics, for each language pair (named by its other language where one side
  is English), at `layer` and as the mean of both directions:
  `accuracy/<pair>`; `accuracy_unshared/<pair>` and `accuracy_shared/<pair>`,
  of the pairs whose sides have no, or some, string in common (candidates are
  all sentences); the first two by CSLS (`csls`, `csls_unshared`), and of
  character 3-grams without any model (`string_overlap`,
  `string_overlap_unshared`). `forward/<pair>`, `backward/<pair>`: accuracy
  where a sentence of the pair's first, second language asks.
  `accuracy_top10/<pair>`, `forward_top10/<pair>`, `backward_top10/<pair>`: how
  often the right one is among the ten nearest (Glot500's, ImaniGooghari et al.
  2023, is `backward_top10`: its English sentences ask).
  `chance/<pair>`: one in all candidates.
  `best_accuracy/<pair>`, `best_layer/<pair>`: of the layer that is best on
  these very sentences. `pair_cosine/<pair>`, `other_cosine/<pair>`: mean
  cosines of pairs and of other sentences, nothing being taken away: both are
  near 1 where all vectors point one way. `<metric>/mean` is over the pairs
  that have it; of the best layer, that of the layer that is best on average.

  The table `layers` has all of it for every layer, pair and direction, also
  mean cosines of what is compared; `pairs` has the numbers of sentences.

  Attributes:
    source: sentence pairs.
    csls: K of CSLS; None: it is not computed.
    leave_out: which pairs are not scored, nor are candidates.
  """

  METRICS = (
    ACCURACY,
    Metric('accuracy_unshared', title='accuracy, no shared string'),
    Metric('accuracy_shared', title='accuracy, shared strings'),
    Metric('csls', title='accuracy by CSLS'),
    Metric('csls_unshared', title='accuracy by CSLS, no shared string'),
    Metric('string_overlap', title='accuracy of string overlap'),
    Metric(
      'string_overlap_unshared',
      title='accuracy of string overlap, no shared string',
    ),
    Metric('forward'),
    Metric('backward'),
    Metric('accuracy_top10', title='accuracy, ten nearest'),
    Metric('forward_top10', title='forward, ten nearest'),
    Metric('backward_top10', title='backward, ten nearest'),
    Metric('best_accuracy'),
    BEST_LAYER,
    Metric('chance'),
    Metric(
      'pair_cosine',
      Better.NEITHER,
      Unit.UNBOUNDED,
      title='mean cosine of pairs',
    ),
    Metric(
      'other_cosine',
      Better.NEITHER,
      Unit.UNBOUNDED,
      title='mean cosine of other sentences',
    ),
  )
  SOURCES = {'tatoeba': tatoeba_pairs.Tatoeba}
  CENTRE = Centre.AUTO
  name: str = 'retrieval'
  source: text_sources.PairSource
  csls: validation.PositiveInt | None = 10
  leave_out: LeaveOut = LeaveOut.TRIVIAL

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Accuracies apart for pairs without and with strings in common."""
    return ('accuracy_unshared', 'accuracy_shared')

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    layer = self.layer_of(subject)
    failures = eval_task.Failures(self.name)
    layer_rows: dict[str, list[eval_task.Row]] = {}
    pair_rows: list[eval_task.Row] = []
    files: dict[str, str] = {}
    notes = [
      f'accuracy is that of layer {layer} of '
      f'0..{subject.model.config.num_layers}'
    ]
    for pair in self.source.pairs():
      name = text_sources.pair_name(pair)
      with failures.guard(name):
        test_set = self._load_test_set(pair, notes)
        layers = self._score_layers(subject, pair, test_set, notes)
        statistics = _example_statistics(layers[layer], test_set.kinds)
        files |= eval_task.statistics_files(name, statistics)
        layer_rows[name] = _layer_rows(pair, layers)
        pair_rows.append(
          {'pair': name} | test_set.counts | _string_overlap(test_set)
        )
    return eval_task.EvalResult(
      metrics=_metrics(layer_rows, pair_rows, layer),
      tables={'layers': sum(layer_rows.values(), []), 'pairs': pair_rows},
      notes=tuple(dict.fromkeys(notes)),
      failures=failures.collected(),
      files=files,
    )

  def _load_test_set(
    self, pair: text_sources.Pair, notes: list[str]
  ) -> _TestSet:
    """Returns the sentence pairs to score."""
    text = self.source.load(pair)
    size = len(text.first)
    if not size or len(text.second) != size:
      raise errors.CorpusError(
        'The two sides of a language pair are not translations',
        got=f'{size} and {len(text.second)} sentences',
        expected='as many on both sides, and at least one',
      )
    kinds = [
      string_overlap.overlap_kind(*both) for both in zip(*text, strict=True)
    ]
    counted = collections.Counter(kinds)
    kept = [
      i
      for i, kind in enumerate(kinds)
      if self.leave_out is LeaveOut.NOTHING or not kind.is_trivial
    ]
    left = (
      f'{counted[Kind.EQUAL]} pairs with equal sides and '
      f'{counted[Kind.WITHOUT_LETTERS]} with a side without letters'
    )
    if not kept:
      raise errors.CorpusError(
        'No pair is left to retrieve',
        got=left,
        expected='sides that differ, with letters',
        fix="score all pairs by leave_out='nothing'",
      )
    if len(kept) < size:
      notes.append(f'{"-".join(pair)}: {left} are left out')
    return _TestSet(
      first=[text.first[i] for i in kept],
      second=[text.second[i] for i in kept],
      kinds=np.array([kinds[i] for i in kept]),
      counts={'sentences': len(kept)}
      | {kind.value: counted[kind] for kind in Kind},
    )

  def _score_layers(
    self,
    subject: eval_task.Subject,
    pair: text_sources.Pair,
    test_set: _TestSet,
    notes: list[str],
  ) -> list[_LayerScores]:
    """Returns the scores of every layer, the embedding output first."""
    size = len(test_set.first)
    # Both languages in one call: fewer partly filled batches.
    vectors_by_layer = self.by_layer(
      subject,
      [*test_set.first, *test_set.second],
      [pair[0]] * size + [pair[1]] * size,
      notes,
      '-'.join(pair),
    )
    scores = []
    for vectors in vectors_by_layer:
      first, second = vectors[:size], vectors[size:]
      plain = retrieval_metrics.mean_cosines(first, second)
      first, second = self.centred(
        subject, ((first, [pair[0]] * size), (second, [pair[1]] * size)), notes
      )
      compared = retrieval_metrics.mean_cosines(first, second)
      cosines = {
        'pair_cosine': plain.pairs,
        'other_cosine': plain.others,
        'compared_pair_cosine': compared.pairs,
        'compared_other_cosine': compared.others,
      }
      layer = self._score_vectors(first, second, test_set.kinds)
      scores.append(layer._replace(rows=[row | cosines for row in layer.rows]))
    return scores

  def _score_vectors(
    self, first: np.ndarray, second: np.ndarray, kinds: np.ndarray
  ) -> _LayerScores:
    """Returns the accuracies of vectors of shape [N, H], without cosines."""
    targets = np.arange(len(first))
    nearest = {'accuracy': cosine.find_nearest(first, second)}
    if self.csls is not None:
      nearest['csls'] = retrieval_metrics.nearest_by_csls(
        first, second, k=self.csls
      )
    top10 = neighbors.find_nearest_both_ways(
      cosine.normalize_rows(first), cosine.normalize_rows(second), k=10
    )
    is_in_top10 = np.stack(
      [(found.indices == targets[:, None]).any(1) for found in top10]
    )
    rows: list[eval_task.Row] = [{}, {}]
    for direction, row in enumerate(rows):
      for name, neighbor_indices in nearest.items():
        indices = neighbor_indices[direction]
        row |= retrieval_metrics.retrieval_accuracies(name, indices, kinds)
      row['accuracy_top10'] = float(is_in_top10[direction].mean())
    is_nearest = np.stack(nearest['accuracy']) == targets
    return _LayerScores(rows, is_nearest, is_in_top10)


def _example_statistics(
  scores: _LayerScores, kinds: np.ndarray
) -> dict[str, corpus_statistics.Statistics]:
  """Returns the contributions of single sentences to the accuracies."""
  values = {}
  for suffix, is_correct in (
    ('', scores.is_nearest),
    ('_top10', scores.is_in_top10),
  ):
    values[f'forward{suffix}'] = is_correct[0]
    values[f'backward{suffix}'] = is_correct[1]
    values[f'accuracy{suffix}'] = is_correct.mean(0)
  unshared = scores.is_nearest.mean(0)[kinds == Kind.UNSHARED]
  if len(unshared):
    values['accuracy_unshared'] = unshared
  return {
    name: corpus_statistics.Statistics(value) for name, value in values.items()
  }


def _layer_rows(
  pair: text_sources.Pair, layers: list[_LayerScores]
) -> list[eval_task.Row]:
  """Returns the rows of a pair in the table `layers`, forward first."""
  return [
    {
      'pair': text_sources.pair_name(pair),
      'query': query,
      'key': key,
      'layer': layer,
    }
    | scores.rows[direction]
    | {'sentences': scores.is_nearest.shape[1]}
    for direction, (query, key) in enumerate((pair, pair[::-1]))
    for layer, scores in enumerate(layers)
  ]


def _string_overlap(test_set: _TestSet) -> eval_task.Row:
  """Returns the accuracies of string overlap, averaged over the directions."""
  forward, backward = (
    retrieval_metrics.retrieval_accuracies(
      'string_overlap', indices, test_set.kinds
    )
    for indices in string_overlap.nearest_by_ngrams(
      test_set.first, test_set.second
    )
  )
  return {name: (forward[name] + backward[name]) / 2 for name in forward}


def _metrics(
  layers: Mapping[str, list[eval_task.Row]],
  pairs: list[eval_task.Row],
  layer: int,
) -> dict[str, float]:
  """Returns the metrics of every pair at a layer, and their means."""
  metrics: dict[str, float] = {}
  accuracy: list[np.ndarray] = []
  for row in pairs:
    name = row['pair']
    by_layer = {
      column: np.array([row[column] for row in layers[name]]).reshape(2, -1)
      for column in _BY_LAYER
      if column in layers[name][0]
    }
    accuracy.append(by_layer['accuracy'].mean(0))
    values = {
      column: values[:, layer].mean() for column, values in by_layer.items()
    } | {column: row[column] for column in _OVERLAP}
    for suffix in ('', '_top10'):
      values[f'forward{suffix}'], values[f'backward{suffix}'] = by_layer[
        f'accuracy{suffix}'
      ][:, layer]
    values['chance'] = 1 / row['sentences']
    metrics |= {
      f'{column}/{name}': float(value)
      for column, value in values.items()
      if not np.isnan(value)
    } | _best(name, accuracy[-1])
  means = head_task.mean_metrics(metrics)
  if accuracy:
    means |= _best('mean', np.mean(accuracy, axis=0))
  return metrics | means


def _best(name: str, by_layer: np.ndarray) -> dict[str, float]:
  return {
    f'best_accuracy/{name}': float(by_layer.max()),
    f'best_layer/{name}': int(by_layer.argmax()),
  }
