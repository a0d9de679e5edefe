"""The demo's pictures, as PNG files, in colours that everybody can tell apart.

Languages are named by code: the fonts of matplotlib lack many scripts.
"""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from xlflax.evaluation.reports import drawing, pictures

_DPI = 130


def plot_losses(
  path: pathlib.Path,
  losses: Mapping[str, Sequence[tuple[int, float]]],
  labels: Mapping[str, str],
) -> None:
  """Training loss by step, one line for each objective.

  Args:
    path: the PNG to write.
    losses: objective -> (step, loss) in order of steps.
    labels: objective -> its name in the legend; others appear as they are.
  """
  lines = {labels.get(name, name): points for name, points in losses.items()}
  canvas = drawing.curves(
    'Training loss of each objective',
    'loss (nats), lower is better',
    {'': lines},
    xlabel=drawing.STEP,
  )
  pictures.save(canvas, path, dpi=_DPI)


def plot_retrieval(
  path: pathlib.Path,
  untrained: Mapping[str, float],
  trained: Mapping[str, float],
) -> None:
  """Retrieval accuracy of each language as a pair of bars, and the means."""
  languages = sorted(trained, key=lambda language: -trained[language])
  models = {
    name: {code: 100 * value for code, value in scores.items()}
    | {'mean': 100 * sum(scores.values()) / len(scores)}
    for name, scores in (('untrained', untrained), ('trained', trained))
  }
  title = 'Finding the translation among the held-out messages'
  canvas = pictures.bars(
    title, 'accuracy@1 (%)', models, groups=[*languages, 'mean']
  )
  pictures.save(canvas, path, dpi=_DPI)


def plot_layers(
  path: pathlib.Path, layers: Mapping[str, Mapping[str, Sequence[float]]]
) -> None:
  """Retrieval accuracy by layer and language, one heat map for each model.

  Args:
    path: the PNG to write.
    layers: model -> language -> accuracy of each layer, embeddings first.
  """
  sample = next(iter(layers.values()))
  languages = sorted(sample)
  depth = len(sample[languages[0]])
  canvas = figure.Figure(
    figsize=(
      max(6, 1.5 + 0.55 * len(languages)),
      len(layers) * (1 + 0.45 * depth),
    ),
    layout='constrained',
  )
  grid = canvas.subplots(len(layers), squeeze=False)
  for axes, (name, scores) in zip(grid[:, 0], layers.items(), strict=True):
    values = [scores[language] for language in languages]
    image = drawing.heat(axes, np.array(values).T)
    axes.invert_yaxis()
    axes.set_xticks(range(len(languages)), languages)
    axes.set_yticks(range(depth), ['embeddings', *range(1, depth)])
    axes.set(ylabel='layer', title=f'{name} model')
  grid[-1, 0].set_xlabel('language')
  canvas.colorbar(image, ax=grid[:, 0], label='accuracy@1 (0 to 1)', pad=0.01)
  pictures.save(canvas, path, dpi=_DPI)
