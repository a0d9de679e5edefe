"""The study of recipes: each condition is a run that can be made."""

import importlib.util
import pathlib
import tomllib

import pytest

from xlflax import trainer
from xlflax.configuration import config

_FOLDER = pathlib.Path(__file__).parents[2] / 'docs' / 'recipes'
_DECLARED = tomllib.loads((_FOLDER / 'conditions.toml').read_text('utf-8'))


def _study(monkeypatch, tmp_path):
  """The study, and the list of commands that it would run."""
  spec = importlib.util.spec_from_file_location('study', _FOLDER / 'study.py')
  assert spec and spec.loader
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  commands = []

  def record(*words, cores, log):
    del cores, log
    commands.append(words)
    return 1.0

  monkeypatch.setattr(module, 'xlflax', record)
  monkeypatch.setattr(module, '_curve', lambda _: [])
  monkeypatch.setattr(module, '_measures', lambda _: {})
  return module.Study(_DECLARED, tmp_path, '0'), commands


@pytest.mark.parametrize(
  'condition', _DECLARED['condition'], ids=lambda one: one['name']
)
def test_conditions_are_runs(condition, monkeypatch, tmp_path):
  study, commands = _study(monkeypatch, tmp_path)
  found = study.run(condition, 1, {})
  [train] = [words for words in commands if words[0] == 'train']
  files = [w.split('=', 1)[1] for w in train if w.startswith('--gin_file=')]
  bindings = [w.removeprefix('--gin.') for w in train if w.startswith('--gin.')]
  given = [
    f'MODEL_DIR="{tmp_path}"',
    f'VOCABULARY="{tmp_path}"',
    'partitioning.Partitioner.data=1',  # the tests have eight devices
    'partitioning.Partitioner.tensor=8',
  ]
  run = config.load(files, (*bindings, *given)).build(trainer.Trainer)
  [stream] = run.streams
  assert found['tokens'] == condition.get('tokens', 1_920_000)
  assert run.total_steps == found['steps']
  assert run.total_steps * stream.batch_size * stream.length == found['tokens']
  assert run.seed == 1


def test_what_is_known_is_not_trained_again(monkeypatch, tmp_path):
  study, commands = _study(monkeypatch, tmp_path)
  known = {'processor_seconds': 3.0}
  found = study.run(_DECLARED['condition'][0], 0, known)
  assert found['processor_seconds'] == 3.0
  assert not [words for words in commands if words[0] == 'train']
