"""Whose run a model directory holds, and what is recorded in it."""

import dataclasses
import enum
import json

import pytest

from tests.training import tiny
from xlflax import errors
from xlflax.training import run_directory

_CONFIG = """
from __gin__ import dynamic_registration
from xlflax import trainer as train

# Macros:
# ==============================================================================
CACHE_DIR = 'a'
LENGTH = 256
MODEL_DIR = 'runs/a'

# Parameters for trainer.Trainer:
# ==============================================================================
trainer.Trainer.log_every_steps = 50
trainer.Trainer.model_dir = %MODEL_DIR
trainer.Trainer.seed = 0
trainer.Trainer.streams = \\
    [@mono/stream.Stream(),
     @pairs/stream.Stream()]
trainer.Trainer.total_steps = 1000
"""


def _claim(directory, config=_CONFIG, **more):
  run_directory.claim(directory, config, **more)


def test_claims_and_continues(tmp_path):
  directory = tmp_path / 'a/run'
  _claim(directory)
  assert (directory / run_directory.CONFIG).read_text() == _CONFIG
  _claim(directory)


def test_other_configuration_is_refused_with_the_difference(tmp_path):
  _claim(tmp_path)
  with pytest.raises(errors.RunDirectoryError) as error:
    _claim(
      tmp_path,
      _CONFIG.replace('seed = 0', 'seed = 1').replace(
        'LENGTH = 256', 'LENGTH = 128'
      ),
    )
  text = str(error.value)
  assert "The model directory holds another configuration's run" in text
  assert [line for line in text.splitlines() if line[0] in '+-'] == [
    '--- the run in the directory',
    '+++ this configuration',
    '-LENGTH = 256',
    '-trainer.Trainer.seed = 0',
    '+LENGTH = 128',
    '+trainer.Trainer.seed = 1',
  ]
  assert str(tmp_path) in text and '--other_config=accept' in text
  assert (tmp_path / run_directory.CONFIG).read_text() == _CONFIG


def test_other_configuration_is_accepted_when_asked_for(tmp_path):
  _claim(tmp_path)
  other = _CONFIG.replace('seed = 0', 'seed = 1')
  _claim(tmp_path, other, other_config=run_directory.OtherConfig.ACCEPT)
  assert (tmp_path / run_directory.CONFIG).read_text() == other
  _claim(tmp_path, other)


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ("MODEL_DIR = 'runs/a'", "MODEL_DIR = 'runs/b'"),
    ('log_every_steps = 50', 'log_every_steps = 7'),
    ('train.total_steps = 1000', 'train.total_steps = 2000'),
    ('LENGTH', 'partitioning.Partitioner.fsdp = 2\nLENGTH'),
    ('LENGTH', 'checkpoints.CheckpointOptions.every_steps = 5\nLENGTH'),
    ('LENGTH', 'evaluation.Evaluation.every_steps = 5\nLENGTH'),
    ('LENGTH', 'EVALUATION = @evaluation.Evaluation()\nLENGTH'),
    ('LENGTH', 'trainer.Trainer.evaluation = %EVALUATION\nLENGTH'),
    ('LENGTH', "retrieval.Retrieval.pooling = 'first'\nLENGTH"),
    ("CACHE_DIR = 'a'", "CACHE_DIR = 'b/c'"),
    ('LENGTH', 'trainer.Trainer.prefetch = 4\nLENGTH'),
    ('LENGTH', '# a comment\n\nfrom xlflax import evaluate\nLENGTH'),
    ('\\\n    [@mono/stream.Stream(),\n     @', '[@mono/stream.Stream(), @'),
  ],
)
def test_what_may_change(tmp_path, old, new):
  assert old in _CONFIG
  _claim(tmp_path)
  _claim(tmp_path, _CONFIG.replace(old, new, 1))


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ('seed = 0', 'seed = 1'),
    ("CACHE_DIR = 'a'", 'CACHE_DIR = None'),
    ('@pairs/stream.Stream()]', '@sides/stream.Stream()]'),
    ('LENGTH', 'schedules.Linear.total_steps = 5\nLENGTH'),
    ('LENGTH', 'mixture.Entry.weight = 0.5\nLENGTH'),
  ],
)
def test_what_may_not_change(tmp_path, old, new):
  _claim(tmp_path)
  with pytest.raises(errors.RunDirectoryError):
    _claim(tmp_path, _CONFIG.replace(old, new, 1))


def test_foreign_files_are_refused(tmp_path):
  (tmp_path / 'thesis.tex').touch()
  with pytest.raises(errors.RunDirectoryError) as error:
    _claim(tmp_path)
  assert str(error.value) == (
    f'The model directory holds files, but no run. Got: {tmp_path}. '
    'Expected: an empty or new directory, or a run with config.gin. What to '
    'do: give another --model_dir.'
  )


def test_checking_writes_nothing(tmp_path):
  run_directory.check(tmp_path / 'run', _CONFIG)
  assert not (tmp_path / 'run').exists()
  _claim(tmp_path / 'run')
  other = _CONFIG.replace('seed = 0', 'seed = 1')
  run_directory.check(
    tmp_path / 'run', other, other_config=run_directory.OtherConfig.ACCEPT
  )
  assert (tmp_path / 'run' / run_directory.CONFIG).read_text() == _CONFIG


def test_hidden_files_are_no_obstacle(tmp_path):
  (tmp_path / '.DS_Store').touch()
  _claim(tmp_path)


