"""Sentence retrieval: accuracy of finding translations within a test set.

Source: the Tatoeba task of Artetxe and Schwenk (2019, LASER) and XTREME (Hu et
al., 2020), with accuracy@1 by cosine. Here, accuracy is computed for the hidden
states of every layer, in both directions, for centered states, and separately
for pairs that share strings.
"""

import collections
import dataclasses
import enum
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.evaluation import eval_task, tatoeba_pairs, text_sources
from xlflax.evaluation.metrics import (
  example_statistics,
  retrieval_metrics,
  string_overlap,
)
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  BEST_LAYER,
  CHANCE,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.evaluation.sentence_embedding import Centering
from xlflax.evaluation.tasks import head_task, sentence_task
from xlflax.similarity import cosine, neighbors
from xlflax.utils import errors, logs, validation

_LOG = logging.getLogger(__name__)
# Duplicates cause a warning if they limit the accuracy to a lower value.
_MIN_MAXIMUM_ACCURACY = 0.95
# Columns of the table `layers` whose values at `layer` are metrics.
_LAYER_COLUMNS = [
  'accuracy',
  'accuracy_top10',
  'accuracy_unshared',
  'accuracy_shared',
  'csls',
  'csls_unshared',
  'pair_cosine',
  'other_cosine',
]
_OVERLAP_COLUMNS = ('string_overlap', 'string_overlap_unshared')


class PairFilter(enum.Enum):
  """Sentence pairs to exclude from a test set."""

  # Pairs of equal sentences, or with a sentence without letters.
  TRIVIAL_PAIRS = 'trivial_pairs'
  NONE = 'none'


class _TestSet(NamedTuple):
  """Sentence pairs to score.

  Attributes:
    first: N sentences of the first language.
    second: Translations of `first`, N sentences of the second language.
    kinds: Kind of string overlap between the two sentences of each pair.
    counts: Number of scored pairs, and number of pairs with each kind of string
      overlap. The latter includes pairs that are not scored.
  """

  first: list[str]
  second: list[str]
  kinds: np.ndarray
  counts: eval_task.Row


