"""What can be made again is, bit by bit; of the rest it is said why not."""

import json
import os
import shutil

import pytest

from tests.integrity import artefacts
from xlflax import cli, integrity
from xlflax.integrity import repair, verification
from xlflax.storage import directory_lease, manifests
from xlflax.utils import errors

Kind = manifests.Kind


@pytest.fixture(scope='module')
def originals(tmp_path_factory):
  """A function that makes an artefact of a kind, once."""
  known = {}

  def make(kind, **options):
    if kind not in known:
      directory = tmp_path_factory.mktemp('whole') / 'artefact'
      artefacts.MAKERS[kind](directory, 0, **options)
      known[kind] = directory
    return known[kind]

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


def _repaired(directory):
  said: list[str] = []
  found = integrity.repair_directory(directory, report=said.append)
  return found, said


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
def test_a_file_of_a_run(copy, name, how):
  run = copy(Kind.RUN)
  before = _content(run)
  _damage(run / name, how)
  assert not integrity.verify_directory(run).is_whole
  found, said = _repaired(run)
  assert found.is_whole, integrity.to_text(found)
  assert _content(run) == before and len(said) == 1


@pytest.mark.parametrize('how', ['delete', 'flip'])
def test_the_manifest_of_a_run(copy, how):
  """Even if another file is damaged at the same time."""
  run = copy(Kind.RUN)
  before = _content(run)
  _damage(run / manifests.FILE, how)
  (run / 'objectives.json').unlink()
  found, said = _repaired(run)
  assert found.is_whole, integrity.to_text(found)
  assert _content(run) == before and len(said) == 2


@pytest.mark.parametrize(
  'name', ['metrics.jsonl', 'checkpoints/2/params/_METADATA']
)
def test_what_of_a_run_cannot_be_made_again(copy, name, capsys):
  run = copy(Kind.RUN)
  _damage(run / name, 'flip')
  found, said = _repaired(run)
  assert said == [] and not found.is_whole
  assert cli.main(['verify', str(run), '--repair']) == 2
  text = capsys.readouterr().out
  assert 'DAMAGED' in text and 'What to do: ' in text and '--repair' not in text


def test_a_run_without_checkpoints_is_begun_again(copy):
  run = copy(Kind.RUN)
  shutil.rmtree(run / 'checkpoints')
  shutil.rmtree(run / 'eval')
  (run / 'trainer.json').unlink()
  found, _ = _repaired(run)
  [one] = (one for one in found.findings if not one.is_whole)
  assert one.what == 'trainer.json' and 'start the same training' in one.fix


def test_names_in_a_checkpoint_do_not_leave_the_run(copy, monkeypatch):
  run = copy(Kind.RUN)
  kept = {'../x': 'x', '/x': 'x', 'a/../../x': 'x', 'a/x': 'x'}
  monkeypatch.setattr(
    repair.checkpoint_items, 'kept_files', lambda checkpoint: kept
  )
  assert repair.kept_files(run) == {'a/x': 'x'}


def test_nobody_else_writes_to_a_run_that_is_mended(copy):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()
  other = os.getppid()  # another process that lives
  owner = directory_lease._owner() | {
    'pid': other,
    'started': directory_lease._started(other),
  }
  (run / directory_lease.FILE).write_text(json.dumps(owner))
  with pytest.raises(errors.RunDirectoryError, match='config|writ'):
    _repaired(run)
  assert not (run / 'config.gin').exists()
  (run / directory_lease.FILE).unlink()
  assert _repaired(run)[0].is_whole


@pytest.mark.parametrize('kind', [Kind.GRID, Kind.SUITE])
def test_the_manifest_of_what_is_gone_on_with(copy, kind):
  """It has the records; the tables come back with the next call."""
  directory = copy(kind)
  (directory / manifests.FILE).write_text('{')
  found, _ = _repaired(directory)
  assert found.is_whole
  known = manifests.read_manifest(directory)
  assert known.kind == kind and len(known.files) == 2


def test_a_report(copy):
  directory = copy(Kind.REPORT)
  for name in ('leaderboard.html', 'scores.csv'):
    (directory / name).unlink()
  before = _content(directory)
  found, said = _repaired(directory)
  assert found.is_whole and 'scores.json' in said[0]
  now = _content(directory)
  assert {
    name: now[name]
    for name in before
    if not name.endswith((manifests.FILE, '.png'))
  } == {
    name: text
    for name, text in before.items()
    if not name.endswith((manifests.FILE, '.png'))
  }
  (directory / 'scores.json').write_text('{}')
  found, said = _repaired(directory)
  assert not found.is_whole and said == []


@pytest.mark.parametrize('kind', [Kind.STATES, Kind.ROWS])
@pytest.mark.parametrize('how', ['delete', 'flip'])
def test_what_is_made_again_when_it_is_needed(copy, kind, how):
  directory = copy(kind)
  path = max(
    path
    for path in directory.iterdir()
    if path.suffix in ('.npz', '')
    and not path.name.endswith('atime')
    and not path.name.startswith('.')
  )
  _damage(path, how)
  found, _ = _repaired(directory)
  assert found.is_whole and not path.exists()


def test_a_prepared_corpus(copy):
  directory = copy(Kind.CORPUS)
  path = directory / 'mono/de.txt'
  _damage(path, 'flip')
  found, said = _repaired(directory)
  assert found.is_whole and not path.exists()
  assert 'xlflax preprocess' in said[0]


def _mtimes(directory):
  return {
    path.name: path.stat().st_mtime_ns
    for path in directory.rglob('*.safetensors')
  }


@pytest.mark.parametrize(
  'damaged', ['shard', 'generation', 'cache.json', 'digests']
)
def test_a_cache_from_its_text(copy, originals, damaged, capsys):
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
  made = originals(Kind.CACHE)
  flags = [
    f'--vocabulary={made.with_name("cache-vocabulary")}',
    f'--corpus={made.with_name("cache-text")}',
  ]
  assert cli.main(['verify', str(cache), '--repair', *flags]) == 0
  assert _content(cache) == before
  same = {n for n, time in _mtimes(cache).items() if times[n] == time}
  lost = (
    {shards[0].name, shards[1].name} if damaged == 'shard' else {shards[0].name}
  )
  if damaged == 'generation':  # nothing says what the task's shards are
    lost = {path.name for path in shards}
  assert same == times.keys() - lost


def test_the_json_of_findings(copy, capsys):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()
  assert cli.main(['verify', str(run), '--json']) == 2
  [told] = json.loads(capsys.readouterr().out)
  assert told['kind'] == 'run'
  assert told['findings'][0] == {
    'what': 'config.gin',
    'problems': ['config.gin is missing'],
    'about': '',
    'fix': 'restore it from a copy',
    'can_be_mended': True,
  }
  assert cli.main(['verify', str(run), '--repair']) == 0
  assert 'config.gin is written again' in capsys.readouterr().err


def test_a_mend_that_fails_is_told_once(copy, monkeypatch):
  run = copy(Kind.RUN)
  (run / 'config.gin').unlink()

  def full(*_):
    raise OSError('No space left')

  monkeypatch.setattr(manifests, 'write_files', full)
  found, said = _repaired(run)
  assert said == ['config.gin could not be mended: No space left']
  assert not found.is_whole and verification.verify_directory(run) == found
