"""Sentence retrieval by layer, before and after an orthogonal map.

Source: ECS (Wu et al., 2020) section 5.1.3 and figure 6. The map is learned
on 10,000 parallel sentences. The metric is precision@1 by cosine on Tatoeba.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from xlflax.analysis import analysis_report, model_refs, study_base
from xlflax.analysis.activation_cache import SentenceReader
from xlflax.analysis.lexicon_induction import Mapping
from xlflax.evaluation import eval_task, plots, text_sources
from xlflax.evaluation.metrics import retrieval_metrics
from xlflax.similarity import procrustes
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Accuracy@1 (%) of retrieving a sentence’s translation among all test '
  'sentences by the cosine of mean-pooled states, averaged over both '
  'directions: without a map, and after an orthogonal map (Procrustes with '
  'iterative normalization) learned on other sentences. Layer 0 is the '
  'embedding output.'
)
_NAMES = {'none': 'without a map', 'procrustes': 'with Procrustes'}


class SentenceSides(NamedTuple):
  """Hidden states of sentences and their translations.

  Attributes:
    first: States of the first language's sentences, of shape [layers, N, D].
    second: States of the second language's sentences, of shape [layers, N, E].
      Sentence i is the translation of sentence i of `first`.
  """

  first: np.ndarray
  second: np.ndarray


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceRetrievalStudy(study_base.SeriesStudy):
  """Analysis of sentence retrieval by layer, for each language pair.

  Attributes:
    test: Source of parallel text on which retrieval is evaluated.
    train: Source of parallel text from which maps are learned. If None, no maps
      are learned. Maps are evaluated only on language pairs that are in both
      `test` and `train`.
    series: Models to compare. Each series names one model, or one model for
      each language of a pair.
    steps: Checkpoint steps for models whose reference does not name a step (see
      `Models.at_steps`).
    layers: Indices of the layers to analyze. If None, all layers are analyzed.
    reader: Reader that computes the pooled hidden states of sentences.
  """

  test: text_sources.PairSource
  train: text_sources.PairSource | None = None
  layers: tuple[validation.LayerIndex, ...] | None = None
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the language pairs that failed."""
    failures = eval_task.Failures('sentences')
    rows: list[analysis_report.Row] = []
    notes: list[str] = []
    train_pairs = self.train.pairs() if self.train is not None else ()

    def load(
      pair: model_refs.Pair,
    ) -> tuple[text_sources.PairedText, text_sources.PairedText | None]:
      test = self.test.load(pair)
      train = None
      if self.train is not None and pair in train_pairs:
        train = self.train.load(pair)
      elif self.train is not None:
        notes.append(f'{"-".join(pair)}: No text to learn a map from.')
      return test, train

    for case, texts in self.loaded_cases(
      self.test.pairs(), load, models, failures
    ):
      with failures.guard(case.name):
        rows += self._score(case, *texts, models)
    return analysis_report.Analysis(
      name='sentences',
      title='Sentence retrieval by layer',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      notes=notes,
      failures=failures.collected(),
    )

  def _score(
    self,
    case: study_base.Case,
    test: text_sources.PairedText,
    train: text_sources.PairedText | None,
    models: model_refs.Models,
  ) -> list[analysis_report.Row]:
    """Returns retrieval scores without a map, and with a learned map."""
    depths = {models.num_layers(ref) for ref in (case.first, case.second)}
    if len(depths) > 1:
      first_depth, second_depth = sorted(depths)
      raise errors.AnalysisError(
        'A layer-by-layer comparison requires models with the same number of '
        f'layers, but the models have {first_depth} and {second_depth} layers'
      )
    layers = study_base.chosen_layers(self.layers, depths.pop())
    test_states = self._states(case, test, layers, models)
    rows = []
    if test_states.first.shape[2] == test_states.second.shape[2]:
      rows += _rows(
        case,
        Mapping.NONE,
        layers,
        len(test.first),
        0,
        retrieval_metrics.score_layers(*test_states),
      )
    if train is not None:
      train_states = self._states(case, train, layers, models)
      rows += _rows(
        case,
        Mapping.PROCRUSTES,
        layers,
        len(test.first),
        len(train.first),
        score_mapped_layers(train_states, test_states),
      )
    return rows

  def _states(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    layers: list[int],
    models: model_refs.Models,
  ) -> SentenceSides:
    """Returns the states of both languages' sentences at the given layers."""
    first, second = self.reader.sides(
      models, (case.first, case.second), text, case.pair, layers
    )
    for states, language in zip((first, second), case.pair, strict=True):
      where = f'language {language}, {case.series}'
      study_base.check_finite(states, 'A sentence vector', where)
    return SentenceSides(first, second)


