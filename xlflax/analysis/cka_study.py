"""CKA between the layers of two models on translations.

Source: ECS (Wu et al., 2020) section 5.2 and figure 7: mean-pooled states of
parallel sentences; bilingual and monolingual models, a random encoder as the
lower bound (for the second language only), paraphrases as the upper bound.
"""

import dataclasses

import numpy as np

from xlflax.analysis import analysis_report, figures, model_refs, study_base
from xlflax.analysis.activation_cache import SentenceReader
from xlflax.evaluation import eval_task, plots, text_sources
from xlflax.similarity import cka
from xlflax.utils import validation

_EXPLANATION = (
  'Linear centred kernel alignment (Kornblith et al., 2019) of mean-pooled '
  'sentence states between a model that reads one language and a model that '
  'reads its translation; 100 is the same up to rotation and scale. A pair '
  'such as en-en holds paraphrases: an upper bound. Layer 0 is the embedding '
  'output.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CkaStudy(study_base.SeriesStudy):
  """CKA of every series on every pair.

  Attributes:
    source: parallel text.
    series: the models that are compared.
    steps: checkpoints of models without a named step; see `Models.at_steps`.
    compare: every layer with every other, or with its counterpart only.
    layers: that are compared; None: all.
    estimator: see `xlflax.similarity.cka`.
    reader: how sentences become states.
  """

  source: text_sources.PairSource
  compare: cka.Layers = cka.Layers.ALL
  layers: tuple[validation.LayerIndex, ...] | None = None
  estimator: cka.Estimator = cka.Estimator.BIASED
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
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
      notes=_notes(rows) + self._few(rows),
      failures=failures.collected(),
    )

  def _few(self, rows: list[analysis_report.Row]) -> list[str]:
    """Notes on pairs with too few sentences for the plain estimator."""
    if self.estimator is not cka.Estimator.BIASED:
      return []
    few = {
      (row['pair'], row['sentences'], row['dimensions'])
      for row in rows
      if row['sentences'] < row['dimensions']
    }
    return [
      f'{pair}: {sentences:,} sentences are fewer than the {dimensions:,} '
      'dimensions of a state, so that the biased estimator is too high even '
      'for unrelated states: compare with the random encoder, give more '
      'sentences, or use --estimator=debiased'
      for pair, sentences, dimensions in sorted(few)
    ]

  def _compare(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    models: model_refs.Models,
  ) -> list[analysis_report.Row]:
    layers = [
      study_base.chosen_layers(self.layers, models.num_layers(ref))
      for ref in (case.first, case.second)
    ]
    sums = cka.LayerCKA(
      layers=self.compare, estimator=self.estimator, dtype=np.float32
    )
    both = zip(
      *(
        self.reader.blocks(models, ref, side, language)
        for ref, side, language in zip(
          (case.first, case.second), text, case.pair, strict=True
        )
      ),
      strict=True,
    )
    width = 0
    for first, second in both:
      width = max(first.shape[-1], second.shape[-1])
      sums.update(first[layers[0]], second[layers[1]])
    found = sums.result()
    if self.compare is cka.Layers.DIAGONAL:
      found = np.diag(found)
    return [
      case.columns
      | {
        'first_layer': i,
        'second_layer': j,
        'cka': float(found[y, x]),
        'sentences': sums.count,
        'dimensions': width,
      }
      for y, i in enumerate(layers[0])
      for x, j in enumerate(layers[1])
      if self.compare is cka.Layers.ALL or x == y
    ]


def _diagonal(rows) -> list[analysis_report.Row]:
  return [row for row in rows if row['first_layer'] == row['second_layer']]


def _notes(rows: list[analysis_report.Row]) -> list[str]:
  without = {
    f'{row["series"]}, {row["pair"]}, step {row["step"]}'
    for row in rows
    if np.isnan(row['cka'])
  }
  return [
    f'{name}: some layer is the same for all sentences and has no CKA'
    for name in sorted(without)
  ]


def _averages(diagonal: list[analysis_report.Row]) -> list[analysis_report.Row]:
  """Returns the mean over layers of each pair and series (ECS, figure 7)."""
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
  diagonal = _diagonal(study_base.last_steps(rows))
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
) -> dict[str, analysis_report.Picture]:
  pictures = {}
  last = study_base.last_steps(rows)
  diagonal = _diagonal(last)
  if diagonal:
    columns: dict[tuple[str, str], list[float]] = {}
    for row in diagonal:
      columns.setdefault((row['pair'], row['series']), []).append(row['cka'])
    title = 'CKA of each layer with its counterpart'
    pictures['layers'] = analysis_report.Picture(
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
    of_pair = [row for row in last if row['pair'] == pair]
    if len(of_pair) > len(_diagonal(of_pair)):
      title = f'CKA of every two layers, {pair}'
      pictures[f'matrix.{pair}'] = analysis_report.Picture(
        title, _matrices(title, of_pair), of_pair
      )
  return pictures | analysis_report.curves(
    'steps',
    'CKA along training',
    'CKA (%)',
    study_base.by_step(_diagonal(rows), 'cka', layer='first_layer'),
    _diagonal(rows),
    xlabel=plots.STEP,
    whole=100,
  )


def _matrices(title: str, rows: list[analysis_report.Row]):
  sides = ('first', 'second')
  axes = [sorted({row[f'{side}_layer'] for row in rows}) for side in sides]
  shape = [len(axis) for axis in axes]
  panels: dict[str, np.ndarray] = {}
  for row in rows:
    panel = panels.setdefault(row['series'], np.full(shape, np.nan))
    place = [
      axes[i].index(row[f'{side}_layer']) for i, side in enumerate(sides)
    ]
    panel[tuple(place)] = row['cka']
  first, second = rows[0]['pair'].split('-')
  return figures.matrices(
    title,
    'CKA',
    panels,
    first=first,
    second=second,
    first_layers=axes[0],
    second_layers=axes[1],
  )
