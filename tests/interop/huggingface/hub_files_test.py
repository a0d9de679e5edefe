"""Models by their names on the Hub, from a stand-in of it on loopback."""

import base64
import hashlib
import http.server
import json
import threading

import pytest
from huggingface_hub import constants, hf_api

import xlflax
from tests.interop.huggingface import handmade
from xlflax.foundation import errors
from xlflax.interop.huggingface import hub_files, importing

_COMMIT = '0123456789abcdef0123456789abcdef01234567'
_MODEL = '/api/models/org/name'


class _Hub(http.server.BaseHTTPRequestHandler):
  """Answers what `snapshot_download` asks of a repository."""

  folder = None
  asked: list[str] = []
  sent: dict[str, bytes] = {}

  def do_HEAD(self):
    self.do_GET(body=False)

  def do_GET(self, body=True):
    path = self.path.partition('?')[0]
    self.asked.append(path)
    if path in (
      _MODEL,
      f'{_MODEL}/revision/main',
      f'{_MODEL}/revision/{_COMMIT}',
    ):
      names = sorted(p.name for p in self.folder.iterdir())
      content = json.dumps(
        {
          'id': 'org/name',
          'sha': _COMMIT,
          'siblings': [{'rfilename': name} for name in names],
        }
      ).encode()
      return self._answer(content, body)
    if path.startswith(f'{_MODEL}/tree/'):
      listed = [
        {
          'type': 'file',
          'path': p.name,
          'size': p.stat().st_size,
          'oid': hashlib.sha1(p.read_bytes()).hexdigest(),
        }
        for p in sorted(self.folder.iterdir())
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
    self.asked.append(path)
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


@pytest.fixture
def hub(tmp_path, monkeypatch):
  """The folder that the stand-in serves, and the paths it was asked for."""
  folder = tmp_path / 'repository'
  folder.mkdir()
  handmade.write(folder)
  (folder / 'tf_model.h5').write_bytes(b'x' * 100)
  (folder / 'pytorch_model.bin').write_bytes(b'x' * 100)
  monkeypatch.setattr(_Hub, 'folder', folder)
  monkeypatch.setattr(_Hub, 'asked', [])
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
  yield folder, _Hub.asked
  server.shutdown()
  server.server_close()


def test_a_model_is_fetched_by_its_name(hub, tmp_path):
  _, asked = hub
  run = xlflax.from_huggingface('org/name', model_dir=tmp_path / 'run')
  assert run.steps == [0]
  record = json.loads((tmp_path / 'run' / importing.RECORD).read_text())
  assert record['hub'] == {'repository': 'org/name', 'revision': _COMMIT}
  assert not [p for p in asked if p.endswith(('.h5', '.bin'))]
  assert [p for p in asked if p.endswith('/model.safetensors')]


def test_offline_the_cache_is_read(hub, monkeypatch):
  found = hub_files.folder_of('org/name@main')
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  assert hub_files.folder_of('org/name') == found


def test_what_is_not_there_is_said(hub):
  with pytest.raises(errors.CheckpointError) as caught:
    hub_files.folder_of('org/other')
  assert 'hf download org/other' in caught.value.fix


def test_a_folder_is_uploaded_for_its_owner_alone(hub, tmp_path, monkeypatch):
  monkeypatch.setenv('HF_TOKEN', 'hf_of_the_test')
  (tmp_path / 'mine').mkdir()
  (tmp_path / 'mine/config.json').write_text('{"model_type": "bert"}')
  address = hub_files.push(tmp_path / 'mine', 'org/name')
  assert address.endswith('/org/name')
  created = json.loads(_Hub.sent['/api/repos/create'])
  assert created['visibility' if 'visibility' in created else 'private'] in (
    True,
    'private',
  )
  commit = _Hub.sent[f'{_MODEL}/commit/main'].decode().splitlines()
  (file,) = [
    line['value'] for line in map(json.loads, commit) if line['key'] == 'file'
  ]
  assert file['path'] == 'config.json'
  assert b'bert' in base64.b64decode(file['content'])


def test_a_hub_that_refuses_is_named(hub, tmp_path, monkeypatch):
  monkeypatch.delattr(_Hub, 'do_POST')
  with pytest.raises(errors.CheckpointError) as caught:
    hub_files.push(tmp_path, 'org/name')
  assert 'hf auth login' in caught.value.fix
