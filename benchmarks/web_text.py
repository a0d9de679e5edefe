"""Near-duplicates and languages of lines, beside other libraries.

  python -m benchmarks.web_text near_duplicates --data=DATA
  python -m benchmarks.web_text languages --data=DATA

`near_duplicates` plants altered copies of real English lines and looks which
are found, in bins of their exact Jaccard similarity: by `xlflax preprocess
--dedup=fuzzy`, by what theory says of its bands, and by datasketch's
MinHashLSH with as many bands and rows. Then copies of training lines are put
into a held-out set, and what is left of them in training is counted.

`languages` identifies the language of each line over 40 characters of the
Universal Declaration of Human Rights (`DATA/udhr`), by what `xlflax preprocess`
uses and by langid, langdetect and lingua: on the texts in languages that each
knows, and on those that all know. Needs `pip install datasketch langid
langdetect lingua-language-detector`; peers that are not installed are left out.
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
  mode=fuzzy_deduplication.DeduplicationMode.NOT_NEAR
)
_BINS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MIN_CHARACTERS, _MAX_REPLACED_FRACTION = 80, 0.4
# Texts in a script that their language is hardly written in today.
_OTHER_SCRIPTS = ('tk-Cyrl', 'ug-Latn')
_MIN_LINE_LENGTH = 40  # characters, of which a line has more


class PlantedCopies(NamedTuple):
  """Lines and altered copies of them.

  Attributes:
    lines: distinct ones.
    copies: of each.
    similarity: Jaccard, of their n-grams, float64 [lines].
  """

  lines: list[str]
  copies: list[str]
  similarity: np.ndarray


def plant_copies(
  lines: Iterable[str], count: int, seed: int = 0
) -> PlantedCopies:
  """Copies with 0 to 40 % of their words replaced by words of other lines."""
  draw = random.Random(seed)
  long = sorted({x for x in lines if len(x) >= _MIN_CHARACTERS})
  chosen = draw.sample(long, min(count, len(long)))
  words = [word for line in chosen for word in line.split()]
  copies = []
  for line in chosen:
    share = draw.uniform(0, _MAX_REPLACED_FRACTION)
    copies.append(
      ' '.join(
        draw.choice(words) if draw.random() < share else word
        for word in line.split()
      )
    )
  found = [compute_jaccard(*pair) for pair in zip(chosen, copies, strict=True)]
  return PlantedCopies(chosen, copies, np.array(found))


def compute_jaccard(one: str, other: str) -> float:
  """Similarity of two lines' n-grams."""
  first, second = _ngrams(one), _ngrams(other)
  return len(first & second) / len(first | second)


def _ngrams(text: str) -> set[str]:
  return text_similarity.n_grams(
    text_similarity.normalize_for_comparison(text), _DEDUPLICATION.ngram_size
  )


def _match_with_xlflax(one: Sequence[str], other: Sequence[str]) -> np.ndarray:
  first, second = (
    fuzzy_deduplication.band_keys(x, _DEDUPLICATION) for x in (one, other)
  )
  return (first == second).any(-1)


def _match_with_datasketch(
  one: Sequence[str], other: Sequence[str]
) -> np.ndarray:
  sketch = importlib.import_module('datasketch')
  size = _DEDUPLICATION.num_bands * _DEDUPLICATION.rows_per_band
  index = sketch.MinHashLSH(
    num_perm=size,
    params=(_DEDUPLICATION.num_bands, _DEDUPLICATION.rows_per_band),
  )

  def signature(text: str):
    own = sketch.MinHash(num_perm=size)
    own.update_batch([gram.encode() for gram in sorted(_ngrams(text))])
    return own

  for number, text in enumerate(one):
    index.insert(number, signature(text))
  return np.array(
    [n in index.query(signature(text)) for n, text in enumerate(other)]
  )


