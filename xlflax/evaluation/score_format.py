"""Format of scores in tables, figures and messages."""

import math
from collections.abc import Mapping

_SIGNIFICANT_DIGITS = 4
# Numbers of at least this size have too many digits to be read.
_SCIENTIFIC = 1e15
_MAX_LISTED = 3  # Maximum number of languages in a log line.


def format_score(
  value: float | None, *, decimals: int = 3, signed: bool = False
) -> str:
  """Formats a score with thousands separators and few digits.

  A number has at most four significant digits: 0.512, 34.18, 341.8, 11,340.
  Numbers of at least 10^15 are in scientific notation. Missing values and NaN
  become '-'.

  Args:
    value: Number to format, or None.
    decimals: Maximum number of digits after the decimal point.
    signed: Whether to put a plus sign before positive numbers.
  """
  if value is None or math.isnan(value):
    return '-'
  sign = '+' if signed else ''
  if abs(value) >= _SCIENTIFIC:
    return f'{value:{sign}.{_SIGNIFICANT_DIGITS}g}'
  rounded = float(f'{value:.{_SIGNIFICANT_DIGITS}g}')
  integer = int(abs(rounded))
  num_integer_digits = len(str(integer)) if integer else 0
  num_decimals = min(decimals, _SIGNIFICANT_DIGITS - num_integer_digits)
  if num_decimals <= 0:
    return f'{rounded:{sign},.0f}'
  return f'{value:{sign}.{num_decimals}f}'


def format_mean(metric: str, metrics: Mapping[str, float]) -> str:
  """Formats the mean of a metric, or the first values if there is no mean.

  For example, the text is '0.612' or 'de 0.540, es 0.575, fr 0.610, …
  (5 values)'. It is '-' if the metric has no values.

  Args:
    metric: Name of the metric.
    metrics: Metric values by name, such as 'accuracy/de'.
  """
  if f'{metric}/mean' in metrics:
    return format_score(metrics[f'{metric}/mean'])
  if metric in metrics:
    return format_score(metrics[metric])
  values = [
    f'{name.removeprefix(f"{metric}/")} {format_score(value)}'
    for name, value in metrics.items()
    if name.startswith(f'{metric}/')
  ]
  if len(values) > _MAX_LISTED:
    values[_MAX_LISTED:] = [f'… ({len(values)} values)']
  return ', '.join(values) or '-'


def format_tick(value: float, position: float | None = None) -> str:
  """Formats a number on an axis with thousands separators.

  The function can be passed to `matplotlib.axis.Axis.set_major_formatter`.

  Args:
    value: Number at the tick.
    position: Position of the tick, which matplotlib passes. It is ignored.
  """
  del position
  if 1000 <= abs(value) < _SCIENTIFIC:
    return f'{value:,.0f}'
  return f'{value:g}'
