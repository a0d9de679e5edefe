"""Tests of reading lines and columns of corpus files."""

import gzip
import os
import pathlib
import random

import pytest
import zstandard

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.utils import errors


@pytest.mark.parametrize(
  'suffix, pack',
  [
    ('txt', bytes),
    ('txt.gz', gzip.compress),
    ('txt.zst', zstandard.ZstdCompressor().compress),
  ],
)
def test_lines_are_numbered_and_stripped(tmp_path, suffix, pack):
  path = tmp_path / f'en.{suffix}'
  path.write_bytes(pack(b'\xef\xbb\xbfone \r\n\ntwo'))
  assert list(corpus_lines.read_lines(path)) == [
    (1, b'one'),
    (2, b''),
    (3, b'two'),
  ]


def test_several_zstandard_frames_are_read(tmp_path):
  path = tmp_path / 'en.txt.zst'
  pack = zstandard.ZstdCompressor().compress
  path.write_bytes(pack(b'one\n') + pack(b'two\n'))
  assert [line for _, line in corpus_lines.read_lines(path)] == [b'one', b'two']


@pytest.mark.parametrize(
  'suffix, pack',
  [('txt.gz', gzip.compress), ('txt.zst', zstandard.ZstdCompressor().compress)],
)
def test_damaged_compressed_file_is_an_error(tmp_path, suffix, pack):
  path = tmp_path / f'en.{suffix}'
  path.write_bytes(b'not compressed')
  with pytest.raises(errors.CorpusError) as caught:
    list(corpus_lines.read_lines(path))
  assert str(path) in str(caught.value)


def test_truncated_gzip_file_is_an_error(tmp_path):
  path = tmp_path / 'en.txt.gz'
  path.write_bytes(gzip.compress(b'line\n' * 1000)[:-12])
  with raises_error(errors.CorpusError, where='en.txt.gz:724'):
    list(corpus_lines.read_lines(path))


def test_missing_file_is_an_error(tmp_path):
  with raises_error(errors.CorpusError, where='en.txt'):
    list(corpus_lines.read_lines(tmp_path / 'en.txt'))


def test_invalid_utf8_is_reported_with_byte_column_and_line(tmp_path):
  path = tmp_path / 'en.txt'
  with pytest.raises(errors.CorpusError) as caught:
    corpus_lines.decode_line(b'caf\xe9', path, 7)
  message = str(caught.value)
  assert_mentions(message, '0xe9', 4)
  assert_mentions(message, f'{path}:7')


def test_split_columns_of_a_pair():
  path = pathlib.Path('de-en.tsv')
  assert corpus_lines.split_columns(b'one\t un', path, 1) == ('one', 'un')


@pytest.mark.parametrize(
  'line, values',
  [
    (b'only one', (1, 'p/de-en.tsv:3')),
    (b'a\tb\tc', ('a\\tb\\tc', 'p/de-en.tsv:3')),
    (b'', ('empty line', 'p/de-en.tsv:3')),
    (b'a\t', ('p/de-en.tsv:3',)),
    (b'a\t ', ('p/de-en.tsv:3',)),
  ],
)
def test_malformed_pairs_are_reported_with_file_and_line(line, values):
  with raises_error(
    errors.CorpusError, mentions=('p/de-en', 'p/de-en.tsv:3', *values)
  ):
    corpus_lines.split_columns(line, pathlib.Path('p/de-en.tsv'), 3)


@pytest.mark.parametrize(
  ('path', 'command'),
  [
    ('p/de-en.tsv', '`cut -f1,2 p/de-en.tsv`'),
    ('p/de-en.tsv.gz', '`cut -f1,2 FILE`'),
  ],
)
def test_surplus_columns(path, command):
  with raises_error(
    errors.FileConversionError, where=f'{path}:3', mentions='3 columns'
  ) as caught:
    corpus_lines.split_columns(b'a\tb\tc', pathlib.Path(path), 3)
  assert_mentions(caught.value.fix, command, '3 columns')


@pytest.mark.parametrize(
  'line, is_csv',
  [
    (b'a house,une maison', True),
    (b'"Yes, I do.",Oui.', True),
    (b'"He said ""no"".","Il dit ""non""."', True),
    (b'en,fr', True),
    (b'a house;une maison', True),
    (b'"Yes; I do.";Oui.', True),
    (b'Yes; I do.', False),
    (b'one;two;three', False),
    (b'Yes, I do.', False),
    (b'It costs 1,000 francs.', False),
    (b'one,two,three', False),
    (b'"open, quote', False),
    (b'a,b\tc\td', False),
  ],
)
def test_pairs_in_csv_format_are_detected(line, is_csv):
  path = pathlib.Path('p/de-en.tsv')
  with raises_error(errors.BadRecordError, where='p/de-en.tsv:3') as caught:
    corpus_lines.split_columns(line, path, 3)
  assert isinstance(caught.value, errors.TextColumnError) == is_csv
  assert ('p/de-en.csv' in caught.value.fix) == is_csv


def test_conversion_command_has_the_delimiter():
  line = b'"Yes, I do";Oui'
  with pytest.raises(errors.TextColumnError) as caught:
    corpus_lines.split_columns(line, pathlib.Path('de-en.tsv'), 1)
  assert_mentions(caught.value.fix, "delimiter=';'")


