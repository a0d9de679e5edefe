"""Tests of model directories of restarted runs."""

import json
import types

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.storage import manifests
from xlflax.training.checkpointing import (
  checkpoint_items,
  config_serialization,
  data_fingerprint,
  directory_claim,
  run_directory,
)
from xlflax.utils import errors


def _make_setup(tmp_path, name, **fields):
  """Makes the setup of a run whose vocabulary is the directory `name`."""
  directory = tmp_path / name
  directory.mkdir(exist_ok=True)
  (directory / 'sentencepiece.model').write_text(name)
  (directory / 'vocabulary.json').write_text('{}')
  model = tiny.make_model(**fields)
  vocabulary = types.SimpleNamespace(
    spec=types.SimpleNamespace(size=9), hash=name
  )
  return types.SimpleNamespace(
    model_dir=tmp_path / 'run',
    description=config_serialization.to_json_config(model),
    model=model,
    vocabulary=vocabulary,
    settings=types.SimpleNamespace(
      vocabulary=str(directory),
      on_config_mismatch=run_directory.OnConfigMismatch.ERROR,
      objectives=types.SimpleNamespace(objectives=(), entries=()),
      datasets=(),
      init_from=(),
    ),
  )


def _start(setup, directory):
  directory_claim.check_directory(setup, directory, {})
  directory_claim.claim_directory(setup, directory, '')


def test_run_without_results_accepts_another_vocabulary(tmp_path):
  _start(_make_setup(tmp_path, 'wrong'), tmp_path / 'wrong')
  (tmp_path / 'wrong/extra.json').write_text('{}')
  _start(_make_setup(tmp_path, 'right'), tmp_path / 'right')
  run = tmp_path / 'run'
  copy = run / run_directory.VOCABULARY / 'sentencepiece.model'
  assert copy.read_text() == 'right'
  identity = run_directory.read_vocabulary_identity(run)
  assert identity is not None and identity.hash == 'right'
  assert not manifests.find_problems(run)


@pytest.mark.parametrize('fields', [{}, {'num_layers': 3}])
def test_run_with_results_rejects_another_vocabulary(tmp_path, fields):
  """The message names the vocabulary even if other settings also differ."""
  _start(_make_setup(tmp_path, 'right'), tmp_path / 'right')
  (tmp_path / 'run' / run_directory.METRICS).write_text('{"step": 1}\n')
  other = _make_setup(tmp_path, 'wrong', **fields)
  with raises_error(
    errors.RunDirectoryError,
    got=str(tmp_path / 'wrong/sentencepiece.model'),
    where=str(tmp_path / 'run'),
  ):
    directory_claim.check_directory(other, tmp_path / 'wrong', {})


@pytest.mark.parametrize('has_results', [True, False])
def test_changed_settings_of_a_resumed_run_are_logged(
  tmp_path, caplog, has_results
):
  caplog.set_level('INFO')
  _start(_make_setup(tmp_path, 'v', num_layers=2), tmp_path / 'v')
  if has_results:
    (tmp_path / 'run' / run_directory.METRICS).write_text('{"step": 1}\n')
  changed = _make_setup(tmp_path, 'v', num_layers=3)
  changed.settings.on_config_mismatch = run_directory.OnConfigMismatch.CONTINUE
  _start(changed, tmp_path / 'v')
  _start(changed, tmp_path / 'v')  # This configuration is now recorded.
  lines = [text for text in caplog.messages if 'changed settings' in text]
  assert len(lines) == has_results
  for line in lines:
    assert_mentions(line, 'config.num_layers: 2 → 3')


@pytest.mark.parametrize(
  'saved, warns', [({'mine': 'a'}, True), ({'mine': 'b'}, False), ({}, False)]
)
def test_changed_code_of_a_resumed_run_causes_a_warning(
  tmp_path, caplog, saved, warns
):
  """A run of an earlier version has no record of the code."""
  file = tmp_path / '20' / checkpoint_items.META / 'metadata'
  file.parent.mkdir(parents=True)
  file.write_text(json.dumps({'inputs': _inputs(saved)}))
  directory_claim._check_inputs(
    _make_setup(tmp_path, 'v'), tmp_path / '20', _inputs({'mine': 'b'})
  )
  assert len(caplog.messages) == warns
  for line in caplog.messages:
    assert_mentions(line, 'mine', 'step 20')


def _inputs(code):
  return data_fingerprint.describe_inputs('v', {}, code)
