"""Fuzzed records: no reader of text loses a record without reporting it.

The files of each text format in `tests.data.reader_samples` are generated with
a known number of valid and malformed records, random characters, line endings,
byte order marks and compression. The number of records that are read plus the
number of records that are reported must equal the number of records that were
written, unless the file is rejected with its name.
"""

import copy
import gzip
import json
import pathlib
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.campaigns import counts
from tests.data import reader_samples
from xlflax.utils import errors

READ, REJECTED = 'read', 'rejected'
COUNTED = 'read except for reported records'
_MAX_RECORDS = 8
_LINE_ENDS = (('\n',), ('\r\n',), ('\r',), ('\r\n', '\n', '\r'))
# Characters that some software treats as white space, as line endings, as
# syntax or as invisible, and characters of several scripts and planes.
_CHARACTERS = (
  *(
    ' ',
    '\t',
    '"',
    "'",
    '\\',
    '#',
    ',',
    ';',
    '|',
    '=',
    '[',
    '{',
    '<',
    '&',
    '%',
  ),
  *('\0', '\x0b', '\x0c', '\x1c', '\x1f', '\x7f', '\x85', '\xa0', '\xad'),
  *('\u200b', '\u200d', '\u200f', '\u2028', '\u2029', '\u202f', '\u3000'),
  *('\ufeff', '\ufffd', '\uffff', 'é', 'e\u0301', 'ß', 'İ', 'ქ', 'ก', '中'),
  *('한', '\U0001f600', '\U000e0041', '\U0010ffff', '_', '-', '@', ':', '0'),
)
_INVALID_UTF8 = (
  b'\xff',
  b'\xe9t\xe9',
  b'\xed\xa0\x80',
  b'\xe2\x82',
  b'\xc0\x80',
)
_VALUES: tuple[Any, ...] = (
  *(None, True, 0, -1, 1.5, '', ' ', 'text', [], {}, ['a'], [None], [[]]),
  *({'a': 1}, {'text': 'a'}, [{'text': ['a'], 'answer_start': [0]}]),
  *(10**400, '\ud800', '\u2028'),
)
_TEXT_VALUES = tuple(
  value for value in _VALUES if not isinstance(value, str) or value.strip()
)


