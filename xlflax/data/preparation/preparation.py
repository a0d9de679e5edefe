"""Corpus directory to corpus directory: Moses, segmentation, code-switching.

Files are written one after the other, each in one rename, and what was done is
noted in `.prepared.json`; so a second call does only what is missing. A file of
which no line is left is not written. Blank lines, and with them documents, stay
where they are, as do the two sides of a pair. A file's text does not depend on
the number of processes.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xlflax import errors, paths, suggestions
from xlflax.data.corpus import files as corpus_files
from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.corpus.directory import TRAIN, Corpus
from xlflax.data.corpus.files import Kind, TextFile
from xlflax.data.dictionaries.dictionary import Dictionary
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.data.preparation import duplicates, line_processing, pair_margins
from xlflax.data.preparation.duplicates import Deduplication
from xlflax.data.preparation.filters import TextFilters
from xlflax.data.preparation.line_processing import Chunk, Counts, Lines
from xlflax.data.preparation.pair_margins import MarginFilter
from xlflax.data.preparation.record import Prepared, Record, alone
from xlflax.data.preparation.text_processing import TextProcessing

_CHUNK = 1024
_NONE = np.zeros(0, np.int64)
_NOTHING: collections.Counter[str] = collections.Counter()


@dataclasses.dataclass(frozen=True)
class _Output:
  """A file to write: from what, and as which copy."""

  path: str
  source: TextFile
  copy: int


def prepare(
  corpus: Corpus,
  output,
  *,
  processing: TextProcessing,
  code_switching: CodeSwitching | None = None,
  filters: TextFilters = TextFilters(),  # noqa: B008
  deduplication: Deduplication = Deduplication(),  # noqa: B008
  margins: tuple[MarginFilter, pair_margins.Encode] | None = None,
  languages: Sequence[str] | None = None,
  num_processes: int = 1,
  overwrite: bool = False,
  report: Callable[[Prepared], None] = lambda prepared: None,
) -> list[Prepared]:
  """Writes a corpus directory of processed text.

  Dictionaries are processed like text, so that they go on matching it. Only
  monolingual training text is switched, by the processed dictionaries; its
  draws depend on the names of the files. Copy k of a file `en.txt` is
  `en.copy<k>.txt`.

  Args:
    corpus: what to read.
    output: directory to write; made if need be.
    processing: what is done to each line.
    code_switching: how text is switched; None: not at all.
    filters: which lines are dropped, before they are processed.
    deduplication: which lines are dropped since others are like them.
    margins: which pairs are dropped as they are hardly translations, and the
      encoder that tells.
    languages: files of other languages are left out; None: all.
    num_processes: that work at the same time.
    overwrite: replace what was made with other settings.
    report: called after each file.

  Returns:
    The files of text, in the order of their paths.

  Raises:
    CorpusError: a malformed line (file:line), the output holds something
      else or is being written, a language without text, nothing can be
      switched, or no line is left.
  """
  output = paths.local(output, where='output')
  _check(corpus, output, languages, code_switching)
  settings = _settings(
    corpus, processing, code_switching, filters, deduplication, margins
  )
  outputs = _outputs(corpus, languages, code_switching)
  with alone(output):
    record = Record(output, settings, overwrite=overwrite)
    record.remove_others({file.path for file in outputs})
    dictionaries = _write_dictionaries(corpus, output, processing, languages)
    dropped = {'duplicate': duplicates.find(corpus, deduplication)}
    if margins is not None:
      dropped['low margin'] = pair_margins.find(corpus, *margins)
    with line_processing.Workers(
      processing,
      code_switching,
      dictionaries,
      filters=filters,
      num_processes=num_processes,
    ) as workers:
      done = []
      for file in outputs:
        source = corpus_files.fingerprint(file.source.path, corpus.directory)
        prepared = record.find(file.path, source)
        if prepared is None:
          name = file.source.path.relative_to(corpus.directory).as_posix()
          prepared = _write(
            file,
            output,
            workers,
            code_switching,
            {why: files.get(name, _NONE) for why, files in dropped.items()},
          )
          record.add(prepared, source)
        report(prepared)
        done.append(prepared)
  if not any(prepared.lines for prepared in done):
    raise errors.CorpusError(
      'No line of the corpus is left',
      got=str(sum((collections.Counter(p.dropped) for p in done), _NOTHING)),
      where=str(output),
      fix='choose milder filters',
    )
  return done


def _settings(
  corpus, processing, code_switching, filters, deduplication, margins
) -> dict:
  """What the text depends on beside its files, as JSON data."""
  return json.loads(
    json.dumps(
      {
        'processing': dataclasses.asdict(processing),
        'filters': dataclasses.asdict(filters),
        'deduplication': _deduplication(corpus, deduplication),
        'margins': margins and dataclasses.asdict(margins[0]),
        'code_switching': code_switching and dataclasses.asdict(code_switching),
        'dictionaries': [
          dataclasses.astuple(
            corpus_files.fingerprint(f.path, corpus.directory)
          )
          for f in corpus.dictionaries
        ],
      }
    )
  )


def _deduplication(corpus, deduplication: Deduplication) -> dict | None:
  """Which lines are kept depends on all files then."""
  if deduplication.kept is duplicates.Kept.ALL:
    return None
  return {
    **dataclasses.asdict(deduplication),
    'kept': deduplication.kept.value,
    'files': [
      dataclasses.astuple(corpus_files.fingerprint(f.path, corpus.directory))
      for f in corpus.files
    ],
  }


def _check(corpus, output, languages, code_switching):
  if output.resolve().is_relative_to(corpus.directory.resolve()):
    raise errors.CorpusError(
      'The output would replace the corpus, or lie in it',
      got=str(output),
      expected='a directory outside of the corpus',
    )
  unknown = sorted(set(languages or ()) - set(corpus.languages))
  if unknown:
    raise errors.CorpusError(
      'The corpus has no text of a language',
      got=', '.join(unknown),
      expected=', '.join(corpus.languages),
      where=str(corpus.directory),
      fix=suggestions.languages(unknown, corpus.languages),
    )
  if code_switching and not (
    code_switching.sources(f.languages for f in corpus.dictionaries)
    & set(corpus.monolingual_languages())
  ):
    raise errors.CorpusError(
      'No dictionary translates a language with monolingual text',
      expected='dictionaries/<l1>-<l2>.tsv'
      + (
        f' into {", ".join(code_switching.languages)}'
        if code_switching.languages is not None
        else ''
      ),
      where=str(corpus.directory),
    )


def _outputs(corpus, languages, code_switching) -> list[_Output]:
  """The files of text to be written, by path."""
  switched = (
    code_switching.sources(f.languages for f in corpus.dictionaries)
    if code_switching
    else ()
  )
  outputs: list[_Output] = []
  for file in corpus.files:
    if file.kind is Kind.DICTIONARY or not _is_wanted(file, languages):
      continue
    path = file.path.relative_to(corpus.directory)
    copies = 1
    if (
      file.kind is Kind.MONOLINGUAL
      and file.split == TRAIN
      and file.languages[0] in switched
    ):
      copies = code_switching.copies
    outputs += [_Output(_copy_path(path, k), file, k) for k in range(copies)]
  return sorted(outputs, key=lambda file: file.path)


def _is_wanted(file: TextFile, languages) -> bool:
  return languages is None or set(file.languages) <= set(languages)


def _copy_path(path: pathlib.Path, copy: int) -> str:
  """`mono/en.a.txt.gz` of copy 2 is `mono/en.a.copy2.txt.gz`."""
  if copy:
    stem, dot, ending = path.name.rpartition('.txt')
    path = path.with_name(f'{stem}.copy{copy}{dot}{ending}')
  return path.as_posix()


def _write_dictionaries(
  corpus, output, processing, languages
) -> list[Dictionary]:
  """Writes processed dictionaries; returns them."""
  process = line_processing.processors(processing)
  out = []
  for file in corpus.dictionaries:
    if not _is_wanted(file, languages):
      continue
    dictionary = Dictionary.read(file.path, languages=file.languages)
    first, second = map(process, dictionary.languages)
    entries = tuple(
      entry._replace(
        word=first(entry.word), translation=second(entry.translation)
      )
      for entry in dictionary.entries
    )
    corpus_writer.write_dictionary(output, dictionary.languages, entries)
    out.append(dataclasses.replace(dictionary, entries=entries))
  return out


def _write(file: _Output, output, workers, code_switching, dropped) -> Prepared:
  path = output / file.path
  path.parent.mkdir(parents=True, exist_ok=True)
  total = Counts()
  switch = file.source.kind is Kind.MONOLINGUAL and file.source.split == TRAIN
  size = code_switching.group_lines if code_switching else _CHUNK
  chunks = (
    Chunk(
      file.source.languages,
      lines,
      file.path if switch else None,
      number * size,
      _within(dropped, number * size, size),
    )
    for number, lines in enumerate(_read(file.source, size))
  )
  with corpus_writer.create(path) as stream:
    for text, counts in workers.map(chunks):
      stream.write(text)
      total += counts
  if not total.lines:  # a corpus has no files without text
    path.unlink()
  return Prepared(
    file.path,
    total.lines,
    total.words,
    total.changed,
    dict(sorted(total.dropped.items())),
  )


def _within(
  dropped: dict[str, np.ndarray], first: int, size: int
) -> dict[int, str]:
  """Places first .. first + size - 1, counted from there -> why they go."""
  found: dict[int, str] = {}
  for why, places in dropped.items():
    begin, end = np.searchsorted(places, [first, first + size])
    found |= dict.fromkeys((places[begin:end] - first).tolist(), why)
  return found


def _read(file: TextFile, size: int) -> Iterator[Lines]:
  """Runs of lines with `size` that are not blank; blank ones count to them."""

  def lines():
    for number, line in corpus_files.read_lines(file.path):
      if file.kind is Kind.MONOLINGUAL:
        yield (corpus_files.decode(line, file.path, number),)
      elif line or file.kind is Kind.PARALLEL:
        yield corpus_files.columns(line, file.path, number)

  rows = lines()
  while True:
    run: Lines = []
    full = 0
    for row in rows:
      run.append(row)
      full += bool(row[0])
      if full == size:
        break
    if not run:
      return
    yield run
