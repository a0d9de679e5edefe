"""Tests that damaged files are restored byte by byte where possible."""

import json
import os
import shutil

import pytest

from tests.integrity import artifacts
from xlflax import cli, integrity
from xlflax.integrity import repair, verification
from xlflax.storage import directory_lease, manifests
from xlflax.utils import errors

Kind = manifests.Kind


@pytest.fixture(scope='module')
def originals(tmp_path_factory):
  """Fixture that creates one artifact per kind."""
  directories = {}

  def make(kind, **options):
    if kind not in directories:
      directory = tmp_path_factory.mktemp('original') / 'artifact'
      artifacts.MAKERS[kind](directory, 0, **options)
      directories[kind] = directory
    return directories[kind]

  return make


@pytest.fixture
def copy(originals, tmp_path):
  def make(kind, **options):
    return shutil.copytree(originals(kind, **options), tmp_path / 'copy')

  return make


def _content(directory):
  return {
    path.relative_to(directory).as_posix(): path.read_bytes()
    for path in directory.rglob('*')
    if path.is_file() and not path.name.startswith('.')
  }


def _repair(directory):
  messages: list[str] = []
  report = integrity.repair_directory(directory, log_progress=messages.append)
  return report, messages


def _damage(path, how):
  if how == 'delete':
    path.unlink()
  else:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize('how', ['delete', 'flip'])
@pytest.mark.parametrize(
  'name',
  [
    'trainer.json',
    'objectives.json',
    'model.json',
    'config.gin',
    'inputs.json',
    'finished.json',
    'vocabulary/sentencepiece.model',
    'vocabulary/vocabulary.json',
    'checkpoints/1/metrics/metrics',
  ],
)
def test_files_of_a_run_are_restored(copy, name, how):
  run = copy(Kind.RUN)
  before = _content(run)
  _damage(run / name, how)
  assert not integrity.verify_directory(run).is_valid
  report, messages = _repair(run)
  assert report.is_valid, integrity.format_report(report)
  assert _content(run) == before and len(messages) == 1


@pytest.mark.parametrize('how', ['delete', 'flip'])
def test_manifest_of_a_run_is_restored(copy, how):
  """The manifest is restored even if another file is missing."""
  run = copy(Kind.RUN)
  before = _content(run)
  _damage(run / manifests.FILE, how)
  (run / 'objectives.json').unlink()
  report, messages = _repair(run)
  assert report.is_valid, integrity.format_report(report)
  assert _content(run) == before and len(messages) == 2


@pytest.mark.parametrize(
  'name', ['metrics.jsonl', 'checkpoints/2/params/_METADATA']
)
def test_irreparable_files_of_a_run_are_reported(copy, name, capsys):
  run = copy(Kind.RUN)
  _damage(run / name, 'flip')
  report, messages = _repair(run)
  assert messages == [] and not report.is_valid
  assert cli.main(['verify', str(run), '--repair']) == 2
  text = capsys.readouterr().out
  assert 'DAMAGED' in text and 'What to do: ' in text and '--repair' not in text


def test_run_without_checkpoints_cannot_be_repaired(copy):
  run = copy(Kind.RUN)
  shutil.rmtree(run / 'checkpoints')
  shutil.rmtree(run / 'eval')
  (run / 'trainer.json').unlink()
  report, _ = _repair(run)
  [damaged] = (f for f in report.findings if not f.is_valid)
  assert damaged.item == 'trainer.json' and damaged.repair is None


def test_file_names_outside_the_run_are_ignored(copy, monkeypatch):
  run = copy(Kind.RUN)
  files = {'../x': 'x', '/x': 'x', 'a/../../x': 'x', 'a/x': 'x'}
  monkeypatch.setattr(
    repair.checkpoint_items, 'read_run_files', lambda checkpoint: files
  )
  assert repair.read_checkpoint_files(run) == {'a/x': 'x'}


def test_repair_is_rejected_while_another_process_writes(copy):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()
  other = os.getppid()  # A different process that is alive.
  owner = directory_lease._owner() | {
    'pid': other,
    'started': directory_lease._started(other),
  }
  (run / directory_lease.FILE).write_text(json.dumps(owner))
  with pytest.raises(errors.RunDirectoryError, match='config|writ'):
    _repair(run)
  assert not (run / 'config.gin').exists()
  (run / directory_lease.FILE).unlink()
  assert _repair(run)[0].is_valid


