"""Tests that validation without JAX reports the same errors as with JAX."""

import argparse
import re
import subprocess
import sys

import pytest

from tests.errors import raises_error
from xlflax import cli
from xlflax.config import config_files, flag_validation
from xlflax.evaluation import task_families
from xlflax.utils import errors


def test_task_and_suite_names_equal_the_registered_ones():
  shipped = {
    name  # other tests register their own tasks
    for name in task_families.task_names()
    if task_families.find_task_class(name).__module__.startswith('xlflax.')
  }
  assert flag_validation.evaluation_tasks() == shipped
  assert flag_validation.shipped_suites() == {
    'glue',
    'low_resource',
    'xtreme',
    'xtreme_r',
    'papers/ecs/table1',
    'papers/metaxlm/figure5',
    *(f'papers/metaxlm/table{number}' for number in (1, 2, 3, 4, 5)),
    *(f'papers/ppa/table{number}' for number in (2, 4, 5)),
    *(f'papers/veco/table{number}' for number in (2, 3, 4, 5)),
  }


def _args(*files, bindings=()):
  return argparse.Namespace(
    gin_file=list(files), gin_bindings=list(bindings), gin_search_paths=[]
  )


def test_missing_and_unused_macros_are_rejected():
  files = ('pretrain/mlm.gin', 'models/tiny.gin')
  required_macros = ('MODEL_DIR', 'VOCABULARY')
  flag_validation.check_configuration(
    _args(*files, bindings=['TRAIN_STEPS=3']), required_macros
  )
  flag_validation.check_configuration(
    _args('suites/xtreme/xnli.gin', bindings=["DATA='d'"]), partial=True
  )
  with pytest.raises(errors.ConfigError, match='a value for DATA'):
    flag_validation.check_configuration(
      _args('suites/xtreme/xnli.gin'), partial=True
    )
  with pytest.raises(errors.ConfigError, match='a value for .*INIT_FROM'):
    flag_validation.check_configuration(_args('suites/xtreme/xnli.gin'))
  custom_bindings = ['TRAIN_STEPS=3', 'MINE=4', 'trainer.Trainer.seed=%MINE']
  flag_validation.check_configuration(
    _args(*files, bindings=custom_bindings), required_macros
  )
  with pytest.raises(errors.ConfigError, match='Got: MINE. Expected: one of'):
    flag_validation.check_configuration(
      _args(*files, bindings=custom_bindings[:2]), required_macros
    )
  with pytest.raises(
    errors.ConfigError, match='a value for MODEL. .*models/SIZE'
  ):
    flag_validation.check_configuration(
      _args(files[0], bindings=['TRAIN_STEPS=3']), required_macros
    )


def test_unused_macro_errors_name_the_flag():
  files = ('pretrain/mlm.gin', 'models/tiny.gin')
  with raises_error(
    errors.ConfigError, got='TATOEBA', mentions='--tatoeba'
  ) as caught:
    flag_validation.check_configuration(_args(*files), ['TATOEBA'])
  assert '--gin.TATOEBA' not in str(caught.value)
  with raises_error(errors.ConfigError, got='LR', mentions='--grid') as caught:
    flag_validation.check_configuration(_args(*files), ['LR'])
  assert 'gin' not in caught.value.expected.split(', ')


@pytest.mark.parametrize(
  'macros, bindings, partial, file',
  [
    (['MODEL_DIR', 'VOCABULARY'], ['TRAIN_STEPS=2'], False, 'pretrain/mlm.gin'),
    ([], ['TRAIN_STEPS=2'], False, 'pretrain/mlm.gin'),
    (['INIT_FROM'], ['EPOCHS=2'], True, 'finetune/classification.gin'),
  ],
)
def test_files_without_a_trainer_are_rejected(macros, bindings, partial, file):
  with raises_error(
    errors.ConfigError, got='models/tiny.gin', mentions=f'--gin_file={file}'
  ) as caught:
    flag_validation.check_configuration(
      _args('models/tiny.gin', bindings=bindings), macros, partial=partial
    )
  assert '--gin.MODEL_DIR' not in str(caught.value)


def test_test_files_must_be_bound_for_the_final_evaluation():
  binding = "TEST_FILES={'fr': 'fr.tsv'}"
  with raises_error(
    errors.ConfigError,
    got='TEST_FILES',
    expected=None,
    mentions=(
      '--eval_gin_file=evaluate/classification.gin',
      f'--eval_gin="{binding}"',
    ),
  ):
    flag_validation.check_configuration(
      _args('finetune/classification.gin', bindings=[binding]), partial=True
    )


