"""Accuracy of near-duplicate detection and language identification.

  python -m benchmarks.web_text near_duplicates --data=DATA
  python -m benchmarks.web_text languages --data=DATA

`near_duplicates` adds altered copies of real English lines and measures the
fraction that is detected, in bins of exact Jaccard similarity. It compares
`xlflax preprocess --dedup=fuzzy`, datasketch's MinHashLSH with the same number
of bands and rows, and the fraction predicted by theory. Then altered copies of
training lines are written to a held-out set, and the near-duplicates that
remain in the training set are counted.

`languages` uses the Universal Declaration of Human Rights (`DATA/udhr`). The
language of each line with more than 40 characters is identified with the
identifier that `xlflax preprocess` uses and with langid, langdetect and lingua.
Each identifier is evaluated on the languages that it supports, and on those
that all identifiers support. Install the baselines with `pip install datasketch
langid langdetect lingua-language-detector`. Baselines that are not installed
are omitted.
"""

import argparse
import csv
import importlib.util
import json
import pathlib
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import large_text
from xlflax.data.corpus import corpus_writer, text_similarity
from xlflax.data.corpus.corpus_directory import TEST, TRAIN, Corpus
from xlflax.data.preprocessing import fuzzy_deduplication, language_id

_DEDUPLICATION = fuzzy_deduplication.Deduplication(
  mode=fuzzy_deduplication.DeduplicationMode.FUZZY
)
_BINS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MIN_CHARACTERS, _MAX_REPLACED_FRACTION = 80, 0.4
# Texts in scripts that are rarely used for their language today.
_OTHER_SCRIPTS = ('tk-Cyrl', 'ug-Latn')
_MIN_LINE_LENGTH = 40  # Lines must be longer than this, in characters.


class PlantedCopies(NamedTuple):
  """Lines of text, and an altered copy of each line.

  Attributes:
    lines: Distinct original lines.
    copies: Altered copies of the lines, in the same order.
    similarity: Jaccard similarity between the n-grams of each line and those of
      its copy, float64 of shape [lines].
  """

  lines: list[str]
  copies: list[str]
  similarity: np.ndarray


def plant_copies(
  lines: Iterable[str], count: int, seed: int = 0
) -> PlantedCopies:
  """Copies lines, replacing 0 to 40 % of their words with other lines' words.

  Args:
    lines: Lines to sample from. The sampled lines are copied.
    count: Maximum number of lines to copy.
    seed: Random seed.
  """
  rng = random.Random(seed)
  candidates = sorted({line for line in lines if len(line) >= _MIN_CHARACTERS})
  originals = rng.sample(candidates, min(count, len(candidates)))
  all_words = [word for line in originals for word in line.split()]
  copies = []
  for line in originals:
    replaced_fraction = rng.uniform(0, _MAX_REPLACED_FRACTION)
    copies.append(
      ' '.join(
        rng.choice(all_words) if rng.random() < replaced_fraction else word
        for word in line.split()
      )
    )
  similarities = [
    compute_jaccard(*pair) for pair in zip(originals, copies, strict=True)
  ]
  return PlantedCopies(originals, copies, np.array(similarities))


def compute_jaccard(first: str, second: str) -> float:
  """Returns the Jaccard similarity between two lines' n-grams."""
  first_ngrams, second_ngrams = _ngrams(first), _ngrams(second)
  return len(first_ngrams & second_ngrams) / len(first_ngrams | second_ngrams)


def _ngrams(text: str) -> set[str]:
  """Returns the character n-grams of a normalized text."""
  return text_similarity.n_grams(
    text_similarity.normalize_for_comparison(text), _DEDUPLICATION.ngram_size
  )


def _match_with_xlflax(
  lines: Sequence[str], copies: Sequence[str]
) -> np.ndarray:
  """Returns whether each line and its copy share a MinHash band, [lines]."""
  line_keys, copy_keys = (
    fuzzy_deduplication.band_keys(texts, _DEDUPLICATION)
    for texts in (lines, copies)
  )
  return (line_keys == copy_keys).any(-1)


def _match_with_datasketch(
  lines: Sequence[str], copies: Sequence[str]
) -> np.ndarray:
  """Returns whether datasketch matches each line and its copy, bool [lines]."""
  datasketch = importlib.import_module('datasketch')
  num_perm = _DEDUPLICATION.num_bands * _DEDUPLICATION.rows_per_band
  index = datasketch.MinHashLSH(
    num_perm=num_perm,
    params=(_DEDUPLICATION.num_bands, _DEDUPLICATION.rows_per_band),
  )

  def signature(text: str):
    minhash = datasketch.MinHash(num_perm=num_perm)
    minhash.update_batch([gram.encode() for gram in sorted(_ngrams(text))])
    return minhash

  for number, text in enumerate(lines):
    index.insert(number, signature(text))
  return np.array(
    [
      number in index.query(signature(text))
      for number, text in enumerate(copies)
    ]
  )


