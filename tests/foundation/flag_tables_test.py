"""Tables of flags: what argparse is told, and what help says."""

import argparse
import pathlib
from typing import Literal

import pytest

from xlflax.commands.flags import parsing
from xlflax.foundation import errors, flag_tables, validation

_TABLE = """
--output DIR (required): directory to
  write
--seed (Seed, default 3): of the text
--share S (Share): of words
--lead HOST:PORT: where it listens
--first (Natural, one of 0 1): number of the first word
--mass (one of uniform norm, default uniform): of words
--change CODE=VALUE (repeated): may be repeated
--json (switch): as JSON
--no_spares (switch off, as spares): keep none
--logs DIR (path): folder
--part (Part): of the work
"""


@pytest.fixture(name='parser')
def fixture_parser():
  parser = parsing.Parser(prog='xlflax made')
  flag_tables.add(parser, _TABLE, Part=lambda text: tuple(text.split('/')))
  flag_tables.add(parser, 'words (any number): further')
  return parser


def test_values(parser):
  given = (
    '--output=o --share=0.5 --first=1 --change=a=1 --change=b=2 --part=1/2'
  )
  args = parser.parse_args(given.split() + ['--logs=d', '--no_spares', 'w'])
  assert args.output == 'o'
  assert (args.seed, args.share, args.first, args.mass) == (
    3,
    0.5,
    1,
    'uniform',
  )
  assert args.change == ['a=1', 'b=2']
  assert (args.json, args.spares) == (False, False)
  assert args.logs == pathlib.Path('d')
  assert (args.part, args.words) == (('1', '2'), ['w'])


def test_help_tells_text_metavar_and_default(parser):
  words = ' '.join(parser.format_help().split())
  assert '--output DIR directory to write' in words
  assert '--seed N of the text (default: 3)' in words
  assert '--lead HOST:PORT where it listens' in words
  assert '--mass {uniform,norm} of words (default: uniform)' in words


@pytest.mark.parametrize(
  'given', ['--seed=-1', '--share=2', '--first=2', '--mass=x', '--json=1']
)
def test_values_out_of_range_are_refused(parser, given):
  with pytest.raises(errors.ConfigError, match=given.split('=')[0]):
    parser.parse_args(['--output=o', given])


def test_headings_make_groups_and_what_excludes_each_other():
  parser = parsing.Parser(prog='xlflax made')
  flag_tables.add(
    parser,
    """
    [search: how words
      are found]
    --beam (Count): of it
    [one of, required]
    --hours (Count)
    --steps (Count)
    []
    -n/--number (Count, default 3): of it
    """,
  )
  words = ' '.join(parser.format_help().split())
  assert 'search: how words are found --beam N of it' in words
  assert parser.parse_args(['--hours=1', '-n', '2']).number == 2
  for given in ([], ['--hours=1', '--steps=2']):
    with pytest.raises(errors.ConfigError, match='steps'):
      parser.parse_args(given)


def test_what_is_required_is_asked_for(parser):
  with pytest.raises(errors.ConfigError, match='output'):
    parser.parse_args([])


@pytest.mark.parametrize(
  'entry', ['--two WORDS more: text', '-x: text', '--x (No): a']
)
def test_an_entry_that_is_none_is_an_error(entry):
  with pytest.raises(ValueError, match='flag'):
    flag_tables.add(argparse.ArgumentParser(), entry)


def _parse(hint, text):
  parser = parsing.Parser(prog='xlflax test')
  parser.add_argument('--size', type=flag_tables.of(hint))
  return parser.parse_args([f'--size={text}']).size


@pytest.mark.parametrize(
  ('hint', 'text', 'read'),
  [
    (validation.PositiveInt, '3', 3),
    (validation.PositiveInt, '1e4', 10_000),
    (validation.Fraction, '.5', 0.5),
    (validation.NonNegativeInt | Literal['last'], 'last', 'last'),
    (validation.NonNegativeInt | Literal['last'], '0', 0),
  ],
)
def test_what_is_read(hint, text, read):
  found = _parse(hint, text)
  assert found == read and type(found) is type(read)


@pytest.mark.parametrize(
  ('hint', 'text', 'got'),
  [
    (validation.PositiveInt, '-1', '-1'),
    (validation.Fraction, 'many', "'many'"),
  ],
)
def test_what_is_not(hint, text, got):
  with pytest.raises(errors.ConfigError) as error:
    _parse(hint, text)
  assert (error.value.got, error.value.where) == (got, 'xlflax test')


def test_help_says_which_kind_of_number():
  parser = parsing.Parser(prog='xlflax test')
  parser.add_argument('--size', type=flag_tables.of(validation.PositiveInt))
  parser.add_argument('--share', type=flag_tables.of(validation.Fraction))
  text = parser.format_help()
  assert '--size N' in text and '--share X' in text


def test_other_parsers_tell_it_too(capsys):
  parser = argparse.ArgumentParser()
  parser.add_argument('--size', type=flag_tables.of(validation.PositiveInt))
  with pytest.raises(SystemExit):
    parser.parse_args(['--size=0'])
  assert 'Got: 0' in capsys.readouterr().err
