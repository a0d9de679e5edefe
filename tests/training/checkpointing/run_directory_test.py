"""Tests of claiming model directories and of the files in them."""

import dataclasses
import types

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.storage import paths
from xlflax.training.checkpointing import (
  config_serialization,
  objective_config,
  run_directory,
)
from xlflax.utils import class_registry, errors

_GIN = 'trainer.Trainer.seed = 0\n'


@class_registry.register('run_of_the_run_directory_test')
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
  seed: int = 0
  length: int = 256
  every_steps: int = class_registry.changeable_field(default=50)


def _claim(directory, run=_Run(), **more):
  run_directory.claim_run_directory(
    directory, config_serialization.to_json_config(run), gin_config=_GIN, **more
  )


def _other_gin(directory):
  return (directory / run_directory.CONFIG).read_text()


def test_run_claims_and_resumes_a_directory(tmp_path):
  directory = tmp_path / 'a/run'
  _claim(directory)
  assert _other_gin(directory) == _GIN
  _claim(directory)


def test_run_without_gin_has_an_identity(tmp_path):
  run_directory.claim_run_directory(
    tmp_path, config_serialization.to_json_config(_Run())
  )
  assert not (tmp_path / run_directory.CONFIG).exists()
  with pytest.raises(errors.RunDirectoryError):
    _claim(tmp_path, _Run(seed=1))


def test_different_configuration_is_rejected_with_a_diff(tmp_path):
  _claim(tmp_path)
  with pytest.raises(errors.RunDirectoryError) as error:
    _claim(tmp_path, _Run(seed=1, length=128))
  text = str(error.value)

  assert [line for line in text.splitlines() if line[0] in '+-'] == [
    '--- the run in the directory',
    '+++ this configuration',
    '- length: 256',
    '+ length: 128',
    '- seed: 0',
    '+ seed: 1',
  ]
  assert str(tmp_path) in text and '--on_config_mismatch=continue' in text
  _claim(tmp_path)


def test_different_configuration_is_accepted_with_continue(tmp_path):
  _claim(tmp_path)
  _claim(
    tmp_path,
    _Run(seed=1),
    on_config_mismatch=run_directory.OnConfigMismatch.CONTINUE,
  )
  _claim(tmp_path, _Run(seed=1))


def test_changeable_fields_are_updated(tmp_path):
  _claim(tmp_path)
  _claim(tmp_path, _Run(every_steps=7))
  recorded = run_directory.read_json(tmp_path / run_directory.TRAINER)
  assert recorded['fields']['every_steps'] == 7


def test_damaged_record_is_reported(tmp_path):
  _claim(tmp_path)
  (tmp_path / run_directory.TRAINER).write_text('{"class"')
  with raises_error(
    errors.RunDirectoryError, where='trainer.json', mentions='JSONDecodeError'
  ):
    _claim(tmp_path)


def test_directory_with_unrelated_files_is_rejected(tmp_path):
  (tmp_path / 'thesis.tex').touch()
  with pytest.raises(errors.RunDirectoryError) as error:
    _claim(tmp_path)
  assert error.value.got == str(tmp_path)
  assert_mentions(error.value, 'trainer.json')


def test_check_writes_no_files(tmp_path):
  accept = run_directory.OnConfigMismatch.CONTINUE
  run_directory.check_run_directory(
    tmp_path / 'run', config_serialization.to_json_config(_Run())
  )
  assert not (tmp_path / 'run').exists()
  _claim(tmp_path / 'run')
  other = config_serialization.to_json_config(_Run(seed=1))
  run_directory.check_run_directory(
    tmp_path / 'run', other, on_config_mismatch=accept
  )
  _claim(tmp_path / 'run')


def test_hidden_files_are_ignored(tmp_path):
  (tmp_path / '.DS_Store').touch()
  _claim(tmp_path)


def test_file_is_rejected_as_a_run_directory(tmp_path):
  (tmp_path / 'run').touch()
  with pytest.raises(errors.RunDirectoryError):
    _claim(tmp_path / 'run')


