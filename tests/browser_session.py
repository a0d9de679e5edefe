"""Chromium session with window sizes, themes, keys and scripts for tests."""

import base64
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

_AXE = 'axe-core@4.10.3'
_AXE_HASH = (
  'Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs'
  '/PbZhideTcEg=='
)  # SHA-512 of the package
_VIOLATIONS = """axe.run(document, {resultTypes: ['violations']}).then(
  (found) => found.violations.map((one) => one.id + ': ' +
    one.nodes.map((node) => node.html.slice(0, 120)).join(' ')))"""


@functools.cache
def load_axe() -> str | None:
  """Returns the source of axe-core; None if npm cannot download it."""
  if shutil.which('npm') is None:
    return None
  with tempfile.TemporaryDirectory() as folder:
    process = subprocess.run(
      ['npm', 'pack', '--silent', _AXE],
      cwd=folder,
      capture_output=True,
      check=False,
    )
    if process.returncode:
      return None
    (package,) = pathlib.Path(folder).glob('*.tgz')
    digest = hashlib.sha512(package.read_bytes()).digest()
    assert base64.b64encode(digest).decode() == _AXE_HASH
    with tarfile.open(package) as opened:
      member = opened.extractfile('package/axe.min.js')
      assert member is not None
      return member.read().decode()


class Session:
  """Browser tab that is controlled by the DevTools protocol."""

  def __init__(self, sent: int, received: int):
    """Opens a tab over two pipe ends."""
    self._sent, self._received = sent, os.fdopen(received, 'rb')
    self._count, self._rest, self._session = 0, b'', {}
    target = self._call('Target.createTarget', url='about:blank')
    attached = self._call(
      'Target.attachToTarget', targetId=target['targetId'], flatten=True
    )
    self._session = {'sessionId': attached['sessionId']}
    self._call('Page.enable')

  def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
    self._count += 1
    message = {'id': self._count, 'method': method, 'params': parameters}
    os.write(self._sent, json.dumps(message | self._session).encode() + b'\0')
    response = self._until(lambda message: message.get('id') == self._count)
    assert 'result' in response, response
    return response['result']

  def _until(self, fits) -> Mapping[str, Any]:
    while True:
      while b'\0' not in self._rest:
        content = os.read(self._received.fileno(), 1 << 16)
        assert content, 'Chromium is gone'
        self._rest += content
      message, _, self._rest = self._rest.partition(b'\0')
      if fits(response := json.loads(message)):
        return response

  def show(self, url: str, *, width: int, dark: bool) -> None:
    """Opens a page with a window width and a system theme."""
    self._call(
      'Emulation.setDeviceMetricsOverride',
      width=width, height=900, deviceScaleFactor=1, mobile=False,
    )  # fmt: skip
    scheme = {'name': 'prefers-color-scheme'}
    scheme['value'] = 'dark' if dark else 'light'
    self._call('Emulation.setEmulatedMedia', features=[scheme])
    self._call('Page.navigate', url=url)
    self.loaded()

  def loaded(self) -> None:
    """Waits until the page is loaded."""
    self._until(lambda message: message.get('method') == 'Page.loadEventFired')

  def run(self, script: str) -> Any:
    """Returns the value of an expression on the page."""
    response = self._call(
      'Runtime.evaluate',
      expression=script,
      awaitPromise=True,
      returnByValue=True,
    )
    assert 'exceptionDetails' not in response, response
    return response['result'].get('value')

  def press(self, key: str) -> None:
    """Presses a key: 'Tab', 'Enter'."""
    code = {'Tab': 9, 'Enter': 13}[key]
    parameters = {'key': key, 'code': key, 'windowsVirtualKeyCode': code}
    text = {'text': '\r'} if key == 'Enter' else {}
    self._call('Input.dispatchKeyEvent', type='keyDown', **parameters, **text)
    self._call('Input.dispatchKeyEvent', type='keyUp', **parameters)

  def violations(self) -> list[str]:
    """Returns axe-core's violations: contrast, labels, roles, heading order."""
    source = load_axe()
    assert source is not None
    self.run(f'{source};0')
    return self.run(_VIOLATIONS)

  def outside(self) -> int:
    """Returns by how many pixels the page is wider than its window."""
    return self.run('document.documentElement.scrollWidth - window.innerWidth')


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
  """Context manager that runs Chromium."""
  (theirs, sent), (received, responses) = os.pipe(), os.pipe()
  with tempfile.TemporaryDirectory() as profile:
    flags = '--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe'
    command = f'exec chromium {flags} --user-data-dir="$0" "$@"'
    process = subprocess.Popen(
      ['bash', '-c', f'{command} 3<&{theirs} 4>&{responses}', profile],
      pass_fds=(theirs, responses),
      stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(responses)
    try:
      yield Session(sent, received)
    finally:
      process.kill()
      process.wait()
      os.close(sent)