class _LayerScores(NamedTuple):
  """Retrieval scores of a layer's vectors in both directions.

  In direction 0, sentences of the first language are the queries. In direction
  1, sentences of the second language are the queries.

  Attributes:
    rows: Two table rows, each with the metrics of one direction.
    is_nearest: Bool array of shape [2, N], True for queries whose nearest
      neighbor is their translation.
    is_in_top10: Bool array of shape [2, N], True for queries whose ten nearest
      neighbors include their translation.
  """

  rows: list[eval_task.Row]
  is_nearest: np.ndarray
  is_in_top10: np.ndarray


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(sentence_task.SentenceTask):
  """Accuracy@1 of retrieving translations by sentence vectors.

  The metrics of each language pair are values at `layer`, averaged over both
  directions. A pair with English is named by its other language.

  - `accuracy/<pair>`: accuracy@1 by cosine.
  - `accuracy_unshared/<pair>`, `accuracy_shared/<pair>`: accuracy on
    the pairs whose sentences have no word in common, and on the remaining
    pairs. The candidates are all sentences.
  - `csls/<pair>`, `csls_unshared/<pair>`: accuracies by CSLS.
  - `string_overlap/<pair>`, `string_overlap_unshared/<pair>`: accuracies of
    character 3-grams without any model.
  - `forward/<pair>`, `backward/<pair>`: accuracy with queries in the pair's
    first and second language.
  - `accuracy_top10/<pair>`, `forward_top10/<pair>`, `backward_top10/<pair>`:
    fraction of queries whose translation is among the ten nearest neighbors.
    The metric of Glot500 (ImaniGooghari et al., 2023) is `backward_top10`,
    because its queries are English.
  - `chance/<pair>`: accuracy of guessing, one divided by the number of
    candidates.
  - `best_accuracy/<pair>`, `best_layer/<pair>`: accuracy and index of the layer
    that is best on the test set itself.
  - `pair_cosine/<pair>`, `other_cosine/<pair>`: mean cosines of pairs and of
    other sentences without centering. Both are close to 1 if all vectors point
    in a similar direction.

  `<metric>/mean` is the mean over the pairs that have the metric. For
  `best_accuracy` and `best_layer`, it refers to the layer that is best on
  average.

  The table `layers` contains these values for every layer, pair and direction,
  and the mean cosines of the centered vectors. The table `pairs` contains the
  numbers of sentences.

  Attributes:
    source: Source of sentence pairs.
    csls: Number of neighbors K in the definition of CSLS. If None, CSLS
      accuracies are not computed.
    pair_filter: Sentence pairs to exclude from queries and candidates.
  """

  METRICS = (
    ACCURACY,
    Metric(
      'accuracy_unshared',
      Better.HIGHER,
      title='accuracy, no shared word',
      unit=Unit.FRACTION,
      description='Accuracy of the pairs whose sentences have no word in '
      'common. The candidates are the sentences of all pairs.',
    ),
    Metric(
      'accuracy_shared',
      Better.HIGHER,
      title='accuracy, shared words',
      unit=Unit.FRACTION,
      description='Accuracy of the pairs whose sentences have a word in '
      'common. The candidates are the sentences of all pairs.',
    ),
    Metric(
      'csls',
      Better.HIGHER,
      title='accuracy by CSLS',
      unit=Unit.FRACTION,
      description='Accuracy with CSLS similarity, which penalizes sentences '
      'that are near to many other sentences.',
    ),
    Metric(
      'csls_unshared',
      Better.HIGHER,
      title='accuracy by CSLS, no shared word',
      unit=Unit.FRACTION,
      description='Accuracy with CSLS similarity of the pairs whose '
      'sentences have no word in common.',
    ),
    Metric(
      'string_overlap',
      Better.HIGHER,
      title='accuracy of string overlap',
      unit=Unit.FRACTION,
      description='Accuracy of retrieving translations by common character '
      '3-grams. It does not depend on the model.',
    ),
    Metric(
      'string_overlap_unshared',
      Better.HIGHER,
      title='accuracy of string overlap, no shared word',
      unit=Unit.FRACTION,
      description='Accuracy of retrieving translations by common character '
      '3-grams, of the pairs whose sentences have no word in common.',
    ),
    Metric(
      'forward',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='Accuracy with queries in the first language of a pair.',
    ),
    Metric(
      'backward',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='Accuracy with queries in the second language of a pair.',
    ),
    Metric(
      'accuracy_top10',
      Better.HIGHER,
      title='accuracy, ten nearest',
      unit=Unit.FRACTION,
      description='Fraction of sentences whose translation is among the ten '
      'nearest sentences, as the mean over both directions.',
    ),
    Metric(
      'forward_top10',
      Better.HIGHER,
      title='forward, ten nearest',
      unit=Unit.FRACTION,
      description='Fraction of sentences of the first language whose '
      'translation is among the ten nearest sentences.',
    ),
    Metric(
      'backward_top10',
      Better.HIGHER,
      title='backward, ten nearest',
      unit=Unit.FRACTION,
      description='Fraction of sentences of the second language whose '
      'translation is among the ten nearest sentences.',
    ),
    Metric(
      'best_accuracy',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='Accuracy of the layer with the highest accuracy on the '
      'test sentences themselves.',
    ),
    BEST_LAYER,
    CHANCE,
    Metric(
      'pair_cosine',
      Better.NEITHER,
      Unit.UNBOUNDED,
      title='mean cosine of pairs',
      description='Mean cosine similarity of translations, before centering.',
    ),
    Metric(
      'other_cosine',
      Better.NEITHER,
      Unit.UNBOUNDED,
      title='mean cosine of other sentences',
      description='Mean cosine similarity of sentences that are not '
      'translations, before centering.',
    ),
  )
  SOURCES = {'tatoeba': tatoeba_pairs.Tatoeba}
  DEFAULT_CENTERING = Centering.AUTO
  name: str = 'retrieval'
  source: text_sources.PairSource
  csls: validation.PositiveInt | None = 10
  pair_filter: PairFilter = PairFilter.TRIVIAL_PAIRS

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Names of the accuracies for pairs with and without string overlap."""
    return ('accuracy_unshared', 'accuracy_shared')

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    layer = self.layer_of(eval_model)
    failures = eval_task.Failures(self.name)
    layer_rows: dict[str, list[eval_task.Row]] = {}
    pair_rows: list[eval_task.Row] = []
    files: dict[str, str] = {}
    notes = [
      f'accuracy is computed from layer {layer} of '
      f'0..{eval_model.model.config.num_layers}',
      'accuracy is the mean of both directions of a language pair: in each '
      'direction, the task searches for the translation of every sentence '
      'among all sentences of the other language. A pair that includes English '
      'is named after its other language: accuracy/de is the accuracy of '
      'German and English',
    ]
    for pair in self.source.pairs():
      name = text_sources.pair_name(pair)
      with failures.guard(name):
        test_set = self._load_test_set(pair, notes)
        layers = self._score_layers(eval_model, pair, test_set, notes)
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
        'Retrieval requires aligned sentences in both languages of a pair, but '
        f'found {size} and {len(text.second)} sentences'
      )
    kinds = [
      string_overlap.overlap_kind(first, second)
      for first, second in zip(*text, strict=True)
    ]
    kind_counts = collections.Counter(kinds)
    scored_indices = [
      i
      for i, kind in enumerate(kinds)
      if self.pair_filter is PairFilter.NONE or not kind.is_trivial
    ]
    trivial_pairs = (
      f'{kind_counts[Kind.EQUAL]} pairs of equal sentences and '
      f'{kind_counts[Kind.WITHOUT_LETTERS]} with a sentence without letters'
    )
    if not scored_indices:
      raise errors.CorpusError(
        'The test set must contain at least one pair of different sentences '
        'that both contain letters',
        got=trivial_pairs,
        fix="Set pair_filter='none' to score all pairs.",
      )
    if len(scored_indices) < size:
      notes.append(f'{"-".join(pair)}: {trivial_pairs} are left out')
    first, second = (
      [side[i] for i in scored_indices] for side in (text.first, text.second)
    )
    self._check_duplicates(pair, first, second, notes)
    return _TestSet(
      first=first,
      second=second,
      kinds=np.array([kinds[i] for i in scored_indices]),
      counts={'sentences': len(scored_indices)}
      | {kind.value: kind_counts[kind] for kind in Kind},
    )

  def _check_duplicates(
    self,
    pair: text_sources.Pair,
    first: Sequence[str],
    second: Sequence[str],
    notes: list[str],
  ) -> None:
    """Adds a note, and logs a warning, if sentences occur several times.

    Copies of a sentence have the same vector, but only the copy in the same
    line counts as the translation.
    """
    num_distinct = [len(set(side)) for side in (first, second)]
    maximum = sum(num_distinct) / (2 * len(first))
    if maximum == 1:
      return
    duplicates = ' and '.join(
      f'{len(first) - count} of {len(first)} sentences in {code}'
      for code, count in zip(pair, num_distinct, strict=True)
      if count < len(first)
    )
    notes.append(
      f'{"-".join(pair)}: {duplicates} are copies of another sentence, so that '
      f'accuracy is at most {maximum:.3f}'
    )
    if maximum < _MIN_MAXIMUM_ACCURACY:
      _LOG.warning(
        '%s: In %s, %s are copies of another sentence. Only the copy in the '
        'same line counts as the translation, so that accuracy is at most '
        '%.3f. Remove the duplicates from the test set.',
        self.name,
        '-'.join(pair),
        duplicates,
        maximum,
        extra=logs.ONCE,
      )

  def _score_layers(
    self,
    eval_model: eval_task.EvalModel,
    pair: text_sources.Pair,
    test_set: _TestSet,
    notes: list[str],
  ) -> list[_LayerScores]:
    """Returns the scores of every layer, the embedding output first."""
    size = len(test_set.first)
    # A single call for both languages reduces the number of partly filled
    # batches.
    vectors_by_layer = self.layer_vectors(
      eval_model,
      [*test_set.first, *test_set.second],
      [pair[0]] * size + [pair[1]] * size,
      notes,
      '-'.join(pair),
    )
    scores = []
    for vectors in vectors_by_layer:
      first, second = vectors[:size], vectors[size:]
      raw_cosines = retrieval_metrics.mean_cosines(first, second)
      first, second = self.center_vectors(
        eval_model,
        ((first, [pair[0]] * size), (second, [pair[1]] * size)),
        notes,
      )
      centered_cosines = retrieval_metrics.mean_cosines(first, second)
      cosines = {
        'pair_cosine': raw_cosines.pairs,
        'other_cosine': raw_cosines.others,
        'compared_pair_cosine': centered_cosines.pairs,
        'compared_other_cosine': centered_cosines.others,
      }
      layer = self._score_vectors(first, second, test_set.kinds)
      scores.append(layer._replace(rows=[row | cosines for row in layer.rows]))
    return scores

  def _score_vectors(
    self, first: np.ndarray, second: np.ndarray, kinds: np.ndarray
  ) -> _LayerScores:
    """Returns the accuracies of vectors [N, H], without their mean cosines."""
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
      [(nearest10.indices == targets[:, None]).any(1) for nearest10 in top10]
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
) -> dict[str, example_statistics.Statistics]:
  """Returns per-sentence statistics from which accuracies are computed."""
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
    name: example_statistics.Statistics(value) for name, value in values.items()
  }


def _layer_rows(
  pair: text_sources.Pair, layers: list[_LayerScores]
) -> list[eval_task.Row]:
  """Returns a pair's rows in the table `layers`, forward direction first."""
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
      for column in _LAYER_COLUMNS
      if column in layers[name][0]
    }
    accuracy.append(by_layer['accuracy'].mean(0))
    values = {
      column: values[:, layer].mean() for column, values in by_layer.items()
    } | {column: row[column] for column in _OVERLAP_COLUMNS}
    for suffix in ('', '_top10'):
      values[f'forward{suffix}'], values[f'backward{suffix}'] = by_layer[
        f'accuracy{suffix}'
      ][:, layer]
    values['chance'] = 1 / row['sentences']
    metrics |= {
      f'{column}/{name}': float(value)
      for column, value in values.items()
      if not np.isnan(value)
    } | _best_layer_metrics(name, accuracy[-1])
  means = head_task.mean_metrics(metrics)
  if accuracy:
    means |= _best_layer_metrics('mean', np.mean(accuracy, axis=0))
  return metrics | means


def _best_layer_metrics(name: str, accuracies: np.ndarray) -> dict[str, float]:
  """Returns the metrics of the layer with the highest accuracy."""
  return {
    f'best_accuracy/{name}': float(accuracies.max()),
    f'best_layer/{name}': int(accuracies.argmax()),
  }
