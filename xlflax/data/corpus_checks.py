"""Checks for probable mistakes in a corpus, such as swapped columns.

The anomalies are reported as warnings and never as errors, because unusual text
can be correct. The checks read the first lines of each file. If a parallel file
is not compressed, they read pairs at evenly spaced positions instead. The same
checks are applied to the first examples of SeqIO tasks.
"""

import collections
import filecmp
import functools
import itertools
import json
import logging
import mmap
import pathlib
import re
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import NamedTuple

from xlflax.data.corpus import (
  corpus_directory,
  corpus_files,
  language_codes,
  line_alignment,
  record_formats,
  text_encoding,
  text_language,
  text_similarity,
)
from xlflax.data.corpus.line_reader import Span
from xlflax.utils import logs, name_suggestions

# Number of lines that are read of each language and of each column.
LINES = 100
# Number of pairs that are read of a parallel file, and the number of evenly
# spaced positions at which they are read.
NUM_PAIRS = 500
_NUM_POSITIONS = 10
# Fraction of unknown tokens above which a warning is logged.
MAX_UNKNOWN_RATE = 0.01
# Suspicious pairs are reported if there are more than this number and more than
# this fraction of the pairs.
_MIN_COUNT = 4
_MIN_FRACTION = 0.05
# Text counts as text in another language if it has at least this number of
# trigrams, if its mean similarity to other files in its declared language is
# below the maximum, and if the similarity to the other language is higher by
# more than the margin.
_MIN_LANGUAGE_TRIGRAMS = 1000
_MAX_SIMILARITY_OTHER_LANGUAGE = 0.6
_LANGUAGE_MARGIN = 0.2
# Number of lines of a held-out file with which training lines are compared, the
# number of characters below which a line may be repeated by chance, and the
# number of bytes at the end of a training file that are read.
_NUM_HELD_OUT_LINES = 2000
_MIN_HELD_OUT_CHARACTERS = 20
_NUM_LAST_BYTES = 1 << 14
# The letter case of two splits is compared if both samples have at least this
# number of letters, most of which are in a script with upper and lower case. It
# differs if the fraction of upper-case letters is below the first value in one
# split and above the second value in the other.
_MIN_CASED_LETTERS = 1000
_FEW_UPPER_CASE = 0.002
_MANY_UPPER_CASE = 0.01
# The spaces before punctuation of two splits are compared if both samples have
# at least this number of commas and periods. They differ if the fraction of
# marks after a space is below the first value in one split and above the second
# value in the other.
_MIN_MARKS = 50
_FEW_SPACES = 0.05
_MANY_SPACES = 0.25
# Comma or period at the end of a word or quotation, and the space before it.
# Commas and periods in numbers and ellipses are excluded, and so are marks that
# may follow a space, such as the French semicolon.
_PUNCTUATION = re.compile(
  r'(?<=[\w"\')\]”’»])( ?)(?:[.,](?!\S| [.,])|[。，、])'
)
# Number of bytes below which files may be identical by chance.
_MIN_IDENTICAL_BYTES = 1024
# The beginning of a file is searched in the rest of the file if it has at least
# this number of distinct lines. Text counts as repeated if this fraction of the
# file, or this number of bytes, equals the beginning of the file.
_NUM_SEARCHED_BYTES = 4096
_MIN_SEARCHED_LINES = 10
_MIN_REPEATED_FRACTION = 0.1
_MAX_COMPARED_BYTES = 1 << 24
# Number of bytes that are searched in all files of a corpus together, and in a
# file of a corpus with many files. In larger files, the text that starts at one
# half to one fifth of the file is compared as well.
_MAX_SEARCHED_BYTES = 1 << 28
_MIN_SEARCHED_BYTES = 1 << 20
_MAX_COPIES = 5
# Number of occurrences after which the search ends, as for a repeated header.
_MAX_OCCURRENCES = 100
# Recommendations for text that results from a wrong encoding.
WRONG_ENCODING_HINT = (
  'If most lines are affected, convert the original file to UTF-8 again. '
  'Otherwise, repair the affected lines, for example with the package ftfy, or '
  'drop them with xlflax preprocess --drop_wrong_encoding.'
)
_WRONG_ENCODING_FILE_HINT = (
  'If most lines are affected, convert the original file to UTF-8 again. '
  'Otherwise, repair or remove the affected lines, for example with the '
  'package ftfy.'
)
_WRONG_ENCODING_TASK_HINT = (
  'If most texts are affected, decode the original text with the correct '
  'encoding. Otherwise, repair or remove the affected texts, for example with '
  'the package ftfy.'
)
# Recommendations for text with the escape sequences of JSON.
_ESCAPES_FILE_HINT = (
  'Read the original file with a JSON parser, such as json.loads of Python, '
  'and write the decoded text.'
)
_ESCAPES_TASK_HINT = 'Decode the text in a preprocessor of the task.'
# Recommendation for files that contain their text several times.
_REPEATED_TEXT_HINT = (
  'Write the file again, or run xlflax preprocess --dedup=exact to drop '
  'repeated lines.'
)
# Fraction of quoted pairs above which the quotation marks of a file are
# probably those of the CSV format.
_MIN_QUOTED_FRACTION = 0.9
# Words in the header of a parallel file, in lower case.
_HEADER_WORDS = frozenset(
  {
    'source',
    'target',
    'source_text',
    'target_text',
    'source_sentence',
    'target_sentence',
    'src',
    'tgt',
    'trg',
    'sentence1',
    'sentence2',
    'text1',
    'text2',
  }
)
# Hints on unusable pairs of a file and of a task.
_DROP_HINTS = (
  'Run xlflax preprocess to drop them.',
  'Drop them in a preprocessor of the task.',
)
# Suffix of a text file, which may be compressed.
_TEXT_SUFFIX = re.compile(r'\.txt(\.gz|\.zst)?$')
# Word with letters and digits, such as GEN.1.1, en-0042 or 3f2a.
_IDENTIFIER = re.compile(
  r'(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])[a-z0-9][a-z0-9_.:/#-]*', re.IGNORECASE
)
# Marks of subwords, and the command that restores the text. subword-nmt marks
# subwords inside of a word (`Arab@@ isch`), and SentencePiece marks the first
# subword of each word (`▁Arab isch`).
_SUBWORDS = (
  (re.compile(r'\S+@@ \S'), "sed 's/@@ //g'"),
  (re.compile(r'(?<!\S)▁\S'), "sed 's/ //g; s/▁/ /g; s/^ //'"),
)
# Escape sequence of JSON in text that was not decoded, such as `\n` at the end
# of a sentence and `\u00e9` in a word. Commands of LaTeX (`\nabla`), strings in
# source code (`"%d\n"`) and character ranges (`[\u4e00-\u9fff]`) do not match.
_ESCAPE_SEQUENCE = re.compile(
  r'[\w.,;:!?…)»”’。！？،؟।](?:\\r)?(?P<line>\\n|\\t)'
  r'(?=\Z|[ 0-9•“«–—-]|\\[nt]|[^\W\d_a-z])'
  r'|[^\W\d_](?P<letter>\\u[0-9a-fA-F]{4})'
  r'|(?P<letters>(?:\\u[0-9a-fA-F]{4}){2,})'
)
# Number at the beginning of a line.
_NUMBER = re.compile(r'([0-9]{1,9})[.:)]* +')