def run_campaign(*, cases: int, seed: int = 0) -> counts.Counts:
  """Generates and reads files of all text formats.

  Args:
    cases: Number of cases in all formats together, rounded up to a multiple of
      the number of formats.
    seed: Random seed.
  """
  totals = counts.Counts()
  for sample in reader_samples.SAMPLES:
    rng = random.Random(f'{seed} {sample.name}')
    for _ in range(-(-cases // len(reader_samples.SAMPLES))):
      with tempfile.TemporaryDirectory() as folder:
        outcome, problem = _try_case(sample, rng, pathlib.Path(folder))
      totals.add(outcome, problem and f'{sample.name}: {problem}')
  return totals


def _try_case(
  sample: reader_samples.Sample, rng: random.Random, folder: pathlib.Path
) -> tuple[str, str]:
  """Writes and reads one case; returns its outcome and its violation, or ''."""
  texts = [
    f'x{_random_text(rng, sample)}y{number}'
    for number in range(rng.randint(1, _MAX_RECORDS))
  ]
  records = list(texts)
  num_bad = rng.choice((0, 0, 1, 2)) if sample.bad else 0
  for _ in range(num_bad):
    records.insert(rng.randint(0, len(records)), '\0' + rng.choice(sample.bad))
  if not sample.escapes and rng.random() < 0.1:
    invalid = rng.choice(_INVALID_UTF8).decode('utf-8', 'surrogateescape')
    records.insert(rng.randint(0, len(records)), f'x{invalid}y')
    num_bad += 1
  files = sample.files(records)
  is_changed = sample.escapes and not num_bad and rng.random() < 0.4
  if is_changed:
    files = dict(files) | {
      sample.varied: _change_value(str(files[sample.varied]), rng)
    }
  _write_files(folder, files, sample, rng)
  try:
    read_texts, num_reported = sample.read(folder)
  except errors.XlflaxError as error:
    if not num_bad and not is_changed:
      return REJECTED, f'valid records are rejected: {error}: {records!r:.300}'
    is_located = str(folder) in str(error.where or error)
    return REJECTED, '' if is_located else f'no file is named: {error}'
  except Exception as error:
    return 'traceback', f'{type(error).__name__}: {error}: {records!r:.300}'
  outcome = COUNTED if num_reported else READ
  if is_changed:
    total = len(read_texts) + num_reported
    is_conserved = len(read_texts) <= len(texts) <= total
  else:
    is_conserved = read_texts == texts and num_reported == num_bad
  if is_conserved:
    return outcome, ''
  return outcome, (
    f'{len(texts)} valid and {num_bad} malformed records were written, '
    f'{len(read_texts)} were read and {num_reported} reported: '
    f'{texts!r:.300} {read_texts!r:.300}'
  )


def _random_text(rng: random.Random, sample: reader_samples.Sample) -> str:
  """Returns a text without the characters that a format reserves."""
  characters = rng.choices(_CHARACTERS, k=rng.randint(0, 6))
  text = ''.join(c for c in characters if not set(c) & set(sample.reserved))
  # Some formats replace several spaces with one.
  return re.sub(' +', ' ', text)


def _change_value(content: str, rng: random.Random) -> str:
  """Replaces one value of a JSON object, or removes it."""
  if content.startswith('{"data"'):
    data = json.loads(content)
    paragraph = rng.choice(data['data'][0]['paragraphs'])
    _change_object(paragraph['qas'][0], rng)
    return json.dumps(data)
  lines = content.splitlines()
  index = rng.randrange(len(lines))
  record = json.loads(lines[index])
  _change_object(record, rng)
  lines[index] = json.dumps(record)
  return '\n'.join(lines) + '\n'


def _change_object(record: dict[str, Any], rng: random.Random) -> None:
  """Replaces or removes the value of a random key, or of a nested key."""
  key = rng.choice(sorted(record))
  if isinstance(record[key], dict) and rng.random() < 0.5:
    _change_object(record[key], rng)
  elif rng.random() < 0.2:
    del record[key]
  else:
    # A record of a corpus whose text is empty is an empty document.
    values = _VALUES if key != 'text' else _TEXT_VALUES
    record[key] = copy.deepcopy(rng.choice(values))


def _write_files(
  folder: pathlib.Path,
  files: Mapping[str, str | bytes],
  sample: reader_samples.Sample,
  rng: random.Random,
) -> None:
  """Writes files with random line endings, byte order marks and compression."""
  # Without the final line ending, an empty last line is no line.
  is_empty_at_end = str(files[sample.varied]).endswith('\n\n')
  is_complete = is_empty_at_end or rng.random() < 0.7
  is_compressed = not sample.varied.startswith('en/') and rng.random() < 0.1
  line_ends = rng.choice(_LINE_ENDS)
  seed = rng.random()
  for name, content in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
      text = content if is_complete else content.removesuffix('\n')
      if not sample.is_aligned:
        line_ends, seed = rng.choice(_LINE_ENDS), rng.random()
      data = _join_lines(text.split('\n'), line_ends, random.Random(seed))
      content = b'\xef\xbb\xbf' * (rng.random() < 0.2) + data
      if is_compressed:
        path = path.with_name(f'{path.name}.gz')
        content = gzip.compress(content, 1)
    path.write_bytes(content)


def _join_lines(
  lines: Sequence[str], line_ends: Sequence[str], rng: random.Random
) -> bytes:
  """Joins lines and encodes them."""
  text = lines[0]
  for line in lines[1:]:
    line_end = rng.choice(line_ends)
    if line_end == '\n' and text.endswith('\r'):
      line_end = '\r'  # CR and LF would end one line instead of two.
    text += line_end + line
  return text.encode('utf-8', 'surrogateescape')
