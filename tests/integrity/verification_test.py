"""Tests of the reports of valid and damaged directories."""

import json

import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax import cli, integrity
from xlflax.storage import checksums
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


@pytest.fixture
def run(tmp_path):
  directory = tmp_path / 'run'
  run_directory.write_model(directory, tiny.make_model())
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  lines = b'{"step": 1}\n'
  (directory / run_directory.METRICS).write_bytes(lines)
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  saved.save(
    state.replace(step=jnp.int32(1)),
    {'metrics_file': checksums.digest_content(lines)},
  )
  saved.close()
  return directory


def _problems(directory):
  return {
    finding.item: finding.problems
    for finding in integrity.verify_directory(directory).findings
    if not finding.is_valid
  }


def test_damaged_files_of_a_run_are_reported(run, capsys):
  """Initially, only the vocabulary of the run is missing."""
  report = integrity.verify_directory(run)
  assert report.kind == 'run' and list(_problems(run)) == ['vocabulary']
  assert '  valid    checkpoint 1' in integrity.format_report(report)
  (file,) = (run / 'checkpoints/1/params/d').iterdir()
  file.write_bytes(file.read_bytes()[:-1])
  (run / run_directory.METRICS).write_bytes(b'')
  (run / run_directory.MODEL).write_text('{}')
  assert list(_problems(run)) == [
    'model.json',
    'configuration',
    'vocabulary',
    'checkpoint 1',
    'metrics.jsonl',
  ]
  assert cli.main(['verify', str(run)]) == 2
  text = capsys.readouterr().out
  assert f'params/d/{file.name} has' in text and 'What to do: ' in text


def test_changed_exported_model_is_reported(tmp_path, capsys):
  (tmp_path / 'config.json').write_text('{}')
  checksums.seal_directory(tmp_path)
  assert cli.main(['verify', str(tmp_path), '--json']) == 0
  (report,) = json.loads(capsys.readouterr().out)
  assert report['kind'] == 'exported_model'
  (tmp_path / 'config.json').write_text('[]')
  [(item, problems)] = _problems(tmp_path).items()
  assert item == 'config.json' and len(problems) == 1


def test_missing_directory_is_reported(tmp_path):
  (tmp_path / 'corpus').mkdir()
  with raises_error(
    errors.RunDirectoryError,
    got=tmp_path / 'corpsu',
    fix=f'Did you mean {tmp_path / "corpus"}?',
  ):
    integrity.verify_directory(tmp_path / 'corpsu')


@pytest.mark.parametrize('flags', [(), ('--repair',)])
def test_other_directories_are_verified_if_one_is_missing(
  run, tmp_path, capsys, flags
):
  (tmp_path / 'other').mkdir()
  names = [str(tmp_path / name) for name in ('missing', 'run', 'other')]
  assert cli.main(['verify', *names, *flags]) == 2
  captured = capsys.readouterr()
  assert f'{run}: run' in captured.out
  assert_mentions(captured.err, names[0], names[2])


def test_missing_directories_are_in_the_json_report(run, tmp_path, capsys):
  names = [str(run), str(tmp_path / 'missing')]
  assert cli.main(['verify', *names, '--json']) == 2
  verified, missing = json.loads(capsys.readouterr().out)
  assert verified['directory'] == names[0] and verified['kind'] == 'run'
  assert missing['directory'] == names[1] and missing['findings'] == []
  assert missing['error']['got'] == names[1] and missing['error']['status'] == 2


def test_directory_of_unknown_kind_is_rejected(tmp_path):
  with pytest.raises(errors.RunDirectoryError):
    integrity.verify_directory(tmp_path)
