"""Transfer of a fine-tuned head to the mapped hidden states of another model.

Source: ECS (Wu et al., 2020) section 5.1.2 and figure 5.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from xlflax.analysis import (
  analysis_report,
  model_refs,
  stitched_heads,
  study_base,
  transfer_checks,
)
from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import score_table, text
from xlflax.evaluation.tasks import head_task
from xlflax.similarity import alignment_maps
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Scores of a head that was trained on one layer of a frozen source model, '
  'and is evaluated on the same layer of the target model: with an orthogonal '
  'map into the source’s space, and without a map (the lower bound). “source '
  'model” is the source model itself on the target’s text. Layer 0 is the '
  'embedding output.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class Head:
  """A fine-tuned model, and a map into its space of hidden states.

  Attributes:
    model: Reference to the source model, in the format of `ModelRef.parse`.
    map: File written by `xlflax analyze procrustes` that contains a map from
      the target's layer to the source's layer.
  """

  model: str
  map: str


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTransferStudy(study_base.Study):
  """Analysis that scores heads on the mapped hidden states of another model.

  Attributes:
    heads: One or more heads, such as one for each layer.
    target: Reference to the model whose states are mapped, in the format of
      `ModelRef.parse`.
    task: Evaluation task in the target model's language.
  """

  heads: tuple[Head, ...]
  target: str
  task: head_task.HeadTask

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Evaluates the task heads, and records heads whose evaluation fails."""
    failures = eval_task.Failures('transfer')
    rows: list[analysis_report.Row] = []
    notes: dict[str, None] = {}
    task_failures: list[eval_task.Failure] = []
    for head in self.heads:
      with failures.guard(head.model):
        for series, layer, result in self._evaluate(head, models, notes):
          notes |= dict.fromkeys(result.notes)
          task_failures += [
            dataclasses.replace(
              failure,
              task='transfer',
              part=f'{head.model}, {series}, {failure.part}',
            )
            for failure in result.failures
          ]
          rows += [
            {
              'series': series,
              'pair': part,
              'layer': layer,
              'metric': metric,
              'value': value,
            }
            for metric, part, value in _scores(result)
            if metric == self.task.primary_metric and part != 'mean'
          ]
    rows.sort(key=lambda row: (row['series'], row['pair'], row['layer']))
    return analysis_report.Analysis(
      name='transfer',
      title='Transfer by mapped states',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      notes=tuple(notes),
      failures=(*failures.collected(), *task_failures),
    )

  def _evaluate(
    self, head: Head, models: model_refs.Models, notes: dict[str, None]
  ) -> Iterator[tuple[str, int, eval_task.EvalResult]]:
    """Yields (series, layer, result) for a head.

    Args:
      head: Head to evaluate.
      models: Cache from which the analysis loads its models.
      notes: Dictionary whose keys are notes. A note is added if the alignment
        map was made for other models.
    """
    name = self.task.objective
    source_ref = models.resolve(model_refs.ModelRef.parse(head.model))
    target_ref = models.resolve(model_refs.ModelRef.parse(self.target))
    source = models.eval_model(source_ref)
    target = models.eval_model(target_ref)
    saved, note = transfer_checks.orient_map(
      alignment_maps.load_map(head.map),
      source=str(source_ref),
      target=str(target_ref),
      languages=self.task.source.languages(),
    )
    if note:
      notes[f'{head.map}: {note}'] = None
    eval_models = {
      'mapped': stitched_heads.stitch_eval_model(source, target, name, saved)
    }
    if _has_same_size(source, target):
      eval_models['without a map'] = stitched_heads.stitch_eval_model(
        source, target, name, None
      )
    eval_models['source model'] = source
    layer = _head_layer(source, name)
    if saved.about.get('layer', layer) != layer:
      raise errors.AnalysisError(
        'The alignment map must be for the layer that the head reads',
        got=saved.about['layer'],
        expected=layer,
        where=head.map,
        fix='Pass one --alignment_map for each --head_model, in the same '
        'order.',
      )
    transfer_checks.finite_head(source, name, name=str(source_ref))
    for eval_model, ref in ((source, source_ref), (target, target_ref)):
      transfer_checks.finite_states(
        eval_model, self.task.source, layer, name=str(ref)
      )
    for series, eval_model in eval_models.items():
      yield series, layer, self.task.evaluate(eval_model)


def _scores(result: eval_task.EvalResult):
  """Yields (metric, part, value) for each metric of a result."""
  for name, value in result.metrics.items():
    metric, _, part = name.partition('/')
    yield metric, part, value


def _head_layer(source: eval_task.EvalModel, name: str) -> int:
  """Returns the index of the layer that a head reads."""
  count = source.model.config.num_layers + 1
  layer = getattr(source.objectives[name], 'layer', None)
  return study_base.chosen_layers([-1 if layer is None else layer], count)[0]


def _has_same_size(
  source: eval_task.EvalModel, target: eval_task.EvalModel
) -> bool:
  return source.model.config.hidden_dim == target.model.config.hidden_dim


def _tables(rows: Sequence[analysis_report.Row]):
  if not rows:
    return []
  return [
    analysis_report.grid(
      f'{text.metric_name(rows[0]["metric"])} (%)',
      rows,
      value='value',
      down=lambda row: f'layer {row["layer"]}',
      across=lambda row: f'{row["pair"]} {row["series"]}',
    )
  ]


def _pictures(
  rows: Sequence[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in rows:
    panels.setdefault(row['pair'], {}).setdefault(row['series'], []).append(
      (row['layer'], score_table.to_points(row['metric'], row['value']))
    )
  if not rows:
    return {}
  title = 'Transfer by mapped states'
  label = f'{text.metric_name(rows[0]["metric"])} (%)'
  return analysis_report.curves('layers', title, label, panels, rows, whole=100)
