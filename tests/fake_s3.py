"""Local S3 server: moto's, with optional faults."""

import atexit
import contextlib
import functools
import itertools
import os
import pathlib
import threading

import pytest


class _Faults:
  """Answers every n-th request with an error, like a store under load.

  Attributes:
    every: A request fails if its number is a multiple of this value. If 0, no
      request fails.
    num_faults: Number of requests that have failed so far.
  """

  def __init__(self, app):
    self._app, self._numbers = app, itertools.count(1)
    self.every = self.num_faults = 0

  def __call__(self, environ, start_response):
    number = next(self._numbers)
    if not self.every or number % self.every:
      return self._app(environ, start_response)
    self.num_faults += 1
    code = ('503 Slow Down', '500 Internal Error')[self.num_faults % 2]
    environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    name = code[4:].replace(' ', '')
    body = f'<Error><Code>{name}</Code><Message>x</Message></Error>'.encode()
    start_response(code, [('Content-Length', str(len(body)))])
    return [body]


def client_environment(address: str) -> dict[str, str]:
  """Returns the environment with which all clients use a server."""
  return {
    'AWS_ENDPOINT_URL': address,
    'AWS_ACCESS_KEY_ID': 'test',
    'AWS_SECRET_ACCESS_KEY': 'test',
    'AWS_REGION': 'us-east-1',
    'AWS_DEFAULT_REGION': 'us-east-1',
  }


@contextlib.contextmanager
def serve_store():
  """Serves a bucket `bucket` in this context; yields the faults and address."""
  pytest.importorskip('s3fs')
  pytest.importorskip('moto.server')
  from moto.moto_server import werkzeug_app
  from werkzeug import serving

  faults = _Faults(
    werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app)
  )
  server = serving.make_server(
    '127.0.0.1', 0, faults, threaded=True, request_handler=_quiet()
  )
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  address = f'http://127.0.0.1:{server.server_port}'
  try:
    _client(address).create_bucket(Bucket='bucket')
    yield faults, address
  finally:
    server.shutdown()
    thread.join()


def _client(address: str):
  import boto3

  return boto3.client(
    's3',
    endpoint_url=address,
    aws_access_key_id='test',
    aws_secret_access_key='test',
    region_name='us-east-1',
  )


def upload_files(address: str, folder: pathlib.Path, name: str) -> None:
  """Uploads files as objects below a prefix."""
  client = _client(address)
  for path in sorted(folder.rglob('*')):
    if path.is_file():
      key = f'{name}/{path.relative_to(folder).as_posix()}'
      client.upload_file(str(path), 'bucket', key)


def list_objects(address: str, prefix: str) -> list[str]:
  """Returns the names of the objects with a prefix."""
  listing = _client(address).list_objects_v2(Bucket='bucket', Prefix=prefix)
  return [entry['Key'] for entry in listing.get('Contents', ())]


def download_files(
  address: str, name: str, folder: pathlib.Path
) -> pathlib.Path:
  """Downloads the objects below a prefix as files."""
  client = _client(address)
  pages = client.get_paginator('list_objects_v2')
  for page in pages.paginate(Bucket='bucket', Prefix=f'{name}/'):
    for entry in page['Contents']:
      path = folder / entry['Key']
      path.parent.mkdir(parents=True, exist_ok=True)
      client.download_file('bucket', entry['Key'], str(path))
  return folder / name


def _quiet():
  from werkzeug import serving

  class Handler(serving.WSGIRequestHandler):
    """Keeps connections open and logs nothing."""

    protocol_version = 'HTTP/1.1'

    def log(self, *arguments):
      del arguments

  return Handler


_LASTING = contextlib.ExitStack()
atexit.register(_LASTING.close)


@functools.cache
def get_shared_store() -> _Faults:
  """Returns the store of this process's own clients, which is never stopped.

  The clients read the address only once.
  """
  faults, address = _LASTING.enter_context(serve_store())
  os.environ.update(client_environment(address))
  return faults
