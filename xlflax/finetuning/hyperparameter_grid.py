"""Hyperparameter grid: all combinations of the values of gin macros."""

import ast
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.config import gin_config
from xlflax.utils import errors

# Macro whose values are repetitions of a setting.
SEED = 'SEED'
# Name of the trial of a grid without axes.
SINGLE = 'single'
# Prefix of the names of trials with random initial parameters.
UNTRAINED = 'untrained'
_MACRO_PATTERN = re.compile(r'[A-Za-z_][\w.]*')


@dataclasses.dataclass(frozen=True)
class Axis:
  """An axis of a hyperparameter grid: a gin macro and its values.

  Attributes:
    macro: Name of a gin macro, or of a gin parameter such as
      `optimizers.AdamW.b2`.
    values: Values of the macro, in gin syntax.
  """

  macro: str
  values: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Trial:
  """A trial of a hyperparameter grid: one combination of macro values.

  Attributes:
    values: Mapping from macros to values in gin syntax, in the order of the
      axes.
    untrained: Whether the trial is a baseline that starts from randomly
      initialized parameters.
  """

  values: Mapping[str, str]
  untrained: bool = False

  @property
  def name(self) -> str:
    """Name of the trial's directory, such as 'LEARNING_RATE=1e-5,SEED=0'."""
    return self._name(self.values)

  @property
  def setting(self) -> str:
    """Name of the hyperparameter setting: the trial's name without the seed."""
    return self._name(
      {macro: value for macro, value in self.values.items() if macro != SEED}
    )

  def _name(self, values: Mapping[str, str]) -> str:
    """Returns the name of a trial with the given values."""
    parts = [
      re.sub(r'[^\w.=+-]+', '_', f'{macro}={_strip_quotes(value)}')
      for macro, value in values.items()
    ]
    if self.untrained:
      parts.insert(0, UNTRAINED)
    return ','.join(parts) or SINGLE

  @property
  def macros(self) -> dict[str, Any]:
    """Mapping from macros to values for `Configuration.with_macros`."""
    return {
      macro: gin_config.Reference(value)
      if value.startswith(('@', '%'))
      else ast.literal_eval(value)
      for macro, value in self.values.items()
    }


def parse_axis(text: str) -> Axis:
  """Parses a grid axis given on the command line.

  For example, `LEARNING_RATE=1e-5,2e-5` yields
  `Axis('LEARNING_RATE', ('1e-5', '2e-5'))`. Words that are not Python literals
  become strings, such as 'en' for `en`. Commas inside of quotes or brackets do
  not separate values.

  Args:
    text: Axis in the format MACRO=VALUE,VALUE.

  Raises:
    ConfigError: If the text lacks '=' or a value, or if a value occurs twice.
  """
  macro, equals, values = text.partition('=')
  parsed_values: tuple[str, ...] = ()
  if values.strip():
    parsed_values = tuple(map(_to_gin_value, _split_values(values)))
  if not equals or not _MACRO_PATTERN.fullmatch(macro) or not parsed_values:
    raise errors.ConfigError(
      'Each axis given with --grid must have the format MACRO=VALUE,VALUE, '
      'such as LEARNING_RATE=1e-5,2e-5',
      got=text,
    )
  if len(set(parsed_values)) < len(parsed_values):
    raise errors.ConfigError(
      'An axis given with --grid must not contain the same value twice',
      got=text,
    )
  return Axis(macro, parsed_values)


def suggest_without_brackets(trial: Trial, value: Any) -> str | None:
  """Returns a hint if an axis is given in brackets, such as RATE=[1e-5,2e-5].

  Args:
    trial: Trial in which a value is invalid.
    value: The invalid value.

  Returns:
    The hint, or None if the value is not a list of an axis.
  """
  for macro, parsed in trial.macros.items():
    text = _strip_quotes(trial.values[macro])
    is_list = text[:1] in ('[', '(') and text[-1:] in (']', ')')
    if is_list and str(value) in (str(parsed), repr(parsed)):
      return (
        'Pass the values of an axis without brackets: '
        f'--grid {macro}={text[1:-1]}'
      )
  return None


def expand_grid(axes: Sequence[Axis]) -> tuple[Trial, ...]:
  """Returns all combinations of the axes' values. The last axis varies fastest.

  Args:
    axes: Axes of the hyperparameter grid.

  Raises:
    ConfigError: If two axes have the same macro, or if two trials have the same
      name.
  """
  macros = [axis.macro for axis in axes]
  if len(set(macros)) < len(macros):
    raise errors.ConfigError(
      'Each macro must occur in only one axis given with --grid',
      got=', '.join(macros),
    )
  trials = tuple(
    Trial(dict(zip(macros, values, strict=True)))
    for values in itertools.product(*(axis.values for axis in axes))
  )
  names = [trial.name for trial in trials]
  if len(set(names)) < len(names):
    raise errors.ConfigError(
      'The values given with --grid result in two trials with the same '
      'directory name. The values must differ in letters, digits, or one of the '
      "characters '.', '+' and '-'",
      got=next(name for name in names if names.count(name) > 1),
    )
  return trials


def untrained_trials(trials: Sequence[Trial]) -> tuple[Trial, ...]:
  """Copies the trials and makes the copies start from random parameters."""
  return tuple(dataclasses.replace(trial, untrained=True) for trial in trials)


def group_by_setting(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
  """Groups the trials whose hyperparameters differ only in the seed."""
  trials_by_setting: dict[str, list[Trial]] = {}
  for trial in trials:
    trials_by_setting.setdefault(trial.setting, []).append(trial)
  return trials_by_setting


def _strip_quotes(value: str) -> str:
  """Returns a string literal without its quotes."""
  return value.strip('\'"') if value[:1] in '\'"' else value


def _to_gin_value(text: str) -> str:
  """Returns a value in gin syntax. Words become quoted strings."""
  text = text.strip()
  if text.startswith(('@', '%')):
    return text
  try:
    ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return repr(text)
  return text


def _split_values(text: str) -> list[str]:
  """Splits a text at commas outside of brackets and quotes."""
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
