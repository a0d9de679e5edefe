"""Tests that reading gin files as text agrees with Gin's parser."""

import pytest

from xlflax.config import config_files, gin_config, gin_errors
from xlflax.utils import errors


@pytest.mark.parametrize(
  'name', ['pretrain/mlm_tlm_contrast.gin', 'finetune/tagging.gin']
)
def test_macros_equal_those_of_gin(name):
  configuration = gin_config.load_gin_files([name], partial=True)
  read = {
    scope
    for scope, selector in configuration.bound
    if selector == gin_errors.MACRO
  }
  assert set(config_files.read_gin_file(name).macros()) == read


def test_file_and_its_includes_are_read():
  tree = config_files.read_gin_file('pretrain/mlm_tlm.gin')
  assert [file.name for file in tree.files()] == [
    'pretrain/base.gin',
    'pretrain/mlm.gin',
    'pretrain/mlm_tlm.gin',
  ]
  assert tree.required() == ['MODEL', 'MODEL_DIR', 'VOCABULARY', 'TRAIN_STEPS']
  assert tree.macros()['PAIR_LENGTH'] == '128'
  assert 'PAIR_LENGTH' in tree.file.uses
  assert tree.file.header.startswith('MLM on monolingual blocks plus TLM')


def test_search_paths_precede_shipped_files(tmp_path):
  custom_file = tmp_path / 'models/tiny.gin'
  custom_file.parent.mkdir()
  custom_file.write_text('# Mine: for tests.\nSIZE = 3  # and %NOT_READ\n')
  tree = config_files.read_gin_file('models/tiny.gin', [str(tmp_path)])
  assert (
    tree.file.path == custom_file and tree.file.summary == 'Mine: for tests'
  )
  assert not tree.file.uses


def test_every_file_has_a_summary():
  for name in config_files.shipped_file_names():
    file = config_files.read_gin_file(name).file
    assert file.summary, name


def test_missing_file_is_an_error():
  with pytest.raises(errors.ConfigError) as error:
    config_files.find_gin_file('pretrain/mml.gin')
  assert 'pretrain/mlm.gin' in str(error.value)
  assert '`xlflax configs list`' in str(error.value)


def test_include_cycle_is_an_error(tmp_path):
  (tmp_path / 'a.gin').write_text("include 'b.gin'\n")
  (tmp_path / 'b.gin').write_text("include 'a.gin'\n")
  with pytest.raises(errors.ConfigError, match='a.gin -> b.gin -> a.gin'):
    config_files.read_gin_file('a.gin', [str(tmp_path)])


def test_phases_are_ordered_by_number(tmp_path):
  for name in ('phase1', 'phase2', 'phase10', 'phase1_old', 'phases'):
    (tmp_path / f'{name}.gin').touch()
  phases = config_files.split_phases(str(tmp_path))
  assert [name.rpartition('/')[2] for name in phases] == [
    'phase1.gin',
    'phase2.gin',
    'phase10.gin',
  ]


def test_missing_model_is_one_of_several_flags():
  fix = config_files.missing_value_error(['MODEL', 'TRAIN_STEPS']).fix
  flags = '--gin_file=models/SIZE.gin --gin.TRAIN_STEPS=VALUE'
  assert fix.startswith(f'Pass {flags}. ')


def test_missing_text_is_shown_with_gin_and_shell_quotes():
  """Gin requires the inner quotes, and the shell removes the outer ones."""
  names = ['MODEL_DIR', 'INIT_DIR', 'EPOCHS', 'FORMAT']
  assert config_files.missing_value_error(names).fix == (
    'Pass --model_dir=DIR --gin.INIT_DIR="\'DIR\'" --gin.EPOCHS=VALUE '
    '--gin.FORMAT="\'NAME\'".'
  )
