"""Transfer to a language that only another model knows, by mapped states.

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
  'A head that was trained on one layer of a frozen source model, on the '
  'same layer of the target model: mapped into the source’s space by an '
  'orthogonal map, and as it is (the lower bound). “source model” is the '
  'source itself on the target’s text. Layer 0 is the embedding output.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class Head:
  """A fine-tuned source, and the map into the space that its head reads.

  Attributes:
    model: of the run; as `ModelRef.parse` reads it.
    map: file that `xlflax analyze procrustes` wrote, from the target's layer
      to the source's.
  """

  model: str
  map: str


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferStudy(study_base.Study):
  """Scores of heads on a target model's states.

  Attributes:
    heads: one for each layer, or just one.
    target: the model whose states are mapped; as `ModelRef.parse` reads it.
    task: what is scored, of the target's language.
  """

  heads: tuple[Head, ...]
  target: str
  task: head_task.HeadTask

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    failures = eval_task.Failures('transfer')
    rows: list[analysis_report.Row] = []
    notes: dict[str, None] = {}
    missing: list[eval_task.Failure] = []
    for head in self.heads:
      with failures.guard(head.model):
        for series, layer, result in self._evaluate(head, models, notes):
          notes |= dict.fromkeys(result.notes)
          missing += [
            dataclasses.replace(
              one, task='transfer', part=(f'{head.model}, {series}, {one.part}')
            )
            for one in result.failures
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
      failures=(*failures.collected(), *missing),
    )

  def _evaluate(
    self, head: Head, models: model_refs.Models, notes: dict[str, None]
  ) -> Iterator[tuple[str, int, eval_task.EvalResult]]:
    """Yields (series, layer, result)."""
    name = self.task.objective
    refs = [
      models.resolve(model_refs.ModelRef.parse(one))
      for one in (head.model, self.target)
    ]
    source, target = map(models.subject, refs)
    saved, note = transfer_checks.orient_map(
      alignment_maps.load_map(head.map),
      source=str(refs[0]),
      target=str(refs[1]),
      languages=self.task.source.languages(),
    )
    notes |= dict.fromkeys([f'{head.map}: {note}'] if note else [])
    subjects = {
      'mapped': stitched_heads.subject_of(source, target, name, saved),
      'without a map': stitched_heads.subject_of(source, target, name, None)
      if _same_size(source, target)
      else None,
      'source model': source,
    }
    layer = _layer_of(source, name)
    if saved.about.get('layer', layer) != layer:
      raise errors.AnalysisError(
        'A map is of another layer than the one that the head reads',
        got=saved.about['layer'],
        expected=layer,
        where=head.map,
        fix='Pass one --alignment_map for each --head_model, in the same order.',
      )
    transfer_checks.finite_head(source, name, name=str(refs[0]))
    for subject, ref in zip((source, target), refs, strict=True):
      transfer_checks.finite_states(
        subject, self.task.source, layer, name=str(ref)
      )
    for series, one in subjects.items():
      if one is not None:
        yield series, layer, self.task.evaluate(one)


def _scores(result: eval_task.EvalResult):
  for name, value in result.metrics.items():
    metric, _, part = name.partition('/')
    yield metric, part, value


def _layer_of(source: eval_task.Subject, name: str) -> int:
  """The layer that the head reads."""
  count = source.model.config.num_layers + 1
  layer = getattr(source.objectives[name], 'layer', None)
  return study_base.chosen_layers([-1 if layer is None else layer], count)[0]


def _same_size(source: eval_task.Subject, target: eval_task.Subject) -> bool:
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
) -> dict[str, analysis_report.Picture]:
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in rows:
    panels.setdefault(row['pair'], {}).setdefault(row['series'], []).append(
      (row['layer'], score_table.points(row['metric'], row['value']))
    )
  if not rows:
    return {}
  title = 'Transfer by mapped states'
  label = f'{text.metric_name(rows[0]["metric"])} (%)'
  return analysis_report.curves('layers', title, label, panels, rows, whole=100)