@pytest.mark.parametrize('kind', [Kind.GRID, Kind.SUITE])
def test_manifest_of_a_grid_or_suite_is_rebuilt_from_records(copy, kind):
  """The manifest lists only the records; the next command adds the tables."""
  directory = copy(kind)
  (directory / manifests.FILE).write_text('{')
  report, _ = _repair(directory)
  assert report.is_valid
  manifest = manifests.read_manifest(directory)
  assert manifest.kind == kind and len(manifest.files) == 2


def test_report_is_regenerated_from_scores(copy):
  directory = copy(Kind.REPORT)
  for name in ('leaderboard.html', 'scores.csv'):
    (directory / name).unlink()
  before = _content(directory)
  report, messages = _repair(directory)
  assert report.is_valid and 'scores.json' in messages[0]
  after = _content(directory)
  assert {
    name: after[name]
    for name in before
    if not name.endswith((manifests.FILE, '.png'))
  } == {
    name: text
    for name, text in before.items()
    if not name.endswith((manifests.FILE, '.png'))
  }
  (directory / 'scores.json').write_text('{}')
  report, messages = _repair(directory)
  assert not report.is_valid and messages == []


@pytest.mark.parametrize('kind', [Kind.STATES, Kind.ROWS])
@pytest.mark.parametrize('how', ['delete', 'flip'])
def test_damaged_derived_files_are_removed(copy, kind, how):
  directory = copy(kind)
  path = max(
    path
    for path in directory.iterdir()
    if path.suffix in ('.npz', '')
    and not path.name.endswith('atime')
    and not path.name.startswith('.')
  )
  _damage(path, how)
  report, _ = _repair(directory)
  assert report.is_valid and not path.exists()


def test_damaged_preprocessed_text_is_removed(copy):
  directory = copy(Kind.CORPUS)
  path = directory / 'mono/de.txt'
  _damage(path, 'flip')
  report, messages = _repair(directory)
  assert report.is_valid and not path.exists()
  assert 'xlflax preprocess' in messages[0]


def _mtimes(directory):
  return {
    path.name: path.stat().st_mtime_ns
    for path in directory.rglob('*.safetensors')
  }


@pytest.mark.parametrize(
  'damaged', ['shard', 'generation', 'cache.json', 'digests']
)
def test_cache_is_regenerated_from_its_text(copy, originals, damaged, capsys):
  cache = copy(Kind.CACHE)
  before, times = _content(cache), _mtimes(cache)
  task = cache / 'tasks/corpus.mono.de/train'
  shards = sorted((task / 'shards').iterdir())
  assert len(shards) > 2
  shards[0].unlink()
  _damage(
    {
      'shard': shards[1],
      'generation': task / 'generation-1.json',
      'cache.json': cache / 'cache.json',
      'digests': task / manifests.FILE,
    }[damaged],
    'flip',
  )
  assert cli.main(['verify', str(cache)]) == 2
  lost = manifests.FILE if damaged == 'digests' else shards[0].name
  assert lost in capsys.readouterr().out
  assert cli.main(['verify', str(cache), '--repair']) == 2
  assert '--vocabulary=DIR --corpus=DIR' in capsys.readouterr().out
  original = originals(Kind.CACHE)
  flags = [
    f'--vocabulary={original.with_name("cache-vocabulary")}',
    f'--corpus={original.with_name("cache-text")}',
  ]
  assert cli.main(['verify', str(cache), '--repair', *flags]) == 0
  assert _content(cache) == before
  same = {n for n, time in _mtimes(cache).items() if times[n] == time}
  lost = (
    {shards[0].name, shards[1].name} if damaged == 'shard' else {shards[0].name}
  )
  if damaged == 'generation':  # The digests of the shards are lost.
    lost = {path.name for path in shards}
  assert same == times.keys() - lost


def test_findings_in_json_format(copy, capsys):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()
  assert cli.main(['verify', str(run), '--json']) == 2
  [report] = json.loads(capsys.readouterr().out)
  assert report['kind'] == 'run'
  assert report['findings'][0] == {
    'item': 'config.gin',
    'problems': ['config.gin is missing'],
    'details': '',
    'fix': 'Restore the file from a backup.',
    'can_be_repaired': True,
  }
  assert cli.main(['verify', str(run), '--repair']) == 0
  assert 'config.gin: ' in capsys.readouterr().err


def test_failed_repair_is_not_retried(copy, monkeypatch):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()

  def full(*_):
    raise OSError('No space left')

  monkeypatch.setattr(manifests, 'write_files', full)
  report, messages = _repair(run)
  [message] = messages
  assert 'config.gin' in message and 'No space left' in message
  assert not report.is_valid and verification.verify_directory(run) == report