def measure_near_duplicates(data: pathlib.Path, count: int) -> dict:
  """Rates at which planted copies are found, and what stays across splits."""
  planted = plant_copies(large_text.read_lines(data)['en'], count)
  out: dict = {'pairs': len(planted.lines), 'bins': [], 'microseconds': {}}
  found = {}
  ways = {'xlflax': _match_with_xlflax, 'datasketch': _match_with_datasketch}
  for name in _select_installed(ways, {'datasketch': 'datasketch'}):
    begun = time.process_time()
    found[name] = ways[name](planted.lines, planted.copies)
    spent = time.process_time() - begun
    lines = 2 * len(planted.lines)
    out['microseconds'][name] = round(spent / lines * 1e6)
  expected = np.array(
    [_DEDUPLICATION.probability(s) for s in planted.similarity]
  )
  for low, high in zip(_BINS, _BINS[1:], strict=False):
    own = (planted.similarity >= low) & (planted.similarity < high)
    if high == _BINS[-1]:
      own |= planted.similarity == high
    if own.any():
      rates = {name: hits[own].mean() for name, hits in found.items()}
      rates = {'theory': expected[own].mean()} | rates
      row = {name: round(float(rate), 3) for name, rate in rates.items()}
      out['bins'].append(
        {'from': low, 'to': high, 'pairs': int(own.sum())} | row
      )
  deviation = np.sqrt((expected * (1 - expected)).sum())
  out['deviations_from_theory'] = {
    name: round(float((hits.sum() - expected.sum()) / deviation), 2)
    for name, hits in found.items()
  }
  return out | {'across_splits': _measure_across_splits(planted)}


