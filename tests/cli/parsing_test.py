"""Tests of parsing command lines into options."""

import dataclasses
import types
from typing import Literal

import pytest

from tests.errors import raises_error
from xlflax.cli import options as cli_options
from xlflax.cli import parsing
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options:
  """Does something.

  Attributes:
    output: Output directory.
    names: Name. Repeat the option for several.
    size: Size.
    kind: Kind.
    languages: Language codes, separated by commas.
    files: Files, separated by commas.
    layers: Layers, separated by commas.
    codes: Codes, separated by commas.
  """

  output: str
  names: tuple[str, ...] = ()
  size: cli_options.PositiveInt | None = None
  kind: Literal['small', 'large'] = 'small'
  languages: cli_options.CommaSeparatedNames | None = None
  files: cli_options.CommaSeparatedText | None = None
  layers: cli_options.LayerIndices | None = None
  codes: cli_options.CommaSeparated = ()
  command_line: cli_options.CommandLine = ()
  gin: cli_options.GinOptions = cli_options.GinOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CheckOptions:
  """Checks something.

  Attributes:
    path: Path to check.
  """

  path: str = dataclasses.field(kw_only=False)


def _main(options: _Options):
  return options


def _check(options: _CheckOptions):
  return options


_MODULE = types.SimpleNamespace(
  __doc__='', main=_main, SUBCOMMANDS={'check': _check}, EXAMPLES='  do it'
)


def _parse(*arguments, **extra):
  return parsing.parse('try', _MODULE, arguments, **extra)()


def test_options_of_a_command_and_its_groups_are_parsed():
  options = _parse(
    *('--output=a b', '--names=x', '--names=y', '--size=1e4', '--kind=large'),
    '--gin_file=f.gin',
    gin_bindings=['A=1'],
    command_line=['xlflax', 'try'],
  )
  assert options == _Options(
    output='a b',
    names=('x', 'y'),
    size=10_000,
    kind='large',
    command_line=('xlflax', 'try'),
    gin=cli_options.GinOptions(gin_file=('f.gin',), gin_bindings=('A=1',)),
  )


def test_subcommands_have_their_own_options():
  assert _parse('check', 'path') == _CheckOptions('path')


@pytest.mark.parametrize(
  ('arguments', 'got'),
  [
    (['--output=a', '--sise=3'], '--sise'),
    (['--output=a', '--size=0'], '0'),
    (['--output=a', '--size=1.5'], '1.5'),
    (['--output=a', '--size=many'], 'many'),
    (['--output=a', '--kind=huge'], 'huge'),
    (['--output=a', '--command_line=b'], '--command_line'),
    (['chekc', 'path'], 'chekc'),
    (['check', 'path', 'more'], 'more'),
    (['--size=3'], None),
    (['--output=a', '--output=b'], None),
  ],
)
def test_invalid_arguments_are_rejected(arguments, got):
  with pytest.raises(errors.ConfigError) as caught:
    _parse(*arguments)
  actual = caught.value.got
  assert (None if actual is None else str(actual)) == got
  assert caught.value.where.startswith('xlflax try')


def test_similar_options_are_suggested():
  for arguments, suggestion in (
    (['--output=a', '--sise=3'], '--size'),
    (['--output=a', '--kind=smal'], 'small'),
    (['chekc'], 'check'),
  ):
    with pytest.raises(errors.ConfigError) as caught:
      _parse(*arguments)
    assert suggestion in caught.value.fix


@pytest.mark.parametrize(
  ('option', 'mentions'),
  [
    ('--total_sizes=3', '--size'),
    ('--file=f.gin', '--gin_file'),
    ('--path_name=p', '--path'),
    ('--folder=p', 'PATH (Path to check)'),
  ],
)
def test_related_option_is_suggested(option, mentions):
  arguments = ('check',) if 'p' in mentions.lower() else ('--output=a',)
  with raises_error(errors.ConfigError, got=option.partition('=')[0]) as caught:
    _parse(*arguments, option)
  assert mentions in caught.value.fix


def test_bindings_of_a_command_without_gin_are_rejected():
  with raises_error(errors.ConfigError, mentions='--gin.A=1'):
    _parse('check', 'path', gin_bindings=['A=1'])


def test_help_ends_with_the_examples(capsys):
  assert _parse('--output=a', '--help') == 0
  out = capsys.readouterr().out
  assert 'Output directory.' in out and out.endswith('  do it\n')


@pytest.mark.parametrize(
  'arguments, got, suggestion',
  [
    (['--languages=en', 'fr', '--size=2'], 'fr', '--languages=en,fr'),
    (['--languages', 'en', 'fr', 'ru'], 'fr', '--languages=en,fr,ru'),
    (['--languages=en,', 'fr'], 'fr', '--languages=en,fr'),
    (['--languages=en fr'], 'en fr', '--languages=en,fr'),
    (['--layers=0', '1'], '1', '--layers=0,1'),
    (['--layers=0 1'], '0 1', '--layers=0,1'),
    (['--codes=a b'], 'a b', '--codes=a,b'),
    (['--files=a', 'b'], 'b', '--files=a,b'),
  ],
)
def test_values_separated_by_spaces_are_rejected_with_a_fix(
  arguments, got, suggestion
):
  with raises_error(errors.ConfigError, got=got, where='xlflax try') as caught:
    _parse('--output=x', *arguments)
  assert suggestion in caught.value.fix


def test_values_separated_by_commas_are_parsed():
  options = _parse(
    '--output=x', '--languages=en, fr', '--files=a b,c', '--codes=a, b'
  )
  assert options.languages == 'en,fr'
  assert options.files == 'a b,c'
  assert options.codes == ('a', 'b')


def test_invalid_list_values_are_rejected():
  with raises_error(errors.ConfigError, got='0,a', expected=None) as caught:
    _parse('--output=x', '--layers=0,a')
  assert '--layers=' not in caught.value.fix


def test_extra_argument_is_not_attributed_to_a_scalar_option():
  with raises_error(errors.ConfigError, got='3') as caught:
    _parse('--output=x', '--size=2', '3')
  assert '--size=2,3' not in caught.value.fix
