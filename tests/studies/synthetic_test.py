"""Tests of the files, tasks and suite of synthetic languages."""

import pathlib

import pytest
import seqio

from studies.synthetic import __main__ as command
from studies.synthetic import generator, seqio_tasks, sources
from xlflax.config import gin_config
from xlflax.suites import suite_config

_ROOT = pathlib.Path(__file__).parents[2]


def _write(directory: pathlib.Path) -> None:
  sizes = ['--sentences=8', '--pairs=8', '--examples=8', '--held_out=4']
  arguments = [f'--output={directory}', '--languages=en,aa', *sizes]
  assert command.main(arguments) == 0


@pytest.fixture(scope='module')
def toy(tmp_path_factory) -> pathlib.Path:
  directory = tmp_path_factory.mktemp('synthetic') / 'toy'
  _write(directory)
  return directory


def test_equal_options_generate_equal_files(toy, tmp_path):
  _write(tmp_path / 'again')
  paths = [path for path in toy.rglob('*') if path.is_file()]
  assert len(paths) > 50
  for path in paths:
    copy = tmp_path / 'again' / path.relative_to(toy)
    assert copy.read_bytes() == path.read_bytes()


def test_task_families_are_read(toy):
  codes = generator.read_options(toy).codes
  for family in sources.FAMILIES:
    source = sources.labeled_dataset(toy, family, 'test')
    for part in source.languages():
      assert set(part.split('-')) <= set(codes)
      assert len(source.load(part)) >= 4


def test_seqio_tasks_are_registered(toy):
  names = seqio_tasks.register_tasks(toy, prefix='synthetic_test')
  try:
    assert 'synthetic_test.nli.aa' in names
    task = seqio.TaskRegistry.get('synthetic_test.nli.aa')
    assert len(list(task.get_dataset(None, split='test', shuffle=False))) == 4
  finally:
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
      for name in set(registry.names()) & set(names):
        registry.remove(name)


@pytest.mark.parametrize('name', ['suite', 'measured_suite'])
def test_suite_reads_the_files(toy, name):
  paths = [str(_ROOT)]
  built = gin_config.load_gin_files(
    [f'studies/synthetic/{name}.gin'], (), paths
  ).build(suite_config.Suite)
  assert len(built.tasks) == 17
  for task in built.tasks:
    macros = {'DATA': str(toy)}
    if task.trials:
      macros |= {'MODEL_DIR': 'run', 'INIT_FROM': 'runs/a'}
    configuration = gin_config.load_gin_files(
      [task.gin_file], task.bindings, paths, macros=macros
    )
    (test,) = configuration.parameter('evaluate.evaluate.tasks')
    assert test.name == task.name
