"""Tests of translating files and streams with a model that copies."""

import io
import json
import logging
import os
import queue
import threading

import jax
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import translate
from xlflax.utils import errors

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]

_LINES = [
  'the dog sleeps',
  '',
  'warm milk',
  'the cat and the dog drink milk',
  '  ',
  'small',
  'a dog',
]


def _open(run, **settings):
  return translate.open_translator(
    model_dir=str(run), source='en', target='de', batch_size=2, **settings
  )


@pytest.fixture(scope='module')
def copier_of_lines(copying_run):
  return _open(copying_run)


@pytest.fixture
def text(tmp_path):
  path = tmp_path / 'text.en'
  path.write_text('\ufeff' + ''.join(f'{line}\n' for line in _LINES))
  return path


def test_file_is_translated_line_by_line(copier_of_lines, text, tmp_path):
  output = tmp_path / 'out'
  counts = copier_of_lines.file(text, output)
  assert output.read_text().split('\n') == [
    ' '.join(line.split()) for line in _LINES
  ] + ['']
  assert counts == translate.Counts(lines=7, empty=2, cut=0, resumed=0)
  assert sorted(p.name for p in tmp_path.iterdir()) == ['out', 'text.en']


@pytest.mark.parametrize('end', ['\r\n', '\r'])
def test_carriage_returns_are_accepted_as_line_ends(
  copier_of_lines, text, tmp_path, end
):
  copier_of_lines.file(text, tmp_path / 'expected')
  path = tmp_path / 'other'
  path.write_bytes(text.read_bytes().replace(b'\n', end.encode()))
  counts = copier_of_lines.file(path, tmp_path / 'out')
  assert (tmp_path / 'out').read_text() == (tmp_path / 'expected').read_text()
  assert counts.lines == len(_LINES)
  stream = io.BytesIO()
  with path.open('rb') as source:
    copier_of_lines.stream(source, stream)
  assert stream.getvalue() == (tmp_path / 'expected').read_bytes()


def test_output_does_not_depend_on_the_number_of_devices(
  copier_of_lines, copying_run, text, tmp_path, monkeypatch
):
  copier_of_lines.file(text, tmp_path / 'eight')
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  single_device = _open(copying_run)
  assert single_device.translator._subject.partitioner is None
  assert copier_of_lines.translator._subject.partitioner is not None
  single_device.file(text, tmp_path / 'one')
  assert (tmp_path / 'one').read_text() == (tmp_path / 'eight').read_text()


@pytest.mark.parametrize(
  'existing_text', ['the dog sleeps\n\nKEPT\n', 'X\n\nKEPT\nhal']
)
def test_interrupted_file_is_resumed(
  copier_of_lines, text, tmp_path, existing_text, monkeypatch
):
  """Completed lines are kept and not repeated. A partial line is removed."""
  output = tmp_path / 'out'
  monkeypatch.setattr(translate, '_SORTED_BATCHES', 1)
  _interrupt(copier_of_lines, text, output, monkeypatch, after=2)
  assert not output.exists()
  assert (tmp_path / 'out.partial').read_text().count('\n') == 4
  (tmp_path / 'out.partial').write_text(existing_text)
  counts = copier_of_lines.file(text, output)
  assert counts.resumed == 3 and counts.lines == 7
  assert output.read_text().split('\n')[2:5] == [
    'KEPT',
    'the cat and the dog drink milk',
    '',
  ]
  assert not list(tmp_path.glob('*.partial*'))


def test_partial_file_of_another_program_is_rejected(
  copier_of_lines, text, tmp_path
):
  (tmp_path / 'out.partial').write_text('of a download')
  with raises_error(errors.CorpusError, mentions='out.partial'):
    copier_of_lines.file(text, tmp_path / 'out')
  assert (tmp_path / 'out.partial').read_text() == 'of a download'


@pytest.mark.parametrize('change', ['text', 'setting', 'checkpoint'])
def test_changed_text_or_settings_restart_the_translation(
  copying_run, copier_of_lines, text, tmp_path, change, monkeypatch, caplog
):
  output = tmp_path / 'out'
  monkeypatch.setattr(translate, '_SORTED_BATCHES', 1)
  _interrupt(copier_of_lines, text, output, monkeypatch, after=1)
  (tmp_path / 'out.partial').write_text('LEFT\n')
  settings = {}
  if change == 'text':
    text.write_text('another dog\n' + text.read_text())
  elif change == 'setting':
    settings['options'] = translate.TranslationOptions(beam_size=2)
  else:
    settings['step'] = 10
  with caplog.at_level(logging.WARNING):
    counts = _open(copying_run, **settings).file(text, output)
  assert counts.resumed == 0 and 'LEFT' not in output.read_text()
  assert caplog.records


def _interrupt(lines, text, output, monkeypatch, *, after):
  """Interrupts the translation after a number of chunks."""
  original_translate = lines.translator.translate
  calls = []

  def stopping(batch):
    calls.append(batch)
    if len(calls) > after:
      raise KeyboardInterrupt
    return original_translate(batch)

  with monkeypatch.context() as patch:
    patch.setattr(lines.translator, 'translate', stopping)
    with pytest.raises(KeyboardInterrupt):
      lines.file(text, output)


