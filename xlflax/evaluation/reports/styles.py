"""How lines and bars look: told apart by colour, shape and hatching.

Colours: Okabe and Ito (2008), "Color universal design".
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

COLORS = (
  '#0072B2',
  '#E69F00',
  '#009E73',
  '#CC79A7',
  '#56B4E9',
  '#D55E00',
  '#999999',
)
HATCHES = ('', '//', '..', 'xx', '\\\\', '++', 'oo')
LINES = ('-', '--', '-.', ':')
MARKERS = tuple('osD^vPX')
LETTER = 0.085  # inches that a letter takes, about
_MANY = 10  # names, beyond which the legend stands to the right


def line(index: int) -> dict[str, Any]:
  """Arguments of `plot` for the line of this number; 28 are different."""
  turn = index // len(COLORS)
  return {
    'color': COLORS[index % len(COLORS)],
    'linestyle': LINES[(index + 2 * turn) % len(LINES)],
    'marker': MARKERS[(index + turn) % len(MARKERS)],
  }


def bar(index: int) -> dict[str, Any]:
  """Arguments of `bar` for the bars of this number."""
  return {
    'color': COLORS[index % len(COLORS)],
    'hatch': HATCHES[index % len(HATCHES)],
    'edgecolor': 'white',
    'linewidth': 0.5,
  }


def tidy(axes) -> None:
  """Takes away the upper and right line of a frame."""
  axes.spines[['top', 'right']].set_visible(False)


def legend(canvas, grid: Iterable, names: Sequence[str]) -> None:
  """One legend of all panels, as wide as the picture and no wider.

  Args:
    canvas: the figure, of constrained layout; made higher where it has to be.
    grid: the panels, that have a name's handle in any of them.
    names: of the lines or bars, in order; a single one needs no legend.
  """
  handles: dict[str, Any] = {}
  for axes in grid:
    handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
  if len(names) < 2:
    return
  longest = 0.58 + LETTER * max(map(len, names))  # inches of an entry
  fitting = max(1, int(canvas.get_figwidth() / longest))
  if len(names) <= _MANY:
    canvas.set_figheight(
      canvas.get_figheight() + 0.2 * (math.ceil(len(names) / fitting) - 1)
    )
  place: dict[str, Any] = (
    dict(loc='outside lower center', ncols=min(len(names), fitting))
    if len(names) <= _MANY
    else dict(
      loc='outside right center', fontsize=7, ncols=math.ceil(len(names) / 20)
    )
  )
  canvas.legend(
    [handles[name] for name in names], names, frameon=False, **place
  )