def _rows(
  case: study_base.Case,
  mapping: Mapping,
  layers: list[int],
  size: int,
  learned_from: int,
  scores: retrieval_metrics.PairScores,
) -> list[analysis_report.Row]:
  return [
    case.columns
    | {
      'mapping': mapping.value,
      'layer': layer,
      'accuracy': float(mean),
      'forward': float(forward),
      'backward': float(backward),
      'sentences': size,
      'learned_from': learned_from,
    }
    for layer, mean, forward, backward in zip(
      layers, scores.mean, scores.forward, scores.backward, strict=True
    )
  ]


def _tables(rows: list[analysis_report.Row]):
  return [
    analysis_report.grid(
      f'{series}: accuracy@1 (%)',
      [row for row in study_base.last_steps(rows) if row['series'] == series],
      value='accuracy',
      down=lambda row: f'layer {row["layer"]}',
      across=lambda row: f'{row["pair"]} {_NAMES[row["mapping"]]}',
    )
    for series in dict.fromkeys(row['series'] for row in rows)
  ]


def _pictures(
  rows: list[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  last = study_base.last_steps(rows)
  has_several_series = len({row['series'] for row in last}) > 1
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in last:
    panel = _NAMES[row['mapping']]
    if has_several_series:
      panel = f'{row["series"]}, {panel}'
    panels.setdefault(panel, {}).setdefault(row['pair'], []).append(
      (row['layer'], 100 * row['accuracy'])
    )
  title, label = 'Sentence retrieval by layer', 'accuracy@1 (%)'
  pictures = analysis_report.curves(
    'layers', title, label, panels, last, whole=100
  )
  for mapping in dict.fromkeys(row['mapping'] for row in rows):
    mapping_rows = [row for row in rows if row['mapping'] == mapping]
    pictures |= analysis_report.curves(
      f'steps.{mapping}',
      f'Sentence retrieval during training, {_NAMES[mapping]}',
      label,
      study_base.by_step(mapping_rows, 'accuracy'),
      mapping_rows,
      xlabel=plots.STEP,
      whole=100,
    )
  return pictures


def score_mapped_layers(
  train: SentenceSides, test: SentenceSides, *, max_rounds: int = 50
) -> retrieval_metrics.PairScores:
  """Computes each layer's retrieval accuracy after applying a learned map.

  The first language's states are normalized and mapped into the space of the
  second language's states, which are also normalized. Both normalizations are
  computed on the training sentences.

  Args:
    train: Hidden states from which maps are learned.
    test: Hidden states on which retrieval is evaluated.
    max_rounds: Maximum number of rounds of iterative normalization.

  Raises:
    AnalysisError: If the two languages' states differ in the number of layers,
      in size or in the number of sentences, or if states are not finite.
  """
  depths = [len(side) for sides in (train, test) for side in sides]
  if len(set(depths)) != 1:
    raise errors.AnalysisError(
      'The training and test data of both languages must have hidden states '
      'from the same number of layers, because one alignment map is fitted for '
      'each layer',
      got='training data with {} and {} layers, test data with {} and {} '
      'layers'.format(*depths),
    )
  first, second = [], []
  for train_source, train_target, test_source, test_target in zip(
    *train, *test, strict=True
  ):
    alignment = procrustes.fit_alignment(
      train_source, train_target, max_rounds=max_rounds
    )
    first.append(alignment.map_source(test_source))
    second.append(alignment.map_target(test_target))
  return retrieval_metrics.score_layers(np.array(first), np.array(second))
