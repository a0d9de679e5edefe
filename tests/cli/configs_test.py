"""`xlflax configs`."""

import json

import pytest

from xlflax import cli
from xlflax.utils import errors


def test_list(capsys):
  assert cli.main(['configs', 'list', 'models/t*']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert any(line.startswith('models/tiny.gin ') for line in lines)
  assert all(line.startswith('models/t') for line in lines)
  assert cli.main(['configs', 'list', '--json']) == 0
  assert (
    'Small encoder' in json.loads(capsys.readouterr().out)['models/small.gin']
  )


def test_show(capsys):
  assert cli.main(['configs', 'show', 'pretrain/mlm.gin']) == 0
  out = capsys.readouterr().out
  for part in (
    'Often overridden:\n- MONO: ',
    '  pretrain/mlm.gin\n    pretrain/base.gin',
    'required\n  MODEL, MODEL_DIR, VOCABULARY, TRAIN_STEPS',
    'MASK_RATIO    = 0.15',
  ):
    assert part in out
  assert cli.main(['configs', 'show', 'pretrain/mlm.gin', '--json']) == 0
  configuration = json.loads(capsys.readouterr().out)
  assert configuration['includes'] == {'pretrain/base.gin': {}}
  assert configuration['macros']['MONO'] == "'corpus.mono'"


def test_macros_without_effect_are_not_listed(capsys):
  assert cli.main(['configs', 'show', 'finetune/search.gin', '--json']) == 0
  macros = json.loads(capsys.readouterr().out)['macros']
  # The model has no head, and the datasets of pretraining are not used.
  assert not {'HEAD_LEARNING_RATE', 'ALPHA', 'LANGUAGES'} & macros.keys()
  assert {'LEARNING_RATE', 'WARMUP_STEPS', 'TRAIN_FILES'} <= macros.keys()


def test_unknown_name_is_reported_with_a_suggestion():
  with pytest.raises(errors.ConfigError) as error:
    cli.parse('configs', ['show', 'models/smal.gin'])()
  assert 'models/small.gin' in str(error.value)


def test_pattern_without_match_is_an_error():
  with pytest.raises(errors.ConfigError) as error:
    cli.parse('configs', ['list', 'nope/*'])()
  assert error.value.got == 'nope/*'


@pytest.mark.parametrize('arguments', [[], ['pretrain/mlm.gin'], ['show']])
def test_incomplete_command_lines_are_rejected(arguments):
  assert cli.main(['configs', *arguments]) == 2
