"""Tests of the commands of the studies."""

import importlib
import pathlib

import pytest

from studies import command_line
from studies.papers import runner
from xlflax.utils import errors

_STUDIES = pathlib.Path(command_line.__file__).parent
# Arguments with missing inputs, by module. {missing} does not exist, {empty} is
# an empty directory. None: the command has no input.
_ARGUMENTS: dict[str, tuple[str, ...] | None] = {
  'analysis.observations': ('{missing}',),
  'case_study.baseline': ('{missing}',),
  'case_study.table': ('{empty}',),
  'evaluation.baselines': (
    '--data={missing}',
    '--files={empty}',
    '--output={missing}',
  ),
  'evaluation.false_positives': None,
  'evaluation.splits': ('--data={empty}', '--output={missing}'),
  'evaluation.table': ('{empty}',),
  'first_training_runs.table': ('{missing}',),
  'papers.correlation': ('{empty}', '{empty}'),
  'papers.learning_curves': (
    '{empty}',
    '--steps_per_epoch=1',
    '--output={missing}',
  ),
  'papers.plans': None,
  'papers.run_tiny_configurations': ('--data={missing}', '--work={empty}'),
  'papers.word_labels': ('{missing}',),
  'real_text.build_corpus': ('--data={empty}', '--output={missing}'),
  'recipes.entropy': ('{empty}', '{empty}'),
  'recipes.study': None,
  'recipes.table': ('{missing}',),
  'replication.__main__': (
    '--all',
    '--work={missing}',
    '--corpora={missing}',
    '--treebanks={missing}',
    '--compilation_cache=',
  ),
  'synthetic.__main__': None,
  'synthetic.table': ('{empty}',),
  'text_length.__main__': ('--data={empty}',),
}


def test_all_commands_are_listed():
  modules = {
    '.'.join(path.relative_to(_STUDIES).with_suffix('').parts)
    for path in _STUDIES.rglob('*.py')
    if "if __name__ == '__main__':" in path.read_text('utf-8')
  }
  assert modules == set(_ARGUMENTS)


@pytest.mark.parametrize(
  'name', [name for name, arguments in _ARGUMENTS.items() if arguments]
)
def test_missing_inputs_are_reported(tmp_path, capsys, name):
  (tmp_path / 'empty').mkdir()
  arguments = [
    argument.format(missing=tmp_path / 'missing', empty=tmp_path / 'empty')
    for argument in _ARGUMENTS[name]
  ]
  module = importlib.import_module(f'studies.{name}')
  try:
    status = module.main(arguments)
  except SystemExit as error:  # argparse rejects the value of an argument.
    status = error.code
  assert status == errors.ExitStatus.MISTAKE
  message = capsys.readouterr().err
  assert 'studies.' + name.removesuffix('.__main__') in message
  assert str(tmp_path) in message


@pytest.mark.parametrize('name', _ARGUMENTS)
def test_help_is_printed(capsys, name):
  module = importlib.import_module(f'studies.{name}')
  with pytest.raises(SystemExit) as raised:
    module.main(['--help'])
  assert raised.value.code == 0
  assert 'studies.' + name.removesuffix('.__main__') in capsys.readouterr().out


def test_runner_starts_the_corpus_builder(tmp_path):
  (tmp_path / 'data').mkdir()
  study_runner = runner.Runner(tmp_path / 'data', tmp_path / 'work', [])
  with pytest.raises(RuntimeError, match='exit status'):
    study_runner.build_corpus('many')
  log = (tmp_path / 'work' / 'logs' / 'raw' / 'many.log').read_text()
  assert str(tmp_path / 'data') in log and 'Traceback' not in log