def test_file_is_no_directory(tmp_path):
  (tmp_path / 'run').touch()
  with pytest.raises(errors.RunDirectoryError, match='is a file'):
    _claim(tmp_path / 'run')


def test_model_is_built_again(tmp_path):
  model = tiny.make_model(norm_position='pre', head_dim=4, remat='minimal')
  run_directory.write_model(tmp_path, model)
  again = run_directory.read_model(tmp_path)
  assert type(again) is type(model) and again.config == model.config
  assert again == model


class _Colour(enum.Enum):
  RED = 1


@dataclasses.dataclass(frozen=True)
class _Settings:
  name: str
  colour: _Colour = _Colour.RED
  sizes: tuple = ()
  rate: float | None = None


def test_settings_are_built_again():
  settings = _Settings('a', sizes=(1, (2, 'x'), _Settings('inner')), rate=0.1)
  description = json.loads(json.dumps(run_directory.describe(settings)))
  assert run_directory.build(description) == settings


def test_setting_that_can_not_be_recorded():
  with pytest.raises(errors.ConfigError) as error:
    run_directory.describe(_Settings('a', sizes=(len,)))
  assert 'A setting can not be recorded. Got: <built-in' in str(error.value)


def test_class_that_is_missing(tmp_path):
  (tmp_path / run_directory.MODEL).write_text(
    json.dumps({'class': 'gone.models:Encoder', 'fields': {}})
  )
  with pytest.raises(errors.RunDirectoryError) as error:
    run_directory.read_model(tmp_path)
  assert 'Got: gone.models:Encoder' in str(error.value)


def test_directory_without_a_model(tmp_path):
  with pytest.raises(errors.RunDirectoryError) as error:
    run_directory.read_model(tmp_path)
  assert 'This is no model directory' in str(error.value)
  assert 'model.json' in str(error.value)


@pytest.mark.parametrize(('step', 'kept'), [(-1, 0), (0, 0), (20, 2), (99, 3)])
def test_metrics_past_a_step_are_dropped(tmp_path, step, kept):
  lines = [
    json.dumps({'step': s, 'train': {'loss': 1.0}}) + '\n' for s in (10, 20, 30)
  ]
  path = tmp_path / run_directory.METRICS
  path.write_text(''.join(lines) + '{"step": 15, "tra')  # cut by a kill
  run_directory.truncate_metrics(tmp_path, step)
  assert path.read_text() == ''.join(lines[:kept])


def test_line_without_its_end_is_dropped(tmp_path):
  """Else the next line would be appended to it."""
  path = tmp_path / run_directory.METRICS
  path.write_text('{"step": 1}\n{"step": 2}')
  run_directory.truncate_metrics(tmp_path, 9)
  assert path.read_text() == '{"step": 1}\n'


def test_no_metrics_yet(tmp_path):
  run_directory.truncate_metrics(tmp_path, 9)
  assert not list(tmp_path.iterdir())


def _vocabulary(directory, content='model'):
  directory.mkdir()
  (directory / 'sentencepiece.model').write_text(content)
  (directory / 'vocabulary.json').write_text('{}')
  return directory


def test_vocabulary_is_copied_once(tmp_path):
  source = _vocabulary(tmp_path / 'vocabulary')
  run = tmp_path / 'run'
  run.mkdir()
  copy = run / run_directory.VOCABULARY
  for vocabulary in (source, source, copy):  # also the run's own
    run_directory.check_vocabulary(vocabulary, run)
    run_directory.copy_vocabulary(vocabulary, run)
    assert sorted(p.name for p in copy.iterdir()) == [
      'sentencepiece.model',
      'vocabulary.json',
    ]
    assert [p.name for p in run.iterdir()] == ['vocabulary']


@pytest.mark.parametrize('damage', ['other', None])
def test_other_vocabulary_is_refused(tmp_path, damage):
  """Also one that took the first one's place."""
  run, source = tmp_path / 'run', _vocabulary(tmp_path / 'vocabulary')
  run.mkdir()
  run_directory.copy_vocabulary(source, run)
  model = source / 'sentencepiece.model'
  if damage:
    model.write_text(damage)
  else:
    model.unlink()
  with pytest.raises(errors.RunDirectoryError) as error:
    run_directory.check_vocabulary(source, run)
  text = str(error.value)
  assert "is not the one of the model directory's run" in text
  assert f'Got: {model}' in text


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
  path = tmp_path / 'a/b.json'
  run_directory.write_atomically(path, 'old')

  def fail(*args):
    raise OSError('disk')

  monkeypatch.setattr('os.replace', fail)
  with pytest.raises(OSError, match='disk'):
    run_directory.write_atomically(path, 'new')
  assert path.read_text() == 'old'


@pytest.mark.parametrize('place', ['cache', 'a/' * 60 + 'cache'])
def test_where_a_cache_lies_is_no_part_of_the_identity(place):
  """Gin continues a long line on the next one."""

  def config(directory):
    broken = '\\\n    ' if len(directory) > 60 else ''
    return f"CACHE_DIR = {broken}'{directory}'\nSEED = 0\n"

  assert run_directory.identity(config(place)) == run_directory.identity(
    config('elsewhere')
  )
  assert run_directory.identity(config(place)) != run_directory.identity(
    'CACHE_DIR = None\nSEED = 0\n'
  )
