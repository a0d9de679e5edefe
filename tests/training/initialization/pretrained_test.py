"""Tests of loading the model and vocabulary of a pretrained run."""

from tests.errors import raises_error
from tests.training import tiny
from xlflax.training.checkpointing import run_directory
from xlflax.training.initialization import pretrained
from xlflax.utils import errors


def test_overrides_change_the_model_of_a_run(tmp_path):
  model = tiny.make_model()
  run_directory.write_model(tmp_path, model)
  assert pretrained.load_model(model_dir=str(tmp_path)) == model
  changed = pretrained.load_model(
    model_dir=str(tmp_path), overrides={'dropout_rate': 0.3}
  )
  assert changed.config.dropout_rate == 0.3
  assert changed.config.hidden_dim == model.config.hidden_dim


def test_vocabulary_directory_is_the_copy_of_the_run(tmp_path):
  assert pretrained.vocabulary_directory(model_dir=str(tmp_path)) == str(
    tmp_path / 'vocabulary'
  )


def test_invalid_model_directory_raises(tmp_path):
  with raises_error(errors.RunDirectoryError, mentions='model.json'):
    pretrained.load_model(model_dir=str(tmp_path))
  run_directory.write_model(tmp_path, tiny.make_model())
  with raises_error(errors.ConfigError, mentions='dropout'):
    pretrained.load_model(model_dir=str(tmp_path), overrides={'dropout': 0.1})