def test_model_is_restored(tmp_path):
  model = tiny.make_model(norm_position='pre', head_dim=4, remat='minimal')
  run_directory.write_model(tmp_path, model)
  again = run_directory.read_model(tmp_path)
  assert type(again) is type(model) and again.config == model.config
  assert again == model


def test_unregistered_classes_are_not_instantiated(tmp_path):
  run_directory.write_json(
    tmp_path / run_directory.MODEL,
    {'class': 'subprocess:Popen', 'fields': {'args': 'true'}},
  )
  with raises_error(errors.RunDirectoryError, mentions='subprocess:Popen'):
    run_directory.read_model(tmp_path)


def test_directory_without_a_model_is_rejected(tmp_path):
  with raises_error(errors.RunDirectoryError, mentions='model.json'):
    run_directory.read_model(tmp_path)


def test_directories_of_other_programs_have_a_hint(tmp_path):
  (tmp_path / 'hf').mkdir()
  (tmp_path / 'hf' / 'config.json').write_text('{}')
  with raises_error(
    errors.RunDirectoryError, mentions=('from-hf', tmp_path / 'hf')
  ):
    run_directory.read_model(tmp_path / 'hf')
  (tmp_path / 'peft').mkdir()
  (tmp_path / 'peft' / 'adapter_config.json').write_text('{}')
  with raises_error(
    errors.RunDirectoryError, mentions=('from-peft', tmp_path / 'peft')
  ):
    run_directory.read_model(tmp_path / 'peft')
  run_directory.write_model(tmp_path / 'out/trials/single', tiny.make_model())
  with raises_error(
    errors.RunDirectoryError, mentions=tmp_path / 'out/trials/single'
  ):
    run_directory.read_model(tmp_path / 'out')


def test_directories_in_or_above_a_run_have_a_hint(tmp_path):
  run_directory.write_model(tmp_path / 'runs/mlm', tiny.make_model())
  run_directory.write_model(
    tmp_path / 'runs/nli/trials/single', tiny.make_model()
  )
  checkpoint = tmp_path / 'runs/mlm/checkpoints/4'
  checkpoint.mkdir(parents=True)
  with raises_error(errors.RunDirectoryError) as error:
    run_directory.read_model(tmp_path / 'runs')
  assert_mentions(error.value.fix, tmp_path / 'runs/mlm')
  assert 'trials' not in error.value.fix
  with raises_error(
    errors.RunDirectoryError,
    mentions=('--checkpoint_steps=4', '--gin.INIT_STEP=4', '--step=4'),
  ) as error:
    run_directory.read_model(checkpoint)
  assert_mentions(error.value.fix, tmp_path / 'runs/mlm')
  with raises_error(
    errors.RunDirectoryError,
    fix=f'Pass the model directory, {tmp_path / "runs/mlm"}.',
  ):
    run_directory.read_model(checkpoint.parent)


