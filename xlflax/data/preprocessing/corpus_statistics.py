"""What is in the files of a corpus directory, counted line by line.

Nothing is changed. `compute_statistics` gives the counts, `describe_findings` a sentence on each
thing that training would silently learn from, with what to do about it.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data import corpus_checks
from xlflax.data.corpus import corpus_directory, text_similarity
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.preprocessing import contamination as overlap
from xlflax.data.preprocessing import fuzzy_deduplication, language_id
from xlflax.data.preprocessing.contamination import Decontamination
from xlflax.data.preprocessing.fuzzy_deduplication import Deduplication, Kept
from xlflax.utils import errors, progress_reporting

_LONG = 10_000  # characters of a line
_SAMPLE = 20  # one line of so many is asked for its language
_LEAST = 0.5  # probability of a file's language
_ID = re.compile(r'[\w.:/-]*\d[\w.:/-]*\t')  # before the text of a line
_BROKEN = re.compile('\ufffd|Ã[\u0080-\u00bf]|â€')  # decoded wrongly, once
_EQUAL = Deduplication(kept=Kept.NOT_EQUAL)


@dataclasses.dataclass(kw_only=True)
class FileCounts:
  """What is counted of a file.

  Attributes:
    path: below the corpus directory.
    languages: of its name.
    split: of training, validation or test.
    lines: with text; of pairs, pairs.
    documents: of monolingual text.
    characters: of all lines; of both sides.
    longest: characters of the longest line.
    repeated: lines that an earlier one of the file equals, but for case and
      punctuation.
    without_letters: lines, or pairs with such a side.
    with_ids: lines that begin with a word with digits and a tab.
    with_nulls: lines with a NUL character.
    broken: lines with characters that come of a wrong encoding.
    equal_sides: pairs.
    asked: lines, or sides, whose language was asked for.
    another: of these, how many are rather of another language.
    held_out: training lines that held-out text, or other evaluation text, is in.
    error: why the file could not be read to its end.
  """

  path: str
  languages: tuple[str, ...]
  split: str
  lines: int = 0
  documents: int = 0
  characters: int = 0
  longest: int = 0
  repeated: int = 0
  without_letters: int = 0
  with_ids: int = 0
  with_nulls: int = 0
  broken: int = 0
  equal_sides: int = 0
  asked: int = 0
  another: int = 0
  held_out: int = 0
  error: str = ''


def compute_statistics(
  corpus: Corpus,
  evaluation: Decontamination = Decontamination(),  # noqa: B008
) -> list[FileCounts]:
  """Counts of each file of text, in the corpus's order.

  Args:
    corpus: what to read.
    evaluation: texts that should not be in training, besides held-out ones.
  """
  files = [file for file in corpus.files if file.kind is not Kind.DICTIONARY]
  counts = [_count(file, corpus) for file in files]
  _count_held_out(corpus, files, counts, evaluation)
  return counts


def describe_findings(corpus: Corpus, found: Sequence[FileCounts]) -> list[str]:
  """A sentence on each thing that is odd, with what to do."""
  said = [sentence for file_counts in found for sentence in _say(file_counts)]
  if not any(file_counts.error for file_counts in found):
    said += corpus_checks.find_anomalies(corpus)
  return said


def _count(file: TextFile, corpus: Corpus) -> FileCounts:
  path = file.path.relative_to(corpus.directory).as_posix()
  counts = FileCounts(path=path, languages=file.languages, split=file.split)
  report = progress_reporting.Progress(f'inspect, {path}', unit='lines')
  essences: list[str] = []
  keys = []
  try:
    priors = _priors(file)
    for number, texts in enumerate(_rows(file, counts)):
      report(1)
      _count_line(counts, texts)
      if number % _SAMPLE == 0:
        _ask(counts, texts, priors)
      essences.append('\t'.join(texts))
      if len(essences) == 1 << 16:
        keys.append(fuzzy_deduplication.band_keys(essences, _EQUAL)[:, 0])
        essences.clear()
  except errors.CorpusError as error:
    counts.error = str(error)
  keys.append(fuzzy_deduplication.band_keys(essences, _EQUAL)[:, 0])
  joined = np.concatenate(keys)
  counts.repeated = int(joined.size - np.unique(joined).size)
  return counts


def _priors(file: TextFile) -> Sequence[language_id.Prior | None]:
  try:
    return language_id.of_file(file)
  except errors.ConfigError:  # py3langid is in an extra
    return [None for _ in file.languages]


def _rows(file: TextFile, counts: FileCounts) -> Iterator[Sequence[str]]:
  if file.kind is Kind.PARALLEL:
    yield from corpus_directory.read_parallel(file.path)
    return
  for line in corpus_directory.read_monolingual(file.path):
    counts.documents += line.starts_document
    yield (line.text,)


def _count_line(counts: FileCounts, texts: Sequence[str]) -> None:
  counts.lines += 1
  counts.characters += sum(map(len, texts))
  counts.longest = max(counts.longest, *map(len, texts))
  counts.without_letters += not all(
    any(map(str.isalpha, text)) for text in texts
  )
  counts.with_ids += len(texts) == 1 and bool(_ID.match(texts[0]))
  counts.with_nulls += any('\0' in text for text in texts)
  counts.broken += any(_BROKEN.search(text) is not None for text in texts)
  counts.equal_sides += len(texts) == 2 and (
    text_similarity.normalize_for_comparison(texts[0])
    == text_similarity.normalize_for_comparison(texts[1])
  )


def _ask(counts: FileCounts, texts, priors) -> None:
  for text, prior in zip(texts, priors, strict=True):
    if prior is not None:
      counts.asked += 1
      counts.another += not prior.accepts(text, _LEAST)


def _count_held_out(corpus, files, found, evaluation: Decontamination) -> None:
  """Training lines with a run of words of held-out text in its language."""
  read = {
    file_counts.path: file
    for file, file_counts in zip(files, found, strict=True)
    if not file_counts.error
  }
  texts: dict[str, list[np.ndarray]] = collections.defaultdict(list)
  for file in read.values():
    if file.split != TRAIN:
      for side, language in enumerate(file.languages):
        rows = (row[side] for row in overlap.read_sides(file))
        texts[language].append(overlap.keys_of(rows, evaluation.words))
  contaminated = overlap.find_contaminated_lines(corpus, evaluation)
  for file_counts in found:
    if file_counts.split != TRAIN or file_counts.error:
      continue
    keys = [
      part for code in file_counts.languages for part in texts.get(code, [])
    ]
    lines = [contaminated.get(file_counts.path, np.zeros(0, np.int64))]
    if keys:
      held_out_keys = np.unique(np.concatenate(keys))
      lines.append(
        overlap.find_matching_lines(
          read[file_counts.path], held_out_keys, evaluation.words
        )
      )
    file_counts.held_out = np.unique(np.concatenate(lines)).size


# Field, its least share of the lines, what is said, and what to do.
_SAID: tuple[tuple[str, float, str, str], ...] = (
  ('with_nulls', 0, 'have a NUL character', 'clean the file: tr -d "\\000"'),
  (
    'broken',
    0.001,
    'have characters that come of a wrong encoding',
    'convert the file anew from its source, to UTF-8',
  ),
  (
    'with_ids',
    0.5,
    'begin with an id and a tab: the text is in another column',
    'keep that column: cut -f2-',
  ),
  ('repeated', 0.1, 'repeat an earlier one', 'xlflax preprocess --dedup=exact'),
  ('without_letters', 0.02, 'have no letter', 'xlflax preprocess drops them'),
  (
    'equal_sides',
    0.02,
    'are equal on both sides: they were not translated',
    'xlflax preprocess drops them',
  ),
  (
    'held_out',
    0,
    'have 13 words in a row, or all, in common with held-out or evaluation text',
    'xlflax preprocess --decontaminate_against=FILES, or --dedup=exact for equal ones',
  ),
)


def _say(one: FileCounts) -> Iterator[str]:
  if one.error:
    yield f'{one.path} cannot be read: {one.error}'
  for name, threshold, finding, fix in _SAID:
    count = getattr(one, name)
    if count and count > threshold * one.lines:
      yield (f'{one.path}: {count:,} of {one.lines:,} lines {finding} ({fix}).')
  if one.longest > _LONG:
    yield (
      f'{one.path}: the longest line has {one.longest:,} characters; a line is '
      'a sentence or paragraph (xlflax preprocess --split_sentences, or '
      f'--max_characters={_LONG}).'
    )
  if one.another > 0.2 * one.asked:
    yield (
      f'{one.path}: {one.another:,} of {one.asked:,} lines that were asked for '
      'their language are rather of another '
      '(xlflax preprocess --min_language_probability=0.5).'
    )
