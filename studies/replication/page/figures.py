"""Figures of the page: the conditions of each paper."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure
from scipy import special

from studies.replication import experiments, registry
from studies.replication import results as results_lib
from studies.replication.claims import Claim, Finding, compared_conditions
from studies.replication.registry import Study
from xlflax.evaluation import plots

_SHOWN = ('transfer', 'retrieval', 'bleu', 'nli')
_PARTED = 'nli'  # its parts, as `nli/plug_in`, are rows of their own
_DPI = 120

Values = Mapping[int, Mapping[str, float]]


def write(
  folder: pathlib.Path,
  findings: Sequence[Finding],
  found: Sequence[results_lib.Result],
  study: Study,
) -> dict[str, str]:
  """Draws what there is; returns paper -> file in the folder."""
  scores = experiments.group_scores(found)
  drawn = {}
  for paper in registry.PAPERS:
    claims = [one.claim for one in findings if one.claim.paper == paper]
    if own := rows(claims, scores, study):
      prefix = '' if study is registry.SYNTHETIC else f'{study.name}_'
      drawn[paper] = f'{prefix}{paper.lower()}.png'
      plots.save_figure(conditions(paper, own), folder / drawn[paper], dpi=_DPI)
  return drawn


def rows(
  claims: Sequence[Claim], scores: Mapping[str, Values], study: Study
) -> dict[str, Values]:
  """Row of a figure -> seed -> measures, of the conditions of claims."""
  titles = {one.name: one.title for one in study.conditions}
  own: dict[str, Values] = {}
  for name in compared_conditions(claims):
    own |= _rows(titles.get(name, name), scores.get(name, {}))
  return own


def _rows(title: str, values: Values) -> dict[str, Values]:
  """A row of the condition, or several where it is measured in parts."""
  measured = {measure for found in values.values() for measure in found}
  parts = sorted(one for one in measured if one.startswith(f'{_PARTED}/'))
  rows: dict[str, Values] = {
    f'{part.removeprefix(f"{_PARTED}/")}: {title}': {
      seed: {_PARTED: found[part]} for seed, found in values.items()
    }
    for part in parts
  }
  if rows or measured.isdisjoint(_SHOWN):
    return rows
  return {title: values}


def conditions(paper: str, scores: Mapping[str, Values]) -> figure.Figure:
  """Mean and 95 % interval of each condition, and each seed as a dot."""
  shown = [
    measure
    for measure in _SHOWN
    if any(measure in one for v in scores.values() for one in v.values())
  ]
  canvas = figure.Figure(
    figsize=(2.5 + 2.5 * len(shown), 1.0 + 0.3 * len(scores)),
    layout='constrained',
  )
  grid = canvas.subplots(1, len(shown), sharey=True, squeeze=False)[0]
  for axes, measure in zip(grid, shown, strict=True):
    for row, values in enumerate(scores.values()):
      seeds = [one[measure] for one in values.values() if measure in one]
      if not seeds:
        continue
      axes.plot(seeds, [row] * len(seeds), 'o', alpha=0.35, markersize=3)
      axes.errorbar(np.mean(seeds), row, xerr=reach(seeds), fmt='k|', capsize=3)
    axes.set_xlabel(measure)
    plots.hide_spines(axes)
  grid[0].set_yticks(range(len(scores)), list(scores))
  grid[0].invert_yaxis()
  canvas.suptitle(f'{paper}: seeds, mean and 95 % interval', fontsize='large')
  return canvas


def reach(values: Sequence[float]) -> float:
  """Half of the 95 % interval of a mean."""
  if len(values) < 2:
    return 0.0
  error = np.std(values, ddof=1) / np.sqrt(len(values))
  return float(error * special.stdtrit(len(values) - 1, 0.975))
