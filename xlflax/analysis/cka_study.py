"""CKA similarity between the layers of two models on translated sentences.

Source: ECS (Wu et al., 2020) section 5.2 and figure 7. States of parallel
sentences are mean-pooled. Bilingual and monolingual models are compared with a
lower bound, a random encoder for the second language only, and an upper bound,
paraphrases.
"""

import dataclasses

import numpy as np

from xlflax.analysis import analysis_report, figures, model_refs, study_base
from xlflax.analysis.activation_cache import SentenceReader
from xlflax.evaluation import eval_task, plots, text_sources
from xlflax.similarity import cka
from xlflax.utils import validation

_EXPLANATION = (
  'Linear centered kernel alignment (Kornblith et al., 2019) of mean-pooled '
  'sentence states between a model that reads one language and a model that '
  'reads its translation. 100 means that the states are the same up to '
  'rotation and scale. A pair such as en-en consists of paraphrases and is an '
  'upper bound. Layer 0 is the embedding output.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CkaStudy(study_base.SeriesStudy):
  """Analysis of CKA between model layers for each language pair.

  Attributes:
    source: Source of parallel text.
    series: Models to compare. Each series names one model, or one model for
      each language of a pair.
    steps: Checkpoint steps for models whose reference does not name a step (see
      `Models.at_steps`).
    compare: Pairs of layers to compare: all pairs, or each layer with its
      counterpart.
    layers: Indices of the layers to analyze. If None, all layers are analyzed.
    estimator: Statistical estimator for CKA (see `xlflax.similarity.cka`).
    reader: Reader that computes the pooled hidden states of sentences.
  """

  source: text_sources.PairSource
  compare: cka.Layers = cka.Layers.ALL
  layers: tuple[validation.LayerIndex, ...] | None = None
  estimator: cka.Estimator = cka.Estimator.BIASED
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the language pairs that failed."""
    failures = eval_task.Failures('cka')
    rows: list[analysis_report.Row] = []
    for case, text in self.loaded_cases(
      self.source.pairs(), self.source.load, models, failures
    ):
      with failures.guard(case.name):
        rows += self._compare(case, text, models)
    return analysis_report.Analysis(
      name='cka',
      title='Similarity of layers (CKA)',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      notes=_undefined_notes(rows) + self._bias_notes(rows),
      failures=failures.collected(),
    )

  def _bias_notes(self, rows: list[analysis_report.Row]) -> list[str]:
    """Returns notes on pairs with too few sentences for a biased estimator."""
    if self.estimator is not cka.Estimator.BIASED:
      return []
    small_samples = {
      (row['pair'], row['sentences'], row['dimensions'])
      for row in rows
      if row['sentences'] < row['dimensions']
    }
    return [
      f'{pair}: The biased estimator is too high even for unrelated states, '
      f'because there are fewer sentences ({sentences:,}) than dimensions of a '
      f'state ({dimensions:,}). Compare with the random encoder, provide more '
      'sentences, or pass --estimator=debiased.'
      for pair, sentences, dimensions in sorted(small_samples)
    ]

  def _compare(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    models: model_refs.Models,
  ) -> list[analysis_report.Row]:
    """Returns a row for each pair of compared layers."""
    first_layers, second_layers = (
      study_base.chosen_layers(self.layers, models.num_layers(ref))
      for ref in (case.first, case.second)
    )
    layer_cka = cka.LayerCKA(
      layers=self.compare, estimator=self.estimator, dtype=np.float32
    )
    first_blocks, second_blocks = (
      self.reader.blocks(models, ref, sentences, language)
      for ref, sentences, language in zip(
        (case.first, case.second), text, case.pair, strict=True
      )
    )
    dimensions = 0
    for first, second in zip(first_blocks, second_blocks, strict=True):
      dimensions = max(first.shape[-1], second.shape[-1])
      layer_cka.update(first[first_layers], second[second_layers])
    values = layer_cka.result()
    if self.compare is cka.Layers.DIAGONAL:
      values = np.diag(values)
    return [
      case.columns
      | {
        'first_layer': first_layer,
        'second_layer': second_layer,
        'cka': float(values[i, j]),
        'sentences': layer_cka.count,
        'dimensions': dimensions,
      }
      for i, first_layer in enumerate(first_layers)
      for j, second_layer in enumerate(second_layers)
      if self.compare is cka.Layers.ALL or i == j
    ]


def _diagonal_rows(rows) -> list[analysis_report.Row]:
  """Returns the rows that compare layers with the same number."""
  return [row for row in rows if row['first_layer'] == row['second_layer']]


def _undefined_notes(rows: list[analysis_report.Row]) -> list[str]:
  """Returns notes on models with layers for which CKA is undefined."""
  undefined = {
    f'{row["series"]}, {row["pair"]}, step {row["step"]}'
    for row in rows
    if np.isnan(row['cka'])
  }
  return [
    f'{name}: CKA is undefined for a layer in which one of the two compared '
    'encoders has the same states for all sentences. The layers of the trained '
    'encoder may have collapsed because the learning rate was too high.'
    for name in sorted(undefined)
  ]


def _averages(diagonal: list[analysis_report.Row]) -> list[analysis_report.Row]:
  """Averages the CKA of each pair and series over layers (ECS, figure 7)."""
  groups: dict[tuple[str, str], list[analysis_report.Row]] = {}
  for row in diagonal:
    groups.setdefault((row['pair'], row['series']), []).append(row)
  return [
    group[0]
    | {
      'first_layer': None,
      'second_layer': None,
      'cka': float(np.mean([row['cka'] for row in group])),
    }
    for group in groups.values()
  ]


def _tables(rows: list[analysis_report.Row]):
  diagonal = _diagonal_rows(study_base.last_steps(rows))
  return (
    [
      analysis_report.grid(
        'CKA of layer i with layer i (%)',
        [*diagonal, *_averages(diagonal)],
        value='cka',
        down=lambda row: (
          'average'
          if row['first_layer'] is None
          else f'layer {row["first_layer"]}'
        ),
        across=lambda row: f'{row["pair"]} {row["series"]}',
        corner='',
      )
    ]
    if diagonal
    else []
  )


def _pictures(
  rows: list[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  pictures = {}
  last = study_base.last_steps(rows)
  diagonal = _diagonal_rows(last)
  if diagonal:
    columns: dict[tuple[str, str], list[float]] = {}
    for row in diagonal:
      columns.setdefault((row['pair'], row['series']), []).append(row['cka'])
    title = 'CKA of each layer with its counterpart'
    pictures['layers'] = analysis_report.Figure(
      title,
      figures.layer_columns(
        title,
        'CKA',
        columns,
        layers=sorted({row['first_layer'] for row in diagonal}),
      ),
      diagonal,
    )
  for pair in dict.fromkeys(row['pair'] for row in last):
    pair_rows = [row for row in last if row['pair'] == pair]
    if len(pair_rows) > len(_diagonal_rows(pair_rows)):
      title = f'CKA of all pairs of layers, {pair}'
      pictures[f'matrix.{pair}'] = analysis_report.Figure(
        title, _plot_matrices(title, pair_rows), pair_rows
      )
  return pictures | analysis_report.curves(
    'steps',
    'CKA during training',
    'CKA (%)',
    study_base.by_step(_diagonal_rows(rows), 'cka', layer='first_layer'),
    _diagonal_rows(rows),
    xlabel=plots.STEP,
    whole=100,
  )


def _plot_matrices(title: str, rows: list[analysis_report.Row]):
  """Plots the CKA of all pairs of layers, with a panel for each series."""
  first_layers = sorted({row['first_layer'] for row in rows})
  second_layers = sorted({row['second_layer'] for row in rows})
  panels: dict[str, np.ndarray] = {}
  for row in rows:
    panel = panels.setdefault(
      row['series'], np.full((len(first_layers), len(second_layers)), np.nan)
    )
    i = first_layers.index(row['first_layer'])
    j = second_layers.index(row['second_layer'])
    panel[i, j] = row['cka']
  first, second = rows[0]['pair'].split('-')
  return figures.matrices(
    title,
    'CKA',
    panels,
    first=first,
    second=second,
    first_layers=first_layers,
    second_layers=second_layers,
  )
