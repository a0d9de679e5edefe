"""Generator of corpus directories of any size, with real and synthetic text.

The real text is read from the supported files in a folder of public data sets.
The synthetic text consists of words (characters in Chinese and Japanese) that
are drawn at random from the real text in the same language.
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
_COMPRESSED_LANGUAGE = 'es'  # The language whose synthetic text is compressed.
_SYNTHETIC_PAIR = ('de', 'en')
_PARALLEL_FRACTION = 0.1
_LINES_PER_CHUNK = 20_000

Lines = dict[str, list[str]]
Pairs = dict[tuple[str, str], list[tuple[str, str]]]


def write_corpus(
  directory: pathlib.Path, data: pathlib.Path | None, megabytes: float
) -> None:
  """Writes a corpus directory of at least a given size.

  Args:
    directory: Corpus directory to write.
    data: Folder that contains public data sets. If None, text is made of a few
      random words for each language.
    megabytes: Minimum size of the text in units of 10^6 bytes.
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
  """Writes synthetic text, of equal size in each language.

  Args:
    directory: Corpus directory to write.
    data: Folder that contains public data sets, as in `write_corpus`.
    codes: Language codes.
    megabytes: Total size in units of 10^6 bytes.

  Returns:
    The files, in the order of `codes`.
  """
  lines = read_lines(data)
  (directory / 'mono').mkdir(parents=True)
  paths = []
  for seed, code in enumerate(codes := list(codes)):
    paths.append(directory / 'mono' / f'{code}.txt')
    with corpus_writer.open_atomic(paths[-1]) as stream:
      bytes_per_language = megabytes * 1e6 / len(codes)
      stream.writelines(
        _generate_text(lines[code], code, bytes_per_language, seed)
      )
  return paths


def read_lines(data: pathlib.Path | None) -> Lines:
  """Returns lines of text for each language, from data sets or random words."""
  return _read_all(data)[0] if data else _make_dummy_lines()


def count_bytes(directory: pathlib.Path) -> int:
  """Returns the size in bytes of a corpus's files on disk."""
  return sum(path.stat().st_size for path in directory.rglob('*.*'))


def _write_synthetic_files(directory: pathlib.Path, lines: Lines, size: float):
  """Writes synthetic text with a total size of about `size` bytes.

  Pairs make up a tenth of the size. The remainder is divided equally among the
  languages.
  """
  codes = [code for code in _SYNTHETIC_LANGUAGES if code in lines]
  parallel = _PARALLEL_FRACTION * size
  bytes_per_language = (size - parallel) / len(codes)
  for seed, code in enumerate(codes):
    path = directory / 'mono' / f'{code}.synthetic.txt'
    if code == _COMPRESSED_LANGUAGE:
      path = path.with_name(path.name + '.zst')
    with corpus_writer.open_atomic(path) as stream:
      stream.writelines(
        _generate_text(lines[code], code, bytes_per_language, seed)
      )
  pair_texts = (
    _generate_text(lines[code], code, parallel / 2, 100 + seed)
    for seed, code in enumerate(_SYNTHETIC_PAIR)
  )
  rows = (
    row
    for texts in zip(*pair_texts, strict=False)
    for row in zip(*(text.splitlines() for text in texts), strict=False)
  )
  corpus_writer.write_parallel(
    directory, _SYNTHETIC_PAIR, rows, name='synthetic'
  )


def _generate_text(
  lines: list[str], code: str, size: float, seed: int
) -> Iterator[str]:
  """Yields about `size` bytes of text in chunks of lines.

  Lines have 5 to 40 words, or 15 to 120 characters in languages without spaces.
  """
  is_unspaced = code in _UNSPACED
  known_words = (
    list(''.join(lines))
    if is_unspaced
    else [word for line in lines for word in line.split()]
  )
  vocabulary, rng = np.array(known_words, object), np.random.default_rng(seed)
  while size > 0:
    line_ends = (3 if is_unspaced else 1) * rng.integers(
      5, 41, _LINES_PER_CHUNK
    )
    line_ends = np.cumsum(line_ends)
    fragments = np.full(2 * line_ends[-1], '' if is_unspaced else ' ', object)
    fragments[::2] = vocabulary[rng.integers(0, vocabulary.size, line_ends[-1])]
    fragments[2 * line_ends - 1] = '\n'
    text = ''.join(fragments.tolist())
    num_bytes = len(text.encode())
    if num_bytes > size:  # Keep the lines that fit, but at least one.
      num_lines = max(1, int(_LINES_PER_CHUNK * size / num_bytes))
      text = ''.join(text.splitlines(keepends=True)[:num_lines])
    size -= num_bytes
    yield text


def _make_dummy_lines() -> Lines:
  """Returns 200 lines of random words for each language."""
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
  """Returns all lines by language, and all pairs by languages."""
  lines: Lines = collections.defaultdict(list)
  pairs: Pairs = collections.defaultdict(list)
  for code, text in _read_monolingual(data):
    lines[code].extend(text)
  for languages, rows in read_parallel(data):
    ordered_rows = (
      [row[::-1] for row in rows] if languages[0] > languages[1] else rows
    )
    pairs[min(languages), max(languages)].extend(ordered_rows)
  return dict(lines), dict(pairs)


def _read_monolingual(
  data: pathlib.Path,
) -> Iterator[tuple[str, Iterable[str]]]:
  """Yields the language and the lines of each monolingual file."""
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
      file_lines = path.read_text('utf-8').splitlines()
      prefix = '# text = '
      yield (
        path.name.partition('_')[0],
        (
          line.removeprefix(prefix)
          for line in file_lines
          if line.startswith(prefix)
        ),
      )
  for name in ('xquad', 'mlqa', 'tydiqa_goldp'):
    for path in sorted((data / name).glob('*.json')):
      yield from _read_questions(path)


def read_parallel(data: pathlib.Path) -> Iterator[tuple[tuple[str, str], list]]:
  """Yields the two language codes and sentence pairs of each parallel file."""
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
  """Yields contexts and questions, which may be in different languages."""
  name_parts = path.stem.removeprefix('tydiqa.').split('.')
  if len(name_parts) == 1:  # Such as dev-context-es-question-en.
    _, _, context, _, question = path.stem.split('-')
  else:  # Such as xquad.en or goldp.en.dev.
    context = question = name_parts[1]
  for article in json.loads(path.read_text('utf-8'))['data']:
    for paragraph in article['paragraphs']:
      yield context, [paragraph['context']]
      yield question, [entry['question'] for entry in paragraph['qas']]


def _list_declarations(folder: pathlib.Path):
  """Yields the language code and file of each human rights declaration."""
  for row in list(_read_rows(folder / 'languages.tsv'))[1:]:
    yield row[2].replace('-', '_'), folder / f'{row[0]}.txt'


def _read_pairs(path: pathlib.Path) -> list[tuple[str, str]]:
  """Returns the rows of a file that have two columns."""
  return [(row[0], row[1]) for row in _read_rows(path) if len(row) == 2]


def _read_rows(path: pathlib.Path) -> Iterator[list[str]]:
  """Yields the tab-separated columns of each line of a file."""
  for line in path.read_text('utf-8').splitlines():
    yield line.split('\t')
