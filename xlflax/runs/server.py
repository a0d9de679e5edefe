"""A small web server for one person's browser: `xlflax serve`.

It answers GET requests alone, and only those that name it as the browser of
this machine would: a page elsewhere cannot read it by a name of its own.
"""

import http
import http.server
import logging
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from xlflax.foundation import errors

_LONGEST = 8_000  # characters of a request's path, with its query
_PATIENCE = 30  # seconds that a client may be silent
_LOOPBACK = frozenset({'localhost', '127.0.0.1', '::1'})
# No other host is asked for anything; the pages hold all that they need.
_HEADERS = {
  'Content-Security-Policy': "default-src 'none'; img-src data:; style-src "
  "'unsafe-inline'; script-src 'unsafe-inline'; form-action 'self'; connect-src 'self'",
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'no-store',
}


class Reply(NamedTuple):
  """What a browser or program gets."""

  body: str
  kind: str = 'text/html'
  status: http.HTTPStatus = http.HTTPStatus.OK


# Path and query -> reply; called by one thread at a time.
Answer = Callable[[str, Mapping[str, str]], Reply]


def open_server(
  answer: Answer, *, host: str, port: int
) -> http.server.ThreadingHTTPServer:
  """A server that listens; `serve_forever` answers.

  Args:
    answer: makes replies.
    host: address; others than this machine's let the network in.
    port: 0 takes a free one.

  Raises:
    ConfigError: the address cannot be had.
  """
  lock = threading.Lock()

  def one_at_a_time(path: str, query: Mapping[str, str]) -> Reply:
    with lock:
      return answer(path, query)

  class Handler(_Handler):
    own_hosts = _LOOPBACK | {host}
    reply = staticmethod(one_at_a_time)

  try:
    return http.server.ThreadingHTTPServer((host, port), Handler)
  except OSError as error:
    raise errors.ConfigError(
      'The address cannot be listened at',
      got=f'{host}:{port}: {error.strerror}',
      where='xlflax serve',
      fix='take another --port; 0 takes a free one',
    ) from error


class _Handler(http.server.BaseHTTPRequestHandler):
  """One connection."""

  timeout = _PATIENCE
  own_hosts: frozenset[str]
  reply: Answer

  def do_GET(self) -> None:  # noqa: N802
    """Answers."""
    reply = self._checked() or self._answered()
    body = reply.body.encode()
    self.send_response(reply.status)
    headers = {'Content-Type': f'{reply.kind}; charset=utf-8', **_HEADERS}
    for name, value in headers.items():
      self.send_header(name, value)
    self.end_headers()
    self.wfile.write(body)

  def _checked(self) -> Reply | None:
    """A refusal, or None."""
    name = urllib.parse.urlsplit(f'//{self.headers.get("Host", "")}').hostname
    if '0.0.0.0' not in self.own_hosts and name not in self.own_hosts:
      return _refusal('Not the name of this server', http.HTTPStatus.FORBIDDEN)
    if len(self.path) > _LONGEST:
      status = http.HTTPStatus.REQUEST_URI_TOO_LONG
      return _refusal(f'At most {_LONGEST:,} characters', status)
    return None

  def _answered(self) -> Reply:
    # Bytes of UTF-8, which http.server takes for Latin-1.
    target = self.path.encode('latin-1').decode('utf-8', 'replace')
    url = urllib.parse.urlsplit(target)
    query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
    try:
      return self.reply(url.path, query)
    except Exception:
      logging.exception('A request failed: %s', url.path)
      status = http.HTTPStatus.INTERNAL_SERVER_ERROR
      return _refusal('This is a bug; the log has its traceback', status)

  def log_message(self, format: str, *arguments: object) -> None:
    """Requests are no news."""
    logging.debug(format, *arguments)


def _refusal(text: str, status: http.HTTPStatus) -> Reply:
  return Reply(f'{text}.\n', 'text/plain', status)
