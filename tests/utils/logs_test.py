"""Log lines in JSON format, and errors in them."""

import json
import logging
import os

import pytest

from xlflax.data.supervised.readers import classification_reader
from xlflax.training.optimization import schedules
from xlflax.utils import errors, live_display, logs


@pytest.fixture
def as_json(monkeypatch):
  """Switches to a log of JSON lines; restores the session's log afterwards."""
  root = logging.getLogger()
  monkeypatch.setattr(root, 'handlers', root.handlers[:])
  level = root.level
  logs.set_up_logging(as_json=True)
  yield
  root.setLevel(level)
  live_display.allow_live_lines(True)


def _lines(capsys) -> list[dict]:
  return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_record_contains_message_and_fields(as_json, capsys):
  logging.warning('Two\nlines "here"', extra={'fields': dict(step=3, loss=1.5)})
  (line,) = _lines(capsys)
  assert line.pop('time').endswith('+00:00')
  assert line == {
    'level': 'warning',
    'message': 'Two\nlines "here"',
    'step': 3,
    'loss': 1.5,
  }


def test_json_record_contains_the_traceback(as_json, capsys):
  try:
    raise ValueError('a bug')
  except ValueError:
    logging.exception('It failed')
  (line,) = _lines(capsys)
  assert 'ValueError: a bug' in line['trace']


def test_repeated_messages_of_a_module_are_logged_once(caplog):
  repeated, other = logging.getLogger('a.module'), logging.getLogger('other')
  for _ in range(2):
    with logs.skip_repeated_messages('a.module'):
      for value in (1, 2, 1):
        repeated.warning('value %d', value)
        other.warning('other')
  messages = [record.getMessage() for record in caplog.records]
  assert messages.count('value 1') == messages.count('value 2') == 2
  assert messages.count('other') == 6


def test_warning_is_logged_once_per_command(as_json, capsys):
  for _ in range(2):
    for value in (1, 2):
      logging.warning('value %d', value, extra=logs.ONCE)
    logging.warning('an event')
  lines = _lines(capsys)
  assert [line['message'] for line in lines] == [
    *('value 1', 'value 2', 'an event', 'an event')
  ]
  assert {line['level'] for line in lines} == {'warning'}
  logs.set_up_logging(as_json=True)
  logging.warning('value %d', 1, extra=logs.ONCE)
  assert len(_lines(capsys)) == 1


def test_warnings_about_inputs_are_logged_once_per_command(
  as_json, capsys, tmp_path
):
  path = tmp_path / 'a.tsv'
  path.write_text('"a ""b"" c"\tyes\nd\tno\n', encoding='utf-8')
  for _ in range(2):
    classification_reader.read_tsv(
      path,
      'ru',
      columns={'text': 0, 'label': 1},
      labels={'yes': 'y', 'no': 'n'},
    )
    schedules.resolve_schedules(
      schedules.Linear(peak_value=1.0, warmup_steps=9), 5
    )
  messages = [line['message'] for line in _lines(capsys)]
  assert len(messages) == len(set(messages)) == 2


def test_json_log_has_no_live_line(as_json, monkeypatch):
  monkeypatch.setattr('sys.stderr.isatty', lambda: True, raising=False)
  monkeypatch.setitem(os.environ, 'TERM', 'xterm')
  assert not live_display.is_live()


def test_json_record_contains_the_fields_of_an_error(as_json, capsys):
  error = errors.CorpusError('No text', got=0, where='a.txt:3', fix='add some')
  logs.log_exit('train', error, as_json=True)
  (line,) = _lines(capsys)
  assert line['level'] == 'error' and line['message'] == str(error)
  assert line['what'] == 'No text' and line['got'] == '0'
  assert line['fix'] == 'add some' and line['status'] == 2
  assert 'expected' not in line