@pytest.mark.parametrize('other', [(), ("TEST_FILES={'fr': 'fr.tsv'}",)])
def test_missing_evaluation_values_name_the_option(other):
  value = other[0] if other else 'TEST_FILES=VALUE'
  with raises_error(
    errors.ConfigError,
    got=f'--gin.{value}' if other else None,
    mentions=('TEST_FILES', f'--eval_gin="{value}"'),
  ) as caught:
    flag_validation.check_configuration(
      _args('evaluate/tagging.gin'),
      partial=True,
      option='--eval_gin',
      other_bindings=['SEED=1', *other],
    )
  assert '--gin.' not in caught.value.fix


@pytest.mark.parametrize(
  'binding, got, values',
  [
    ('TEST_FILE=1', 'TEST_FILE', '--eval_gin TEST_FILE'),
    (
      'TEST_FILES={fr: fr.tsv}',
      '--eval_gin=TEST_FILES={fr: fr.tsv}',
      "--eval_gin=\"TEST_FILES={'fr': 'fr.tsv'}\"",
    ),
  ],
)
def test_evaluation_binding_errors_name_the_option(binding, got, values):
  with raises_error(errors.ConfigError, got=got, mentions=values) as caught:
    flag_validation.check_configuration(
      _args('evaluate/tagging.gin', bindings=[binding]),
      partial=True,
      option='--eval_gin',
    )
  assert '--gin.' not in str(caught.value)


def test_missing_directories_are_rejected(tmp_path):
  (tmp_path / 'corpus').mkdir()
  flag_validation.check_directory('corpus', str(tmp_path / 'corpus'))
  flag_validation.check_directory('corpus', None)
  flag_validation.check_run('--model_dir', 'gs://bucket/run')
  with pytest.raises(errors.CorpusError, match='Did you mean .*/corpus'):
    flag_validation.check_directory('corpus', str(tmp_path / 'corpsu'))
  with pytest.raises(errors.RunDirectoryError):
    flag_validation.check_run('--model_dir', str(tmp_path / 'run'))


_PROGRAM = """
import sys
from xlflax import cli
for name in sys.argv[1].split(','):
  try:
    cli.main([name, '--help'])
  except SystemExit:
    pass
assert cli.main(['evaluate', '--model_dir=x', '--tasks=retreival']) == 2
assert cli.main(['train', '--gin_file=pretrain/mlm.gin', '--gin.NOPE=1']) == 2
assert cli.main(['train', '--gin_file=pretrain/mml.gin']) == 2
wrong = ['--gin_file=pretrain/mlm.gin', '--gin.trainer.Trainer.sed=1']
assert cli.main(['train', *wrong]) == 2
assert cli.main(['finetune', '--output=o', '--corpus=nowhere']) == 2
assert cli.main(['evaluate', '--model_dir=nowhere', '--tasks=retrieval']) == 2
test = 'gin_file=evaluate/tagging.gin'
assert cli.main(['evaluate', '--model_dir=.', '--' + test]) == 2
tuned = ['--gin_file=finetune/tagging.gin', '--output=o', '--init_from=.']
assert cli.main(['finetune', *tuned, '--eval_' + test]) == 2
slow = {'jax', 'tensorflow', 'flax', 'matplotlib', 'gin.tf'} & set(sys.modules)
assert not slow, slow
"""


def test_help_and_user_errors_import_no_slow_modules():
  process = subprocess.run(
    [sys.executable, '-c', _PROGRAM, ','.join(cli.COMMANDS)],
    capture_output=True,
    text=True,
    check=False,
  )
  assert process.returncode == 0, process.stderr
  assert config_files.SHIPPED.is_dir()


def test_macros_in_guides_exist():
  """Covers the SQuAD v2 guide and packed sequences in distillation."""
  flag_bindings = ["TEST_FILES={'en': 'a.json'}", "FORMAT='squad_v2'"]
  flag_validation.check_configuration(
    _args('evaluate/question_answering.gin', bindings=flag_bindings)
  )
  files = [
    config_files.read_gin_file(f'finetune/{name}.gin').file.path.read_text()
    for name in ('search', 'search_distillation')
  ]
  contrast, distilled = (
    set(
      re.findall(
        r'^  (\w+) = %',
        text.partition(start)[2].partition('\nlabeled')[0],
        re.M,
      )
    )
    for text, start in zip(
      files,
      ('RetrievalContrastive:\n', 'RetrievalDistillation:\n'),
      strict=True,
    )
  )
  assert 'packed' in contrast and contrast <= distilled
