"""How lines and bars look: told apart by colour, shape and hatching.

Colours: Okabe and Ito (2008), "Color universal design".
"""

from typing import Any

COLORS = ('#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#D55E00',
          '#999999')
HATCHES = ('', '//', '..', 'xx', '\\\\', '++', 'oo')
LINES = ('-', '--', '-.', ':')
MARKERS = tuple('osD^vPX')


def line(index: int) -> dict[str, Any]:
  """Arguments of `plot` for the line of this number; 28 are different."""
  turn = index // len(COLORS)
  return {'color': COLORS[index % len(COLORS)],
          'linestyle': LINES[(index + 2 * turn) % len(LINES)],
          'marker': MARKERS[(index + turn) % len(MARKERS)]}


def bar(index: int) -> dict[str, Any]:
  """Arguments of `bar` for the bars of this number."""
  return {'color': COLORS[index % len(COLORS)],
          'hatch': HATCHES[index % len(HATCHES)], 'edgecolor': 'white',
          'linewidth': 0.5}


def tidy(axes) -> None:
  """Takes away the upper and right line of a frame."""
  axes.spines[['top', 'right']].set_visible(False)
