"""A corpus directory of any size: real text first, synthetic text after it.

The real text is that of a folder of public data sets, of which each file is
read as far as its kind is known. The synthetic text has the words of the real
text of its language (characters, in Chinese and Japanese), drawn one by one.
"""

import collections
import json
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from xlflax.data.corpus import corpus_writer, language_codes

_UNSPACED = ('ja', 'zh')
_SYNTHETIC_LANGUAGES = (
  'ar',
  'de',
  'en',
  'es',
  'fr',
  'hi',
  'ja',
  'ru',
  'sw',
  'zh',
)
_COMPRESSED_LANGUAGE = 'es'  # its synthetic text is a compressed file
_SYNTHETIC_PAIR = ('de', 'en')
_PARALLEL_FRACTION = 0.1
_LINES_PER_CHUNK = 20_000  # made at once

Lines = dict[str, list[str]]
Pairs = dict[tuple[str, str], list[tuple[str, str]]]


def write_corpus(
  directory: pathlib.Path, data: pathlib.Path | None, megabytes: float
) -> None:
  """Writes a corpus directory.

  Args:
    directory: of the corpus.
    data: folder of data sets; None: a few made-up words for each language.
    megabytes: of text, at least; 1 MB = 10^6 bytes.
  """
  lines, pairs = _read_all(data) if data else (_make_dummy_lines(), {})
  size = 0
  for code, text in sorted(lines.items()):
    path = corpus_writer.write_monolingual(directory, code, [text], name='real')
    size += path.stat().st_size
  for languages, rows in sorted(pairs.items()):
    path = corpus_writer.write_parallel(directory, languages, rows, name='real')
    size += path.stat().st_size
  _write_synthetic_files(directory, lines, megabytes * 1e6 - size)


def write_synthetic_text(
  directory: pathlib.Path,
  data: pathlib.Path | None,
  codes: Iterable[str],
  megabytes: float,
) -> list[pathlib.Path]:
  """Writes synthetic text of languages, of equal sizes; returns the files."""
  lines = read_lines(data)
  (directory / 'mono').mkdir(parents=True)
  paths = []
  for seed, code in enumerate(codes := list(codes)):
    paths.append(directory / 'mono' / f'{code}.txt')
    with corpus_writer.open_atomic(paths[-1]) as stream:
      share = megabytes * 1e6 / len(codes)
      stream.writelines(_generate_text(lines[code], code, share, seed))
  return paths


def read_lines(data: pathlib.Path | None) -> Lines:
  """Lines of each language of a folder of data sets, or made-up ones."""
  return _read_all(data)[0] if data else _make_dummy_lines()


def count_bytes(directory: pathlib.Path) -> int:
  """Bytes of a corpus's files, as they lie on the disk."""
  return sum(path.stat().st_size for path in directory.rglob('*.*'))


def _write_synthetic_files(directory: pathlib.Path, lines: Lines, size: float):
  """Pairs have a tenth of `size` bytes, languages equal shares of the rest."""
  codes = [code for code in _SYNTHETIC_LANGUAGES if code in lines]
  parallel = _PARALLEL_FRACTION * size
  share = (size - parallel) / len(codes)
  for seed, code in enumerate(codes):
    path = directory / 'mono' / f'{code}.synthetic.txt'
    if code == _COMPRESSED_LANGUAGE:
      path = path.with_name(path.name + '.zst')
    with corpus_writer.open_atomic(path) as stream:
      stream.writelines(_generate_text(lines[code], code, share, seed))
  sides = (
    _generate_text(lines[code], code, parallel / 2, 100 + seed)
    for seed, code in enumerate(_SYNTHETIC_PAIR)
  )
  rows = (
    row
    for texts in zip(*sides, strict=False)
    for row in zip(*(text.splitlines() for text in texts), strict=False)
  )
  corpus_writer.write_parallel(
    directory, _SYNTHETIC_PAIR, rows, name='synthetic'
  )


def _generate_text(
  lines: list[str], code: str, size: float, seed: int
) -> Iterator[str]:
  """Text of about `size` bytes: lines of 5 to 40 words, 15 to 120 characters."""
  unspaced = code in _UNSPACED
  words = (
    list(''.join(lines)) if unspaced else [w for x in lines for w in x.split()]
  )
  known, rng = np.array(words, object), np.random.default_rng(seed)
  while size > 0:
    ends = (3 if unspaced else 1) * rng.integers(5, 41, _LINES_PER_CHUNK)
    ends = np.cumsum(ends)
    drawn = np.full(2 * ends[-1], '' if unspaced else ' ', object)
    drawn[::2] = known[rng.integers(0, known.size, ends[-1])]
    drawn[2 * ends - 1] = '\n'
    text = ''.join(drawn.tolist())
    whole = len(text.encode())
    if whole > size:  # the lines that fit, at least one
      kept = max(1, int(_LINES_PER_CHUNK * size / whole))
      text = ''.join(text.splitlines(keepends=True)[:kept])
    size -= whole
    yield text


