"""Names in any script in pictures.

Languages are named by codes, but users name models as they like, and the font
of matplotlib lacks many scripts.
"""

import functools
import re
from collections.abc import Sequence

from matplotlib import axis as axis_lib
from matplotlib import figure, font_manager, ticker
from matplotlib import text as text_lib


def fit(canvas: figure.Figure) -> None:
  """Gives all writing fonts that have its characters.

  Of what no installed font has the first code point is written, such as
  `U+4E2D…`.
  """
  for axes in canvas.axes:
    _fit_ticks(axes.xaxis)
    _fit_ticks(axes.yaxis)
  for text in canvas.findobj(text_lib.Text):
    families = list(text.get_fontfamily())
    text.set_text(_fitted(text.get_text(), families))
    text.set_fontfamily(families)


def _fit_ticks(axis: axis_lib.Axis) -> None:
  """Named ticks get their writing anew at each drawing."""
  if isinstance(axis.get_major_locator(), ticker.FixedLocator):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    families = list(axis.label.get_fontfamily())
    if _missing(''.join(labels), families):
      axis.set_ticks(
        axis.get_ticklocs(), [_fitted(label, families) for label in labels]
      )
      axis.set_tick_params(labelfontfamily=families)


def _fitted(content: str, families: list[str]) -> str:
  """The text as it can be written; families that it needs are added."""
  unknown = ''
  for character in _missing(content, families):
    family = _family_with(character)
    if family is None:
      unknown += character
    elif family not in families:
      families.append(family)
  pattern = f'[{re.escape(unknown)}]+' if unknown else '(?!)'
  return re.sub(pattern, _code_point, content)


def _code_point(found: re.Match[str]) -> str:
  return f'U+{ord(found[0][0]):04X}' + '…' * (len(found[0]) > 1)


def _missing(content: str, families: Sequence[str]) -> list[str]:
  return [
    character
    for character in dict.fromkeys(content)
    if not character.isspace()
    and not any(_has(_path(family), character) for family in families)
  ]


@functools.cache
def _path(family: str) -> str:
  return font_manager.findfont(font_manager.FontProperties(family=[family]))


@functools.cache
def _has(path: str, character: str) -> bool:
  return font_manager.get_font(path).get_char_index(ord(character)) != 0


@functools.cache
def _family_with(character: str) -> str | None:
  """The first installed family, by name, with a character."""
  for entry in sorted(
    font_manager.fontManager.ttflist, key=lambda entry: entry.name
  ):
    if not _is_last_resort(entry.name) and _has(entry.fname, character):
      return entry.name
  return None


def _is_last_resort(name: str) -> bool:
  """Whether a font's characters are placeholders."""
  return name.lower().replace(' ', '').startswith('lastresort')
