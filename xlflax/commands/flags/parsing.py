"""The parser of every command: its mistakes are one message each.

A flag is written out, belongs to its command, and has an effect with the
other flags that are given; everything else is refused before anything slow is
imported.
"""

import argparse
import dataclasses
import importlib
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from xlflax.commands.flags import shares
from xlflax.foundation import errors, flag_tables, suggestions


class Parser(argparse.ArgumentParser):
  """Parses flags; raises ConfigError where argparse would print its usage."""

  def __init__(self, **settings: Any):
    settings.setdefault('formatter_class', _Formatter)
    super().__init__(allow_abbrev=False, **settings)

  def parse_args(self, args=None, namespace=None):
    """As argparse's; unknown words are answered with what they resemble."""
    words = list(args or ())
    parsed, rest = self.parse_known_args(words, namespace)
    if rest:
      raise self._unknown(rest[0], words)
    parsed.given = frozenset(self._given(words))
    return parsed

  def error(self, message: str) -> NoReturn:
    """Raises what argparse found as a ConfigError."""
    raise _translated(self, message)

  def _get_value(self, action, arg_string):
    """As argparse's; numbers are told by their flag and its range."""
    kind = action.type
    if not isinstance(kind, flag_tables.NumericFlag):
      return super()._get_value(action, arg_string)
    flag = action.option_strings[-1] if action.option_strings else action.dest
    return kind.read(arg_string, flag=flag, where=self.prog)

  def parsers(self) -> Iterator['Parser']:
    """Yields this parser and those of all of its sub-commands."""
    yield self
    for action in self._actions:
      if isinstance(action, argparse._SubParsersAction):
        for parser in dict.fromkeys(action.choices.values()):
          yield from parser.parsers()

  def chosen(self, words: Sequence[str]) -> Iterator['Parser']:
    """Yields this parser and those of the sub-commands that are called."""
    yield self
    for action in self._actions:
      if isinstance(action, argparse._SubParsersAction):
        for word in words:
          if word in action.choices:
            yield from action.choices[word].chosen(words)
            return

  def flags(self, words: Sequence[str]) -> dict[str, str]:
    """Flag -> its name in the namespace, of all that may stand in a call."""
    return {
      flag: action.dest
      for parser in self.chosen(words)
      for action in parser._actions
      for flag in action.option_strings
    }

  def _given(self, words: Sequence[str]) -> Iterator[str]:
    """Names of the flags in a command line, those with defaults too."""
    known = self.flags(words)
    for word in words:
      if word == '--':
        return
      flag = word.partition('=')[0]
      if flag in known:
        yield known[flag]

  def _unknown(self, word: str, words: Sequence[str]) -> errors.ConfigError:
    """What to say of a word that nothing takes."""
    if not word.startswith('-'):
      return errors.ConfigError(
        'A word belongs to no flag',
        got=word,
        where=self.prog,
        fix='join a flag and its value by =, and put a value with spaces in '
        'quotes',
      )
    flag = word.partition('=')[0]
    known = [name for name in self.flags(words) if name != '--help']
    return errors.ConfigError(
      'There is no such flag',
      got=flag,
      where=self.prog,
      fix=suggestions.or_else(
        flag, known, f'`{self.prog} --help` lists the flags'
      ),
    )


class _Formatter(argparse.RawDescriptionHelpFormatter):
  """Help that folds sentences and says what kind of value a flag takes."""

  def _fill_text(self, text: str, width: int, indent: str) -> str:
    lines = super()._fill_text(text, width, indent).split('\n')
    is_example = [line.startswith(f'{indent} ') for line in lines]
    return '\n'.join(
      line if raw else textwrap.fill(line, width, subsequent_indent=indent)
      for line, raw in zip(lines, is_example, strict=True)
    )

  def _get_default_metavar_for_optional(self, action) -> str:
    kind = action.type
    if isinstance(kind, flag_tables.NumericFlag):
      return kind.metavar
    return {int: 'N', float: 'X'}.get(kind, 'TEXT')


@dataclasses.dataclass(frozen=True)
class Needs:
  """Flags that have an effect only with another one.

  Attributes:
    flags: their names, without dashes, separated by spaces.
    other: 'name', a flag that must be given, or 'name=value'; several,
      separated by spaces, are alternatives.
    fix: what else can be done; None: leave the flag out.
  """

  flags: str
  other: str
  fix: str | None = None

  def check(self, args: argparse.Namespace, where: str) -> None:
    """Raises ConfigError for the first flag that is given without the other."""
    if any(_holds(args, one) for one in self.other.split()):
      return
    for name in self.flags.split():
      if name in args.given:
        others = ' or '.join(f'--{one}' for one in self.other.split())
        raise errors.ConfigError(
          f'--{name} has an effect only with {others}',
          got=f'--{name} without it',
          where=where,
          fix=self.fix or f'add {others}, or leave --{name} out',
        )


