"""Tests of bad lines and records, which are counted, skipped or raised."""

import bz2
import gzip
import io
import lzma
import pickle
import shlex
import shutil
import subprocess
import tarfile
import zipfile

import pytest
import zstandard

from xlflax.data.corpus import bad_records, corpus_directory
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.utils import errors


def _tar(members):
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode='w') as archive:
    for name, content in members:
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return buffer.getvalue()


def _zip(members):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, 'w') as archive:
    for name, content in members:
      archive.writestr(name, content)
  return buffer.getvalue()


def _parquet(rows):
  pa = pytest.importorskip('pyarrow')
  from pyarrow import parquet

  buffer = io.BytesIO()
  parquet.write_table(pa.Table.from_pylist(rows), buffer)
  return buffer.getvalue()


def _tf_records(records):
  return b''.join(
    len(record).to_bytes(8, 'little') + bytes(4) + record + bytes(4)
    for record in records
  )


_JSON_LINES = b'\n'.join(
  [
    b'{"text": "one"}',
    b'{"text": null}',
    b'{"text": ["a", "b"]}',
    b'{"id": 3}',
    b'{"text": "cut o',
    b'{"text": "\xff"}',
    b'{"text": "\\ud83d"}',
    b'[1]',
    b'{"text": "two"}',
  ]
)
# Content of a file, the usable texts, and the numbers of the bad records.
_FILES = {
  'mono/en.txt': (b'one\n\xff\n\ntwo\n', [('one',), ('two',)], [2]),
  'mono/en.jsonl': (_JSON_LINES, [('one',), ('two',)], list(range(2, 9))),
  'mono/en.tar': (
    _tar(
      [
        ('a.txt', b'one'),
        ('b.txt', b'\xff'),
        ('c.json', b'{'),
        ('d.json', b'{"text": "two"}'),
      ]
    ),
    [('one',), ('two',)],
    [2, 3],
  ),
  'mono/en.tfrecord': (
    _tf_records([b'{"text": "one"}', b'{"text"', b'\x0f', b'{"text": "two"}']),
    [('one',), ('two',)],
    [2, 3],
  ),
  'parallel/en-fr.tsv': (
    b'one\tun\n\tzwei\nthree\t\nfour\na\tb\tc\n\n\xff\tb\ntwo\tdeux\t\n',
    [('one', 'un'), ('two', 'deux')],
    [2, 3, 4, 5, 6, 7],
  ),
  'parallel/en-fr.jsonl': (
    b'{"translation": {"en": "one", "fr": "un"}}\n'
    b'{"translation": {"en": "one", "fr": null}}\n'
    b'{"translation": {"en": "one"}}\n'
    b'{"translation": {"en": "", "fr": "un"}}\n'
    b'{"translation": {"en": "one", "fr": " "}}\n'
    b'{"translation": {"en": "", "fr": ""}}\n',
    [('one', 'un')],
    [2, 3, 4, 5, 6],
  ),
  'parallel/en-fr.zip': (
    _zip([('x.en', b'one\n\xff\n\n\ntwo\n'), ('x.fr', b'un\nb\nc\n \ndeux\n')]),
    [('one', 'un'), ('two', 'deux')],
    [2, 3, 4],
  ),
  'parallel/en-fr.tmx': (
    b'<tmx><body>'
    + b''.join(
      b'<tu><tuv xml:lang="en"><seg>%s</seg></tuv>'
      b'<tuv xml:lang="fr"><seg>%s</seg></tuv></tu>' % pair
      for pair in ((b'one', b'un'), (b'', b'b'), (b' ', b''), (b'two', b'deux'))
    )
    + b'</body></tmx>',
    [('one', 'un'), ('two', 'deux')],
    [2, 3],
  ),
}


def _write(directory, name, content):
  path = directory / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
  return path


@pytest.mark.parametrize('name', _FILES)
def test_bad_records_are_skipped_and_reported(tmp_path, name):
  content, expected, bad_numbers = _FILES[name]
  path = _write(tmp_path, name, content)
  corpus = Corpus(tmp_path, skip_bad_records=True)
  problems = []
  texts = corpus_directory.read_texts(corpus.files[0], problems.append)
  assert [text for text in texts if text[0]] == expected
  assert [error.where for error in problems] == [
    f'{path}:{number}' for number in bad_numbers
  ]


