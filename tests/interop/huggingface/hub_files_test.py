"""Downloads from and uploads to a fake Hugging Face Hub on localhost."""

import base64
import hashlib
import http.server
import json
import threading
import time

import pytest
from huggingface_hub import constants, hf_api

import xlflax
from tests.errors import assert_mentions, raises_error
from tests.interop.huggingface import handmade
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax import cli
from xlflax.interop.huggingface import (
  folder_writer,
  hub_files,
  huggingface_export,
  huggingface_import,
)
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_COMMIT = '0123456789abcdef0123456789abcdef01234567'
_MODEL = '/api/models/org/name'


class _Hub(http.server.BaseHTTPRequestHandler):
  """Fake Hub that serves one repository and records requests."""

  folder = None
  requested_paths: list[str] = []
  sent: dict[str, bytes] = {}

  def do_HEAD(self):
    self.do_GET(body=False)

  def do_GET(self, body=True):
    path = self.path.partition('?')[0]
    self.requested_paths.append(path)
    if path in (
      _MODEL,
      f'{_MODEL}/revision/main',
      f'{_MODEL}/revision/{_COMMIT}',
    ):
      names = sorted(p.name for p in _files(self.folder))
      content = json.dumps(
        {
          'id': 'org/name',
          'sha': _COMMIT,
          'siblings': [{'rfilename': name} for name in names],
        }
      ).encode()
      return self._answer(content, body)
    if path.startswith((f'{_MODEL}/tree/', '/api/models/org/new/tree/')):
      listed = [
        {
          'type': 'file',
          'path': p.relative_to(self.folder).as_posix(),
          'size': p.stat().st_size,
          'oid': hashlib.sha1(p.read_bytes()).hexdigest(),
        }
        for p in _files(self.folder)
      ]
      return self._answer(json.dumps(listed).encode(), body)
    file = self.folder / path.rpartition('/')[2]
    if path.startswith('/org/name/resolve/') and file.is_file():
      return self._answer(file.read_bytes(), body)
    self.send_response(404)
    self.send_header('X-Error-Code', 'RepoNotFound')
    self.send_header('Content-Length', '0')
    self.end_headers()

  def do_POST(self):
    path = self.path.partition('?')[0]
    length = int(self.headers.get('Content-Length') or 0)
    content = self.rfile.read(length)
    self.requested_paths.append(path)
    self.sent[path] = content
    url = f'http://{self.headers["Host"]}/org/name'
    if path.endswith('/preupload/main'):
      answer = {
        'files': [
          {'path': f['path'], 'uploadMode': 'regular', 'shouldIgnore': False}
          for f in json.loads(content)['files']
        ]
      }
    elif path.endswith('/commit/main'):
      answer = {
        'commitUrl': f'{url}/commit/{_COMMIT}',
        'commitOid': _COMMIT,
        'commitMessage': 'm',
      }
    else:
      answer = {'url': url, 'name': 'org/name'}
    self._answer(json.dumps(answer).encode(), True)

  def _answer(self, content, body):
    self.send_response(200)
    self.send_header('Content-Type', 'application/json')
    self.send_header('X-Repo-Commit', _COMMIT)
    self.send_header('ETag', f'"{hashlib.sha1(content).hexdigest()}"')
    self.send_header('Content-Length', str(len(content)))
    self.end_headers()
    if body:
      self.wfile.write(content)

  def log_message(self, *args):
    pass


def _files(folder):
  return sorted(path for path in folder.rglob('*') if path.is_file())


@pytest.fixture
def hub(tmp_path, monkeypatch):
  """Fixture with the served folder and the list of requested paths."""
  folder = tmp_path / 'repository'
  folder.mkdir()
  handmade.write_folder(folder)
  (folder / 'tf_model.h5').write_bytes(b'x' * 100)
  (folder / 'pytorch_model.bin').write_bytes(b'x' * 100)
  monkeypatch.setattr(_Hub, 'folder', folder)
  monkeypatch.setattr(_Hub, 'requested_paths', [])
  monkeypatch.setattr(_Hub, 'sent', {})
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Hub)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  endpoint = f'http://127.0.0.1:{server.server_port}'
  monkeypatch.setattr(constants, 'ENDPOINT', endpoint)
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
  monkeypatch.setattr(
    constants,
    'HUGGINGFACE_CO_URL_TEMPLATE',
    constants.ENDPOINT + '/{repo_id}/resolve/{revision}/{filename}',
  )
  monkeypatch.setattr(hf_api.api, 'endpoint', endpoint)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
  yield folder, _Hub.requested_paths
  server.shutdown()
  server.server_close()


def test_model_is_downloaded_by_name(hub, tmp_path):
  _, requests = hub
  run = xlflax.from_huggingface('org/name', model_dir=tmp_path / 'run')
  assert run.steps == [0]
  record = json.loads(
    (tmp_path / 'run' / huggingface_import.RECORD).read_text()
  )
  assert record['hub'] == {'repository': 'org/name', 'revision': _COMMIT}
  assert not [p for p in requests if p.endswith(('.h5', '.bin'))]
  assert [p for p in requests if p.endswith('/model.safetensors')]


def test_offline_mode_reads_the_cache(hub, monkeypatch):
  folder = hub_files.resolve_folder('org/name@main')
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  assert hub_files.resolve_folder('org/name') == folder


def test_missing_repository_raises(hub):
  with raises_error(errors.CheckpointError, mentions='org/other') as caught:
    hub_files.resolve_folder('org/other')
  assert_mentions(caught.value.fix, 'hf auth login')