def _measure_across_splits(planted: PlantedCopies) -> dict:
  """What training keeps of lines whose copies are held out."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for split, text in ((TRAIN, planted.lines), (TEST, planted.copies)):
      corpus_writer.write_monolingual(folder, 'en', [text], split=split)
    dropped = fuzzy_deduplication.find_duplicates(
      Corpus(folder), _DEDUPLICATION
    )
    kept = np.ones(len(planted.lines), bool)
    kept[dropped['mono/en.txt']] = False
  held_out = fuzzy_deduplication.band_keys(planted.copies, _DEDUPLICATION)
  left = fuzzy_deduplication.band_keys(
    [x for x, own in zip(planted.lines, kept, strict=True) if own],
    _DEDUPLICATION,
  )
  return {
    'lines_of_training': len(planted.lines),
    'dropped': int((~kept).sum()),
    'left_with_a_band_of_a_held_out_line': int(
      sum(
        np.isin(left[:, band], held_out[:, band]).any()
        for band in range(_DEDUPLICATION.num_bands)
      )
    ),
    'left_of_similarity': {
      str(low): f'{int(kept[own].sum())} of {int(own.sum())}'
      for low in (0.9, 0.8, 0.7)
      for own in [planted.similarity >= low]
    },
  }


class Text(NamedTuple):
  """Lines of one language.

  Attributes:
    tag: BCP 47, such as `sr-Latn`.
    lines: those with enough characters.
  """

  tag: str
  lines: list[str]

  @property
  def language(self) -> str:
    """`sr` of `sr-Latn`."""
    return self.tag.partition('-')[0]


def read_declarations(
  folder: pathlib.Path, *, longer_than: int = _MIN_LINE_LENGTH
) -> Iterator[Text]:
  """The texts that `languages.tsv` lists, their longer lines."""
  with (folder / 'languages.tsv').open(encoding='utf-8', newline='') as stream:
    for row in csv.DictReader(stream, delimiter='\t'):
      if row['bcp47'] not in _OTHER_SCRIPTS:
        text = (folder / f'{row["key"]}.txt').read_text(encoding='utf-8')
        lines = [x.strip() for x in text.splitlines()]
        yield Text(row['bcp47'], [x for x in lines if len(x) > longer_than])


class LanguageIdentifier(NamedTuple):
  """What names the language of a line.

  Attributes:
    known: codes of languages.
    identify: returns one of them, or '' where it finds none.
  """

  languages: frozenset[str]
  identify: Callable[[str], str]


def _make_py3langid() -> LanguageIdentifier:
  return LanguageIdentifier(
    language_id.supported_languages(),
    lambda text: language_id.identify_language(text)[0],
  )


def _make_langid() -> LanguageIdentifier:
  module = importlib.import_module('langid.langid')
  own = module.LanguageIdentifier.from_modelstring(module.model)
  return LanguageIdentifier(
    frozenset(own.nb_classes), lambda text: own.classify(text)[0]
  )


def _make_langdetect() -> LanguageIdentifier:
  factory = importlib.import_module('langdetect.detector_factory')
  factory.DetectorFactory.seed = 0
  factory.init_factory()
  known = {code.partition('-')[0] for code in factory._factory.langlist}

  def identify(text: str) -> str:
    try:
      return factory.detect(text).partition('-')[0]
    except importlib.import_module('langdetect').LangDetectException:
      return ''

  return LanguageIdentifier(frozenset(known), identify)


def _make_lingua() -> LanguageIdentifier:
  module = importlib.import_module('lingua')
  own = module.LanguageDetectorBuilder.from_all_languages().build()
  codes = {x: x.iso_code_639_1.name.lower() for x in module.Language.all()}
  return LanguageIdentifier(
    frozenset(codes.values()),
    lambda text: codes.get(own.detect_language_of(text), ''),
  )


_IDENTIFIERS = {
  'py3langid (xlflax preprocess)': _make_py3langid,
  'langid': _make_langid,
  'langdetect': _make_langdetect,
  'lingua': _make_lingua,
}
_MODULES = {'langid': 'langid', 'langdetect': 'langdetect', 'lingua': 'lingua'}


def measure_language_identification(folder: pathlib.Path) -> dict:
  """Share of lines whose language is named, and what a line takes."""
  texts = list(read_declarations(folder))
  found = {
    name: _IDENTIFIERS[name]()
    for name in _select_installed(_IDENTIFIERS, _MODULES)
  }
  shared = frozenset.intersection(*(one.languages for one in found.values()))
  return {
    name: _evaluate_identifier(one, texts, shared)
    for name, one in found.items()
  }


def _evaluate_identifier(
  one: LanguageIdentifier, texts: Sequence[Text], shared: frozenset[str]
) -> dict:
  own = [text for text in texts if text.language in one.languages]
  one.identify(own[0].lines[0])  # loads its model
  begun = time.process_time()
  right = [
    sum(one.identify(line) == text.language for line in text.lines)
    for text in own
  ]
  spent = time.process_time() - begun
  total = [len(text.lines) for text in own]
  common = [text.language in shared for text in own]
  rates = {
    text.tag: round(hits / len(text.lines), 3)
    for text, hits in zip(own, right, strict=True)
  }
  return {
    'texts': len(own),
    'lines': sum(total),
    'identified': round(sum(right) / sum(total), 4),
    'texts_that_all_know': sum(common),
    'identified_of_these': round(
      float(np.dot(right, common) / np.dot(total, common)), 4
    ),
    'microseconds': round(spent / sum(total) * 1e6),
    'least': dict(sorted(rates.items(), key=lambda item: item[1])[:5]),
  }


def _select_installed(
  names: Iterable[str], modules: dict[str, str]
) -> list[str]:
  """Those whose module, if they need one, is there."""
  return [
    name
    for name in names
    if name not in modules or importlib.util.find_spec(modules[name])
  ]


def main(arguments: list[str] | None = None) -> None:
  """Prints the figures of one part as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('part', choices=('near_duplicates', 'languages'))
  parser.add_argument('--data', type=pathlib.Path, required=True)
  parser.add_argument('--pairs', type=int, default=3000)
  args = parser.parse_args(arguments)
  if args.part == 'languages':
    found = measure_language_identification(args.data / 'udhr')
  else:
    found = measure_near_duplicates(args.data, args.pairs)
  print(json.dumps(found, indent=2))


if __name__ == '__main__':
  main()
