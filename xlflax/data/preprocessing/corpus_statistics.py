"""Statistics of the files in a corpus directory.

`compute_statistics` counts properties of each file line by line.
`describe_findings` returns a sentence with a recommendation for each property
that can affect training. The corpus is not changed.
"""

import collections
import contextlib
import dataclasses
import heapq
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data import corpus_checks
from xlflax.data.corpus import (
  corpus_directory,
  line_reader,
  text_encoding,
  text_similarity,
)
from xlflax.data.corpus.bad_records import BadRecordCount, BadRecords
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.preprocessing import (
  contamination,
  fuzzy_deduplication,
  language_id,
  markup,
)
from xlflax.data.preprocessing.contamination import Decontamination
from xlflax.data.preprocessing.fuzzy_deduplication import (
  Deduplication,
  DeduplicationMode,
)
from xlflax.utils import errors, progress_reporting

# Number of characters above which a line is reported as long.
_LONG_LINE = 10_000
# The language of one line in this number of lines is identified, but of at
# least `_MIN_IDENTIFIED_LINES` lines, or of all lines of a smaller file.
_LANGUAGE_ID_INTERVAL = 20
_MIN_IDENTIFIED_LINES = 200
_MAX_LANGUAGE_ID_KEY = (1 << 64) // _LANGUAGE_ID_INTERVAL
# Minimum probability of the language of a file.
_MIN_LANGUAGE_PROBABILITY = 0.5
# Fraction of lines in other languages above which a file is reported. Fewer
# lines may be identified incorrectly (docs/measured/large_corpora.md, "Short
# lines").
_MAX_OTHER_LANGUAGE = 0.05
# Id at the beginning of a line, in a separate column.
_ID = re.compile(r'[\w.:/-]*\d[\w.:/-]*\t')
_EXACT_DEDUPLICATION = Deduplication(mode=DeduplicationMode.EXACT)
_KEY_BLOCK_LINES = 1 << 16


