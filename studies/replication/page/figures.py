"""Plots of the scores of training configurations in the replication study."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure
from scipy import special

from studies.replication import experiments, registry
from studies.replication.claims import Claim, Finding, compared_conditions
from studies.replication.registry import Study
from studies.replication.results import Result
from xlflax.evaluation import plots

_PLOTTED_MEASURES = ('transfer', 'retrieval', 'bleu', 'nli')
_NLI = 'nli'  # Its parts, such as `nli/plug_in`, are plotted as rows.
_DPI = 120

# Seed to measure to value.
ScoresBySeed = Mapping[int, Mapping[str, float]]


def write_figures(
  folder: pathlib.Path,
  findings: Sequence[Finding],
  results: Sequence[Result],
  study: Study,
) -> dict[str, str]:
  """Plots the scores of training configurations, in one figure per paper.

  Args:
    folder: Directory of the page, to which the figures are also written.
    findings: Results of testing the claims on the page.
    results: Results of the training runs.
    study: Study (synthetic or real languages) that the page describes.

  Returns:
    Map from paper to the name of its figure's file in the folder.
  """
  scores = experiments.group_scores(results)
  files = {}
  for paper in registry.PAPERS:
    claims = [
      finding.claim for finding in findings if finding.claim.paper == paper
    ]
    if rows := collect_rows(claims, scores, study):
      prefix = '' if study is registry.SYNTHETIC else f'{study.name}_'
      files[paper] = f'{prefix}{paper.lower()}.png'
      plots.save_figure(
        plot_conditions(paper, rows), folder / files[paper], dpi=_DPI
      )
  return files


def collect_rows(
  claims: Sequence[Claim], scores: Mapping[str, ScoresBySeed], study: Study
) -> dict[str, ScoresBySeed]:
  """Returns a map from the label of each row in a figure to its scores."""
  titles = {condition.name: condition.title for condition in study.conditions}
  rows: dict[str, ScoresBySeed] = {}
  for name in compared_conditions(claims):
    rows |= _condition_rows(titles.get(name, name), scores.get(name, {}))
  return rows


def _condition_rows(
  title: str, by_seed: ScoresBySeed
) -> dict[str, ScoresBySeed]:
  """Returns the figure row of a condition, or one row per `nli` measure."""
  measures = {measure for values in by_seed.values() for measure in values}
  parts = sorted(name for name in measures if name.startswith(f'{_NLI}/'))
  rows: dict[str, ScoresBySeed] = {
    f'{part.removeprefix(f"{_NLI}/")}: {title}': {
      seed: {_NLI: values[part]} for seed, values in by_seed.items()
    }
    for part in parts
  }
  if rows or measures.isdisjoint(_PLOTTED_MEASURES):
    return rows
  return {title: by_seed}


def plot_conditions(
  paper: str, rows: Mapping[str, ScoresBySeed]
) -> figure.Figure:
  """Plots the mean, the 95 % interval and the individual scores of each row."""
  measures = [
    measure
    for measure in _PLOTTED_MEASURES
    if any(
      measure in values
      for by_seed in rows.values()
      for values in by_seed.values()
    )
  ]
  canvas = figure.Figure(
    figsize=(2.5 + 2.5 * len(measures), 1.0 + 0.3 * len(rows)),
    layout='constrained',
  )
  grid = canvas.subplots(1, len(measures), sharey=True, squeeze=False)[0]
  for axes, measure in zip(grid, measures, strict=True):
    for position, by_seed in enumerate(rows.values()):
      scores = [
        values[measure] for values in by_seed.values() if measure in values
      ]
      if not scores:
        continue
      axes.plot(scores, [position] * len(scores), 'o', alpha=0.35, markersize=3)
      axes.errorbar(
        np.mean(scores),
        position,
        xerr=interval_half_width(scores),
        fmt='k|',
        capsize=3,
      )
    axes.set_xlabel(measure)
    plots.hide_spines(axes)
  grid[0].set_yticks(range(len(rows)), list(rows))
  grid[0].invert_yaxis()
  canvas.suptitle(f'{paper}: seeds, mean and 95 % interval', fontsize='large')
  return canvas


def interval_half_width(values: Sequence[float]) -> float:
  """Returns half the width of the 95 % interval of a mean."""
  if len(values) < 2:
    return 0.0
  error = np.std(values, ddof=1) / np.sqrt(len(values))
  return float(error * special.stdtrit(len(values) - 1, 0.975))
