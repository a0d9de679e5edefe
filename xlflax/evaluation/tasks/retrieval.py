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

from xlflax.evaluation import base, tatoeba
from xlflax.evaluation import sources as sources_lib
from xlflax.evaluation.metrics import aggregates, string_overlap
from xlflax.evaluation.metrics import retrieval as metrics_lib
from xlflax.evaluation.metrics.declaration import (
  ACCURACY,
  BEST_LAYER,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.evaluation.sentence_encoding import Centre
from xlflax.evaluation.tasks import head_task, sentence_task
from xlflax.foundation import errors, validation
from xlflax.similarity import cosine, neighbors

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
_RIGHT = ('', '_top10')  # among how many the right one is
_SIDES = ('forward', 'backward', 'accuracy')
_OVERLAP = ('string_overlap', 'string_overlap_unshared')


class LeaveOut(enum.Enum):
  """Which pairs of a test set are not scored."""

  TRIVIAL = 'trivial'  # equal sides, or a side without letters
  NOTHING = 'nothing'


class _Test(NamedTuple):
  """The N pairs that are scored, and what their sides have in common."""

  first: list[str]
  second: list[str]
  kinds: np.ndarray


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
  SOURCES = {'tatoeba': tatoeba.Tatoeba}
  CENTRE = Centre.AUTO
  name: str = 'retrieval'
  source: sources_lib.PairSource
  csls: validation.PositiveInt | None = 10
  leave_out: LeaveOut = LeaveOut.TRIVIAL

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Accuracies apart for pairs without and with strings in common."""
    return ('accuracy_unshared', 'accuracy_shared')

  def evaluate(self, subject: base.Subject) -> base.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    layer = self.layer_of(subject)
    failures = base.Failures(self.name)
    layers: dict[str, list[base.Row]] = {}
    pairs: list[base.Row] = []
    files: dict[str, str] = {}
    notes = [
      f'accuracy is that of layer {layer} of '
      f'0..{subject.model.config.num_layers}'
    ]
    for pair in self.source.pairs():
      name = sources_lib.pair_name(pair)
      with failures.guard(name):
        test, counts = self._test(pair, notes)
        found, right = self._score(subject, pair, test, notes)
        values = {
          side + end: aggregates.Statistics(value)
          for end, both in zip(_RIGHT, right[layer], strict=True)
          for side, value in zip(_SIDES, (*both, both.mean(0)), strict=True)
        }
        unshared = right[layer][0].mean(0)[test.kinds == Kind.UNSHARED]
        if len(unshared):
          values['accuracy_unshared'] = aggregates.Statistics(unshared)
        files |= base.statistics_files(name, values)
        layers[name] = [{'pair': name} | row for row in found]
        pairs.append({'pair': name} | counts | _overlap(test))
    return base.EvalResult(
      metrics=_metrics(layers, pairs, layer),
      tables={'layers': sum(layers.values(), []), 'pairs': pairs},
      notes=tuple(dict.fromkeys(notes)),
      failures=failures.collected(),
      files=files,
    )

  def _test(self, pair, notes) -> tuple[_Test, base.Row]:
    """The pairs to score, and how many there are of each kind."""
    text = self.source.load(pair)
    size = len(text.first)
    if not size or len(text.second) != size:
      raise errors.CorpusError(
        'The two sides of a language pair are not translations',
        got=f'{size} and {len(text.second)} sentences',
        expected='as many on both sides, and at least one',
      )
    kinds = [string_overlap.kind(*both) for both in zip(*text, strict=True)]
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
    return _Test(
      [text.first[i] for i in kept],
      [text.second[i] for i in kept],
      np.array([kinds[i] for i in kept]),
    ), {'sentences': len(kept)} | {one.value: counted[one] for one in Kind}

  def _score(
    self, subject, pair, test: _Test, notes
  ) -> tuple[list[base.Row], list[np.ndarray]]:
    """Rows of all layers, forward first; what is right of each, [2, 2, N]."""
    size = len(test.first)
    # Both sides in one call: fewer partly filled batches.
    vectors = self.by_layer(
      subject,
      [*test.first, *test.second],
      [pair[0]] * size + [pair[1]] * size,
      notes,
      '-'.join(pair),
    )
    found = [
      self._layer(subject, pair, of_layer[:size], of_layer[size:], test, notes)
      for of_layer in vectors
    ]
    return [
      {'query': query, 'key': key, 'layer': layer}
      | rows[direction]
      | {'sentences': size}
      for direction, (query, key) in enumerate((pair, pair[::-1]))
      for layer, (rows, _) in enumerate(found)
    ], [right for _, right in found]

  def _layer(
    self, subject, pair, first: np.ndarray, second: np.ndarray, test, notes
  ) -> tuple[list[base.Row], np.ndarray]:
    """What is found in vectors [N, H] of one layer, for either direction.

    Returns:
      A row for each direction; bool [2, 2, N]: whether the nearest, and one of
      the ten nearest, is right, in either direction.
    """
    size = len(first)
    plain = metrics_lib.mean_cosines(first, second)
    first, second = self.centred(
      subject, ((first, [pair[0]] * size), (second, [pair[1]] * size)), notes
    )
    compared = metrics_lib.mean_cosines(first, second)
    found = {'accuracy': cosine.find_nearest(first, second)}
    if self.csls is not None:
      found['csls'] = metrics_lib.nearest_by_csls(first, second, k=self.csls)
    rows: list[base.Row] = [{}, {}]
    for name, nearest in found.items():
      for row, indices in zip(rows, nearest, strict=True):
        row |= metrics_lib.accuracies(name, indices, test.kinds)
    cosines = {
      'pair_cosine': plain.pairs,
      'other_cosine': plain.others,
      'compared_pair_cosine': compared.pairs,
      'compared_other_cosine': compared.others,
    }
    right = np.stack(found['accuracy']) == np.arange(size)
    ten = np.stack(
      [
        (one.indices == np.arange(size)[:, None]).any(1)
        for one in neighbors.find_nearest_both_ways(
          cosine.normalize_rows(first), cosine.normalize_rows(second), k=10
        )
      ]
    )
    for row, hits in zip(rows, ten, strict=True):
      row['accuracy_top10'] = float(hits.mean())
    return [row | cosines for row in rows], np.stack([right, ten])


def _overlap(test: _Test) -> base.Row:
  """Accuracies of string overlap, means of both directions."""
  ways = [
    metrics_lib.accuracies('string_overlap', indices, test.kinds)
    for indices in string_overlap.nearest(test.first, test.second)
  ]
  return {name: (ways[0][name] + ways[1][name]) / 2 for name in ways[0]}


def _metrics(
  layers: Mapping[str, list[base.Row]], pairs: list[base.Row], layer: int
) -> dict[str, float]:
  """Metrics of every pair, and their means."""
  metrics: dict[str, float] = {}
  accuracy: list[np.ndarray] = []
  for row in pairs:
    name = row['pair']
    by_layer = {
      column: np.array([one[column] for one in layers[name]]).reshape(2, -1)
      for column in _BY_LAYER
      if column in layers[name][0]
    }
    accuracy.append(by_layer['accuracy'].mean(0))
    values = {
      column: values[:, layer].mean() for column, values in by_layer.items()
    } | {column: row[column] for column in _OVERLAP}
    for end in _RIGHT:
      values['forward' + end], values['backward' + end] = by_layer[
        'accuracy' + end
      ][:, layer]
    values['chance'] = 1 / row['sentences']
    metrics |= {
      f'{column}/{name}': float(value)
      for column, value in values.items()
      if not np.isnan(value)
    } | _best(name, accuracy[-1])
  means = head_task.means(metrics)
  if accuracy:
    means |= _best('mean', np.mean(accuracy, axis=0))
  return metrics | means


def _best(name: str, by_layer: np.ndarray) -> dict[str, float]:
  return {
    f'best_accuracy/{name}': float(by_layer.max()),
    f'best_layer/{name}': int(by_layer.argmax()),
  }