@pytest.mark.parametrize('name', _FILES)
def test_all_readers_skip_the_same_bad_records(tmp_path, name):
  content, expected, _ = _FILES[name]
  _write(tmp_path, name, content)
  corpus = Corpus(tmp_path, skip_bad_records=True)
  languages = corpus.files[0].languages
  if len(languages) == 2:
    assert list(corpus.parallel(*languages)) == expected
  else:
    assert [(line.text,) for line in corpus.monolingual('en')] == expected
  assert corpus.count(*languages) == len(expected)


@pytest.mark.parametrize('name', _FILES)
def test_bad_records_are_errors_by_default(tmp_path, name):
  content, _, bad_numbers = _FILES[name]
  path = _write(tmp_path, name, content)
  with pytest.raises(errors.BadRecordError) as raised:
    Corpus(tmp_path).validate()
  assert raised.value.where == f'{path}:{bad_numbers[0]}'


def test_null_rows_of_a_table_are_skipped(tmp_path):
  rows = [{'text': 'one'}, {'text': None}, {'text': 'two'}]
  _write(tmp_path, 'mono/en.parquet', _parquet(rows))
  corpus = Corpus(tmp_path, skip_bad_records=True)
  assert [line.text for line in corpus.monolingual('en')] == ['one', 'two']


def test_damaged_file_is_not_a_bad_record(tmp_path):
  _write(tmp_path, 'mono/en.txt.gz', b'\x1f\x8bdamaged')
  corpus = Corpus(tmp_path, skip_bad_records=True)
  with pytest.raises(errors.CorpusError) as raised:
    list(corpus.monolingual('en'))
  assert not isinstance(raised.value, errors.BadRecordError)


@pytest.mark.parametrize(
  'line, value',
  [
    (b'\tzwei', 'empty source'),
    (b'eins\t', 'empty target'),
    (b'eins', '1 column'),
    (b'a\tb\tc', '3 columns'),
    (b'', 'empty line'),
  ],
)
def test_errors_describe_the_columns_of_bad_pairs(tmp_path, line, value):
  path = _write(tmp_path, 'parallel/en-fr.tsv', b'one\tun\n' + line + b'\n')
  with pytest.raises(errors.BadRecordError) as raised:
    list(corpus_directory.read_parallel(path))
  assert value in raised.value.got


def test_null_values_are_reported(tmp_path):
  path = _write(tmp_path, 'mono/en.jsonl', b'{"text": null, "id": 1}')
  with pytest.raises(errors.BadRecordError) as raised:
    list(corpus_directory.read_monolingual(path))
  assert raised.value.got == 'null'


def _record_errors(path):
  """Returns the errors of all records of a monolingual file."""
  problems = []
  list(corpus_directory.read_monolingual(path, on_bad_record=problems.append))
  return problems


@pytest.mark.parametrize(
  'record',
  [
    b'{"text": "Und wiederum',
    '{"text": "Он начал'.encode()[:-1],
    b'{"text": "one", "id"',
  ],
)
def test_truncated_records_differ_from_other_invalid_json(tmp_path, record):
  path = _write(
    tmp_path, 'mono/en.jsonl', b'{"text" "one"}\n' + record + b'\r\n' + record
  )
  invalid, *truncated = _record_errors(path)
  assert [error.where for error in truncated] == [f'{path}:2', f'{path}:3']
  [problem] = {error.what for error in truncated}
  assert problem != invalid.what
  assert (
    invalid.got == '\'{"text" "one"}\' (Expecting \':\' delimiter at column 9)'
  )
  assert {error.got for error in truncated} == {
    repr(record.decode(errors='replace'))
  }


@pytest.mark.parametrize(
  'record, value',
  [
    ('{"text" "Иоанн"}', '\'{"text" "Иоанн"}\' (Expecting'),
    ('["Иоанн"]', '\'["Иоанн"]\''),
  ],
)
def test_errors_show_records_as_text(tmp_path, record, value):
  path = _write(tmp_path, 'mono/ru.jsonl', record.encode() + b'\n')
  [error] = _record_errors(path)
  assert error.got.startswith(value)


