"""Tables and figures for lexicon induction, in the style of ECS's figure 4."""

from collections.abc import Sequence

from xlflax.analysis import analysis_report, study_base
from xlflax.evaluation import plots
from xlflax.evaluation.reports import text

TOP = (1, 5, 10)
VECTORS = 'vectors'  # Name of the series of `.vec` files.
_SCORES = {'cosine': 'cosine', 'csls': 'CSLS'}
_MAPPINGS = {'none': 'no map', 'procrustes': 'Procrustes'}


def _main_rows(
  rows: Sequence[analysis_report.Row],
) -> list[analysis_report.Row]:
  """Selects rows of the last step with CSLS scores and a Procrustes map."""
  return [
    row
    for row in study_base.last_steps(rows)
    if row['score'] == 'csls' and row['mapping'] == 'procrustes'
  ]


def _representation(row: analysis_report.Row) -> str:
  """Returns a label for the word vectors that a result row describes."""
  return (
    row['representation'] if row['layer'] is None else f'layer {row["layer"]}'
  )


def tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  """Returns tables of precision at each k and of dictionary coverage."""
  return [
    analysis_report.grid(
      f'Precision@{n} by CSLS with Procrustes (%)',
      _main_rows(rows),
      value=f'precision@{n}',
      across=lambda row: row['pair'],
      down=_method,
    )
    for n in TOP
  ] + [
    analysis_report.grid(
      'Coverage of the test dictionary (%)',
      _main_rows(rows),
      value='coverage',
      across=lambda row: row['pair'],
      down=lambda row: f'{row["series"]}, {_representation(row)}',
    )
  ]


def _method(row: analysis_report.Row) -> str:
  """Returns a label for the series and the word vectors of a result row."""
  if row['series'] == VECTORS:
    return VECTORS
  return f'{row["series"]}, {_representation(row)}'


def notes(rows: Sequence[analysis_report.Row]) -> list[str]:
  """Returns notes on the numbers of queries, candidates and training pairs."""
  return list(
    dict.fromkeys(
      f'{row["series"]}, {row["pair"]}, {row["representation"]}: '
      f'{row["queries"]} words were translated, with {row["target_words"]} '
      'candidates. '
      f'The map was learned from {row["learned_from"]} pairs.'
      for row in _main_rows(rows)
    )
  )


def pictures(
  rows: Sequence[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  """Plots precision@1, as bars for embeddings or as curves for hidden states.

  The curves show precision@1 over layers and over training steps.
  """
  figures = {}
  main_rows = _main_rows(rows)
  embedding_rows = [row for row in main_rows if row['layer'] is None]
  if embedding_rows:
    title = 'Word translation by embeddings (CSLS, Procrustes)'
    # The names of series are below the bars and not in the legend, because they
    # may be long.
    bars: dict[str, dict[str, float]] = {}
    for row in embedding_rows:
      bars.setdefault(row['pair'], {})[row['series']] = 100 * row['precision@1']
    heading = (
      title if len(bars) > 1 else f'{title}, {embedding_rows[0]["pair"]}'
    )
    figures['embeddings'] = analysis_report.Figure(
      title, plots.bar_chart(heading, 'precision@1 (%)', bars), embedding_rows
    )
  layer_rows = [
    row for row in study_base.last_steps(rows) if row['layer'] is not None
  ]
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in layer_rows:
    name = f'{_SCORES[row["score"]]}, {_MAPPINGS[row["mapping"]]}'
    panels.setdefault(f'{row["series"]}: {row["pair"]}', {}).setdefault(
      name, []
    ).append((row['layer'], 100 * row['precision@1']))
  title, label = 'Word translation by layer', 'precision@1 (%)'
  figures |= analysis_report.curves(
    'layers', title, label, panels, layer_rows, whole=100
  )
  main_layer_rows = [
    row
    for row in rows
    if row['score'] == 'csls'
    and row['mapping'] == 'procrustes'
    and row['layer'] is not None
  ]
  return figures | analysis_report.curves(
    'steps',
    'Word translation during training (CSLS, Procrustes)',
    label,
    study_base.by_step(main_layer_rows, 'precision@1'),
    main_layer_rows,
    xlabel=plots.STEP,
    whole=100,
  )