@dataclasses.dataclass(kw_only=True)
class FileCounts:
  """Statistics of a single corpus file.

  Attributes:
    path: Path relative to the corpus directory.
    languages: Language codes in the file name.
    split: Name of the split.
    lines: Number of non-empty lines, sentence pairs or dictionary entries. For
      a dictionary, only `lines` and `bad_records` are counted.
    documents: Number of documents in monolingual text.
    characters: Total number of characters in all lines, including both columns
      of parallel text.
    longest: Number of characters in the longest line.
    repeated: Number of lines that equal an earlier line in the file, ignoring
      case and punctuation.
    without_letters: Number of lines without letters, or of pairs in which one
      text has no letters.
    with_ids: Number of lines that start with an id: a word with digits,
      followed by a tab.
    with_nulls: Number of lines that contain a NUL character.
    broken: Number of lines with characters that indicate a wrong text encoding.
    wrong_characters: First characters in the file that indicate a wrong text
      encoding. It is empty if there are none.
    with_markup: Number of lines that contain HTML tags or character references.
    with_code: Number of lines that contain JavaScript, a CSS rule or a JSON
      object.
    equal_sides: Number of pairs with identical source and target.
    num_identified: Number of texts on which language identification was run.
    num_other_language: Number of texts that were identified as text in a
      different language.
    held_out: Number of training lines that contain held-out text or other
      evaluation text.
    bad_records: Number of lines and records that cannot be used.
    problems: Number and examples of the bad lines and records, by problem.
    error: Error message. It is empty if the file could be read completely.
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
  wrong_characters: str = ''
  with_markup: int = 0
  with_code: int = 0
  equal_sides: int = 0
  num_identified: int = 0
  num_other_language: int = 0
  held_out: int = 0
  bad_records: int = 0
  problems: tuple[BadRecordCount, ...] = ()
  error: str = ''

  @property
  def is_usable(self) -> bool:
    """True if the file can be read, contains text and has no bad lines."""
    return bool(self.lines) and not self.bad_records and not self.error


def compute_statistics(
  corpus: Corpus,
  evaluation: Decontamination = Decontamination(),  # noqa: B008
) -> list[FileCounts]:
  """Computes the statistics of each file, in the order of `Corpus.files`.

  Args:
    corpus: Corpus to read. If it skips bad records, they are counted.
      Otherwise, the rest of a file is not read after a bad record.
    evaluation: Evaluation texts that must not occur in the training text, in
      addition to the corpus's own held-out text.
  """
  counts = [_compute_file_statistics(file, corpus) for file in corpus.files]
  text_files, text_counts = [], []
  for file, file_counts in zip(corpus.files, counts, strict=True):
    if file.kind is not Kind.DICTIONARY:
      text_files.append(file)
      text_counts.append(file_counts)
  _count_held_out(corpus, text_files, text_counts, evaluation)
  return counts


def describe_findings(
  corpus: Corpus, statistics: Sequence[FileCounts]
) -> list[str]:
  """Returns a message with a recommendation for each anomaly in a corpus.

  Args:
    corpus: Corpus that the statistics describe.
    statistics: Statistics of the corpus files.
  """
  json_files = _find_files(corpus, corpus_checks.contains_json)
  is_readable = not any(file_counts.error for file_counts in statistics)
  # `find_anomalies` reports the columns of these files.
  column_files = (
    _find_files(corpus, corpus_checks.contains_columns) if is_readable else ()
  )
  # Wrongly decoded lines of these files are reported, even if their fraction is
  # below the threshold for all lines.
  wrongly_decoded_files = (
    _find_files(corpus, corpus_checks.is_wrongly_decoded) if is_readable else ()
  )
  sentences = [
    sentence
    for file_counts in statistics
    for sentence in _describe_file(
      file_counts,
      is_json=file_counts.path in json_files,
      has_columns=file_counts.path in column_files,
      is_wrongly_decoded=file_counts.path in wrongly_decoded_files,
    )
  ]
  if is_readable:
    # The number of wrongly decoded lines has been reported above.
    sentences += corpus_checks.find_anomalies(corpus, report_encoding=False)
  sentences += corpus_checks.find_identical_files(corpus.files)
  return sentences


def _find_files(
  corpus: Corpus, predicate: Callable[[TextFile], bool]
) -> set[str]:
  """Returns the relative paths of the files for which a predicate is true."""
  paths: set[str] = set()
  for file in corpus.files:
    # The statistics contain the error of a file that cannot be read.
    with contextlib.suppress(errors.CorpusError):
      if predicate(file):
        paths.add(file.path.relative_to(corpus.directory).as_posix())
  return paths


def _compute_file_statistics(file: TextFile, corpus: Corpus) -> FileCounts:
  """Computes a file's statistics, except the overlap with held-out text."""
  path = file.path.relative_to(corpus.directory).as_posix()
  counts = FileCounts(path=path, languages=file.languages, split=file.split)
  bad_records = BadRecords()
  try:
    if file.kind is Kind.DICTIONARY:
      _count_dictionary_entries(file, counts, bad_records)
    else:
      _count_lines(file, counts, bad_records)
  except errors.CorpusError as error:
    counts.error = str(error)
  counts.bad_records = bad_records.total
  counts.problems = bad_records.problems
  return counts


def _count_dictionary_entries(
  file: TextFile, counts: FileCounts, bad_records: BadRecords
) -> None:
  on_bad_record = bad_records.add if file.skips_bad_records else None
  for _ in line_reader.read_dictionary(file.path, on_bad_record):
    counts.lines += 1