def test_similar_local_folder_is_suggested(hub, tmp_path, monkeypatch):
  (tmp_path / 'org/other').mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  with raises_error(errors.CheckpointError, fix='Did you mean org/other?'):
    hub_files.resolve_folder('org/othr')


def test_failed_connection_is_not_retried(hub, monkeypatch):
  _, requests = hub
  start = time.monotonic()
  monkeypatch.setattr(hf_api.api, 'endpoint', 'http://127.0.0.1:9')
  with raises_error(errors.CheckpointError, mentions='org/other') as caught:
    hub_files.resolve_folder('org/other')
  assert time.monotonic() - start < 5 and not requests
  assert 'local_files_only' not in str(caught.value)
  assert_mentions(caught.value.fix, 'hf download org/other')


def test_run_directories_are_rejected(tmp_path):
  (tmp_path / 'model.json').write_text('{}')
  with raises_error(
    errors.ConfigError, got='model.json', where=tmp_path
  ) as caught:
    huggingface_import.check_import(tmp_path)
  assert_mentions(caught.value.fix, f'xlflax convert to-hf {tmp_path}')


@pytest.fixture
def exported(run_of, tmp_path):
  """Folder written by `to-hf` whose model card was edited."""
  directory, *_ = run_of()
  folder = tmp_path / 'mine'
  folder_writer.write_folder(
    huggingface_export.check_export(directory), folder, license='mit'
  )
  with (folder / 'README.md').open('a') as card:
    card.write('It is for tests.\n')
  (folder / 'notes.txt').write_text('not for others')
  return folder


def test_push_creates_a_private_repository(hub, exported, monkeypatch, capfd):
  monkeypatch.setenv('HF_TOKEN', 'hf_of_the_test')
  assert cli.main(['push-to-hub', str(exported), 'org/new']) == 0
  assert '/org/new' in capfd.readouterr().out
  created = json.loads(_Hub.sent['/api/repos/create'])
  assert created.get('visibility', created.get('private')) in (True, 'private')
  commit = _Hub.sent['/api/models/org/new/commit/main'].decode().splitlines()
  sent = {
    line['value']['path']: base64.b64decode(line['value']['content'])
    for line in map(json.loads, commit)
    if line['key'] == 'file'
  }
  assert 'notes.txt' not in sent
  assert {name: (exported / name).read_bytes() for name in sent} == sent
  assert b'It is for tests.' in sent['README.md']
  assert {'config.json', 'model.safetensors', 'digests.json'} <= sent.keys()
  # The digest of the edited card is up to date.
  huggingface_import.check_digests(exported)


def test_push_deletes_stale_model_files(hub, exported, monkeypatch):
  """Stale shards, ONNX graphs and module lists are deleted."""
  folder, _ = hub
  stale = {
    'model-00001-of-00002.safetensors',
    'model.safetensors.index.json',
    'onnx/model.onnx',
    'modules.json',
  }
  unused_files = ('adapter_model.safetensors', 'models/x.safetensors')
  for name in (*stale, *unused_files):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b'old')
  monkeypatch.setenv('HF_TOKEN', 'hf_of_the_test')
  assert cli.main(['push-to-hub', str(exported), 'org/new']) == 0
  commit = _Hub.sent['/api/models/org/new/commit/main'].decode().splitlines()
  gone = {
    line['value']['path']
    for line in map(json.loads, commit)
    if line['key'] == 'deletedFile'
  }
  assert gone == stale


def test_dry_run_sends_no_requests(hub, exported, capfd):
  assert cli.main(['push-to-hub', str(exported), 'org/new', '--dry_run']) == 0
  assert not _Hub.requested_paths and not _Hub.sent
  output = capfd.readouterr().out
  assert 'model.safetensors' in output and 'license: mit' in output
  assert 'notes.txt' not in output and 'org/new' in output


def test_public_flag_creates_a_public_repository(hub, exported, monkeypatch):
  monkeypatch.setenv('HF_TOKEN', 'hf_of_the_test')
  assert cli.main(['push-to-hub', str(exported), 'org/new', '--public']) == 0
  created = json.loads(_Hub.sent['/api/repos/create'])
  assert created.get('visibility', created.get('private')) in (False, 'public')


def test_changed_folders_are_not_pushed(hub, exported):
  config = exported / 'config.json'
  size = config.stat().st_size
  config.write_text('{}')
  with raises_error(
    errors.CheckpointError, where='mine', mentions=('config.json', 2, size)
  ):
    hub_files.prepare_upload(exported)


@pytest.mark.parametrize('card', ['', '---\nlicense: [\n---\n'])
def test_invalid_model_cards_are_not_pushed(exported, card):
  (exported / 'README.md').write_text(card)
  if card:
    with raises_error(
      errors.CheckpointError, where='README.md', mentions='ParserError'
    ):
      hub_files.prepare_upload(exported)
  else:
    assert_mentions(hub_files.prepare_upload(exported), 'license', 'language')


@pytest.mark.parametrize('name', ['mine', 'org/new/er', 'org/--', ''])
def test_invalid_repository_names_are_rejected(exported, name, capfd):
  assert cli.main(['push-to-hub', str(exported), name, '--dry_run']) == 2
  assert capfd.readouterr().err


def test_failed_push_suggests_to_log_in(hub, exported, monkeypatch):
  monkeypatch.delattr(_Hub, 'do_POST')
  with pytest.raises(errors.CheckpointError) as caught:
    hub_files.push_to_hub(hub_files.prepare_upload(exported), 'org/new')
  assert 'hf auth login' in caught.value.fix
