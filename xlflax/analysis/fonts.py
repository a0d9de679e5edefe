"""Font selection for text in figures, by writing system.

Languages are named by codes, but users choose model names, and Matplotlib's
default font lacks many scripts.
"""

import functools
import re
from collections.abc import Sequence

from matplotlib import axis as matplotlib_axis
from matplotlib import figure, font_manager, ticker
from matplotlib import text as matplotlib_text


def fit(canvas: figure.Figure) -> None:
  """Selects fonts that contain the characters of all text in a figure.

  Characters that are missing from all installed fonts are replaced by the first
  code point, such as `U+4E2D…`.
  """
  for axes in canvas.axes:
    _fit_ticks(axes.xaxis)
    _fit_ticks(axes.yaxis)
  for text in canvas.findobj(matplotlib_text.Text):
    families = list(text.get_fontfamily())
    text.set_text(_fit_text(text.get_text(), families))
    text.set_fontfamily(families)


def _fit_ticks(axis: matplotlib_axis.Axis) -> None:
  """Sets the fonts of tick labels, which Matplotlib recreates when drawing."""
  if isinstance(axis.get_major_locator(), ticker.FixedLocator):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    families = list(axis.label.get_fontfamily())
    if _missing_characters(''.join(labels), families):
      axis.set_ticks(
        axis.get_ticklocs(), [_fit_text(label, families) for label in labels]
      )
      axis.set_tick_params(labelfontfamily=families)


def _fit_text(content: str, families: list[str]) -> str:
  """Adds the font families that a text requires to `families`.

  Returns:
    The text, with code points in place of characters without a font.
  """
  unsupported = ''
  for character in _missing_characters(content, families):
    family = _find_family(character)
    if family is None:
      unsupported += character
    elif family not in families:
      families.append(family)
  if not unsupported:
    return content
  return re.sub(f'[{re.escape(unsupported)}]+', _format_code_point, content)


def _format_code_point(match: re.Match[str]) -> str:
  """Returns the first code point of a match, such as `U+4E2D…`."""
  ellipsis = '…' if len(match[0]) > 1 else ''
  return f'U+{ord(match[0][0]):04X}{ellipsis}'


def _missing_characters(content: str, families: Sequence[str]) -> list[str]:
  """Returns the characters of a text that none of the families contains."""
  return [
    character
    for character in dict.fromkeys(content)
    if not character.isspace()
    and not any(
      _has_character(_font_path(family), character) for family in families
    )
  ]


@functools.cache
def _font_path(family: str) -> str:
  return font_manager.findfont(font_manager.FontProperties(family=[family]))


@functools.cache
def _has_character(path: str, character: str) -> bool:
  return font_manager.get_font(path).get_char_index(ord(character)) != 0


@functools.cache
def _find_family(character: str) -> str | None:
  """Returns the first installed family, by name, that has a character."""
  for entry in sorted(
    font_manager.fontManager.ttflist, key=lambda entry: entry.name
  ):
    if not _is_last_resort(entry.name) and _has_character(
      entry.fname, character
    ):
      return entry.name
  return None


def _is_last_resort(name: str) -> bool:
  """Returns True if the characters of a font are placeholders."""
  return name.lower().replace(' ', '').startswith('lastresort')