@pytest.mark.parametrize(
  ('path', 'file'), [('p/de-en.tsv', 'p/de-en.tsv'), ('p/de-en.tsv.gz', 'FILE')]
)
def test_pairs_that_are_separated_by_bars(path, file):
  """Dropping all such lines would drop all lines, so it is not suggested."""
  with raises_error(errors.TextColumnError, where=f'{path}:3') as caught:
    corpus_lines.split_columns(b'a, b ||| c;d', pathlib.Path(path), 3)
  assert_mentions(caught.value.fix, f"`sed 's/ ||| /\\t/g' {file}`")
  assert '--bad_records' not in caught.value.fix


def test_bars_in_pairs_with_a_tab_are_text():
  path = pathlib.Path('de-en.tsv')
  pair = corpus_lines.split_columns(b'a ||| b\tc ||| d', path, 1)
  assert pair == ('a ||| b', 'c ||| d')


def test_dictionary_that_is_separated_by_bars_is_rejected(tmp_path):
  path = tmp_path / 'de-en.tsv'
  path.write_text('Katze ||| cat\n')
  with raises_error(errors.TextColumnError, where=f'{path}:1', mentions='sed'):
    list(corpus_lines.read_dictionary(path))


def test_dictionaries_in_csv_format_are_rejected(tmp_path):
  path = tmp_path / 'de-en.tsv'
  path.write_text('Katze,cat\n')
  with raises_error(errors.TextColumnError, where=f'{path}:1'):
    list(corpus_lines.read_dictionary(path))


@pytest.mark.parametrize(
  'content',
  [
    'a\n',
    'a\tb\tnot a weight\n',
    'a\tb\t-1\n',
    'a\t\n',
    'a\tb\t1\tc\n',
    'a\tb\tnan\n',
  ],
)
def test_malformed_dictionaries_are_rejected(tmp_path, content):
  path = tmp_path / 'de-en.tsv'
  path.write_text('x\ty\t0.5\n' + content)
  with raises_error(errors.CorpusError, mentions=f'{path}:2'):
    corpus_lines.check_dictionary(path)


@pytest.mark.parametrize('keep', [0.1, 0.5, 0.99])
@pytest.mark.parametrize(
  ('suffix', 'pack'),
  [('.gz', gzip.compress), ('.zst', zstandard.ZstdCompressor().compress)],
)
def test_truncated_compressed_files_are_rejected(tmp_path, suffix, pack, keep):
  rng = random.Random(1)
  lines = [f'{rng.random()} {rng.random()}\n'.encode() for _ in range(5000)]
  complete = pack(b''.join(lines[:2500])) + pack(b''.join(lines[2500:]))
  path = tmp_path / f'en.txt{suffix}'
  path.write_bytes(complete)
  assert len(list(corpus_lines.read_lines(path))) == 5000
  path.write_bytes(complete[: int(keep * len(complete))])
  with pytest.raises(errors.CorpusError):
    list(corpus_lines.read_lines(path))


@pytest.mark.parametrize('suffix', ['.gz', '.xz', '.zst'])
def test_plain_text_with_a_compressed_suffix_is_rejected(tmp_path, suffix):
  path = tmp_path / f'de.txt{suffix}'
  path.write_text('Schöne Flöten\n')
  with raises_error(errors.CorpusError, where=path) as raised:
    list(corpus_lines.read_lines(path))
  assert_mentions(raised.value.fix, 'de.txt')
  path.write_bytes(bytes(range(1, 60)))
  with raises_error(errors.CorpusError) as raised:
    list(corpus_lines.read_lines(path))
  assert 'de.txt' not in raised.value.fix


def test_overlong_lines_are_rejected(tmp_path, monkeypatch):
  """A small compressed file can unpack to gigabytes."""
  monkeypatch.setattr(corpus_lines, '_MAX_LINE_BYTES', 1000)
  path = tmp_path / 'en.txt.gz'
  path.write_bytes(gzip.compress(b'short\n' + bytes(10**6)))
  with raises_error(errors.CorpusError, mentions=('1,000', f'{path}:2')):
    list(corpus_lines.read_lines(path))


def test_pipes_are_rejected(tmp_path):
  os.mkfifo(tmp_path / 'en.txt')
  with raises_error(errors.CorpusError, where='en.txt'):
    list(corpus_lines.read_lines(tmp_path / 'en.txt'))


@pytest.mark.parametrize('size', [1, 2, 3, 7])
def test_spans_partition_lines_with_any_line_ending(tmp_path, size):
  data = b'one\r\ntwo\rthree\n\r\n\rfour\n\nfive\r'
  path = tmp_path / 'a.txt'
  path.write_bytes(data)
  lines = [line for _, line in corpus_lines.read_lines(path)]
  assert (
    lines
    == data.replace(b'\r\n', b'\n').replace(b'\r', b'\n').split(b'\n')[:-1]
  )
  spans = [
    corpus_lines.Span(start, min(start + size, len(data)))
    for start in range(0, len(data), size)
  ]
  parts = [
    line for span in spans for _, line in corpus_lines.read_span(path, span)
  ]
  assert parts == lines


def test_tokens_are_separated_by_spaces_and_tabs_only():
  assert corpus_lines.split_tokens(' a\t b\xa0c \u3000') == [
    'a',
    'b\xa0c',
    '\u3000',
  ]
