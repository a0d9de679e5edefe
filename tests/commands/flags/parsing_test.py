"""Mistakes in command lines are one message each, told at once."""

import argparse

import pytest

from xlflax.commands.flags import parsing
from xlflax.foundation import errors


@pytest.fixture
def parser():
  made = parsing.Parser(prog='xlflax try')
  made.add_argument('--steps', type=int, default=3)
  made.add_argument('--kind', choices=['small', 'large'], default='small')
  made.add_argument('--watch', action='store_true')
  kinds = made.add_subparsers(metavar='KIND', required=True)
  one = kinds.add_parser('one')
  one.add_argument('--output', required=True)
  kinds.add_parser('two').add_argument('--only_two')
  return made


def _fails(parser, *words) -> str:
  with pytest.raises(errors.ConfigError) as error:
    parser.parse_args(words)
  return str(error.value)


def test_what_is_given(parser):
  args = parser.parse_args(
    ['--steps=3', 'one', '--output', '--', 'x'][:3] + ['o']
  )
  assert args.given == {'steps', 'output'}
  assert args.kind == 'small'


@pytest.mark.parametrize(
  ('words', 'parts'),
  [
    (
      ['--stpes=3', 'one', '--output=o'],
      ['no such flag. Got: --stpes', 'did you mean --steps?', 'try --help'],
    ),
    (['--step=3', 'one', '--output=o'], ['Got: --step.', 'mean --steps?']),
    (['one', '--output=o', '--outptu=p'], ['mean --output?']),
    (['one', '--output=a', 'b'], ['A word belongs to no flag. Got: b']),
    (
      ['--steps=x', 'one', '--output=o'],
      ['--steps', 'Got: x', 'a whole number'],
    ),
    (
      ['--kind=smal', 'one', '--output=o'],
      ['Got: smal', 'one of large, small', 'did you mean small?'],
    ),
    (['oen', '--output=o'], ['Got: oen', 'one of one, two', 'mean one?']),
    (['one'], ['The command lacks something. Got: no --output']),
    ([], ['Got: no KIND']),
    (['--steps'], ['--steps: expected one argument']),
  ],
)
def test_mistakes(parser, words, parts):
  message = _fails(parser, *words)
  for part in parts:
    assert part in message
  assert 'xlflax try' in message


def test_flags_of_other_sub_commands_are_not_suggested(parser):
  assert 'only_two' not in _fails(parser, 'one', '--output=o', '--only_tow=1')


def _check(rule, args, *given):
  args.given = frozenset(given)
  parsing.check_rules([rule], args, 'xlflax try')


def test_flags_that_need_another():
  rule = parsing.Needs('poll timeout', 'watch steps=best')
  args = argparse.Namespace(watch=False, steps='last', poll=1, timeout=None)
  _check(rule, args)
  _check(rule, args, 'poll', 'watch')
  args.steps = 'best'
  _check(rule, args, 'poll')
  args.steps = 'last'
  with pytest.raises(errors.ConfigError) as error:
    _check(rule, args, 'poll')
  assert str(error.value) == (
    '--poll has an effect only with --watch or --steps=best. Got: --poll '
    'without it. Where: xlflax try. What to do: add --watch or --steps=best, '
    'or leave --poll out.'
  )


def test_flags_that_exclude_another():
  rule = parsing.Excludes('tasks', 'suite', 'use --suite_tasks')
  args = argparse.Namespace(suite='xtreme', tasks='a')
  _check(rule, args, 'tasks')
  with pytest.raises(errors.ConfigError, match='use --suite_tasks'):
    _check(rule, args, 'tasks', 'suite')


def test_kinds_of_values_in_the_help():
  made = parsing.Parser(prog='xlflax try')
  made.add_argument('--count', type=int)
  made.add_argument('--share', type=float)
  made.add_argument('--name')
  text = made.format_help()
  assert '--count N' in text and '--share X' in text and '--name TEXT' in text