def _count_lines(
  file: TextFile, counts: FileCounts, bad_records: BadRecords
) -> None:
  """Computes the statistics of the lines of one file.

  If the file is damaged, the statistics of the lines before the damage are
  computed.
  """
  report = progress_reporting.Progress(f'inspect, {counts.path}', unit='lines')
  lines: list[str] = []
  keys = []
  try:
    language_sample = _LanguageSample(counts, _priors(file))
    for texts in _read_texts(file, counts, bad_records):
      report(1)
      _count_line(counts, texts)
      language_sample.add(texts)
      lines.append('\t'.join(texts))
      if len(lines) == _KEY_BLOCK_LINES:
        keys.append(_exact_keys(lines))
        lines.clear()
    language_sample.finish()
  finally:
    keys.append(_exact_keys(lines))
    all_keys = np.concatenate(keys)
    counts.repeated = int(all_keys.size - np.unique(all_keys).size)


def _exact_keys(lines: Sequence[str]) -> np.ndarray:
  """Hashes each line, so that equal lines have equal keys, uint64 [lines]."""
  return fuzzy_deduplication.band_keys(lines, _EXACT_DEDUPLICATION)[:, 0]


def _priors(file: TextFile) -> Sequence[language_id.Prior | None]:
  """Returns the language priors of a file, which are None without py3langid."""
  try:
    return language_id.file_priors(file)
  except errors.ConfigError:  # The optional package py3langid is missing.
    return [None for _ in file.languages]


def _read_texts(
  file: TextFile, counts: FileCounts, bad_records: BadRecords
) -> Iterator[Sequence[str]]:
  """Yields the text or the two texts of each line, and counts documents."""
  on_bad_record = bad_records.add if file.skips_bad_records else None
  starts_document = file.kind is Kind.MONOLINGUAL
  for texts in corpus_directory.read_texts(file, on_bad_record):
    if not texts[0]:
      starts_document = True
      continue
    counts.documents += starts_document
    starts_document = False
    yield texts


def _count_line(counts: FileCounts, texts: Sequence[str]) -> None:
  counts.lines += 1
  counts.characters += sum(map(len, texts))
  counts.longest = max(counts.longest, *map(len, texts))
  counts.without_letters += not all(
    any(map(str.isalpha, text)) for text in texts
  )
  counts.with_ids += len(texts) == 1 and bool(_ID.match(texts[0]))
  counts.with_nulls += any('\0' in text for text in texts)
  wrong_characters = next(
    filter(None, map(text_encoding.find_wrong_characters, texts)), ''
  )
  counts.broken += bool(wrong_characters)
  counts.wrong_characters = counts.wrong_characters or wrong_characters
  counts.with_markup += any(map(markup.has_markup, texts))
  counts.with_code += any(map(markup.is_code, texts))
  counts.equal_sides += len(texts) == 2 and (
    text_similarity.normalize_for_comparison(texts[0])
    == text_similarity.normalize_for_comparison(texts[1])
  )


class _LanguageSample:
  """Sample of the lines of a file whose languages are identified."""

  def __init__(
    self, counts: FileCounts, priors: Sequence[language_id.Prior | None]
  ):
    """Initializes the sample.

    Args:
      counts: Statistics of the file, to which the identified texts are added.
      priors: Prior distribution over languages for each column. None for a
        column whose language is not identified.
    """
    self._counts = counts
    self._priors = priors
    self._num_lines = 0
    # Lines of a small file with their keys, until it is known to be large.
    self._lines: list[tuple[int, Sequence[str]]] = []

  def add(self, texts: Sequence[str]) -> None:
    """Adds the next line. If it is sampled, its language is identified.

    The first lines are stored until the file is known to be large or until
    `finish` is called.
    """
    if all(prior is None for prior in self._priors):
      return
    self._num_lines += 1
    key = language_id.sampling_key(self._num_lines)
    if self._num_lines <= _MIN_IDENTIFIED_LINES * _LANGUAGE_ID_INTERVAL:
      self._lines.append((key, texts))
      return
    for earlier_key, earlier_texts in [*self._lines, (key, texts)]:
      if earlier_key < _MAX_LANGUAGE_ID_KEY:
        self._identify(earlier_texts)
    self._lines.clear()

  def finish(self) -> None:
    """Identifies the languages of the sampled lines if the file is small.

    It must be called after the last line. Sampled lines of larger files are
    identified by `add`.
    """
    for _, texts in heapq.nsmallest(
      _MIN_IDENTIFIED_LINES, self._lines, key=operator.itemgetter(0)
    ):
      self._identify(texts)
    self._lines.clear()

  def _identify(self, texts: Sequence[str]) -> None:
    """Counts the texts of a line that are not in the language of the file."""
    for text, prior in zip(texts, self._priors, strict=True):
      if prior is not None:
        self._counts.num_identified += 1
        self._counts.num_other_language += not prior.accepts(
          text, _MIN_LANGUAGE_PROBABILITY
        )


