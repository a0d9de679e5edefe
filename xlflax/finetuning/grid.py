"""A grid of settings: every combination of some gin macros' values."""

import ast
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from xlflax import errors

SEED = 'SEED'  # the macro whose values are repetitions, no settings
SINGLE = 'single'  # the one cell of a grid without axes
_NAME = re.compile(r'[A-Za-z_][\w.]*')


@dataclasses.dataclass(frozen=True)
class Axis:
  """A gin macro and its values.

  Attributes:
    macro: its name; also a parameter such as `optimizers.AdamW.b2`.
    values: each in gin's syntax.
  """

  macro: str
  values: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cell:
  """One combination of values.

  Attributes:
    values: macro -> value in gin's syntax, in the order of the axes.
  """

  values: Mapping[str, str]

  @property
  def name(self) -> str:
    """Of its folder: 'LEARNING_RATE=1e-5,SEED=0'."""
    return _name(self.values)

  @property
  def setting(self) -> str:
    """The name without the seed: what cells of one setting share."""
    return _name(
      {macro: value for macro, value in self.values.items() if macro != SEED}
    )

  @property
  def bindings(self) -> tuple[str, ...]:
    """'MACRO=VALUE' each, for gin."""
    return tuple(f'{macro}={value}' for macro, value in self.values.items())


def parse_axis(text: str) -> Axis:
  """An axis as it is written on the command line.

  Before: `LEARNING_RATE=1e-5,2e-5`; after: `Axis('LEARNING_RATE', ('1e-5',
  '2e-5'))`. Words that are no value of Python's become text, `en` 'en'; a
  comma inside of quotes or brackets separates nothing.

  Raises:
    ConfigError: there is no '=', no value, or a value twice.
  """
  macro, equals, values = text.partition('=')
  found = tuple(map(_value, _split(values))) if values.strip() else ()
  if not equals or not _NAME.fullmatch(macro) or not found:
    raise errors.ConfigError(
      'An axis of a grid is wrong',
      got=text,
      where='--grid',
      expected='MACRO=VALUE,VALUE such as LEARNING_RATE=1e-5,2e-5',
    )
  if len(set(found)) < len(found):
    raise errors.ConfigError(
      'An axis of a grid has a value twice', got=text, where='--grid'
    )
  return Axis(macro, found)


def cells(axes: Sequence[Axis]) -> tuple[Cell, ...]:
  """Every combination, the last axis's values changing first.

  Raises:
    ConfigError: two axes have one name, or two cells.
  """
  macros = [axis.macro for axis in axes]
  if len(set(macros)) < len(macros):
    raise errors.ConfigError(
      'Two axes of a grid are of one macro',
      got=', '.join(macros),
      where='--grid',
    )
  made = tuple(
    Cell(dict(zip(macros, values, strict=True)))
    for values in itertools.product(*(axis.values for axis in axes))
  )
  names = [cell.name for cell in made]
  if len(set(names)) < len(names):
    raise errors.ConfigError(
      'Two cells of a grid would have one folder',
      where='--grid',
      got=next(name for name in names if names.count(name) > 1),
      expected='values that differ in letters, digits or . + -',
    )
  return made


def settings(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
  """Setting -> its cells, one for each seed."""
  found: dict[str, list[Cell]] = {}
  for cell in cells:
    found.setdefault(cell.setting, []).append(cell)
  return found


def _name(values: Mapping[str, str]) -> str:
  return (
    ','.join(
      re.sub(r'[^\w.=+-]+', '_', f'{macro}={_plain(value)}')
      for macro, value in values.items()
    )
    or SINGLE
  )


def _plain(value: str) -> str:
  """Text without its quotes."""
  return value.strip('\'"') if value[:1] in '\'"' else value


def _value(text: str) -> str:
  text = text.strip()
  if text.startswith(('@', '%')):
    return text
  try:
    ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return repr(text)
  return text


def _split(text: str) -> list[str]:
  """At the commas that stand in no bracket and no quotes."""
  parts, depth, quote = [''], 0, ''
  for char in text:
    if quote:
      quote = '' if char == quote else quote
    elif char in '\'"':
      quote = char
    else:
      depth += (char in '([{') - (char in ')]}')
    if char == ',' and not depth and not quote:
      parts.append('')
    else:
      parts[-1] += char
  return parts
