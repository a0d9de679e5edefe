"""Sentence retrieval by layer, before and after an orthogonal map.

Source: ECS (Wu et al., 2020) section 5.1.3 and figure 6: the map is learned
on 10,000 parallel sentences, precision@1 by cosine on Tatoeba.
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
  'Accuracy@1 (%) of finding a sentence’s translation among all test '
  'sentences by the cosine of mean-pooled states, mean of both directions: '
  'as the states are, and after an orthogonal map (Procrustes, with '
  'iterative normalisation) learned on other sentences. Layer 0 is the '
  'embedding output.'
)
_NAMES = {'none': 'without a map', 'procrustes': 'with Procrustes'}


class Sides(NamedTuple):
  """States of translated sentences, by two models or one.

  Attributes:
    first: [layers, N, D].
    second: [layers, N, E]; sentence i translates sentence i of `first`.
  """

  first: np.ndarray
  second: np.ndarray


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceStudy(study_base.SeriesStudy):
  """Retrieval of every series on every pair.

  Attributes:
    test: parallel text that is retrieved.
    train: what maps are learned from; None: no map. Only pairs that both have
      are mapped.
    series: the models that are compared.
    steps: checkpoints of models without a named step; see `Models.at_steps`.
    layers: that are looked at; None: all.
    reader: how sentences become states.
  """

  test: text_sources.PairSource
  train: text_sources.PairSource | None = None
  layers: tuple[validation.LayerIndex, ...] | None = None
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    failures = eval_task.Failures('sentences')
    rows: list[analysis_report.Row] = []
    notes: list[str] = []
    mapped = self.train.pairs() if self.train is not None else ()

    def load(
      pair: model_refs.Pair,
    ) -> tuple[text_sources.PairedText, text_sources.PairedText | None]:
      test, train = self.test.load(pair), None
      if self.train is not None and pair in mapped:
        train = self.train.load(pair)
      elif self.train is not None:
        notes.append(f'there is no text to learn a map of {"-".join(pair)}')
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
    depths = {models.num_layers(ref) for ref in (case.first, case.second)}
    if len(depths) > 1:
      raise errors.AnalysisError(
        'Models of different depths have no layers to be mapped',
        got=' and '.join(f'{n} layers' for n in sorted(depths)),
      )
    layers = study_base.chosen_layers(self.layers, depths.pop())
    asked = self._states(case, test, layers, models)
    rows = []
    if asked.first.shape[2] == asked.second.shape[2]:
      rows += _rows(
        case,
        Mapping.NONE,
        layers,
        len(test.first),
        0,
        retrieval_metrics.score_layers(*asked),
      )
    if train is not None:
      learned = self._states(case, train, layers, models)
      rows += _rows(
        case,
        Mapping.PROCRUSTES,
        layers,
        len(test.first),
        len(train.first),
        score_mapped_layers(learned, asked),
      )
    return rows

  def _states(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    layers: list[int],
    models: model_refs.Models,
  ) -> Sides:
    """States [chosen layers, N, H] of both sides."""
    first, second = self.reader.sides(
      models, (case.first, case.second), text, case.pair, layers
    )
    for side, name in ((first, case.pair[0]), (second, case.pair[1])):
      where = f'language {name}, {case.series}'
      study_base.check_finite(side, 'A sentence state', where)
    return Sides(first, second)


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
) -> dict[str, analysis_report.Picture]:
  last = study_base.last_steps(rows)
  several = len({row['series'] for row in last}) > 1
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in last:
    panel = _NAMES[row['mapping']]
    if several:
      panel = f'{row["series"]}, {panel}'
    panels.setdefault(panel, {}).setdefault(row['pair'], []).append(
      (row['layer'], 100 * row['accuracy'])
    )
  title, label = 'Sentence retrieval by layer', 'accuracy@1 (%)'
  pictures = analysis_report.curves(
    'layers', title, label, panels, last, whole=100
  )
  for mapping in dict.fromkeys(row['mapping'] for row in rows):
    chosen = [row for row in rows if row['mapping'] == mapping]
    pictures |= analysis_report.curves(
      f'steps.{mapping}',
      f'Sentence retrieval along training, {_NAMES[mapping]}',
      label,
      study_base.by_step(chosen, 'accuracy'),
      chosen,
      xlabel=plots.STEP,
      whole=100,
    )
  return pictures


def score_mapped_layers(
  train: Sides, test: Sides, *, max_rounds: int = 50
) -> retrieval_metrics.PairScores:
  """Accuracy@1 of every layer, with the map learned on other sentences.

  The first side is normalised and mapped into the space of the second, which
  is normalised, both as their training sentences are.

  Args:
    train: what maps are learned from.
    test: what is retrieved.
    max_rounds: of the iterative normalisation.

  Raises:
    AnalysisError: sides of different layers, sizes or numbers of sentences,
      or states that are not finite.
  """
  depths = [len(side) for sides in (train, test) for side in sides]
  if len(set(depths)) != 1:
    raise errors.AnalysisError(
      'Layers cannot be mapped to one another',
      got=f'{depths} layers',
      expected='as many of both sides, for training and test',
    )
  first, second = [], []
  for source, target, asked, wanted in zip(*train, *test, strict=True):
    alignment = procrustes.fit_alignment(source, target, max_rounds=max_rounds)
    first.append(alignment.map_source(asked))
    second.append(alignment.map_target(wanted))
  return retrieval_metrics.score_layers(np.array(first), np.array(second))
