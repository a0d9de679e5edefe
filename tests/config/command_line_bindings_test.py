"""Tests of `--gin.NAME=VALUE` on a command line."""

import inspect

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.config import command_line_bindings
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors


def test_bindings_are_extracted_from_the_command_line():
  assert command_line_bindings.split_bindings(
    ['--gin.A=1', '--x', 'y', '--gin.b/c.D.e=[1, 2]', '--gin_file=f']
  ) == (['--x', 'y', '--gin_file=f'], ['A=1', 'b/c.D.e=[1, 2]'])


def test_binding_without_a_value_is_rejected():
  with pytest.raises(errors.ConfigError) as error:
    command_line_bindings.split_bindings(['--gin.A'])
  assert error.value.got == '--gin.A'
  assert_mentions(error.value, '--gin.NAME=VALUE')


@pytest.mark.parametrize(
  'binding, values',
  [
    ('OPTIMIZER=optimizers.Muon', '"@optimizers.Muon()"'),
    ('OPTIMIZER=adamw', '"@optimizers.AdamW()"'),
    ('OPTIMIZER=lamb', '"@optimizers.AdamW()"'),
    ('SCHEDULE=inverse_sqrt', '"@schedules.InverseSqrt()"'),
    ('A=true', '--gin.A=True'),
    ('A=mean', '"\'mean\'"'),
    ('TRAIN_FILES=en.conllu', "\"{'en': 'en.conllu'}\""),
    ('SLOT_TEST_FILES=test.conll', "\"{'en': 'test.conll'}\""),
  ],
)
def test_hint_contains_a_valid_gin_value(binding, values):
  name, _, value = binding.partition('=')
  with raises_error(
    errors.ConfigError, got=value, mentions=f'--gin.{name}'
  ) as error:
    command_line_bindings.split_bindings([f'--gin.{binding}'])
  assert values in error.value.fix


def test_suggested_classes_exist():
  modules = {'optimizers': optimizers, 'schedules': schedules}
  for module, names in command_line_bindings.CLASSES_BY_MACRO.values():
    for name in names:
      assert not inspect.isabstract(getattr(modules[module], name))