def _count_held_out(
  corpus, files, statistics, evaluation: Decontamination
) -> None:
  """Counts training lines that share text with held-out or evaluation text.

  Training lines are compared with the held-out text in the same language and
  with all evaluation texts.
  """
  readable_files = {
    file_counts.path: file
    for file, file_counts in zip(files, statistics, strict=True)
    if not file_counts.error
  }
  keys_by_language: dict[str, list[np.ndarray]] = collections.defaultdict(list)
  for file in readable_files.values():
    if file.split != TRAIN:
      for side, language in enumerate(file.languages):
        texts = (line[side] for line in contamination.read_sides(file))
        keys_by_language[language].append(
          contamination.compute_keys(texts, evaluation.ngram_size)
        )

  contaminated = contamination.find_contaminated_lines(corpus, evaluation)
  for file_counts in statistics:
    if file_counts.split != TRAIN or file_counts.error:
      continue
    keys = [
      key_block
      for code in file_counts.languages
      for key_block in keys_by_language.get(code, [])
    ]
    lines = [contaminated.get(file_counts.path, np.zeros(0, np.int64))]
    if keys:
      held_out_keys = np.unique(np.concatenate(keys))
      lines.append(
        contamination.find_matching_lines(
          readable_files[file_counts.path], held_out_keys, evaluation.ngram_size
        )
      )
    file_counts.held_out = np.unique(np.concatenate(lines)).size


class _Finding(NamedTuple):
  """Anomaly of a corpus file that affects a fraction of its lines.

  Attributes:
    field: Field of `FileCounts` that counts the lines with the anomaly.
    threshold: Fraction of affected lines above which the anomaly is reported.
    predicate: Verb phrase that describes the affected lines in the message,
      such as 'contain no letters'. It may contain a field of `FileCounts` in
      braces.
    hint: Recommendation for the user.
  """

  field: str
  threshold: float
  predicate: str
  hint: str


_FINDINGS = (
  _Finding(
    'with_nulls',
    0,
    'contain a NUL character',
    'xlflax preprocess removes it. In JSON files, it is written as \\u0000.',
  ),
  _Finding(
    'broken',
    0.001,
    'contain characters that result from a wrong encoding, such as '
    '{wrong_characters!r}',
    corpus_checks.WRONG_ENCODING_HINT,
  ),
  _Finding(
    'with_markup',
    0.001,
    'contain HTML tags or character references',
    'Run xlflax preprocess --strip_markup to remove them.',
  ),
  _Finding(
    'with_code',
    0.001,
    'contain JavaScript, CSS or JSON',
    'Run xlflax preprocess --strip_markup to drop them.',
  ),
  _Finding(
    'with_ids',
    0.5,
    'start with an id and a tab, with the text in a different column',
    'Extract that column, for instance with cut -f2-.',
  ),
  _Finding(
    'repeated',
    0.1,
    'repeat an earlier line',
    'Run xlflax preprocess --dedup=exact to drop them.',
  ),
  _Finding(
    'without_letters',
    0.02,
    'contain no letters',
    'Run xlflax preprocess to drop them.',
  ),
  _Finding(
    'equal_sides',
    0.02,
    'have a target that equals the source, probably because the text was not '
    'translated',
    'Run xlflax preprocess to drop them.',
  ),
  _Finding(
    'held_out',
    0,
    'have 13 consecutive words in common with held-out or evaluation text, or '
    'the complete text if it is shorter',
    'To drop these lines, pass the files with this text to xlflax preprocess '
    '--decontaminate_against=FILES. --dedup=exact drops only lines that equal '
    'a held-out line.',
  ),
)


