"""Flags of a command, declared as its help lists them; numbers have ranges.

    FLAGS = '''
    --output DIR (required): directory to write
    --seed (Seed, default 0): of the text
    --change CODE=VALUE (repeated): another value of a language; may be
      repeated
    --mass (one of uniform norm, default uniform): of words
    --json (switch): print the paths as JSON
    '''
    flag_tables.add(parser, FLAGS)

An entry is a flag's name, what stands for its value in help, its nature in
parentheses, and its help after a colon; further lines are indented. What
follows `[title]` or `[title: description]` is a group of its own in help, what
follows `[one of]` or `[one of, required]` excludes each other, and `[]` ends
either. An entry's nature may name

  a number of `_NUMBERS`, `path`, or a kind that is given;
  without any it is text;
  `one of` some choices, `switch`, `switch off`, `required`, `repeated` (a list);
  `optional`, `one or more`, `any number`, of words that follow no flag;
  `as NAME`, of the result; `default VALUE`, which is told at the help's end.
"""

import argparse
import contextlib
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from xlflax.foundation import errors, validation

_ENTRY = re.compile(
  r'(?P<flag>(?:-\w/)?(?:--)?[\w.=]+)(?: (?P<metavar>[^\s(]\S*?))?'
  r'(?: \((?P<nature>.*?)\))?(?:: (?P<help>.+))?'
)
_HEADING = re.compile(r'\[(?P<title>.*?)(?:: (?P<description>.+))?\]')
_NATURES: dict[str, dict[str, Any]] = {
  'path': {'type': pathlib.Path},
  'switch': {'action': 'store_true'},
  'switch off': {'action': 'store_false'},
  'required': {'required': True},
  'repeated': {'action': 'append', 'default': []},
  'optional': {'nargs': '?'},
  'one or more': {'nargs': '+'},
  'any number': {'nargs': '*', 'default': []},
}


_NUMBERS: dict[str, Any] = {
  'Integer': validation.Int32,
  'Natural': validation.NonNegativeInt,
  'Count': validation.PositiveInt,
  'Seed': validation.Seed,
  'Layer': validation.LayerIndex,
  'Layers': validation.NonNegativeInt,
  'Depth': validation.NumLayers,
  'Width': validation.Dimension,
  'Processes': validation.NumProcesses,
  'Threads': validation.NumThreads,
  'Bytes': validation.NumBytes,
  'Port': validation.Port,
  'Real': validation.FiniteFloat,
  'NonNegative': validation.NonNegativeFloat,
  'Positive': validation.PositiveFloat,
  'Share': validation.Fraction,
  'PositiveShare': validation.PositiveFraction,
  'ShareBelowOne': validation.FractionBelowOne,
  'InnerShare': validation.OpenFraction,
  'Exponent': validation.SamplingExponent,
}


def add(
  parser: argparse._ActionsContainer, table: str, **kinds: Callable[..., Any]
) -> None:
  """Adds the flags of a table to a parser or a group of one.

  Args:
    parser: that gets them.
    table: an entry for each flag.
    **kinds: further kinds of values -> what reads one, or a class of actions
      that gather pairs in a dict.

  Raises:
    ValueError: an entry is none, or its nature is unknown.
  """
  place = parser
  for entry in _entries(table):
    if heading := _HEADING.fullmatch(entry):
      place = _place(parser, heading['title'], heading['description'])
      continue
    found = _ENTRY.fullmatch(entry)
    if found is None:
      raise ValueError(f'not the entry of a flag: {entry!r}')
    options = _options(found['nature'] or '', kinds)
    text = found['help']
    if options.get('default', []) not in ([], {}):
      text = (
        f'{text} (default: %(default)s)' if text else 'default: %(default)s'
      )
    if found['metavar']:
      options['metavar'] = found['metavar']
    place.add_argument(*found['flag'].split('/'), help=text, **options)


def _place(
  parser: argparse._ActionsContainer, title: str, description: str | None
) -> argparse._ActionsContainer:
  """Where the entries below a heading go."""
  if not title:
    return parser
  if title.startswith('one of'):
    required = title == 'one of, required'
    return parser.add_mutually_exclusive_group(required=required)
  return parser.add_argument_group(title, description)


def _entries(table: str) -> Iterator[str]:
  """Each entry as one line."""
  for lines in re.split(r'\n+(?=\S)', textwrap.dedent(table).strip()):
    yield ' '.join(line.strip() for line in lines.splitlines())


def _options(nature: str, kinds: dict[str, Callable]) -> dict[str, Any]:
  """What argparse calls a nature, such as `Count, default 3`."""
  options: dict[str, Any] = {}
  for part in filter(None, nature.split(', ')):
    word, _, rest = part.partition(' ')
    if part in _NATURES:
      options |= _NATURES[part]
    elif isinstance(kinds.get(part), type):
      options |= {'action': kinds[part], 'default': {}}
    elif part in kinds:
      options['type'] = kinds[part]
    elif part.startswith('one of '):
      options['choices'] = rest.split()[1:]
    elif word in ('default', 'as'):
      options['default' if word == 'default' else 'dest'] = rest
    elif part in _NUMBERS:
      options['type'] = of(_NUMBERS[part])
    else:
      raise ValueError(f'not the nature of a flag: {part!r}')
  return _numbers(options)


def _numbers(options: dict[str, Any]) -> dict[str, Any]:
  """Default and choices of a flag that is a number as numbers."""
  number = options.get('type')
  if isinstance(number, NumericFlag):
    if 'default' in options:
      options['default'] = number(options['default'])
    if 'choices' in options:
      options['choices'] = [number(one) for one in options['choices']]
  return options


class NumericFlag:
  """Reads the text of a flag.

  Attributes:
    hint: the annotated type of the number.
    metavar: what stands for the number in help.
  """

  def __init__(self, hint: Any):
    self.hint = hint
    kinds = list(map(str, validation.numeric_types(hint)))
    self.metavar = 'X' if any('float' in one for one in kinds) else 'N'

  def __call__(self, text: str) -> Any:
    """The number of a text.

    Raises:
      ArgumentTypeError: it is not in range.
    """
    try:
      return self.read(text, flag='the value')
    except errors.ConfigError as error:
      raise argparse.ArgumentTypeError(str(error)) from None

  def read(self, text: str, *, flag: str, where: str | None = None) -> Any:
    """As a call, with another error.

    Args:
      text: what follows the flag.
      flag: its name, with dashes.
      where: the command.

    Raises:
      ConfigError: it is not in range.
    """
    return validation.validate(_number(text), self.hint, name=flag, where=where)


def of(hint: Any) -> NumericFlag:
  """What `add_argument` takes as `type` for an annotated number."""
  return NumericFlag(hint)


def _number(text: str) -> int | float | str:
  """A text as the number that it is, if it is one."""
  for kind in (int, float):
    with contextlib.suppress(ValueError):
      return kind(text)
  return text
