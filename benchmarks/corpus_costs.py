"""What each step from text to a sealed cache costs: by line and by terabyte.

  python -m benchmarks.corpus_costs --vocabulary=DIR --data=DATA

Each step runs by itself, in this process, on real lines of four languages, once
on short ones and once on long ones, repeated up to the size; imports and models
are loaded before. Steps that cost nearly the same for every line, as the
identification of its language does, are cheaper a byte where lines are long.
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
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.preprocessing import (
  fuzzy_deduplication,
  language_id,
  text_filters,
  text_processing,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary

_LANGUAGES = ('de', 'en', 'ru', 'zh')
_LINE_LENGTHS = {
  'short lines': (1, 40),
  'long lines': (100, 2000),
}  # characters

Lines = list[tuple[str, str]]  # (language, line)


def measure_costs(
  folder: pathlib.Path, vocabulary: Vocabulary, size: int
) -> dict[str, dict[str, float]]:
  """Processor time of each step.

  Args:
    folder: with a folder `mono` of plain text; the cache is written beside it.
    vocabulary: tokenises.
    size: bytes of the text.

  Returns:
    Step -> microseconds a line, MB a second of a core, and core hours for
    10^12 bytes.
  """
  lines = _read_lines(folder)
  out = {}
  for name, step in _make_steps(folder, lines, vocabulary).items():
    begun = time.process_time()
    step()
    seconds = time.process_time() - begun
    out[name] = {
      'microseconds_a_line': round(seconds / len(lines) * 1e6, 1),
      'megabytes_a_core_second': round(size / 1e6 / seconds, 2),
      'core_hours_a_terabyte': round(seconds / size * 1e12 / 3600, 1),
    }
  return out


def _make_steps(
  folder, lines: Lines, vocabulary
) -> dict[str, Callable[[], object]]:
  near = fuzzy_deduplication.Deduplication(
    mode=fuzzy_deduplication.DeduplicationMode.NOT_NEAR
  )
  _filter_lines(lines[:10], min_script_share=0.5, min_language_probability=0.5)
  fuzzy_deduplication.band_keys([text for _, text in lines[:10]], near)
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
      [text for _, text in lines], near
    ),
    'cache': lambda: _write_cache(folder, vocabulary),
  }


def _read_lines(folder: pathlib.Path) -> Lines:
  return [
    (path.stem, line.decode())
    for path in sorted((folder / 'mono').glob('*.txt'))
    for _, line in corpus_lines.read_lines(path)
  ]


def _filter_lines(lines: Lines, **asked) -> None:
  asked_for = text_filters.TextFilters(**asked)
  for language, text in lines:
    text_filters.find_drop_reason((text,), (language,), asked_for)


def _identify_languages(lines: Lines) -> None:
  asked_for = text_filters.TextFilters(min_language_probability=0.5)
  for code, own in itertools.groupby(lines, key=lambda line: line[0]):
    texts = [text for _, text in own]
    prior = language_id.expected_languages(code, texts[:1000])
    for text in texts:
      text_filters.find_drop_reason((text,), (code,), asked_for, (prior,))


def _filter_pairs(lines: Lines) -> None:
  """Lines two by two, as the sides of pairs."""
  for one, other in zip(lines[::2], lines[1::2], strict=False):
    text_filters.find_drop_reason(
      (one[1], other[1]), ('en', 'fi'), text_filters.TextFilters()
    )


def _write_corpus(folder: pathlib.Path, lines, lengths, size: float) -> None:
  """Writes real lines of some lengths, over and over, up to a size."""
  low, high = lengths
  for code in _LANGUAGES:
    left = size / len(_LANGUAGES)
    text = [line for line in lines[code] if low <= len(line) < high]
    kept = []
    for line in itertools.cycle(text):
      kept.append(line)
      left -= len(line.encode()) + 1
      if left <= 0:
        break
    corpus_writer.write_monolingual(folder, code, [kept])


def _split_sentences(lines: Lines) -> None:
  for language, text in lines:
    text_processing.split_sentences(text, language)


def _write_cache(folder: pathlib.Path, vocabulary: Vocabulary) -> None:
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=folder.with_name('cache'),
      mixtures=['corpus.mono'],
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, str(folder)),
    )
  )


def main(arguments: list[str] | None = None) -> None:
  """Prints the costs as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--vocabulary', type=pathlib.Path, required=True)
  parser.add_argument('--data', type=pathlib.Path)
  parser.add_argument('--megabytes', type=float, default=2)
  args = parser.parse_args(arguments)
  with tempfile.TemporaryDirectory() as work:
    real, found = large_text.read_lines(args.data), {}
    for kind, lengths in _LINE_LENGTHS.items():
      folder = pathlib.Path(work) / kind / 'corpus'
      _write_corpus(folder, real, lengths, args.megabytes * 1e6)
      found[kind] = measure_costs(
        folder, Vocabulary.load(args.vocabulary), large_text.count_bytes(folder)
      )
  print(json.dumps(found, indent=2))


if __name__ == '__main__':
  main()