@dataclasses.dataclass(frozen=True)
class Excludes:
  """Flags that have no effect where another one is given.

  Attributes:
    flags: their names, without dashes, separated by spaces.
    other: 'name' of the other flag, or 'name=value'.
    fix: what to do instead; None: leave the flag out.
  """

  flags: str
  other: str
  fix: str | None = None

  def check(self, args: argparse.Namespace, where: str) -> None:
    """Raises ConfigError for the first flag that is given with the other."""
    if not _holds(args, self.other):
      return
    for name in self.flags.split():
      if name in args.given:
        raise errors.ConfigError(
          f'--{name} has no effect with --{self.other}',
          got='both',
          where=where,
          fix=self.fix or f'leave --{name} out',
        )


Rule = Needs | Excludes


def _holds(args: argparse.Namespace, condition: str) -> bool:
  name, equals, value = condition.partition('=')
  if not hasattr(args, name):
    return False
  if equals:
    return str(getattr(args, name)) == value
  return name in args.given


def add_flags(parser: argparse.ArgumentParser, command: Any) -> None:
  """Adds what the module of a command declares.

  Args:
    parser: of the command.
    command: has `FLAGS`, a table of `foundation.flag_tables`, and maybe
      `FLAG_KINDS`, kinds of values that are its own; or `add_arguments`.
  """
  if hasattr(command, 'add_arguments'):
    command.add_arguments(parser)
  else:
    kinds = {'Shard': shares.parse} | getattr(command, 'FLAG_KINDS', {})
    flag_tables.add(parser, command.FLAGS, **kinds)


def add_commands(
  parser: argparse.ArgumentParser,
  package: str,
  names: Sequence[str],
  *,
  metavar: str,
) -> None:
  """Adds the commands that are modules of a package.

  Args:
    parser: of the command that the package is.
    package: its name.
    names: on the command line; a module has _ for each hyphen.
    metavar: what stands for a name in help.
  """
  kinds = parser.add_subparsers(metavar=metavar, required=True)
  for name in names:
    module = importlib.import_module(f'{package}.{name.replace("-", "_")}')
    own = kinds.add_parser(name, help=module.HELP, description=module.HELP)
    add_flags(own, module)
    own.set_defaults(run=module.run, rules=getattr(module, 'RULES', ()))


def add_tables(
  parser: argparse.ArgumentParser, dest: str, **tables: tuple[str, str]
) -> None:
  """Adds sub-commands that one module has.

  Args:
    parser: of the command.
    dest: where the name of the one that is called is kept.
    **tables: name of each -> its help, and the table of its flags.
  """
  kinds = parser.add_subparsers(
    dest=dest, required=True, metavar='|'.join(tables)
  )
  for name, (text, table) in tables.items():
    flag_tables.add(kinds.add_parser(name, help=text), table)


def check_rules(
  rules: Sequence[Rule], args: argparse.Namespace, where: str
) -> None:
  """Raises ConfigError for a flag that would have no effect."""
  for rule in rules:
    rule.check(args, where)


def _translated(parser: Parser, message: str) -> errors.ConfigError:
  """argparse's own message as what, got, expected, where and what to do."""
  helping = f'`{parser.prog} --help` explains the flags'
  if found := re.match(r'argument (\S+): (.*)', message, re.S):
    return _of_argument(parser, found[1].split('/')[-1], found[2], helping)
  if found := re.match(r'the following arguments are required: (.*)', message):
    return errors.ConfigError(
      'The command lacks something',
      got=f'no {found[1]}',
      where=parser.prog,
      fix=helping,
    )
  if found := re.match(r'one of the arguments (.*) is required', message):
    return errors.ConfigError(
      'The command lacks something',
      got='none of ' + ', '.join(found[1].split()),
      where=parser.prog,
      fix='give one of them',
    )
  return errors.ConfigError(
    'The command line cannot be read', got=message, where=parser.prog
  )


def _of_argument(
  parser: Parser, flag: str, text: str, helping: str
) -> errors.ConfigError:
  """What is wrong with one flag or word."""
  if found := re.match(r"invalid choice: '(.*)' \(choose from (.*)\)", text):
    names = re.findall(r"[^\s',]+", found[2])
    return errors.ConfigError(
      f'{flag} has no such value',
      got=found[1],
      expected=suggestions.some_of(names),
      where=parser.prog,
      fix=suggestions.or_else(found[1], names, helping),
    )
  if found := re.match(r"invalid (\w+) value: '(.*)'", text, re.S):
    kinds = {'int': 'a whole number', 'float': 'a number'}
    return errors.ConfigError(
      f'{flag} has a value that cannot be read',
      got=found[2],
      expected=kinds.get(found[1], 'a value as the help says'),
      where=parser.prog,
      fix=helping,
    )
  return errors.ConfigError(f'{flag}: {text}', where=parser.prog, fix=helping)