_BAD_RECORD_HINT = (
  'Correct them, or run xlflax preprocess --bad_records=drop to drop them.'
)
# First words of predicates in the plural, and the same words in the singular.
_SINGULAR_VERBS = {
  'contain': 'contains',
  'have': 'has',
  'repeat': 'repeats',
  'start': 'starts',
}


def _describe_finding(finding: _Finding, counts: FileCounts) -> str:
  """Returns a clause such as '1 of 20 lines contains no letters'."""
  count = getattr(counts, finding.field)
  predicate = finding.predicate.format_map(vars(counts))
  verb, _, rest = predicate.partition(' ')
  if count == 1:
    verb = _SINGULAR_VERBS[verb]
  return f'{count:,} of {counts.lines:,} lines {verb} {rest}'


def _describe_fix(problem: BadRecordCount, counts: FileCounts) -> str:
  """Returns the recommendation for the bad lines or records of a file.

  Dropping the lines is not recommended if no line of the file would remain.
  """
  if problem.fix is None:
    return _BAD_RECORD_HINT
  if counts.lines == 0:
    return problem.fix
  return (
    f'{problem.fix} To drop all such lines instead, run xlflax preprocess '
    '--bad_records=drop.'
  )


def _describe_file(
  counts: FileCounts,
  *,
  is_json: bool,
  has_columns: bool,
  is_wrongly_decoded: bool,
) -> Iterator[str]:
  """Yields a message with a recommendation for each anomaly in a file.

  Args:
    counts: Statistics of the file.
    is_json: Whether the lines of the file are JSON objects. Markup and code are
      not reported for such a file, because its lines must not be dropped.
    has_columns: Whether the first lines of the file contain tabs. The tabs of
      such a file are reported, so ids at the start of its lines are not.
    is_wrongly_decoded: Whether a sample of the file is wrongly decoded. The
      number of wrongly decoded lines of such a file is always reported.
  """
  if counts.error:
    yield f'{counts.path} cannot be read: {counts.error}'
  elif not counts.lines and not counts.bad_records:
    yield f'{counts.path} contains no text. Delete the file.'
  for problem in counts.problems:
    yield (
      f'{counts.path}: {problem.count:,} '
      f'{"line or record" if problem.count == 1 else "lines or records"} '
      'cannot be used. '
      f'{problem.problem}. Examples: {"; ".join(problem.examples)}. '
      + _describe_fix(problem, counts)
    )
  for finding in _FINDINGS:
    if is_json and finding.field in ('with_markup', 'with_code'):
      continue
    if has_columns and finding.field == 'with_ids':
      continue
    threshold = finding.threshold
    if is_wrongly_decoded and finding.field == 'broken':
      threshold = 0
    count = getattr(counts, finding.field)
    if count and count > threshold * counts.lines:
      yield (
        f'{counts.path}: {_describe_finding(finding, counts)}. {finding.hint}'
      )
  if counts.longest > _LONG_LINE:
    yield (
      f'{counts.path}: the longest line has {counts.longest:,} characters, but '
      'a line should be a sentence or a paragraph. Run xlflax preprocess '
      f'--split_sentences, or --max_characters={_LONG_LINE} to drop such lines.'
    )
  if counts.num_other_language > _MAX_OTHER_LANGUAGE * counts.num_identified:
    command = 'xlflax preprocess --min_language_probability=0.5'
    hint = f'Run {command} to drop them.'
    if counts.num_other_language > 0.8 * counts.num_identified:
      hint = (
        'If the language code in the file name is wrong, rename the file. '
        f'Otherwise, run {command} to drop such lines.'
      )
    yield (
      f'{counts.path}: {counts.num_other_language:,} of '
      f'{counts.num_identified:,} sampled lines are probably in a different '
      f'language than {"-".join(counts.languages)}. {hint}'
    )