def test_errors_shorten_long_records(tmp_path):
  path = _write(tmp_path, 'mono/ru.jsonl', ('["' + 'ж' * 200).encode())
  [error] = _record_errors(path)
  assert error.got == repr('["' + 'ж' * 58 + '…')


def test_invalid_utf8_in_a_json_record_is_located(tmp_path):
  path = _write(tmp_path, 'mono/en.jsonl', b'{"text": "\xff"}')
  [error] = _record_errors(path)
  assert error.got == 'byte 0xff at offset 10'


def test_bad_line_is_not_a_document_boundary(tmp_path):
  path = _write(tmp_path, 'mono/en.txt', b'one\n\xff\ntwo\n\nthree\n')
  lines = corpus_directory.read_monolingual(
    path, on_bad_record=bad_records.ignore
  )
  assert list(lines) == [('one', True), ('two', False), ('three', True)]


def test_counts_keep_three_examples_of_each_problem():
  counter = bad_records.BadRecords()
  for number in range(5):
    counter.add(errors.BadRecordError('No JSON.', where=f'a:{number}', got='x'))
  counter.add(errors.BadRecordError('No text.', where='a:9'))
  assert counter.total == 6
  first, second = counter.problems
  assert (first.problem, first.count) == ('No JSON.', 5)
  assert first.examples == ('a:0 (x)', 'a:1 (x)', 'a:2 (x)')
  assert (second.count, second.examples) == (1, ('a:9',))


def test_bad_record_errors_can_be_pickled(tmp_path):

  error = errors.BadRecordError('No text.', where='a:9')
  copy = pickle.loads(pickle.dumps(error))
  assert type(copy) is errors.BadRecordError
  assert copy.where == 'a:9'


@pytest.mark.parametrize(
  'name', ['mono/en.txt', 'mono/en.txt.gz', 'mono/en.tar']
)
def test_git_lfs_pointers_are_rejected(tmp_path, name):
  pointer = b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n'
  path = _write(tmp_path, name, pointer)
  with pytest.raises(errors.CorpusError) as raised:
    Corpus(tmp_path)
  assert raised.value.where == str(path)
  assert 'git lfs pull' in raised.value.fix


@pytest.mark.parametrize(
  'name, content, expected_fix',
  [
    ('en.txt', gzip.compress(b'one\n'), 'en.txt.gz'),
    ('en.jsonl', lzma.compress(b'{"text": "one"}\n'), 'en.jsonl.xz'),
    ('en.txt', zstandard.compress(b'one\n'), 'en.txt.zst'),
    ('en.txt', bz2.compress(b'one\n'), 'Decompress'),
    ('en.txt.gz', lzma.compress(b'one\n'), 'en.txt.gz.xz'),
    ('en.txt', 'one\n'.encode('utf-16'), 'iconv -f UTF-16'),
  ],
  # Compressed content contains the time and would be part of the IDs.
  ids=['gzip', 'xz', 'zstandard', 'bzip2', 'xz_in_gz', 'utf-16'],
)
def test_compression_or_encoding_not_matching_the_name_is_rejected(
  tmp_path, name, content, expected_fix
):
  path = _write(tmp_path, f'mono/{name}', content)
  with pytest.raises(errors.CorpusError) as raised:
    list(Corpus(tmp_path).languages)
    Corpus(tmp_path).validate()
  assert raised.value.where == str(path)
  assert expected_fix in raised.value.fix


@pytest.mark.skipif(shutil.which('iconv') is None, reason='requires iconv')
@pytest.mark.parametrize('encoding', ['latin-1', 'utf-16'])
def test_suggested_command_converts_the_file(tmp_path, encoding):
  _write(tmp_path, 'mono/fr.txt', 'un été\n'.encode(encoding))
  with pytest.raises(errors.CorpusError) as raised:
    Corpus(tmp_path).validate()
  command = raised.value.fix.split('`')[1]
  result = subprocess.run(shlex.split(command), check=True, capture_output=True)
  assert result.stdout.decode('utf-8') == 'un été\n'
