"""A server on this machine that speaks the JSON API of Google's buckets.

As much of it as gcsfs, google-cloud-storage and TensorStore's driver use:
objects with generations, conditional requests, ranges, listings with
prefixes, the three kinds of uploads, copies and deletions.
"""

import atexit
import collections
import contextlib
import email
import functools
import http.server
import itertools
import json
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Callable

OBJECT = re.compile(r'(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)')
COPY = re.compile(
  r'/storage/v1/b/([^/]+)/o/([^/]+)/(?:rewriteTo|moveTo|'
  r'copyTo)(?:/b/[^/]+)?/o/([^/]+)'
)


# gcsfs reads it when it is imported; otherwise it asks Google's own servers,
# over another protocol, what kind of bucket each is.
os.environ['GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT'] = 'false'

_LASTING = contextlib.ExitStack()
atexit.register(_LASTING.close)  # later, its threads no longer run


class Bucket:
  """Objects by name: (generation, content).

  Attributes:
    name: of the bucket.
    objects: name -> (generation, content).
    writable: False refuses uploads, as missing rights do.
    silent: True leaves requests without an answer, as a lost network does.
    every: each so many requests one goes wrong: refused for now (503, 500), or
      cut off in its content; 0: none.
    told: how many did.
    stale: so many seconds a list does not know of a change.
    late: whether lists are stale of an object.
    misled: how many lists were not true.
  """

  def __init__(self, name: str = 'bucket'):
    self.name = name
    self.objects: dict[str, tuple[int, bytes]] = {}
    self.writable = True
    self.silent = False
    self.lock = threading.Lock()
    self.sessions: dict[str, str] = {}
    self.every = self.told = 0
    self.stale, self.misled = 0.0, 0
    self.late: Callable[[str], bool] = lambda name: True
    # Name -> when it changed, and what it was before.
    self._changes: dict[str, list] = collections.defaultdict(list)
    self._generations, self._requests = (
      itertools.count(1000),
      itertools.count(1),
    )

  def goes_wrong(self) -> bool:
    """Whether this request does."""
    number = next(self._requests)
    wrong = bool(self.every) and number % self.every == 0
    self.told += wrong
    return wrong

  def put(self, name: str, content: bytes) -> dict:
    self._changes[name].append((time.monotonic(), self.objects.get(name)))
    self.objects[name] = (next(self._generations), content)
    return self.describe(name)

  def delete(self, name: str) -> None:
    self._changes[name].append((time.monotonic(), self.objects.pop(name)))

  def listed(self) -> dict[str, tuple[int, bytes]]:
    """What a list shows: objects as they were `stale` seconds ago."""
    shown, moment = dict(self.objects), time.monotonic() - self.stale
    for name in filter(self.late, self._changes):
      for when, before in reversed(self._changes[name]):
        if when < moment:
          break
        shown.pop(name, None)
        if before is not None:
          shown[name] = before
    self.misled += shown != self.objects
    return shown

  def describe(self, name: str, found: tuple[int, bytes] | None = None) -> dict:
    generation, content = found or self.objects[name]
    # Each change is a second after the one before.
    moment = time.gmtime(1767225600 + generation)
    updated = time.strftime('%Y-%m-%dT%H:%M:%S.000Z', moment)
    return {
      'kind': 'storage#object',
      'name': name,
      'bucket': self.name,
      'id': f'{self.name}/{name}/{generation}',
      'generation': str(generation),
      'metageneration': '1',
      'size': str(len(content)),
      'updated': updated,
      'timeCreated': updated,
      'contentType': 'application/octet-dataset',
    }

  def listing(self, query: dict[str, str]) -> dict:
    prefix, delimiter = query.get('prefix', ''), query.get('delimiter')
    items, prefixes = [], set()
    for name, found in sorted(self.listed().items()):
      rest = name.removeprefix(prefix)
      if not name.startswith(prefix):
        continue
      if delimiter and delimiter in rest:
        prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
      else:
        items.append(self.describe(name, found))
    return {
      'kind': 'storage#objects',
      'items': items,
      'prefixes': sorted(prefixes),
    }

  def allows(self, name: str, query: dict[str, str]) -> bool:
    """Whether the conditions of a request hold."""
    generation = self.objects.get(name, (0, b''))[0]
    wanted = query.get('ifGenerationMatch')
    return wanted is None or int(wanted) == generation


