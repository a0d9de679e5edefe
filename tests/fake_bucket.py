"""Local server with the JSON API of Google Cloud Storage.

Implements what gcsfs, google-cloud-storage and TensorStore's driver use:
objects with generations, conditional requests, ranges, listings with prefixes,
the three types of uploads, copies and deletions.
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


# gcsfs reads it on import. Otherwise, it queries the type of each bucket from
# Google's servers over another protocol.
os.environ['GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT'] = 'false'

_LASTING = contextlib.ExitStack()
atexit.register(_LASTING.close)  # its threads no longer run after this


class Bucket:
  """Objects by name, as (generation, content).

  Attributes:
    name: Name of the bucket.
    objects: Mapping from name to (generation, content).
    writable: Whether uploads are allowed. If False, they fail with the error
      for missing permissions.
    silent: Whether to leave requests without an answer, like a lost network.
    every: A request fails with a temporary error (503, 500) or truncated
      content if its number is a multiple of this value. If 0, no request fails.
    num_faults: Number of requests that have failed so far.
    stale: Seconds until listings show a change to an object for which `late` is
      true.
    late: Function that returns whether listings show an object's changes late,
      given its name.
    num_stale_listings: Number of listings that were stale.
  """

  def __init__(self, name: str = 'bucket'):
    self.name = name
    self.objects: dict[str, tuple[int, bytes]] = {}
    self.writable = True
    self.silent = False
    self.lock = threading.Lock()
    self.sessions: dict[str, str] = {}
    self.every = self.num_faults = 0
    self.stale, self.num_stale_listings = 0.0, 0
    self.late: Callable[[str], bool] = lambda name: True
    # Name -> time of the change and previous value.
    self._changes: dict[str, list] = collections.defaultdict(list)
    self._generations, self._requests = (
      itertools.count(1000),
      itertools.count(1),
    )

  def goes_wrong(self) -> bool:
    """Returns whether this request fails."""
    number = next(self._requests)
    is_faulty = bool(self.every) and number % self.every == 0
    self.num_faults += is_faulty
    return is_faulty

  def put(self, name: str, content: bytes) -> dict:
    self._changes[name].append((time.monotonic(), self.objects.get(name)))
    self.objects[name] = (next(self._generations), content)
    return self.describe(name)

  def delete(self, name: str) -> None:
    self._changes[name].append((time.monotonic(), self.objects.pop(name)))

  def listed(self) -> dict[str, tuple[int, bytes]]:
    """Returns the objects in a listing, as they were `stale` seconds ago."""
    listed_objects, moment = dict(self.objects), time.monotonic() - self.stale
    for name in filter(self.late, self._changes):
      for when, before in reversed(self._changes[name]):
        if when < moment:
          break
        listed_objects.pop(name, None)
        if before is not None:
          listed_objects[name] = before
    self.num_stale_listings += listed_objects != self.objects
    return listed_objects

  def describe(self, name: str, entry: tuple[int, bytes] | None = None) -> dict:
    generation, content = entry or self.objects[name]
    # Each change is one second after the previous one.
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
    for name, entry in sorted(self.listed().items()):
      suffix = name.removeprefix(prefix)
      if not name.startswith(prefix):
        continue
      if delimiter and delimiter in suffix:
        prefixes.add(prefix + suffix.split(delimiter)[0] + delimiter)
      else:
        items.append(self.describe(name, entry))
    return {
      'kind': 'storage#objects',
      'items': items,
      'prefixes': sorted(prefixes),
    }

  def allows(self, name: str, query: dict[str, str]) -> bool:
    """Returns whether the conditions of a request hold."""
    generation = self.objects.get(name, (0, b''))[0]
    expected_generation = query.get('ifGenerationMatch')
    return expected_generation is None or int(expected_generation) == generation


class _Handler(http.server.BaseHTTPRequestHandler):
  """Handler of one connection."""

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
    """Closes the connection before the announced content is complete."""
    self.send_response(200)
    self.send_header('Content-Length', '1000000')
    self.end_headers()
    self.wfile.write(b'{')
    self.close_connection = True

  def _refuse(self, status, message):
    self._answer(status, {'error': {'code': status, 'message': message}})

  def _request(self):
    """Returns path (escaped), query and body."""
    parsed = urllib.parse.urlsplit(self.path)
    query = dict(urllib.parse.parse_qsl(parsed.query))
    length = int(self.headers.get('Content-Length') or 0)
    body = self.rfile.read(length) if length else self._chunks()
    return parsed.path, query, body

  def _chunks(self):
    """Reads the body of a request with chunked encoding."""
    chunks = []
    if self.headers.get('Transfer-Encoding') == 'chunked':
      while size := int(self.rfile.readline(), 16):
        chunks.append(self.rfile.read(size))
        self.rfile.readline()
      self.rfile.readline()
    return b''.join(chunks)

  def _handle(self):
    path, query, body = self._request()
    while self.bucket.silent:
      time.sleep(0.05)
    if self.bucket.goes_wrong():
      kind = self.bucket.num_faults % 3
      if kind or self.command != 'GET':
        return self._refuse((503, 500)[kind % 2], 'Try again.')
      return self._cut()
    match = re.search('/b/([^/]+)', path)
    if match and match[1] != self.bucket.name:
      return self._refuse(404, 'The specified bucket does not exist.')
    with self.bucket.lock:
      if path.startswith('/upload/'):
        return self._upload(path, query, body)
      if copy := COPY.fullmatch(path):
        return self._copy(
          *map(urllib.parse.unquote, copy.groups()[1:]),
          keep='moveTo' not in path,
        )
      if match := OBJECT.fullmatch(path):
        return self._object(urllib.parse.unquote(match[2]), query)
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
    copied = self.bucket.put(target, self.bucket.objects[source][1])
    if not keep:
      self.bucket.delete(source)
      return self._answer(value=copied)
    return self._answer(value={'done': True, 'resource': copied})

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
    range_match = re.fullmatch(
      r'bytes=(\d*)-(\d*)', self.headers.get('Range', '')
    )
    if not range_match:
      return self._answer(content=content, **headers)
    first, last = range_match.groups()
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


def client_environment(address: str) -> dict[str, str]:
  """Returns the environment with which all clients use a server."""
  return {
    'STORAGE_EMULATOR_HOST': address,
    'TENSORSTORE_GCS_HTTP_URL': address,
    'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    # Otherwise, each thread searches for Google's machines for seconds.
    'FSSPEC_GCS_TOKEN': 'anon',
    'GOOGLE_CLOUD_PROJECT': 'test',
  }


@functools.cache
def get_shared_bucket() -> Bucket:
  """Returns the bucket of this process's own clients, which is never stopped.

  The clients read the address only once.
  """
  bucket, address = _LASTING.enter_context(serve_bucket())
  os.environ.update(client_environment(address))
  import fsspec.config  # a dependency of gcsfs

  fsspec.config.conf.setdefault('gcs', {})['token'] = 'anon'
  return bucket


@contextlib.contextmanager
def serve_bucket(name: str = 'bucket'):
  """Serves a bucket in this context; yields the bucket and its address."""
  bucket = Bucket(name)
  handler = type('Handler', (_Handler,), {'bucket': bucket})
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
  server.daemon_threads = True
  server.handle_error = lambda *_: None  # clients close their connections
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield bucket, f'http://127.0.0.1:{server.server_address[1]}'
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