def test_stream_is_translated_line_by_line(copier_of_lines):
  """Each line is translated before the next line is available."""
  read, write = os.pipe()
  answers: queue.Queue = queue.Queue()

  class Output(io.BytesIO):
    def flush(self):
      answers.put(self.getvalue().decode())

  def serve():
    with os.fdopen(read, 'rb') as source:
      copier_of_lines.stream(source, Output())

  thread = threading.Thread(target=serve)
  thread.start()
  with os.fdopen(write, 'wb', buffering=0) as source:
    done = ''
    for line in ('the dog', '', 'milk'):
      source.write(f'{line}\n'.encode())
      done += f'{line}\n'
      assert answers.get(timeout=60) == done
  thread.join(timeout=60)
  assert not thread.is_alive()


def test_available_lines_of_a_stream_are_batched(copier_of_lines):
  output = io.BytesIO()
  counts = copier_of_lines.stream(
    io.BytesIO('\n'.join(_LINES).encode()), output
  )
  assert output.getvalue().decode() == ''.join(
    f'{" ".join(line.split())}\n' for line in _LINES
  )
  assert counts.lines == 7 and counts.empty == 2


def test_invalid_utf8_is_replaced_and_counted(copier_of_lines):
  output = io.BytesIO()
  counts = copier_of_lines.stream(
    io.BytesIO(b'the cat\nthe \xff\xe4\xbd dog\n\xef\xbf\xbd\n'), output
  )
  assert counts.lines == 3 and counts.replaced == 3
  assert len(output.getvalue().splitlines()) == 3


def test_lines_with_tabs_are_reported_once(copier_of_lines, caplog):
  """Lines with tabs are probably pairs of a parallel file."""
  with caplog.at_level(logging.WARNING):
    copier_of_lines.stream(
      io.BytesIO(b'\tmilk\t\n' + b'the cat\tthe dog\n' * 5), io.BytesIO()
    )
  [record] = caplog.records
  assert_mentions(record.getMessage(), 2, 'cut -f1')


def test_stream_errors_are_raised(copier_of_lines):
  class Broken(io.BytesIO):
    def __next__(self):
      raise OSError('the line is dead')

  with pytest.raises(OSError, match='the line is dead'):
    copier_of_lines.stream(Broken(), io.BytesIO())


def test_several_hypotheses_are_written_with_numbers_and_scores(
  copying_run, text, tmp_path
):
  lines = _open(
    copying_run, options=translate.TranslationOptions(beam_size=3, n_best=2)
  )
  lines.file(text, tmp_path / 'out')
  rows = [
    row.split('\t') for row in (tmp_path / 'out').read_text().splitlines()
  ]
  assert [row[0] for row in rows] == [
    str(n) for n in range(1, 8) for _ in range(2)
  ]
  assert rows[0][2] == 'the dog sleeps' != rows[1][2]
  assert float(rows[0][1]) > float(rows[1][1])
  assert rows[2][1:] == rows[3][1:] == ['0.0000', '']


def test_long_lines_are_truncated_and_counted(copier_of_lines, caplog):
  output = io.BytesIO()
  with caplog.at_level(logging.WARNING):
    counts = copier_of_lines.stream(
      io.BytesIO(b'milk ' * 40 + b'\nmilk\n'), output
    )
  assert counts.cut == 1
  assert_mentions(caplog.text, 1, 2, 32)
  first, second = output.getvalue().decode().splitlines()
  assert first.startswith('milk') and second == 'milk'


def test_stream_continues_after_invalid_bytes(copier_of_lines):
  output = io.BytesIO()
  copier_of_lines.stream(io.BytesIO(b'\xff\xfe\nmilk\n'), output)
  assert output.getvalue().decode().splitlines()[1] == 'milk'


def test_translate_returns_hypotheses_of_a_list(copier_of_lines):
  (best,) = copier_of_lines.translate(['warm milk'])
  assert best[0].text == 'warm milk' and best[0].score < 0


def test_invalid_arguments_are_rejected(copying_run, tmp_path, make_run):
  with raises_error(
    errors.CheckpointError, got=30, mentions=(10, 20, copying_run)
  ):
    _open(copying_run, step=30)
  with raises_error(errors.VocabularyError, got='xx'):
    translate.open_translator(
      model_dir=str(copying_run), source='en', target='xx'
    )
  with raises_error(errors.ConfigError, got='Encoder'):
    _open(make_run(tmp_path / 'encoder', [1]))
  with raises_error(errors.CorpusError, where='none'):
    _open(copying_run).file(tmp_path / 'none', tmp_path / 'out')


def test_identity_is_json_serializable(copier_of_lines):
  assert json.loads(json.dumps(copier_of_lines.identity)) == (
    copier_of_lines.identity
  )