class _Handler(http.server.BaseHTTPRequestHandler):
  """One connection."""

  protocol_version = 'HTTP/1.1'
  bucket: Bucket

  def log_message(self, *arguments):
    del arguments

  def _answer(self, status=200, value=None, content=b'', **headers):
    if value is not None:
      content = json.dumps(value).encode()
      headers['Content_Type'] = 'application/json'
    self.send_response(status)
    for name, text in headers.items():
      self.send_header(name.replace('_', '-'), text)
    self.send_header('Content-Length', str(len(content)))
    self.end_headers()
    self.wfile.write(content)

  def _cut(self):
    """Ends the connection before what was promised has come."""
    self.send_response(200)
    self.send_header('Content-Length', '1000000')
    self.end_headers()
    self.wfile.write(b'{')
    self.close_connection = True

  def _refuse(self, status, message):
    self._answer(status, {'error': {'code': status, 'message': message}})

  def _request(self):
    """Path (escaped), query and body."""
    parsed = urllib.parse.urlsplit(self.path)
    query = dict(urllib.parse.parse_qsl(parsed.query))
    length = int(self.headers.get('Content-Length') or 0)
    body = self.rfile.read(length) if length else self._chunks()
    return parsed.path, query, body

  def _chunks(self):
    """The body of a request that comes in chunks."""
    parts = []
    if self.headers.get('Transfer-Encoding') == 'chunked':
      while size := int(self.rfile.readline(), 16):
        parts.append(self.rfile.read(size))
        self.rfile.readline()
      self.rfile.readline()
    return b''.join(parts)

  def _handle(self):
    path, query, body = self._request()
    while self.bucket.silent:
      time.sleep(0.05)
    if self.bucket.goes_wrong():
      kind = self.bucket.told % 3
      if kind or self.command != 'GET':
        return self._refuse((503, 500)[kind % 2], 'Try again.')
      return self._cut()
    found = re.search('/b/([^/]+)', path)
    if found and found[1] != self.bucket.name:
      return self._refuse(404, 'The specified bucket does not exist.')
    with self.bucket.lock:
      if path.startswith('/upload/'):
        return self._upload(path, query, body)
      if copy := COPY.fullmatch(path):
        return self._copy(
          *map(urllib.parse.unquote, copy.groups()[1:]),
          keep='moveTo' not in path,
        )
      if found := OBJECT.fullmatch(path):
        return self._object(urllib.parse.unquote(found[2]), query)
      if path.endswith('/o'):
        return self._answer(value=self.bucket.listing(query))
      return self._answer(
        value={
          'kind': 'storage#bucket',
          'id': self.bucket.name,
          'name': self.bucket.name,
          'location': 'US',
          'storageClass': 'STANDARD',
          'locationType': 'region',
        }
      )

  do_GET = do_POST = do_PUT = do_DELETE = _handle

  def _copy(self, source, target, *, keep):
    if source not in self.bucket.objects:
      return self._refuse(404, f'No such object: {source}')
    made = self.bucket.put(target, self.bucket.objects[source][1])
    if not keep:
      self.bucket.delete(source)
      return self._answer(value=made)
    return self._answer(value={'done': True, 'resource': made})

  def _object(self, name, query):
    objects = self.bucket.objects
    if name not in objects:
      return self._refuse(404, f'No such object: {name}')
    if not self.bucket.allows(name, query):
      return self._refuse(412, 'Precondition Failed')
    if self.command == 'DELETE':
      self.bucket.delete(name)
      return self._answer(204)
    generation, content = objects[name]
    if query.get('ifGenerationNotMatch') == str(generation):
      return self._answer(304)
    if query.get('alt') != 'media':
      return self._answer(value=self.bucket.describe(name))
    return self._content(generation, content)

  def _content(self, generation, content):
    headers = {
      'x_goog_generation': str(generation),
      'x_goog_stored_content_length': str(len(content)),
      'Content_Type': 'application/octet-dataset',
    }
    wanted = re.fullmatch(r'bytes=(\d*)-(\d*)', self.headers.get('Range', ''))
    if not wanted:
      return self._answer(content=content, **headers)
    first, last = wanted.groups()
    start = int(first) if first else max(0, len(content) - int(last))
    stop = min(int(last) + 1 if first and last else len(content), len(content))
    if start >= len(content):
      return self._refuse(416, 'Requested range not satisfiable')
    return self._answer(
      206,
      content=content[start:stop],
      **headers,
      Content_Range=f'bytes {start}-{stop - 1}/{len(content)}',
    )

  def _upload(self, path, query, body):
    if not self.bucket.writable:
      return self._refuse(
        403,
        'The caller does not have storage.objects.create access to the bucket.',
      )
    kind, name = query.get('uploadType'), query.get('name')
    if kind == 'resumable' and 'upload_id' in query:
      name = self.bucket.sessions.pop(query['upload_id'])
    elif kind == 'resumable':
      session = str(len(self.bucket.sessions) + 1)
      self.bucket.sessions[session] = name or json.loads(body)['name']
      return self._answer(
        value={},
        Location=(
          f'http://{self.headers["Host"]}{path}?uploadType=resumable'
          f'&upload_id={session}'
        ),
      )
    elif kind == 'multipart':
      described, media = email.message_from_bytes(
        b'Content-Type: '
        + self.headers['Content-Type'].encode()
        + b'\r\n\r\n'
        + body
      ).get_payload()
      name = name or json.loads(described.get_payload())['name']
      body = media.get_payload(decode=True)
    if not self.bucket.allows(name, query):
      return self._refuse(412, 'Precondition Failed')
    return self._answer(value=self.bucket.put(name, body))


def variables(address: str) -> dict[str, str]:
  """The environment in which all clients talk to a server at an address."""
  return {
    'STORAGE_EMULATOR_HOST': address,
    'TENSORSTORE_GCS_HTTP_URL': address,
    'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    # Or each thread looks for Google's own machines, for seconds.
    'FSSPEC_GCS_TOKEN': 'anon',
    'GOOGLE_CLOUD_PROJECT': 'test',
  }


@functools.cache
def shared() -> Bucket:
  """One that this process's own clients see; it lasts as long as they.

  The clients read the address once.
  """
  bucket, address = _LASTING.enter_context(serve())
  os.environ.update(variables(address))
  import fsspec.config  # gcsfs brings it

  fsspec.config.conf.setdefault('gcs', {})['token'] = 'anon'
  return bucket


@contextlib.contextmanager
def serve(name: str = 'bucket'):
  """Context with (the bucket, its address)."""
  bucket = Bucket(name)
  handler = type('Handler', (_Handler,), {'bucket': bucket})
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
  server.daemon_threads = True
  server.handle_error = lambda *_: None  # clients hang up
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield bucket, f'http://127.0.0.1:{server.server_address[1]}'
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