class TaskText(NamedTuple):
  """First examples of a SeqIO task.

  Attributes:
    task: Name of the task.
    languages: Language of the text, or the languages of source and target.
    examples: Text of each example as (text,), or its source and target.
  """

  task: str
  languages: tuple[str, ...]
  examples: Sequence[tuple[str, ...]]


class _Origin(NamedTuple):
  """File or SeqIO task that contains the text that is checked.

  Attributes:
    name: Name of the text in messages: the path of a file, or `the task NAME`.
    languages: Language of the text, or the languages of source and target.
    file: File that contains the text. If None, the text is from a task.
  """

  name: str
  languages: tuple[str, ...]
  file: corpus_files.TextFile | None = None

  @property
  def has_text_lines(self) -> bool:
    """True unless the text is read from a file with records, such as JSON."""
    return self.file is None or not record_formats.is_records(self.file.path)

  def choose(self, file_text: str, task_text: str) -> str:
    """Returns `file_text` if the text is read from a file, else `task_text`."""
    return task_text if self.file is None else file_text


class _Sample(NamedTuple):
  """Trigram counts of the first text of a file or task in one language."""

  origin: _Origin
  language: str
  counts: text_language.Counts


def find_anomalies(
  corpus: corpus_directory.Corpus, *, report_encoding: bool = True
) -> list[str]:
  """Returns a message for each probable mistake found in a corpus directory.

  Args:
    corpus: Corpus to check.
    report_encoding: Whether to return messages about wrongly decoded text.
  """
  anomalies = find_unknown_languages(
    corpus.languages, _scripts_of_unknown_languages(corpus)
  )
  anomalies += _find_duplicate_codes(corpus.languages)
  profiles = _trigram_profiles(corpus)
  samples: list[_Sample] = []
  for file in corpus.files:
    origin = _file_origin(file)
    if file.kind is corpus_files.Kind.MONOLINGUAL:
      anomalies += _check_lines(
        origin,
        _read_first_lines(file),
        samples,
        spread_lines=_sample_lines(file),
        report_encoding=report_encoding,
      )
    elif file.kind is corpus_files.Kind.PARALLEL:
      anomalies += _check_pairs(
        origin,
        _sample_pairs(file),
        profiles,
        samples,
        report_encoding=report_encoding,
      )
  anomalies += _find_wrong_languages(samples)
  anomalies += _find_split_differences(corpus)
  return anomalies


def find_task_anomalies(
  texts: Iterable[TaskText], corpus_texts: Iterable[TaskText] = ()
) -> list[str]:
  """Returns a message for each probable mistake found in SeqIO tasks.

  Args:
    texts: First examples of the tasks to check.
    corpus_texts: First examples of the tasks of a corpus directory. They are
      only compared with the other tasks, because `find_anomalies` checks their
      text.
  """
  texts, corpus_texts = list(texts), list(corpus_texts)
  profiles: dict[str, text_language.Counts] = {}
  for text in (*texts, *corpus_texts):
    if len(text.languages) == 1:
      counts = text_language.count_trigrams(_join_column(text, 0))
      if sum(counts.values()) >= text_language.MIN_TRIGRAMS:
        profiles.setdefault(text.languages[0], counts)
  anomalies: list[str] = []
  samples: list[_Sample] = []
  for text in texts:
    origin = _Origin(f'the task {text.task}', text.languages)
    if len(text.languages) == 1:
      lines = [line for (line,) in text.examples[:LINES]]
      anomalies += _check_lines(origin, lines, samples)
    else:
      pairs = [
        corpus_directory.Pair(*pair) for pair in text.examples[:NUM_PAIRS]
      ]
      anomalies += _check_pairs(origin, pairs, profiles, samples)
  checked_names = {sample.origin.name for sample in samples}
  for text in corpus_texts:
    for side, language in enumerate(text.languages):
      counts = text_language.count_trigrams(_join_column(text, side))
      samples.append(
        _Sample(_Origin(text.task, text.languages), language, counts)
      )
  anomalies += _find_wrong_languages(samples, checked_names)
  return anomalies


def _join_column(text: TaskText, side: int) -> str:
  return ' '.join(example[side] for example in text.examples[:LINES])


def _file_origin(file: corpus_files.TextFile) -> _Origin:
  return _Origin(str(file.path), file.languages, file)


def _check_lines(
  origin: _Origin,
  lines: Sequence[str],
  samples: list[_Sample],
  *,
  spread_lines: Sequence[tuple[str, ...]] = (),
  report_encoding: bool = True,
) -> Iterator[str]:
  """Yields a message for each probable mistake in monolingual text.

  Args:
    origin: File or task with the text.
    lines: First lines of the text.
    samples: List to which the trigrams of the text are appended, unless the
      text is in a wrong script or encoding.
    spread_lines: Lines at several positions of the text. A file may be wrong
      only in a part, for example if it was concatenated from several sources.
    report_encoding: Whether to yield a message about wrongly decoded text.
  """
  text = ' '.join(lines)
  examples = [(line,) for line in lines]
  wrong_encoding = _find_wrong_encoding(
    origin, examples
  ) or _find_wrong_encoding(origin, spread_lines)
  if report_encoding:
    yield from wrong_encoding
  # Wrongly decoded letters are Latin, whatever the script of the text is.
  wrong_script = [] if wrong_encoding else _find_wrong_script(origin, text)
  yield from wrong_script
  yield from _find_lines_without_letters(origin, lines)
  yield from _find_identifiers(origin, [lines])
  yield from _find_numbered_lines(origin, lines)
  yield from _find_json_lines(origin, lines)
  yield from _find_tabs(origin, lines)
  for find in (_find_subwords, _find_escape_sequences):
    yield from list(find(origin, examples)) or find(origin, spread_lines)
  if not (wrong_encoding or wrong_script):
    [language] = origin.languages
    samples.append(
      _Sample(origin, language, text_language.count_trigrams(text))
    )


