"""Tests of rules that all text readers share.

Every text format is combined with every line ending, every character that other
software treats as a line ending or as white space, every encoding error, and
malformed records at every position.
"""

import gzip
import itertools
import pathlib
import re

import pytest

from tests.data.reader_samples import SAMPLES, Sample
from xlflax.utils import errors

_TEXTS = ('xay', 'xby', 'xcy', 'xdy')
_LINE_ENDS = {
  'lf': ('\n',),
  'crlf': ('\r\n',),
  'cr': ('\r',),
  'mixed': ('\r\n', '\n', '\r'),
}
# Characters at which Python's `str.splitlines` or `str.split` divide a text,
# and characters that are invisible.
_CHARACTERS = (
  *('\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\x1f', '\x85', '\xa0', '\xad'),
  *('\u1680', '\u2007', '\u2028', '\u2029', '\u202f', '\u200b', '\u2060'),
  *('\u3000', '\ufeff', '\x00', '\x7f'),
)
# Encodings of a lone surrogate, of a Latin-1 letter and of a truncated letter.
_INVALID_UTF8 = (
  b'\xed\xa0\x80',
  b'\xe9',
  b'\xe2\x82',
  b'\xff\xfe',
  b'\xc0\x80',
)
_LONE_SURROGATES = ('\\ud83d', '\\uDC00', '\\ude00\\ud83d', 'a\\ud800b')
_MARKER = 'MARKER'
# Formats whose readers skip malformed records, but raise an error if the file is
# not UTF-8.
_XML_OR_STORY = ('translation memory', 'xstory_cloze')


def _name(sample: Sample) -> str:
  return sample.name


def _write(
  folder: pathlib.Path,
  files,
  *,
  line_ends=('\n',),
  bom: bool = False,
  is_complete: bool = True,
  is_compressed: bool = False,
) -> None:
  """Writes the files of a sample with a given encoding and compression."""
  for name, content in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
      text = content if is_complete else content.removesuffix('\n')
      ends = itertools.cycle(line_ends)
      text = re.sub('\n', lambda _: next(ends), text)  # noqa: B023
      content = b'\xef\xbb\xbf' * bom + text.encode('utf-8', 'surrogateescape')
      if is_compressed:
        path = path.with_name(f'{path.name}.gz')
        content = gzip.compress(content)
    path.write_bytes(content)


@pytest.mark.parametrize('sample', SAMPLES, ids=_name)
def test_all_line_endings_give_the_same_records(sample, tmp_path):
  files = sample.files(_TEXTS)
  combinations = itertools.product(
    _LINE_ENDS, (False, True), (True, False), (False, True)
  )
  for number, (end, bom, is_complete, is_compressed) in enumerate(combinations):
    folder = tmp_path / str(number)
    _write(
      folder,
      files,
      line_ends=_LINE_ENDS[end],
      bom=bom,
      is_complete=is_complete,
      is_compressed=is_compressed and not sample.varied.startswith('en/'),
    )
    records = sample.read(folder)
    assert records == (list(_TEXTS), 0), (end, bom, is_complete, is_compressed)


@pytest.mark.parametrize('sample', SAMPLES, ids=_name)
def test_no_character_splits_a_text(sample, tmp_path):
  for number, character in enumerate(_CHARACTERS):
    if character in sample.reserved:
      continue
    texts = [f'x{character}y{index}' for index in range(2)]
    _write(tmp_path / str(number), sample.files(texts))
    records = sample.read(tmp_path / str(number))
    assert records == (texts, 0), f'U+{ord(character):04X}'


def _read_or_report(sample: Sample, folder, texts, line: int | None) -> None:
  """Checks that one bad record is reported and all others are read."""
  try:
    records = sample.read(folder)
  except errors.CorpusError as error:
    where = str(error.where)
  else:
    assert records == (list(texts), 1)
    return
  assert line is None or not sample.skips_bad or sample.name in _XML_OR_STORY
  assert where.startswith(str(folder))
  if line is not None:
    assert where.endswith(f'{sample.varied}:{line}'), where


def _line_of(files, sample: Sample, marker: str) -> int:
  content = files[sample.varied]
  return content[: content.index(marker)].count('\n') + 1


@pytest.mark.parametrize(
  'sample', [s for s in SAMPLES if not s.escapes], ids=_name
)
@pytest.mark.parametrize('invalid', _INVALID_UTF8, ids=repr)
def test_invalid_utf8_is_reported_with_its_line(sample, invalid, tmp_path):
  text = f'x{invalid.decode("utf-8", "surrogateescape")}y'
  files = sample.files(['xay', text, 'xcy'])
  _write(tmp_path, files)
  content = files[sample.varied]
  line = _line_of(files, sample, text) if isinstance(content, str) else None
  _read_or_report(sample, tmp_path, ['xay', 'xcy'], line)


@pytest.mark.parametrize('sample', [s for s in SAMPLES if s.escapes], ids=_name)
@pytest.mark.parametrize('surrogate', _LONE_SURROGATES)
def test_lone_surrogates_are_reported_with_their_line(
  sample, surrogate, tmp_path
):
  files = dict(sample.files(['xay', f'x{_MARKER}y', 'xcy']))
  line = _line_of(files, sample, _MARKER)
  files[sample.varied] = files[sample.varied].replace(_MARKER, surrogate)
  _write(tmp_path, files)
  _read_or_report(sample, tmp_path, ['xay', 'xcy'], line)


@pytest.mark.parametrize(
  'sample, bad',
  [
    pytest.param(sample, bad, id=f'{sample.name}: {bad}')
    for sample in SAMPLES
    for bad in sample.bad
  ],
)
@pytest.mark.parametrize('position', [0, 2, 3])
def test_malformed_records_are_reported_with_their_line(
  sample, bad, position, tmp_path
):
  texts = ['xay', 'xby', 'xcy']
  records = [*texts[:position], f'\0{bad}', *texts[position:]]
  files = sample.files(records)
  _write(tmp_path, files)
  _read_or_report(sample, tmp_path, texts, None)
  if position and not sample.skips_bad and sample.varied.endswith(_LINE_FILES):
    clean = sample.files([*texts[:position], f'\0{_MARKER}'])
    line = _line_of(clean, sample, _MARKER) + bad.count('\n')
    _read_or_report(sample, tmp_path, texts, line)


_LINE_FILES = ('.tsv', '.jsonl', '.txt', '.conllu', 'a')
