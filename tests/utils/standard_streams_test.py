"""Standard streams that are closed, full, or have no reader."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from xlflax.utils import standard_streams

_PROGRAM = """
import sys
from xlflax.utils import standard_streams
standard_streams.open_closed_streams()
standard_streams.drop_unread_output(stdout=sys.argv[1] == 'drop')
file = open(sys.argv[2], 'w')  # does not reuse a stream's descriptor
for _ in range(3):
  print('printed')
  sys.stdout.flush()
  print('logged', file=sys.stderr)
print(len(sys.stdin.read()), file=file)
file.close()
standard_streams.drop_pending_output()
"""


def _run(shell: str, how: str, file) -> subprocess.CompletedProcess:
  return subprocess.run(
    ['bash', '-c', f'set -o pipefail; "$0" -c "$1" "$2" "$3" {shell}']
    + [sys.executable, _PROGRAM, how, str(file)],
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
    check=False,
  )


_CLOSED = [
  ' '.join(chosen)
  for count in range(1, 4)
  for chosen in itertools.combinations(('<&-', '>&-', '2>&-'), count)
]


@pytest.mark.parametrize('closed', _CLOSED)
def test_output_to_closed_streams_is_discarded(tmp_path, closed):
  """Files that are opened later do not receive the output of closed streams."""
  done = _run(closed, 'keep', tmp_path / 'file')
  assert done.returncode == 0, done.stderr
  assert (tmp_path / 'file').read_text() == '0\n'
  assert done.stdout == ('' if ' >&-' in f' {closed}' else 'printed\n' * 3)
  assert done.stderr == ('' if '2>&-' in closed else 'logged\n' * 3)


@pytest.mark.parametrize('into', ['| true', '2>&1 >/dev/null | true'])
def test_output_to_a_closed_pipe_is_dropped(tmp_path, into):
  done = _run(f'{into}; exit ${{PIPESTATUS[0]}}', 'drop', tmp_path / 'file')
  assert done.returncode == 0 and 'Error' not in done.stderr
  assert (tmp_path / 'file').exists()


def test_full_disk_of_the_log_is_ignored(tmp_path):
  done = _run('2>/dev/full', 'keep', tmp_path / 'file')
  assert (done.returncode, done.stdout) == (0, 'printed\n' * 3)


def test_full_disk_of_standard_output_is_a_failure(tmp_path):
  done = _run('>/dev/full', 'drop', tmp_path / 'file')
  assert done.returncode == 1
  assert "No space left on device: 'standard output'" in done.stderr


def test_closed_reader_of_standard_output_is_detected(monkeypatch):
  reader, writer = os.pipe()
  with os.fdopen(writer, 'w') as stream:
    monkeypatch.setattr(sys, 'stdout', stream)
    assert not standard_streams.is_stdout_unread()
    os.close(reader)
    assert standard_streams.is_stdout_unread()


@pytest.mark.parametrize('encoding', ['ascii', 'latin-1', 'cp1252', 'utf-8'])
@pytest.mark.parametrize('stream', ['stdout', 'stderr'])
def test_unencodable_characters_are_escaped(encoding, stream):
  """Characters outside of the encoding are written as JSON escapes."""
  text = 'é 猫 🐈 \udcff'
  program = f"""
import json, sys
from xlflax.utils import standard_streams
standard_streams.open_closed_streams()
standard_streams.drop_unread_output(stdout=True)
print(json.dumps({ascii(text)}, ensure_ascii=False), file=sys.{stream})
standard_streams.drop_pending_output()
"""
  done = subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    env={**os.environ, 'PYTHONIOENCODING': encoding},
    check=True,
  )
  output = getattr(done, stream).decode(encoding)
  assert json.loads(output) == text