def measure_near_duplicates(data: pathlib.Path, count: int) -> dict:
  """Measures the fraction of altered copies found by near-duplicate detection.

  Args:
    data: Folder that contains public data sets.
    count: Number of lines.

  Returns:
    The detection rates by bin of similarity, microseconds per line, deviations
    from theory, and the training lines that remain after deduplication across
    splits.
  """
  planted = plant_copies(large_text.read_lines(data)['en'], count)
  results: dict = {'pairs': len(planted.lines), 'bins': [], 'microseconds': {}}
  matches = {}
  methods = {'xlflax': _match_with_xlflax, 'datasketch': _match_with_datasketch}
  for name in _select_installed(methods, {'datasketch': 'datasketch'}):
    start = time.process_time()
    matches[name] = methods[name](planted.lines, planted.copies)
    seconds = time.process_time() - start
    lines = 2 * len(planted.lines)
    results['microseconds'][name] = round(seconds / lines * 1e6)
  expected = np.array(
    [
      _DEDUPLICATION.probability(similarity)
      for similarity in planted.similarity
    ]
  )
  for low, high in zip(_BINS, _BINS[1:], strict=False):
    in_bin = (planted.similarity >= low) & (planted.similarity < high)
    if high == _BINS[-1]:
      in_bin |= planted.similarity == high
    if in_bin.any():
      match_rates = {
        name: matched[in_bin].mean() for name, matched in matches.items()
      }
      match_rates = {'theory': expected[in_bin].mean()} | match_rates
      rounded_rates = {
        name: round(float(rate), 3) for name, rate in match_rates.items()
      }
      results['bins'].append(
        {'from': low, 'to': high, 'pairs': int(in_bin.sum())} | rounded_rates
      )
  deviation = np.sqrt((expected * (1 - expected)).sum())
  results['deviations_from_theory'] = {
    name: round(float((matched.sum() - expected.sum()) / deviation), 2)
    for name, matched in matches.items()
  }
  return results | {'across_splits': _measure_across_splits(planted)}


def _measure_across_splits(planted: PlantedCopies) -> dict:
  """Counts training lines that are kept although their copy is a test line."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for split, text in ((TRAIN, planted.lines), (TEST, planted.copies)):
      corpus_writer.write_monolingual(folder, 'en', [text], split=split)
    dropped = fuzzy_deduplication.find_duplicates(
      Corpus(folder), _DEDUPLICATION
    )
    is_kept = np.ones(len(planted.lines), bool)
    for lines_of_files in dropped:
      is_kept[lines_of_files['mono/en.txt']] = False
  held_out_keys = fuzzy_deduplication.band_keys(planted.copies, _DEDUPLICATION)
  kept_keys = fuzzy_deduplication.band_keys(
    [
      line
      for line, selected in zip(planted.lines, is_kept, strict=True)
      if selected
    ],
    _DEDUPLICATION,
  )
  return {
    'lines_of_training': len(planted.lines),
    'dropped': int((~is_kept).sum()),
    'left_with_a_band_of_a_held_out_line': int(
      sum(
        np.isin(kept_keys[:, band], held_out_keys[:, band]).any()
        for band in range(_DEDUPLICATION.num_bands)
      )
    ),
    'left_of_similarity': {
      str(low): f'{int(is_kept[selected].sum())} of {int(selected.sum())}'
      for low in (0.9, 0.8, 0.7)
      for selected in [planted.similarity >= low]
    },
  }


class Text(NamedTuple):
  """Lines of the Universal Declaration of Human Rights in one language.

  Attributes:
    tag: BCP 47 tag, such as `sr-Latn`.
    lines: Lines that are longer than the minimum length.
  """

  tag: str
  lines: list[str]

  @property
  def language(self) -> str:
    """Primary subtag of the language tag, such as `sr` for `sr-Latn`."""
    return self.tag.partition('-')[0]


def read_declarations(
  folder: pathlib.Path, *, longer_than: int = _MIN_LINE_LENGTH
) -> Iterator[Text]:
  """Yields the Universal Declaration of Human Rights in each language.

  Args:
    folder: Folder that contains the Universal Declaration of Human Rights in
      each language and the file `languages.tsv`.
    longer_than: Number of characters that a line must exceed to be included.
  """
  with (folder / 'languages.tsv').open(encoding='utf-8', newline='') as stream:
    for row in csv.DictReader(stream, delimiter='\t'):
      if row['bcp47'] not in _OTHER_SCRIPTS:
        text = (folder / f'{row["key"]}.txt').read_text(encoding='utf-8')
        lines = [line.strip() for line in text.splitlines()]
        yield Text(
          row['bcp47'], [line for line in lines if len(line) > longer_than]
        )


class LanguageIdentifier(NamedTuple):
  """A language identification library to compare with other libraries.

  Attributes:
    languages: Codes of the supported languages.
    identify: Function that returns the language of a text, or '' if it cannot
      be identified.
  """

  languages: frozenset[str]
  identify: Callable[[str], str]


def _make_py3langid() -> LanguageIdentifier:
  """Returns the identifier that `xlflax preprocess` uses."""
  return LanguageIdentifier(
    language_id.supported_languages(),
    lambda text: language_id.identify_language(text)[0],
  )


def _make_langid() -> LanguageIdentifier:
  """Returns langid's identifier."""
  module = importlib.import_module('langid.langid')
  identifier = module.LanguageIdentifier.from_modelstring(module.model)
  return LanguageIdentifier(
    frozenset(identifier.nb_classes), lambda text: identifier.classify(text)[0]
  )


