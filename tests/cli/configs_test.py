"""Tests of `xlflax configs`."""

import ast
import json
import re

import pytest

from xlflax import cli
from xlflax.config import config_files, flag_validation, gin_config
from xlflax.suites import suite_config
from xlflax.utils import errors


def test_list_prints_files_and_summaries(capsys):
  assert cli.main(['configs', 'list', 'models/t*']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert any(line.startswith('models/tiny.gin ') for line in lines)
  assert all(line.startswith('models/t') for line in lines)
  assert cli.main(['configs', 'list', '--json']) == 0
  assert (
    'Small encoder' in json.loads(capsys.readouterr().out)['models/small.gin']
  )


def test_show_prints_includes_and_macros(capsys):
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


def test_multiline_values_are_complete(capsys):
  name = 'suites/papers/ecs/tasks/parsing.gin'
  files = {'en': 'ud-treebanks-v2.3/UD_English-EWT/en_ewt-ud-train.conllu'}
  assert cli.main(['configs', 'show', name]) == 0
  (line,) = re.findall(r'^  TRAIN_FILES +=(.*)$', capsys.readouterr().out, re.M)
  assert ast.literal_eval(line.strip()) == files
  assert cli.main(['configs', 'show', name, '--json']) == 0
  macros = json.loads(capsys.readouterr().out)['macros']
  assert ast.literal_eval(macros['TRAIN_FILES']) == files
  # Values on one line keep their text.
  assert macros['EVALUATION'] == '@during_training.Evaluation()'


@pytest.mark.parametrize('name', config_files.shipped_file_names())
def test_values_of_macros_have_balanced_brackets(name):
  for macro, value in config_files.read_gin_file(name).file.macros.items():
    for brackets in ('()', '[]', '{}'):
      assert value.count(brackets[0]) == value.count(brackets[1]), macro


def test_show_of_a_suite_lists_its_tasks(capsys):
  name = 'suites/papers/ecs/table1.gin'
  assert cli.main(['configs', 'show', name, '--json']) == 0
  tasks = json.loads(capsys.readouterr().out)['tasks']
  assert tasks[:2] == ['xnli_fr', 'xnli_ru'] and len(tasks) == 18
  assert cli.main(['configs', 'show', name]) == 0
  out = capsys.readouterr().out
  assert '--tasks' in out
  assert all(task in out for task in tasks)
  assert cli.main(['configs', 'show', 'pretrain/mlm.gin', '--json']) == 0
  assert 'tasks' not in json.loads(capsys.readouterr().out)


def test_a_file_without_macros_has_no_heading_for_them(capsys):
  for name, has_macros in (
    ('suites/papers/ecs/table1.gin', False),
    ('pretrain/mlm.gin', True),
  ):
    assert cli.main(['configs', 'show', name]) == 0
    assert ('\nmacros' in capsys.readouterr().out) == has_macros, name


@pytest.mark.parametrize('suite', sorted(flag_validation.shipped_suites()))
def test_listed_tasks_of_a_suite_equal_the_built_tasks(capsys, suite):
  name = f'suites/{suite}.gin'
  assert cli.main(['configs', 'show', name, '--json']) == 0
  tasks = json.loads(capsys.readouterr().out)['tasks']
  configuration = gin_config.load_gin_files([name], ())
  built = configuration.build(suite_config.Suite)
  assert tasks == [task.name for task in built.tasks]


def test_macros_without_effect_are_not_listed(capsys):
  assert cli.main(['configs', 'show', 'finetune/search.gin', '--json']) == 0
  macros = json.loads(capsys.readouterr().out)['macros']
  # The model has no head, and pretraining datasets are not used.
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
