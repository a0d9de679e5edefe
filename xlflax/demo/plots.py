"""The demo's pictures, as PNG files, in colours that everybody can tell apart.

Languages are named by code: the fonts of matplotlib lack many scripts.
"""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib import figure, ticker

from xlflax.evaluation.reports import pictures

# Okabe and Ito (2008), "Color universal design".
_BLUE, _VERMILION, _GREEN, _GREY = '#0072B2', '#D55E00', '#009E73', '#999999'
_LINES = ((_BLUE, '-'), (_VERMILION, '--'), (_GREEN, '-.'), (_GREY, ':'))
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
  canvas = figure.Figure(figsize=(7, 4), layout='constrained')
  axes = canvas.subplots()
  for index, (name, points) in enumerate(losses.items()):
    color, style = _LINES[index % len(_LINES)]
    steps, values = zip(*points, strict=True)
    axes.plot(
      steps,
      values,
      color=color,
      linestyle=style,
      linewidth=2,
      label=labels.get(name, name),
    )
  axes.set(
    xlabel='training step',
    ylabel='loss (nats)',
    title='Training loss of each objective',
    ylim=(0, None),
  )
  axes.grid(alpha=0.3)
  _hide_frame(axes)
  if losses:
    axes.legend(frameon=False)
  pictures.save(canvas, path, dpi=_DPI)


def plot_retrieval(
  path: pathlib.Path,
  untrained: Mapping[str, float],
  trained: Mapping[str, float],
) -> None:
  """Retrieval accuracy of each language as a pair of bars, and both means."""
  languages = sorted(trained, key=lambda language: -trained[language])
  canvas = figure.Figure(
    figsize=(max(5, 1.5 + 0.55 * len(languages)), 4), layout='constrained'
  )
  axes = canvas.subplots()
  places = range(len(languages))
  series = (
    ('untrained', untrained, _GREY, -0.2, ':'),
    ('trained', trained, _BLUE, 0.2, '--'),
  )
  for name, scores, color, shift, style in series:
    axes.bar(
      [place + shift for place in places],
      [100 * scores[language] for language in languages],
      width=0.4,
      color=color,
      label=name,
    )
    mean = 100 * sum(scores.values()) / len(scores)
    axes.axhline(
      mean,
      color=color,
      linestyle=style,
      linewidth=1.5,
      label=f'mean, {name}: {mean:.0f} %',
    )
  axes.set_xticks(list(places), languages)
  axes.set(
    xlabel='language',
    ylabel='accuracy@1 (%)',
    ylim=(0, 100),
    title='Finding the translation among the held-out messages',
  )
  _hide_frame(axes)
  axes.legend(frameon=False, ncols=2, loc='upper right')
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
    values = [
      [100 * scores[language][layer] for language in languages]
      for layer in range(depth)
    ]
    image = axes.imshow(
      values, cmap='cividis', vmin=0, vmax=100, aspect='auto', origin='lower'
    )
    _write_numbers(axes, values)
    axes.set_xticks(range(len(languages)), languages)
    axes.set_yticks(range(depth), ['embeddings', *range(1, depth)])
    axes.set(ylabel='layer', title=f'{name} model')
  grid[-1, 0].set_xlabel('language')
  canvas.colorbar(image, ax=grid[:, 0], label='accuracy@1 (%)', pad=0.01)
  pictures.save(canvas, path, dpi=_DPI)


def plot_cka(
  path: pathlib.Path, similarity: Mapping[str, Mapping[str, Sequence[float]]]
) -> None:
  """CKA by layer, a line for each language, and dashed the random encoder's.

  Args:
    path: the PNG to write.
    similarity: model -> language -> CKA of each layer, embeddings first.
  """
  canvas = figure.Figure(figsize=(7, 4), layout='constrained')
  axes = canvas.subplots()
  for (model, by_language), style in zip(
    similarity.items(), ('-', '--'), strict=False
  ):
    for index, (language, values) in enumerate(by_language.items()):
      axes.plot(
        range(len(values)),
        [100 * value for value in values],
        color=_LINES[index % len(_LINES)][0],
        linestyle=style,
        linewidth=2,
        label=f'en-{language}, {model}',
      )
  axes.set(
    xlabel='layer (0: embeddings)',
    ylabel='CKA (%)',
    title='Similarity of translations at each layer',
  )
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  axes.grid(alpha=0.3)
  _hide_frame(axes)
  axes.legend(frameon=False, fontsize=8)
  pictures.save(canvas, path, dpi=_DPI)


def _write_numbers(axes, values: list[list[float]]) -> None:
  for row, numbers in enumerate(values):
    for column, number in enumerate(numbers):
      axes.text(
        column,
        row,
        f'{number:.0f}',
        ha='center',
        va='center',
        fontsize=8,
        color='black' if number > 50 else 'white',
      )


def _hide_frame(axes) -> None:
  axes.spines[['top', 'right']].set_visible(False)
