"""Tables and pictures of word translation, as ECS's figure 4."""

from collections.abc import Sequence

from xlflax.analysis import analysis_report, study_base
from xlflax.evaluation import plots
from xlflax.evaluation.reports import text

TOP = (1, 5, 10)
VECTORS = 'vectors'  # the series of `.vec` files
_SCORES = {'cosine': 'cosine', 'csls': 'CSLS'}
_MAPPINGS = {'none': 'no map', 'procrustes': 'Procrustes'}


def _main(rows: Sequence[analysis_report.Row]) -> list[analysis_report.Row]:
  """By CSLS at the last step, with the map."""
  return [
    row
    for row in study_base.last_steps(rows)
    if row['score'] == 'csls' and row['mapping'] == 'procrustes'
  ]


def _name(row: analysis_report.Row) -> str:
  return (
    row['representation'] if row['layer'] is None else f'layer {row["layer"]}'
  )


def tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  """Precision at each k, and the coverage of the dictionary."""
  return [
    analysis_report.grid(
      f'Precision@{n} by CSLS with Procrustes (%)',
      _main(rows),
      value=f'precision@{n}',
      across=lambda row: row['pair'],
      down=_method,
    )
    for n in TOP
  ] + [
    analysis_report.grid(
      'Coverage of the test dictionary (%)',
      _main(rows),
      value='coverage',
      across=lambda row: row['pair'],
      down=lambda row: f'{row["series"]}, {_name(row)}',
    )
  ]


def _method(row: analysis_report.Row) -> str:
  """The series and how its vectors were made."""
  if row['series'] == VECTORS:
    return VECTORS
  return f'{row["series"]}, {_name(row)}'


def notes(rows: Sequence[analysis_report.Row]) -> list[str]:
  """How many words the numbers are about."""
  return list(
    dict.fromkeys(
      f'{row["series"]}, {row["pair"]}, {row["representation"]}: '
      f'{row["queries"]} words asked for, among {row["target_words"]} words; '
      f'the map is learned from {row["learned_from"]} pairs'
      for row in _main(rows)
    )
  )


def pictures(
  rows: Sequence[analysis_report.Row],
) -> dict[str, analysis_report.Picture]:
  """Bars of embeddings, curves by layer and by step."""
  found = {}
  main = _main(rows)
  static = [row for row in main if row['layer'] is None]
  if static:
    title = 'Word translation by embeddings (CSLS, Procrustes)'
    # Names of series may be long: they are below the bars, not in the legend.
    bars: dict[str, dict[str, float]] = {}
    for row in static:
      bars.setdefault(row['pair'], {})[row['series']] = 100 * row['precision@1']
    heading = title if len(bars) > 1 else f'{title}, {static[0]["pair"]}'
    found['embeddings'] = analysis_report.Picture(
      title, plots.bar_chart(heading, 'precision@1 (%)', bars), static
    )
  contextual = [
    row for row in study_base.last_steps(rows) if row['layer'] is not None
  ]
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in contextual:
    name = f'{_SCORES[row["score"]]}, {_MAPPINGS[row["mapping"]]}'
    panels.setdefault(f'{row["series"]}: {row["pair"]}', {}).setdefault(
      name, []
    ).append((row['layer'], 100 * row['precision@1']))
  title, label = 'Word translation by layer', 'precision@1 (%)'
  found |= analysis_report.curves(
    'layers', title, label, panels, contextual, whole=100
  )
  chosen = [
    row
    for row in rows
    if row['score'] == 'csls'
    and row['mapping'] == 'procrustes'
    and row['layer'] is not None
  ]
  return found | analysis_report.curves(
    'steps',
    'Word translation along training (CSLS, Procrustes)',
    label,
    study_base.by_step(chosen, 'precision@1'),
    chosen,
    xlabel=plots.STEP,
    whole=100,
  )
