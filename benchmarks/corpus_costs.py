"""CPU time for each processing step from raw text to a token cache.

  python -m benchmarks.corpus_costs --vocabulary=DIR --data=DATA

The costs are reported per line and per terabyte. Each step runs separately in
this process on real lines in four languages, which are repeated up to the
requested size. It runs once on short lines and once on long lines. Modules and
models are loaded beforehand. Steps whose cost per line is nearly constant, such
as language identification, are cheaper per byte on long lines.
"""

import argparse
import functools
import itertools
import json
import pathlib
import tempfile
import time
from collections.abc import Callable

from benchmarks import large_text
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_writer, line_reader
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.preprocessing import (
  fuzzy_deduplication,
  language_id,
  text_filters,
  text_processing,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary

_LANGUAGES = ('de', 'en', 'ru', 'zh')
# Minimum and maximum lengths in characters.
_LINE_LENGTHS = {'short lines': (1, 40), 'long lines': (100, 2000)}

# Pairs of language and line.
Lines = list[tuple[str, str]]


def measure_costs(
  folder: pathlib.Path, vocabulary: Vocabulary, size: int
) -> dict[str, dict[str, float]]:
  """Measures the CPU time for each processing step.

  Args:
    folder: Corpus directory with plain text in `mono`. The cache is written
      next to it.
    vocabulary: Vocabulary with which the cache is written.
    size: Size of the text in bytes.

  Returns:
    Map from step to microseconds per line, MB per CPU second, and CPU hours per
    10^12 bytes.
  """
  lines = _read_lines(folder)
  results = {}
  for name, step in _make_steps(folder, lines, vocabulary).items():
    start = time.process_time()
    step()
    seconds = time.process_time() - start
    results[name] = {
      'microseconds_a_line': round(seconds / len(lines) * 1e6, 1),
      'megabytes_a_core_second': round(size / 1e6 / seconds, 2),
      'core_hours_a_terabyte': round(seconds / size * 1e12 / 3600, 1),
    }
  return results


def _make_steps(
  folder, lines: Lines, vocabulary
) -> dict[str, Callable[[], object]]:
  """Returns a function for each processing step, with its models loaded."""
  deduplication = fuzzy_deduplication.Deduplication(
    mode=fuzzy_deduplication.DeduplicationMode.FUZZY
  )
  _filter_lines(lines[:10], min_script_share=0.5, min_language_probability=0.5)
  fuzzy_deduplication.band_keys([text for _, text in lines[:10]], deduplication)
  return {
    'reading lines': lambda: _read_lines(folder),
    'lengths': lambda: _filter_lines(
      lines, min_characters=20, max_characters=5000
    ),
    'script': lambda: _filter_lines(lines, min_script_share=0.5),
    'language': lambda: _identify_languages(lines),
    'equal sides': lambda: _filter_pairs(lines),
    'sentences': lambda: _split_sentences(lines),
    'near-duplicates': lambda: fuzzy_deduplication.band_keys(
      [text for _, text in lines], deduplication
    ),
    'cache': lambda: _write_cache(folder, vocabulary),
  }


def _read_lines(folder: pathlib.Path) -> Lines:
  """Returns the language and text of each line."""
  return [
    (path.stem, line.decode())
    for path in sorted((folder / 'mono').glob('*.txt'))
    for _, line in line_reader.read_lines(path)
  ]


def _filter_lines(lines: Lines, **options) -> None:
  """Applies text filters to each line."""
  filters = text_filters.TextFilters(**options)
  for language, text in lines:
    text_filters.find_drop_reason((text,), (language,), filters)


def _identify_languages(lines: Lines) -> None:
  """Filters the lines of each language by their language probability."""
  filters = text_filters.TextFilters(min_language_probability=0.5)
  for code, group in itertools.groupby(lines, key=lambda line: line[0]):
    texts = [text for _, text in group]
    expected_languages = language_id.expected_languages(code, texts[:1000])
    for text in texts:
      text_filters.find_drop_reason(
        (text,), (code,), filters, (expected_languages,)
      )


def _filter_pairs(lines: Lines) -> None:
  """Filters pairs of consecutive lines as if they were translations."""
  for source, target in zip(lines[::2], lines[1::2], strict=False):
    text_filters.find_drop_reason(
      (source[1], target[1]), ('en', 'fi'), text_filters.TextFilters()
    )


def _write_corpus(folder: pathlib.Path, lines, lengths, size: float) -> None:
  """Writes about `size` bytes of text by repeating lines in a length range."""
  min_length, max_length = lengths
  for code in _LANGUAGES:
    remaining_bytes = size / len(_LANGUAGES)
    candidates = [
      line for line in lines[code] if min_length <= len(line) < max_length
    ]
    selected_lines = []
    for line in itertools.cycle(candidates):
      selected_lines.append(line)
      remaining_bytes -= len(line.encode()) + 1
      if remaining_bytes <= 0:
        break
    corpus_writer.write_monolingual(folder, code, [selected_lines])


def _split_sentences(lines: Lines) -> None:
  """Splits each line into sentences."""
  for language, text in lines:
    text_processing.split_sentences(text, language)


def _write_cache(folder: pathlib.Path, vocabulary: Vocabulary) -> None:
  """Writes the token cache of a corpus."""
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=folder.with_name('cache'),
      mixtures=['corpus.mono'],
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, str(folder)),
    )
  )


def main(arguments: list[str] | None = None) -> None:
  """Prints the CPU time of each processing step as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--vocabulary',
    type=pathlib.Path,
    required=True,
    help='Vocabulary directory.',
  )
  add(
    '--data', type=pathlib.Path, help='Folder that contains public data sets.'
  )
  add('--megabytes', type=float, default=2, help='Size of the text in MB.')
  args = parser.parse_args(arguments)
  with tempfile.TemporaryDirectory() as work:
    real_lines, results = large_text.read_lines(args.data), {}
    for name, lengths in _LINE_LENGTHS.items():
      folder = pathlib.Path(work) / name / 'corpus'
      _write_corpus(folder, real_lines, lengths, args.megabytes * 1e6)
      results[name] = measure_costs(
        folder, Vocabulary.load(args.vocabulary), large_text.count_bytes(folder)
      )
  print(json.dumps(results, indent=2))


if __name__ == '__main__':
  main()