def _check_pairs(
  origin: _Origin,
  pairs: Sequence[corpus_directory.Pair],
  profiles: Mapping[str, text_language.Counts],
  samples: list[_Sample],
  *,
  report_encoding: bool = True,
) -> Iterator[str]:
  """Yields a message for each probable mistake in parallel text.

  Args:
    origin: File or task with the text.
    pairs: Sampled sentence pairs.
    profiles: Character trigram counts by language, for languages with known
      text.
    samples: List to which the trigrams of both columns are appended, unless the
      columns are swapped or wrongly decoded.
    report_encoding: Whether to yield a message about wrongly decoded text.
  """
  columns = [' '.join(side) for side in zip(*pairs[:LINES], strict=True)]
  wrong_encoding = _find_wrong_encoding(origin, pairs)
  if report_encoding:
    yield from wrong_encoding
  if not wrong_encoding:
    if pairs and text_language.are_columns_swapped(
      origin.languages, columns, profiles
    ):
      yield _describe_swapped_columns(origin)
    else:
      for language, column in zip(origin.languages, columns, strict=False):
        samples.append(
          _Sample(origin, language, text_language.count_trigrams(column))
        )
  yield from _find_header(origin, pairs)
  yield from _find_quoted_pairs(origin, pairs)
  yield from _find_copied_pairs(origin, pairs)
  yield from _find_pairs_without_letters(origin, pairs)
  if pairs:
    yield from _find_identifiers(origin, list(zip(*pairs, strict=True)))
  yield from _find_numbered_pairs(origin, pairs)
  yield from _find_subwords(origin, pairs)
  yield from _find_escape_sequences(origin, pairs)
  yield from _find_misaligned_pairs(origin, pairs)


def contains_json(file: corpus_files.TextFile) -> bool:
  """Returns whether the first lines of a monolingual file are JSON objects."""
  if file.kind is not corpus_files.Kind.MONOLINGUAL:
    return False
  return any(_find_json_lines(_file_origin(file), _read_first_lines(file)))


def contains_columns(file: corpus_files.TextFile) -> bool:
  """Returns whether the first lines of a monolingual file contain tabs."""
  if file.kind is not corpus_files.Kind.MONOLINGUAL:
    return False
  return any(_find_tabs(_file_origin(file), _read_first_lines(file)))


def is_wrongly_decoded(file: corpus_files.TextFile) -> bool:
  """Returns whether a file seems to have been decoded with a wrong encoding.

  Only a sample of the text is checked.
  """
  if file.kind is corpus_files.Kind.DICTIONARY:
    return False
  examples: Sequence[tuple[str, ...]] = (
    [(line,) for line in _read_first_lines(file)]
    if file.kind is corpus_files.Kind.MONOLINGUAL
    else _sample_pairs(file)
  )
  return bool(_find_wrong_encoding(_file_origin(file), examples))


def find_held_out_lines(corpus: corpus_directory.Corpus) -> list[str]:
  """Returns a message for each training file that contains held-out lines.

  Lines are sampled from the training files and compared with the first lines of
  the held-out files in the same language. `xlflax inspect` compares all lines.
  """
  held_out_texts: dict[str, set[str]] = collections.defaultdict(set)
  for file in corpus.files:
    if file.split != corpus_directory.TRAIN:
      for texts in itertools.islice(
        corpus_directory.read_texts(file), _NUM_HELD_OUT_LINES
      ):
        for language, text in zip(file.languages, texts, strict=False):
          if len(text) >= _MIN_HELD_OUT_CHARACTERS:
            held_out_texts[language].add(
              text_similarity.normalize_for_comparison(text)
            )

  messages: list[str] = []
  for file in corpus.files:
    if file.split != corpus_directory.TRAIN or not any(
      language in held_out_texts for language in file.languages
    ):
      continue
    lines = _sample_lines(file)
    count = sum(
      any(
        text_similarity.normalize_for_comparison(text)
        in held_out_texts[language]
        for language, text in zip(file.languages, texts, strict=False)
      )
      for texts in lines
    )
    if count > _MIN_COUNT:
      messages.append(
        f'In {file.path}, {count:,} of {len(lines):,} sampled lines also occur '
        'in the validation or test text, so evaluation results may be too '
        f'high. Run xlflax inspect {corpus.directory} to count all such lines.'
      )
  return messages