def test_changed_record_is_reported(tmp_path):
  run_directory.write_model(tmp_path, tiny.make_model())
  run = run_directory.run_id(tmp_path)
  run_directory.write_model(tmp_path, tiny.make_model(head_dim=4))
  assert (
    run_directory.run_id(tmp_path) == run
  )  # unchanged, because it is the same run
  path = tmp_path / run_directory.MODEL
  path.write_text(path.read_text().replace('"head_dim": 4', '"head_dim": 5'))
  with raises_error(
    errors.RunDirectoryError, where='model.json', mentions='ValueError'
  ):
    run_directory.read_model(tmp_path)


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
  (tmp_path / '.vocabulary.7.tmp').mkdir()
  (tmp_path / '.vocabulary.7.tmp/file').touch()
  (tmp_path / '.trainer.json.7.tmp').touch()
  (tmp_path / 'kept.tmp').touch()
  run_directory.remove_leftovers(tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ['kept.tmp']


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
  for vocabulary in (source, source, copy):  # also the copy itself
    run_directory.check_vocabulary(vocabulary, run)
    run_directory.copy_vocabulary(vocabulary, run)
    assert sorted(p.name for p in copy.iterdir()) == [
      'sentencepiece.model',
      'vocabulary.json',
    ]
    assert sorted(p.name for p in run.iterdir()) == [
      'digests.json',
      'vocabulary',
    ]


@pytest.mark.parametrize('damage', ['other', None])
def test_different_vocabulary_is_rejected(tmp_path, damage):
  """Covers a vocabulary that was replaced at the same path."""
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

  assert f'Got: {model}' in text


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / 'a/b.json'
  paths.write_atomically(path, 'old')

  def fail(*args):
    raise OSError('disk')

  monkeypatch.setattr('os.replace', fail)
  with pytest.raises(OSError, match='disk'):
    paths.write_atomically(path, 'new')
  assert path.read_text() == 'old'


def test_file_of_another_run_is_rejected(tmp_path):
  """The content is unchanged, but the file contains another run id."""
  for name in 'ab':
    run_directory.write_model(tmp_path / name, tiny.make_model())
    run_directory.write_run_file(tmp_path / name, 'x.json', {'n': name})
  assert run_directory.read_run_file(tmp_path / 'a', 'x.json') == {'n': 'a'}
  (tmp_path / 'b/x.json').replace(tmp_path / 'a/x.json')
  with raises_error(errors.RunDirectoryError, mentions='x.json') as error:
    run_directory.read_run_file(tmp_path / 'a', 'x.json')
  assert run_directory.run_id(tmp_path / 'b') in str(error.value)
  content = run_directory.read_run_file(
    tmp_path / 'a', 'x.json', allow_other_run=True
  )
  assert content == {'n': 'b'}


def test_trainer_file_of_another_run_is_rejected(tmp_path):
  """The file is rejected even if its settings are equal."""
  for name in 'ab':
    run_directory.claim_run_directory(
      tmp_path / name, config_serialization.to_json_config(_Run())
    )
    run_directory.write_model(tmp_path / name, tiny.make_model())
    _claim(tmp_path / name)
  (tmp_path / 'b/trainer.json').replace(tmp_path / 'a/trainer.json')
  with raises_error(errors.RunDirectoryError, where='trainer.json'):
    _claim(tmp_path / 'a')
  _claim(
    tmp_path / 'a', on_config_mismatch=run_directory.OnConfigMismatch.CONTINUE
  )
  _claim(tmp_path / 'a')


def test_model_file_contains_the_vocabulary_identity(tmp_path):
  assert run_directory.read_vocabulary_identity(tmp_path) is None
  spec = types.SimpleNamespace(size=4000)
  vocabulary = types.SimpleNamespace(spec=spec, hash='ab' * 32)
  run_directory.write_model(tmp_path, tiny.make_model(), vocabulary=vocabulary)
  run_directory.write_model(tmp_path, tiny.make_model())  # keeps the identity
  identity = run_directory.read_vocabulary_identity(tmp_path)
  assert identity == (4000, 'ab' * 32)
  assert str(identity) == '4,000 tokens, hash abababababab'
  assert run_directory.read_model(tmp_path) == tiny.make_model()


def test_content_identity_does_not_depend_on_the_location(tmp_path):
  assert run_directory.content_identity(tmp_path) is None
  run_directory.write_model(tmp_path / 'a', tiny.make_model())
  content = run_directory.content_identity(tmp_path / 'a')
  (tmp_path / 'a').rename(tmp_path / 'b')
  assert run_directory.content_identity(str(tmp_path / 'b')) == content
  (tmp_path / 'b/model.json').write_text('{')
  assert run_directory.content_identity(tmp_path / 'b') is None


def test_deleted_objectives_file_is_an_error(tmp_path):
  run_directory.write_model(tmp_path, tiny.make_model())
  assert objective_config.read_objectives(tmp_path) == []
  objective_config.write_objectives(tmp_path, [])
  (tmp_path / run_directory.OBJECTIVES).unlink()
  with raises_error(
    errors.RunDirectoryError, mentions=('--repair', 'objectives.json')
  ):
    objective_config.read_objectives(tmp_path)


def test_input_settings_are_saved_with_the_objectives(tmp_path):
  run_directory.write_model(tmp_path, tiny.make_model())
  assert objective_config.read_inputs(tmp_path) == {}
  settings = {'parsing': {'length': 128}}
  objective_config.write_objectives(tmp_path, [], settings)
  assert objective_config.read_inputs(tmp_path) == settings