def _make_langdetect() -> LanguageIdentifier:
  """Returns langdetect's identifier."""
  factory = importlib.import_module('langdetect.detector_factory')
  factory.DetectorFactory.seed = 0
  factory.init_factory()
  languages = {code.partition('-')[0] for code in factory._factory.langlist}

  def identify(text: str) -> str:
    try:
      return factory.detect(text).partition('-')[0]
    except importlib.import_module('langdetect').LangDetectException:
      return ''

  return LanguageIdentifier(frozenset(languages), identify)


def _make_lingua() -> LanguageIdentifier:
  """Returns lingua's identifier."""
  module = importlib.import_module('lingua')
  detector = module.LanguageDetectorBuilder.from_all_languages().build()
  codes = {
    language: language.iso_code_639_1.name.lower()
    for language in module.Language.all()
  }
  return LanguageIdentifier(
    frozenset(codes.values()),
    lambda text: codes.get(detector.detect_language_of(text), ''),
  )


_IDENTIFIERS = {
  'py3langid (xlflax preprocess)': _make_py3langid,
  'langid': _make_langid,
  'langdetect': _make_langdetect,
  'lingua': _make_lingua,
}
_MODULES = {'langid': 'langid', 'langdetect': 'langdetect', 'lingua': 'lingua'}


def measure_language_identification(folder: pathlib.Path) -> dict:
  """Measures the accuracy and speed of language identification libraries."""
  texts = list(read_declarations(folder))
  identifiers = {
    name: _IDENTIFIERS[name]()
    for name in _select_installed(_IDENTIFIERS, _MODULES)
  }
  common_languages = frozenset.intersection(
    *(identifier.languages for identifier in identifiers.values())
  )
  return {
    name: _evaluate_identifier(identifier, texts, common_languages)
    for name, identifier in identifiers.items()
  }


def _evaluate_identifier(
  identifier: LanguageIdentifier,
  texts: Sequence[Text],
  common_languages: frozenset[str],
) -> dict:
  """Measures the accuracy and speed of one language identification library.

  Args:
    identifier: Language identification library to measure.
    texts: Texts whose language is identified.
    common_languages: Languages that all compared libraries support.

  Returns:
    The accuracy, the microseconds per line, and the five languages with the
    lowest accuracy.
  """
  supported_texts = [
    text for text in texts if text.language in identifier.languages
  ]
  identifier.identify(supported_texts[0].lines[0])  # Loads the model.
  start = time.process_time()
  num_correct = [
    sum(identifier.identify(line) == text.language for line in text.lines)
    for text in supported_texts
  ]
  seconds = time.process_time() - start
  num_lines = [len(text.lines) for text in supported_texts]
  is_common = [text.language in common_languages for text in supported_texts]
  rates = {
    text.tag: round(correct / len(text.lines), 3)
    for text, correct in zip(supported_texts, num_correct, strict=True)
  }
  return {
    'texts': len(supported_texts),
    'lines': sum(num_lines),
    'identified': round(sum(num_correct) / sum(num_lines), 4),
    'texts_that_all_know': sum(is_common),
    'identified_of_these': round(
      float(np.dot(num_correct, is_common) / np.dot(num_lines, is_common)), 4
    ),
    'microseconds': round(seconds / sum(num_lines) * 1e6),
    'least': dict(sorted(rates.items(), key=lambda item: item[1])[:5]),
  }


def _select_installed(
  names: Iterable[str], modules: dict[str, str]
) -> list[str]:
  """Returns the names of the libraries that are installed."""
  return [
    name
    for name in names
    if name not in modules or importlib.util.find_spec(modules[name])
  ]


def main(arguments: list[str] | None = None) -> None:
  """Prints the measurements of the selected benchmark as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    'part', choices=('near_duplicates', 'languages'), help='Measurement to run.'
  )
  parser.add_argument(
    '--data',
    type=pathlib.Path,
    required=True,
    help='Folder that contains public data sets.',
  )
  parser.add_argument(
    '--pairs',
    type=int,
    default=3000,
    help='Number of lines for `near_duplicates`.',
  )
  args = parser.parse_args(arguments)
  if args.part == 'languages':
    results = measure_language_identification(args.data / 'udhr')
  else:
    results = measure_near_duplicates(args.data, args.pairs)
  print(json.dumps(results, indent=2))


if __name__ == '__main__':
  main()