def _sample_lines(file: corpus_files.TextFile) -> list[tuple[str, ...]]:
  """Returns the texts of lines at evenly spaced positions and at the end.

  If a file can be read only sequentially, the first lines are returned.
  """
  if file.kind is corpus_files.Kind.DICTIONARY:
    return []
  if corpus_files.is_sequential(file.path) or file.line_splits is not None:
    all_texts = filter(any, corpus_directory.read_texts(file))
    return list(itertools.islice(all_texts, NUM_PAIRS))

  size = file.path.stat().st_size
  end = max(0, size - _NUM_LAST_BYTES)
  offsets = [end * i // _NUM_POSITIONS for i in range(_NUM_POSITIONS + 1)]
  on_bad_record = corpus_directory.handler_of_bad_records(file)
  lines: list[tuple[str, ...]] = []
  for span in itertools.starmap(Span, itertools.pairwise([*offsets, size])):
    texts: Iterator[tuple[str, ...]] = (
      (
        (line.text,)
        for line in corpus_directory.read_monolingual(
          file.path, span, on_bad_record
        )
      )
      if file.kind is corpus_files.Kind.MONOLINGUAL
      else corpus_directory.read_parallel(file.path, span, on_bad_record)
    )
    limit = None if span.stop == size else NUM_PAIRS // _NUM_POSITIONS
    lines += itertools.islice(texts, limit)
  return lines


def log_anomalies(corpus: corpus_directory.Corpus) -> None:
  """Logs a warning for each probable mistake found in a corpus directory."""
  for anomaly in [
    *find_anomalies(corpus),
    *find_identical_files(corpus.files),
    *find_repeated_text(
      file.path
      for file in corpus.files
      if file.kind is not corpus_files.Kind.DICTIONARY
    ),
    *find_held_out_lines(corpus),
  ]:
    logging.warning('%s', anomaly, extra=logs.ONCE)


def find_unknown_languages(
  languages: Iterable[str], scripts: Mapping[str, str] | None = None
) -> list[str]:
  """Returns a message for each language code that is not in ISO 639.

  Synthetic languages may have such codes. The codes for which no similar code
  is known are therefore reported in a single message.

  Args:
    languages: Language codes of a corpus.
    scripts: Script of the text by language code, if known
      (`text_language.dominant_script`). Languages that are not written in this
      script are not suggested.
  """
  scripts = scripts or {}
  messages: list[str] = []
  unknown: list[str] = []
  for code in languages:
    if language_codes.is_registered(code):
      continue
    suggestion = name_suggestions.suggest_standard_language(
      code, functools.partial(_can_have_script, script=scripts.get(code))
    )
    if suggestion:
      messages.append(f'{code} is not a language code of ISO 639. {suggestion}')
    else:
      unknown.append(code)
  if len(unknown) == 1:
    messages.append(
      f'{unknown[0]} is not a language code of ISO 639, so the script of this '
      'language is unknown.'
    )
  elif unknown:
    messages.append(
      f'{name_suggestions.format_names(unknown)} are not language codes of ISO '
      '639, so the scripts of these languages are unknown.'
    )
  return messages


def _can_have_script(language: str, script: str | None) -> bool:
  """Returns whether a language may be written in a script."""
  expected_scripts = text_language.scripts_of_language(language)
  return None in (script, expected_scripts) or script in (
    expected_scripts or ()
  )


def _scripts_of_unknown_languages(
  corpus: corpus_directory.Corpus,
) -> dict[str, str]:
  """Returns the script of the text in each language that is not in ISO 639."""
  scripts: dict[str, str] = {}
  for file in corpus.files:
    unknown = {
      language: side
      for side, language in enumerate(file.languages)
      if not language_codes.is_registered(language)
    }
    if file.kind is corpus_files.Kind.DICTIONARY or not unknown:
      continue
    examples = list(itertools.islice(corpus_directory.read_texts(file), LINES))
    for language, side in unknown.items():
      script = text_language.dominant_script(
        ' '.join(example[side] for example in examples)
      )
      if script is not None:
        scripts.setdefault(language, script)
  return scripts


def log_unknown_languages(languages: Iterable[str]) -> None:
  """Logs a warning for each message of `find_unknown_languages`."""
  for message in find_unknown_languages(languages):
    logging.warning('%s', message, extra=logs.ONCE)


def find_unknown_tokens(rates: Iterable[tuple[str, str, float]]) -> list[str]:
  """Describes the languages in which a task has many unknown tokens.

  Args:
    rates: Tuples (task, language, fraction of unknown tokens). If the same task
      and language occur several times, as for several datasets or splits, the
      highest fraction is described.
  """
  highest_rates: dict[tuple[str, str], float] = {}
  for task, language, rate in rates:
    key = (task, language)
    highest_rates[key] = max(rate, highest_rates.get(key, 0.0))
  return [
    f'{100 * rate:.1f} % of the tokens of {language} in {task} are unknown. '
    'Train the vocabulary on this text, with a higher --character_coverage or '
    'with --byte_fallback.'
    for (task, language), rate in highest_rates.items()
    if rate > MAX_UNKNOWN_RATE
  ]


def _find_duplicate_codes(languages: Iterable[str]) -> Iterator[str]:
  """Yields a message for each language that has several codes."""
  groups: dict[tuple, list[str]] = {}
  for code in languages:
    groups.setdefault(language_codes.language_identity(code), []).append(code)
  for codes in groups.values():
    if len(codes) > 1:
      yield (
        f'{" and ".join(codes)} are codes of the same language but are '
        f'treated as {len(codes)} languages. Use the same code for all of its '
        'files.'
      )


def find_identical_files(
  files: Iterable[corpus_files.TextFile],
) -> Iterator[str]:
  """Yields a message for each file with the same content as an earlier file.

  Files in the same language and in different splits are not compared, because
  `find_held_out_lines` reports training text that is also held-out text.

  Args:
    files: Files of a corpus.
  """
  files_by_size: dict[int, list[corpus_files.TextFile]] = {}
  for file in files:
    if not file.path.is_file():
      continue
    size = file.path.stat().st_size
    if size < _MIN_IDENTICAL_BYTES:
      continue
    earlier_files = files_by_size.setdefault(size, [])
    original = next(
      (
        other
        for other in earlier_files
        if (other.languages != file.languages or other.split == file.split)
        and _have_same_content(other, file)
      ),
      None,
    )
    if original is None:
      earlier_files.append(file)
    else:
      yield (
        f'The files {original.path} and {file.path} have identical content. '
        'Replace the wrong file, or delete one of them.'
      )


def _have_same_content(
  first: corpus_files.TextFile, second: corpus_files.TextFile
) -> bool:
  """Returns whether all source files of two texts are identical."""
  first_paths = record_formats.source_files(first.path)
  second_paths = record_formats.source_files(second.path)
  return len(first_paths) == len(second_paths) and all(
    filecmp.cmp(first_path, second_path, shallow=False)
    for first_path, second_path in zip(first_paths, second_paths, strict=True)
  )


def find_repeated_text(
  paths: Iterable[pathlib.Path], hint: str = _REPEATED_TEXT_HINT
) -> Iterator[str]:
  """Yields a message for each file that contains its first lines several times.

  An example is a file to which a script has appended the same text twice. The
  content of the files is compared byte for byte. Of large files, only the first
  part and the positions at which complete copies would start are compared, so
  that the search takes less than a second. `xlflax inspect` counts repeated
  lines.

  Args:
    paths: Paths of the files. Paths of directories and of missing files are
      ignored.
    hint: Recommendation for the user at the end of the message.
  """
  paths = [path for path in paths if path.is_file()]
  max_bytes = max(
    _MIN_SEARCHED_BYTES, _MAX_SEARCHED_BYTES // max(1, len(paths))
  )
  for path in paths:
    size = path.stat().st_size
    if size < 2 * _MIN_IDENTICAL_BYTES:
      continue
    with (
      path.open('rb') as file,
      mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
      offset = _find_repetition(content, max_bytes)
      if offset is None:
        continue
      first_line = content[:_NUM_SEARCHED_BYTES].splitlines()[0]
    text = first_line.decode('utf-8', 'replace')[:60]
    yield (
      f'The beginning of {path}, {text!r}, occurs again at byte {offset:,} of '
      f'{size:,}, followed by the same text. The file probably contains its '
      'text several times, for example because a script appended to the file '
      f'twice, so its text is sampled too often. {hint}'
    )


def _find_repetition(content: mmap.mmap, max_bytes: int) -> int | None:
  """Returns the offset at which a file repeats its beginning, if there is any.

  Args:
    content: Content of the file.
    max_bytes: Number of bytes in which the beginning is searched.
  """
  size = len(content)
  beginning = content[: min(_NUM_SEARCHED_BYTES, size // 2)]
  if len(set(beginning.split(b'\n')[:-1])) < _MIN_SEARCHED_LINES:
    return None
  for copies in range(2, _MAX_COPIES + 1):
    if size % copies == 0 and _has_same_text(content, size // copies):
      return size // copies
  offset = 0
  for _ in range(_MAX_OCCURRENCES):
    offset = content.find(beginning, offset + 1, max_bytes)
    if offset < 0:
      return None
    if _has_same_text(content, offset):
      return offset
  return None


def _has_same_text(content: mmap.mmap, offset: int) -> bool:
  """Returns whether a long text at an offset equals the beginning of a file."""
  num_bytes = min(
    int(_MIN_REPEATED_FRACTION * len(content)), _MAX_COMPARED_BYTES
  )
  num_bytes = max(num_bytes, _MIN_IDENTICAL_BYTES)
  return (
    offset + num_bytes <= len(content)
    and content[:num_bytes] == content[offset : offset + num_bytes]
  )


def _sample_pairs(file: corpus_files.TextFile) -> list[corpus_directory.Pair]:
  """Returns pairs from evenly spaced positions of a parallel file.

  If a file can be read only sequentially, the first pairs are returned.
  """
  spans: list[Span | None] = [None]
  if not corpus_files.is_sequential(file.path):
    size = file.path.stat().st_size
    offsets = [size * i // _NUM_POSITIONS for i in range(_NUM_POSITIONS + 1)]
    spans = [Span(*bounds) for bounds in itertools.pairwise(offsets)]

  pairs: list[corpus_directory.Pair] = []
  for span in spans:
    pairs_in_span = corpus_directory.read_parallel(
      file.path, span, corpus_directory.handler_of_bad_records(file)
    )
    pairs += itertools.islice(pairs_in_span, NUM_PAIRS // len(spans))
  return pairs


def _find_header(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if the first line of a parallel file is a header."""
  if not pairs or not origin.has_text_lines:
    return
  codes = {
    code.lower()
    for language in origin.languages
    for code in (language, language_codes.short_code(language))
  }
  cells = [cell.strip(' "\'').lower() for cell in pairs[0]]
  if len(set(cells)) == len(cells) and (
    codes.issuperset(cells) or _HEADER_WORDS.issuperset(cells)
  ):
    yield (
      f'The first line of {origin.name} is probably a header: '
      f'{" and ".join(map(repr, pairs[0]))}. All lines are read as sentence '
      'pairs. '
      + origin.choose(
        'Delete this line.', 'Skip this line in the source of the task.'
      )
    )


def _find_quoted_pairs(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if nearly all texts are enclosed in quotation marks."""
  if not origin.has_text_lines:
    return
  count = sum(
    all(
      len(text) > 1 and text.startswith('"') and text.endswith('"')
      for text in pair
    )
    for pair in pairs
  )
  if count > max(_MIN_COUNT, _MIN_QUOTED_FRACTION * len(pairs)):
    yield (
      f'In {origin.name}, source and target are enclosed in quotation marks in '
      f'{count:,} of {len(pairs):,} sampled pairs. The quotation marks are '
      'read as text. '
      + origin.choose(
        'Write the file without quoting.',
        'Remove them in a preprocessor of the task.',
      )
    )


def _find_copied_pairs(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if source and target of many pairs are nearly equal."""
  if len(set(map(language_codes.short_code, origin.languages))) < 2:
    return
  count = sum(
    text_similarity.ngram_similarity(*pair) > text_similarity.COPIED
    for pair in pairs
  )
  if count > max(_MIN_COUNT, _MIN_FRACTION * len(pairs)):
    yield (
      f'In {origin.name}, source and target are equal or nearly equal in '
      f'{count:,} of {len(pairs):,} sampled pairs, which were probably not '
      f'translated. {origin.choose(*_DROP_HINTS)}'
    )


def _find_pairs_without_letters(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if many pairs of a file have a text without letters."""
  count = sum(
    not all(any(map(str.isalpha, side)) for side in pair) for pair in pairs
  )
  if count > max(_MIN_COUNT, _MIN_FRACTION * len(pairs)):
    yield (
      f'In {origin.name}, source or target has no letters in {count:,} of '
      f'{len(pairs):,} sampled pairs. {origin.choose(*_DROP_HINTS)}'
    )


def _find_lines_without_letters(
  origin: _Origin, lines: Sequence[str]
) -> Iterator[str]:
  """Yields a message if most lines of monolingual text have no letters."""
  count = sum(not any(map(str.isalpha, line)) for line in lines)
  if count > max(_MIN_COUNT, len(lines) / 2):
    yield (
      f'In {origin.name}, {count:,} of the first {len(lines):,} '
      f'{origin.choose("lines", "examples")} have no letters. '
      + origin.choose(
        'Check that the file contains text.',
        'Check which column the task reads as its text.',
      )
    )


def _find_identifiers(
  origin: _Origin, columns: Sequence[Sequence[str]]
) -> Iterator[str]:
  """Yields a message for each column that consists mostly of identifiers.

  Args:
    origin: File or task with the text.
    columns: Sampled lines, or sampled sources and targets.
  """
  sides = ('The source', 'The target') if len(columns) == 2 else ('The text',)
  for side, column in zip(sides, columns, strict=True):
    identifiers = [
      text for text in column if _IDENTIFIER.fullmatch(text.strip())
    ]
    if len(identifiers) > max(_MIN_COUNT, len(column) / 2):
      yield (
        f'{side} in {origin.name} seems to consist of identifiers, such as '
        f'{identifiers[0]!r}, in {len(identifiers):,} of {len(column):,} '
        'sampled examples. '
        + origin.choose(
          'Check that the file contains text.',
          'Check which column the task reads as its text.',
        )
      )


def _find_numbered_lines(
  origin: _Origin, lines: Sequence[str]
) -> Iterator[str]:
  """Yields a message if most lines start with consecutive numbers."""
  count = _count_consecutive_numbers(lines)
  if count > max(_MIN_COUNT, len(lines) / 2):
    yield (
      f'In {origin.name}, {count:,} of the first {len(lines):,} '
      f'{origin.choose("lines", "examples")} start with consecutive numbers. '
      + origin.choose(
        "Remove the numbers, for example with sed -E 's/^[0-9]+[.:)]* +//'.",
        'Remove the numbers in a preprocessor of the task.',
      )
    )


def _find_json_lines(origin: _Origin, lines: Sequence[str]) -> Iterator[str]:
  """Yields a message if most lines of a text file are JSON objects."""
  if not origin.has_text_lines:
    return
  count = sum(map(_is_json_object, lines))
  if count > len(lines) / 2:
    message = (
      f'In {origin.name}, {count:,} of the first {len(lines):,} lines are JSON '
      'objects, but each line is read as text. '
    )
    if origin.file is None:
      yield message + 'Parse the lines in a preprocessor of the task.'
      return
    name = origin.file.path.name
    new_name = _TEXT_SUFFIX.sub(r'.jsonl\1', name)
    rename = 'Rename the file so that its name ends in .jsonl'
    if new_name != name:
      rename = f'Rename the file to {new_name}'
    yield (
      f'{message}{rename}. If the column with the text is not named `text`, '
      f'specify the column in {record_formats.FILE} (see docs/data.md).'
    )


def _find_tabs(origin: _Origin, lines: Sequence[str]) -> Iterator[str]:
  """Yields a message if most lines of monolingual text contain a tab."""
  count = sum('\t' in line for line in lines)
  if count > max(_MIN_COUNT, len(lines) / 2):
    yield (
      f'In {origin.name}, {count:,} of the first {len(lines):,} '
      f'{origin.choose("lines", "examples")} contain a tab, but all columns '
      'are read as text. '
      + origin.choose(
        'Extract the column with the text, for instance with cut -f2- if each '
        'line starts with an id. If the columns are translations, move the '
        'file to parallel/.',
        'Extract the column with the text in a preprocessor of the task.',
      )
    )


def _find_subwords(
  origin: _Origin, examples: Sequence[tuple[str, ...]]
) -> Iterator[str]:
  """Yields a message if many examples contain the marks of subwords.

  Args:
    origin: File or task with the text.
    examples: Sampled examples, each of which is a tuple of one text, or of
      source and target.
  """
  for pattern, command in _SUBWORDS:
    matches = [
      next(filter(None, map(pattern.search, example)), None)
      for example in examples
    ]
    marked = [match for match in matches if match is not None]
    if len(marked) > max(_MIN_COUNT, _MIN_FRACTION * len(examples)):
      text = marked[0].string[marked[0].start() :]
      yield (
        f'In {origin.name}, {len(marked):,} of {len(examples):,} sampled '
        f'{"texts" if len(examples[0]) == 1 else "pairs"} seem to be segmented '
        f'into subwords, such as {text[:40]!r}. Use the original text, because '
        'xlflax segments text with its own vocabulary. To remove the marks of '
        'subwords, '
        + origin.choose(f'run {command}.', 'add a preprocessor to the task.')
      )


def _find_escape_sequences(
  origin: _Origin, examples: Sequence[tuple[str, ...]]
) -> Iterator[str]:
  """Yields a message if many examples contain the escape sequences of JSON."""
  message = describe_escape_sequences(
    examples, origin.name, origin.choose(_ESCAPES_FILE_HINT, _ESCAPES_TASK_HINT)
  )
  if message is not None:
    yield message


def describe_escape_sequences(
  examples: Sequence[tuple[str, ...]], name: str, hint: str = _ESCAPES_FILE_HINT
) -> str | None:
  r"""Returns a message if many examples contain the escape sequences of JSON.

  An example is text with a backslash and an n in place of a line break. Lines
  that are JSON objects are not counted.

  Args:
    examples: Sampled examples, each of which is a tuple of one text, or of
      source and target.
    name: Path of the file, or name of the task.
    hint: Recommendation for the user at the end of the message.
  """
  matches = [
    next(filter(None, map(_ESCAPE_SEQUENCE.search, example)), None)
    for example in examples
    if any('\\' in text for text in example) and not _is_json_object(example[0])
  ]
  escaped = [match for match in matches if match is not None]
  if len(escaped) <= max(_MIN_COUNT, _MIN_FRACTION * len(examples)):
    return None
  match = escaped[0]
  sequence = next(filter(None, match.groups()))
  text = match.string[max(0, match.start() - 20) : match.end() + 20]
  return (
    f'In {name}, {len(escaped):,} of {len(examples):,} sampled '
    f'{"texts" if len(examples[0]) == 1 else "pairs"} contain escape sequences '
    f'such as {sequence} in the text "{text}", which are read as ordinary '
    f'characters. The text was probably copied from a JSON file. {hint}'
  )


def _is_json_object(line: str) -> bool:
  if not line.startswith('{'):
    return False
  try:
    return isinstance(json.loads(line), dict)
  except (ValueError, RecursionError):
    return False


def _find_numbered_pairs(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if source or target of most pairs are numbered."""
  count = max(
    (_count_consecutive_numbers(side) for side in zip(*pairs, strict=True)),
    default=0,
  )
  if count > max(_MIN_COUNT, len(pairs) / 2):
    yield (
      f'In {origin.name}, source or target starts with consecutive numbers in '
      f'{count:,} of {len(pairs):,} sampled pairs. Remove the numbers.'
    )


def _find_misaligned_pairs(
  origin: _Origin, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  """Yields a message if source and target are probably not aligned."""
  message = describe_misalignment(origin.languages, pairs, origin.name)
  if message is not None:
    yield message


def describe_misalignment(
  languages: Sequence[str | None], pairs: Sequence[tuple[str, str]], name: str
) -> str | None:
  """Returns a message if sources and targets are probably not aligned.

  Args:
    languages: Languages of source and target. Only shifted lines are reported
      if the languages are equal, because the pairs are not translations.
    pairs: Sentence pairs in the order of the text.
    name: Path of the file, or name of the task.

  Returns:
    A message on lines that seem to be shifted, or on lengths that are almost
    uncorrelated. If the lengths do not indicate either, the result is None.
  """
  shift = line_alignment.find_shift(pairs)
  if shift is not None:
    source, target = pairs[shift.start]
    return (
      f'In {name}, the lengths of the texts suggest that translations are '
      f'{shift} their sources, for example near the pair {source[:60]!r} and '
      f'{target[:60]!r}. Check whether lines are missing on one side.'
    )
  codes = {
    code if code is None else language_codes.short_code(code)
    for code in languages
  }
  if len(codes) < 2:
    return None
  correlation = line_alignment.find_uncorrelated_lengths(pairs)
  if correlation is None:
    return None
  return (
    f'In {name}, source length and target length are almost uncorrelated: '
    f'their rank correlation is {correlation:.2f} in {len(pairs):,} pairs, but '
    'usually above 0.4 in translations. The sources and the targets were '
    'probably sorted, shuffled or filtered separately, so most pairs are not '
    'translations of each other. Restore the original lines of both sides. To '
    'sort or shuffle two aligned files, join their lines first, for example '
    'with paste. To filter pairs, use xlflax preprocess, which drops both '
    'sides. If the pairs are related texts other than translations, such '
    'as questions and passages, ignore this warning.'
  )


def _count_consecutive_numbers(lines: Sequence[str]) -> int:
  """Counts the lines whose number follows or precedes that of a neighbor."""
  matches = map(_NUMBER.match, lines)
  numbers = [int(match[1]) if match else None for match in matches]
  consecutive: set[int] = set()
  for i, (first, second) in enumerate(itertools.pairwise(numbers)):
    if first is not None and second == first + 1:
      consecutive |= {i, i + 1}
  return len(consecutive)


def _find_wrong_languages(
  samples: Sequence[_Sample], checked_names: Collection[str] | None = None
) -> Iterator[str]:
  """Yields a message for each monolingual file in another file's language.

  A file is compared with the other text in the same language and in each of the
  other languages, so nothing is found in a corpus with a single file for each
  language.

  Args:
    samples: Trigram counts of the text in all files or tasks.
    checked_names: Names of the files or tasks to check. If None, all are
      checked.
  """
  samples = [
    sample
    for sample in samples
    if sum(sample.counts.values()) >= _MIN_LANGUAGE_TRIGRAMS
  ]
  sums: dict[str, dict[str, float]] = {}
  num_samples = collections.Counter(sample.language for sample in samples)
  units = [text_language.normalize_counts(sample.counts) for sample in samples]
  for sample, unit in zip(samples, units, strict=True):
    total = sums.setdefault(sample.language, {})
    for gram, value in unit.items():
      total[gram] = total.get(gram, 0.0) + value

  for sample, unit in zip(samples, units, strict=True):
    language = sample.language
    num_others = num_samples[language] - 1
    origin = sample.origin
    if len(origin.languages) > 1 or not num_others:
      continue
    if checked_names is not None and origin.name not in checked_names:
      continue
    similarity = (
      text_language.dot_product(unit, sums[language]) - 1
    ) / num_others
    if similarity > _MAX_SIMILARITY_OTHER_LANGUAGE:
      continue
    similarities = {
      other: text_language.dot_product(unit, total) / num_samples[other]
      for other, total in sums.items()
      if language_codes.short_code(other) != language_codes.short_code(language)
    }
    closest = max(similarities, key=lambda k: similarities[k], default=None)
    if closest and similarities[closest] > similarity + _LANGUAGE_MARGIN:
      yield (
        f'The text of {origin.name} is more similar to the text in {closest} '
        f'than to the other text in {language}. If it is in {closest}, '
        + origin.choose(
          f'rename the file: replace {language} with {closest} in its name. '
          f'Otherwise, check the other files of {language}.',
          f'register the task with the language {closest}. Otherwise, check '
          f'the other tasks of {language}.',
        )
      )


def _find_split_differences(corpus: corpus_directory.Corpus) -> list[str]:
  """Returns messages on held-out text whose format differs from training text.

  See `describe_split_differences`.

  Args:
    corpus: Corpus directory whose splits are compared.
  """
  texts: dict[str, dict[str, list[str]]] = {}
  for file in corpus.files:
    if file.kind is corpus_files.Kind.DICTIONARY:
      continue
    for sides in itertools.islice(corpus_directory.read_texts(file), LINES):
      for language, text in zip(file.languages, sides, strict=False):
        texts_by_split = texts.setdefault(language, {})
        texts_by_split.setdefault(file.split, []).append(text)
  return describe_split_differences(texts)


def describe_split_differences(
  texts: Mapping[str, Mapping[str, Iterable[str]]], where: str = ''
) -> list[str]:
  """Returns messages on held-out text whose format differs from training text.

  The differences are the letter case, such as lower-cased training text and
  test text in ordinary case, and spaces before punctuation, such as tokenized
  training text and test text that is not tokenized.

  Args:
    texts: Sample of the text by language and split.
    where: Origin of the text, such as ' of the task my_task'.
  """
  counts: dict[str, dict[str, collections.Counter[str]]] = {}
  for language, texts_by_split in texts.items():
    for split, sample in texts_by_split.items():
      count: collections.Counter[str] = collections.Counter()
      for text in sample:
        count['letters'] += sum(map(str.isalpha, text))
        count['upper'] += sum(map(str.isupper, text))
        count['lower'] += sum(map(str.islower, text))
        count.update(_count_punctuation(text))
      counts.setdefault(language, {})[split] = count

  messages: list[str] = []
  case_differences = _compare_splits(
    counts, _upper_case_rate, _FEW_UPPER_CASE, _MANY_UPPER_CASE
  )
  if case_differences:
    messages.append(
      f'The training text and the held-out text{where} differ in letter case, '
      'so the same words have different tokens. Fraction of upper-case letters in a '
      f'sample of {case_differences}. Use the same letter case in all splits, '
      'or train the vocabulary with --normalization=nmt_nfkc_cf, which ignores '
      'case.'
    )
  spacing_differences = _compare_splits(
    counts, _space_rate, _FEW_SPACES, _MANY_SPACES
  )
  if spacing_differences:
    messages.append(
      f'The training text and the held-out text{where} differ in the spaces '
      'before punctuation, so one of them was probably tokenized, for example with '
      'Moses. Fraction of commas and periods after a space in a sample of '
      f'{spacing_differences}. Use text without tokenization in all splits, '
      'because xlflax segments text with its own vocabulary.'
    )
  return messages


def describe_different_spacing(
  texts_by_name: Mapping[str, Iterable[str]],
) -> str | None:
  """Returns the punctuation spacing of texts if they are tokenized differently.

  Args:
    texts_by_name: Texts in the same language by display name, such as
      'references'.

  Returns:
    Fraction of commas and periods after a space by name, such as 'references
    98 %, translations 1 %'. None if the fractions are similar, or if there is
    too little punctuation.
  """
  rates = {}
  for name, texts in texts_by_name.items():
    count: collections.Counter[str] = collections.Counter()
    for text in texts:
      count.update(_count_punctuation(text))
    rates[name] = _space_rate(count)
  values = [rate for rate in rates.values() if rate is not None]
  if len(values) < len(rates):
    return None
  if min(values) >= _FEW_SPACES or max(values) <= _MANY_SPACES:
    return None
  return ', '.join(
    f'{name} {100 * rate:.0f} %'
    for name, rate in rates.items()
    if rate is not None
  )


def _count_punctuation(text: str) -> dict[str, int]:
  """Returns the numbers of marks, and of marks after a space, in a text."""
  spaces = [match[1] for match in _PUNCTUATION.finditer(text)]
  return {'marks': len(spaces), 'spaces': sum(map(bool, spaces))}


def _upper_case_rate(count: Mapping[str, int]) -> float | None:
  """Returns the fraction of upper-case letters, or None for a small sample."""
  cased = count['upper'] + count['lower']
  if cased < max(_MIN_CASED_LETTERS, count['letters'] / 2):
    return None
  return count['upper'] / cased


def _space_rate(count: Mapping[str, int]) -> float | None:
  """Returns the fraction of marks after a space, or None for a small sample."""
  if count['marks'] < _MIN_MARKS:
    return None
  return count['spaces'] / count['marks']


def _compare_splits(
  counts: Mapping[str, Mapping[str, Mapping[str, int]]],
  compute_rate: Callable[[Mapping[str, int]], float | None],
  low_rate: float,
  high_rate: float,
) -> str:
  """Describes languages in which a rate is low in one split and high in another.

  Args:
    counts: Counts of a sample by language and split.
    compute_rate: Function that computes the rate from the counts of a split. If
      it returns None, the split is not compared.
    low_rate: Rate below which a rate is low.
    high_rate: Rate above which a rate is high.

  Returns:
    The rates of the languages whose training text differs from held-out text,
    or an empty string if there are none.
  """
  differences: list[str] = []
  for language, counts_by_split in counts.items():
    rates = {
      split: rate
      for split, count in counts_by_split.items()
      if (rate := compute_rate(count)) is not None
    }
    training_rate = rates.pop(corpus_directory.TRAIN, None)
    if training_rate is None:
      continue
    different_rates = [
      f'{100 * rate:.1f} % in the {split} text'
      for split, rate in rates.items()
      if min(rate, training_rate) < low_rate
      and max(rate, training_rate) > high_rate
    ]
    if different_rates:
      differences.append(
        f'{language}: {100 * training_rate:.1f} % in the training text, '
        f'{", ".join(different_rates)}'
      )
  return '; '.join(differences)


def _describe_swapped_columns(origin: _Origin) -> str:
  first, second = origin.languages
  if origin.file is None:
    return (
      f'The features `inputs` and `targets` of {origin.name} are probably '
      f'swapped: `inputs` is more similar to {second} and `targets` to '
      f'{first}. Swap the features in a preprocessor of the task, or register '
      'the task '
      f"with languages=('{second}', '{first}')."
    )
  return (
    f'The columns of {origin.name} are probably swapped: the first column is '
    f'more similar to {second} and the second to {first}. Swap the columns, or '
    f'rename the file to {second}-{first}.'
  )


def _find_wrong_script(origin: _Origin, text: str) -> list[str]:
  """Returns a message if text is not written in a script of its language."""
  [language] = origin.languages
  script = text_language.dominant_script(text)
  expected_scripts = text_language.scripts_of_language(language)
  if script is None or expected_scripts is None or script in expected_scripts:
    return []
  return [
    f'The text of {origin.name} is written in {script.title()} letters, but '
    f'{language} is written in {" or ".join(expected_scripts).title()}. '
    + origin.choose(
      'Check the language code of the file.',
      'Check the language with which the task is registered, and which column '
      'the task reads as its text.',
    )
  ]


def describe_wrong_encoding(
  examples: Sequence[tuple[str, ...]],
  name: str,
  hint: str = _WRONG_ENCODING_FILE_HINT,
) -> str | None:
  """Returns a message if many examples were decoded with a wrong encoding.

  Args:
    examples: Sampled examples, each of which is a tuple of one text, or of
      source and target.
    name: Path of the file, or name of the task.
    hint: Recommendation for the user at the end of the message.
  """
  matches = [
    next(filter(None, map(text_encoding.find_wrong_characters, example)), None)
    for example in examples
  ]
  wrong_characters = [match for match in matches if match is not None]
  if len(wrong_characters) <= max(_MIN_COUNT, _MIN_FRACTION * len(examples)):
    return None
  return (
    f'In {name}, {len(wrong_characters):,} of {len(examples):,} sampled '
    f'{"texts" if len(examples[0]) == 1 else "pairs"} contain characters that '
    f'result from a wrong encoding, such as {wrong_characters[0]!r}. {hint}'
  )


def _find_wrong_encoding(
  origin: _Origin, examples: Sequence[tuple[str, ...]]
) -> list[str]:
  """Returns a message if many examples were decoded with a wrong encoding."""
  message = describe_wrong_encoding(
    examples,
    origin.name,
    origin.choose(WRONG_ENCODING_HINT, _WRONG_ENCODING_TASK_HINT),
  )
  return [message] if message else []


def _join_lines(lines: Iterable[corpus_directory.Line]) -> str:
  return ' '.join(line.text for line in itertools.islice(lines, LINES))


def _read_first_lines(file: corpus_files.TextFile) -> list[str]:
  """Returns the first lines of a monolingual file."""
  lines = corpus_directory.read_monolingual(
    file.path, on_bad_record=corpus_directory.handler_of_bad_records(file)
  )
  return [line.text for line in itertools.islice(lines, LINES)]


def _trigram_profiles(
  corpus: corpus_directory.Corpus,
) -> dict[str, text_language.Counts]:
  """Returns trigram counts of languages with monolingual training text."""
  profiles = {}
  for language in corpus.monolingual_languages():
    counts = text_language.count_trigrams(
      _join_lines(corpus.monolingual(language))
    )
    if sum(counts.values()) >= text_language.MIN_TRIGRAMS:
      profiles[language] = counts
  return profiles