def _make_dummy_lines() -> Lines:
  rng = np.random.default_rng(0)
  letters = np.array(list('abcdefghijklmnopqrstuvwxyz'))
  return {
    code: [
      ' '.join(''.join(rng.choice(letters, 5)) for _ in range(8))
      for _ in range(200)
    ]
    for code in _SYNTHETIC_LANGUAGES
  }


def _read_all(data: pathlib.Path) -> tuple[Lines, Pairs]:
  """Lines of each language and pairs of languages, in the order of files."""
  lines: Lines = collections.defaultdict(list)
  pairs: Pairs = collections.defaultdict(list)
  for code, text in _read_monolingual(data):
    lines[code].extend(text)
  for languages, rows in read_parallel(data):
    turned = (
      [row[::-1] for row in rows] if languages[0] > languages[1] else rows
    )
    pairs[min(languages), max(languages)].extend(turned)
  return dict(lines), dict(pairs)


def _read_monolingual(
  data: pathlib.Path,
) -> Iterator[tuple[str, Iterable[str]]]:
  for path in sorted((data / 'bible').glob('*.tsv')):
    yield path.stem, (row[-1] for row in _read_rows(path))
  for path in sorted((data / 'opensource_guide').glob('*/*.md')):
    yield (
      path.parent.name.removesuffix('-hans'),
      path.read_text('utf-8').splitlines(),
    )
  for key, *_, path in _list_declarations(data / 'udhr'):
    yield key, path.read_text('utf-8').splitlines()
  for path in sorted(data.glob('u*/*/*')):
    if path.suffix in ('.conllu', '.iob2'):
      found = path.read_text('utf-8').splitlines()
      mark = '# text = '
      yield (
        path.name.partition('_')[0],
        (x.removeprefix(mark) for x in found if x.startswith(mark)),
      )
  for name in ('xquad', 'mlqa', 'tydiqa_goldp'):
    for path in sorted((data / name).glob('*.json')):
      yield from _read_questions(path)


def read_parallel(data: pathlib.Path) -> Iterator[tuple[tuple[str, str], list]]:
  """Pairs of languages and their sentences, of one file after the other."""
  for path in sorted((data / 'ntrex').glob('*-*.tsv')):
    yield tuple(path.stem.split('-')), _read_pairs(path)
  for path in sorted((data / 'small_parallel_enja').glob('*.tsv')):
    yield ('en', 'ja'), _read_pairs(path)
  for path in sorted((data / 'tatoeba').glob('*.eng')):
    other = path.with_suffix('.' + path.name.split('.')[1].partition('-')[0])
    yield (
      ('en', language_codes.short_code(other.suffix[1:])),
      list(
        zip(
          path.read_text('utf-8').splitlines(),
          other.read_text('utf-8').splitlines(),
          strict=True,
        )
      ),
    )


def _read_questions(path: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
  """Contexts and questions, which may be of two languages."""
  parts = path.stem.removeprefix('tydiqa.').split('.')
  if len(parts) == 1:  # dev-context-es-question-en
    _, _, context, _, question = path.stem.split('-')
  else:  # xquad.en, goldp.en.dev
    context = question = parts[1]
  for article in json.loads(path.read_text('utf-8'))['data']:
    for paragraph in article['paragraphs']:
      yield context, [paragraph['context']]
      yield question, [entry['question'] for entry in paragraph['qas']]


def _list_declarations(folder: pathlib.Path):
  """(language code, file) of the texts whose languages have a plain code."""
  for row in list(_read_rows(folder / 'languages.tsv'))[1:]:
    yield row[2].replace('-', '_'), folder / f'{row[0]}.txt'


def _read_pairs(path: pathlib.Path) -> list[tuple[str, str]]:
  return [(row[0], row[1]) for row in _read_rows(path) if len(row) == 2]


def _read_rows(path: pathlib.Path) -> Iterator[list[str]]:
  for line in path.read_text('utf-8').splitlines():
    yield line.split('\t')
