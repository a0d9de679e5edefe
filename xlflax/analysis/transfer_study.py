"""Transfer to a language that only another model knows, by mapped states.

Source: ECS (Wu et al., 2020) section 5.1.2 and figure 5.
"""

import dataclasses
from collections.abc import Sequence

from xlflax import errors
from xlflax.analysis import figures, mapped_heads, maps, report, study
from xlflax.analysis import models as models_lib
from xlflax.evaluation import base
from xlflax.evaluation.reports import score_table, text

_EXPLANATION = (
    'A head that was trained on one layer of a frozen source model, on the '
    'same layer of the target model: mapped into the source’s space by an '
    'orthogonal map, and as it is (the lower bound). “source model” is the '
    'source itself on the target’s text. Layer 0 is the embedding output.')


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferStudy(study.Study):
  """Scores of heads on a target model's states.

  Attributes:
    heads: one for each layer, or just one.
    target: the model whose states are mapped; as `ModelRef.parse` reads it.
    task: what is scored, of the target's language; any evaluation task with
      the field `objective`.
  """

  heads: tuple[Head, ...]
  target: str
  task: base.EvalTask

  def run(self, models: models_lib.Models) -> report.Analysis:
    failures = base.Failures('transfer')
    rows: list[report.Row] = []
    notes: dict[str, None] = {}
    for head in self.heads:
      with failures.guard(head.model):
        found = self._evaluate(head, models, notes)
        rows += found
    rows.sort(key=lambda row: (row['series'], row['pair'], row['layer']))
    return report.Analysis(
        name='transfer', title='Transfer by mapped states',
        explanation=_EXPLANATION, rows=rows, pictures=_pictures(rows),
        tables=_tables(rows), settings=base.settings(self),
        notes=tuple(notes), failures=failures.collected())

  def _evaluate(self, head: Head, models: models_lib.Models,
                notes: dict[str, None]) -> list[report.Row]:
    name = getattr(self.task, 'objective', '')
    saved = maps.load(head.map)
    source = models.subject(models_lib.ModelRef.parse(head.model))
    target = models.subject(models_lib.ModelRef.parse(self.target))
    subjects = {
        'mapped': mapped_heads.subject_of(source, target, name, saved),
        'without a map': mapped_heads.subject_of(source, target, name, None)
        if _same_size(source, target) else None, 'source model': source}
    layer = _layer_of(source, name)
    if saved.about.get('layer', layer) != layer:
      raise errors.AnalysisError(
          'A map is of another layer than the one that the head reads',
          got=saved.about['layer'], expected=layer, where=head.map)
    rows: list[report.Row] = []
    for series, subject in subjects.items():
      if subject is None:
        continue
      result = self.task.evaluate(subject)
      for failure in result.failures:
        raise errors.AnalysisError(failure.message, where=failure.part)
      notes |= dict.fromkeys(result.notes)
      rows += [{'series': series, 'pair': part, 'layer': layer,
                'metric': metric, 'value': value}
               for metric, part, value in _scores(result)
               if metric == self.task.headline and part != 'mean']
    return rows


def _scores(result: base.EvalResult):
  for name, value in result.metrics.items():
    metric, _, part = name.partition('/')
    yield metric, part, value


def _layer_of(source: base.Subject, name: str) -> int:
  """The layer that the head reads."""
  count = source.model.config.num_layers + 1
  layer = getattr(source.objectives[name], 'layer', None)
  return study.chosen_layers([-1 if layer is None else layer], count)[0]


def _same_size(source: base.Subject, target: base.Subject) -> bool:
  return (source.model.config.hidden_dim == target.model.config.hidden_dim)


def _tables(rows: Sequence[report.Row]):
  if not rows:
    return []
  return [report.grid(
      f'{text.metric_name(rows[0]["metric"])} (%)', rows, value='value',
      down=lambda row: f'layer {row["layer"]}',
      across=lambda row: f'{row["pair"]} {row["series"]}')]


def _pictures(rows: Sequence[report.Row]) -> dict[str, report.Picture]:
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in rows:
    panels.setdefault(row['pair'], {}).setdefault(row['series'], []).append(
        (row['layer'], score_table.points(row['metric'], row['value'])))
  if not rows:
    return {}
  title = 'Transfer by mapped states'
  label = f'{text.metric_name(rows[0]["metric"])} (%)'
  return {'layers': report.Picture(title, figures.curves(
      title, label, panels, whole=100), rows)}
