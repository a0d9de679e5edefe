"""A grid of settings: every combination of some gin macros' values."""

import ast
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.config import gin_config
from xlflax.utils import errors

SEED = 'SEED'  # the macro whose values are repetitions, no settings
SINGLE = 'single'  # the one trial of a grid without axes
UNTRAINED = 'untrained'
_NAME = re.compile(r'[A-Za-z_][\w.]*')


@dataclasses.dataclass(frozen=True)
class Axis:
  """A gin macro and its values.

  Attributes:
    macro: its name; also a parameter such as `optimizers.AdamW.b2`.
    values: each as it is written in a gin file.
  """

  macro: str
  values: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Trial:
  """One combination of values.

  Attributes:
    values: macro -> value as a gin file has it, in the order of the axes.
    untrained: whether it starts from random parameters, a baseline.
  """

  values: Mapping[str, str]
  untrained: bool = False

  @property
  def name(self) -> str:
    """Of its folder: 'LEARNING_RATE=1e-5,SEED=0', 'untrained,SEED=0'."""
    return self._name(self.values)

  @property
  def setting(self) -> str:
    """The name without the seed: what trials of one setting share."""
    return self._name(
      {macro: value for macro, value in self.values.items() if macro != SEED}
    )

  def _name(self, values: Mapping[str, str]) -> str:
    parts = [
      re.sub(r'[^\w.=+-]+', '_', f'{macro}={_plain(value)}')
      for macro, value in values.items()
    ]
    return ','.join([UNTRAINED, *parts] if self.untrained else parts) or SINGLE

  @property
  def macros(self) -> dict[str, Any]:
    """Macro -> value, as `gin_config.Configuration.with_macros` takes it."""
    return {
      macro: gin_config.Reference(value)
      if value.startswith(('@', '%'))
      else ast.literal_eval(value)
      for macro, value in self.values.items()
    }


def parse_axis(text: str) -> Axis:
  """An axis as it is written on the command line.

  Before: `LEARNING_RATE=1e-5,2e-5`; after: `Axis('LEARNING_RATE', ('1e-5',
  '2e-5'))`. Words that are no value of Python's become text, `en` 'en'; a
  comma inside of quotes or brackets separates nothing.

  Raises:
    ConfigError: there is no '=', no value, or a value twice.
  """
  macro, equals, values = text.partition('=')
  parsed_values = tuple(map(_value, _split(values))) if values.strip() else ()
  if not equals or not _NAME.fullmatch(macro) or not parsed_values:
    raise errors.ConfigError(
      'An axis of a grid is wrong',
      got=text,
      where='--grid',
      expected='MACRO=VALUE,VALUE such as LEARNING_RATE=1e-5,2e-5',
    )
  if len(set(parsed_values)) < len(parsed_values):
    raise errors.ConfigError(
      'An axis of a grid has a value twice', got=text, where='--grid'
    )
  return Axis(macro, parsed_values)


def expand_grid(axes: Sequence[Axis]) -> tuple[Trial, ...]:
  """Every combination, the last axis's values changing first.

  Raises:
    ConfigError: two axes have one name, or two trials.
  """
  macros = [axis.macro for axis in axes]
  if len(set(macros)) < len(macros):
    raise errors.ConfigError(
      'Two axes of a grid are of one macro',
      got=', '.join(macros),
      where='--grid',
    )
  trials = tuple(
    Trial(dict(zip(macros, values, strict=True)))
    for values in itertools.product(*(axis.values for axis in axes))
  )
  names = [trial.name for trial in trials]
  if len(set(names)) < len(names):
    raise errors.ConfigError(
      'Two trials of a grid would have one folder',
      where='--grid',
      got=next(name for name in names if names.count(name) > 1),
      expected='values that differ in letters, digits or . + -',
    )
  return trials


def untrained_trials(trials: Sequence[Trial]) -> tuple[Trial, ...]:
  """The same trials from random parameters."""
  return tuple(dataclasses.replace(trial, untrained=True) for trial in trials)


def group_by_setting(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
  """Setting -> its trials, one for each seed."""
  trials_by_setting: dict[str, list[Trial]] = {}
  for trial in trials:
    trials_by_setting.setdefault(trial.setting, []).append(trial)
  return trials_by_setting


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
