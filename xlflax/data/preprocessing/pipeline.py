"""Corpus directory to corpus directory: Moses, segmentation, code-switching.

Files are written one after the other, each in one rename, and what was done is
noted in `.prepared.json`; so a second call does only what is missing. A file of
which no line is left is not written. Blank lines, and with them documents, stay
where they are, as do the two sides of a pair. A file's text does not depend on
the number of processes, nor on who writes the others: the files, by path, go
round the shares of a job, each of which notes what it did in a record of its
own (`.prepared-3-of-16.json`). A call without a share makes these one.
"""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xlflax.data.corpus import corpus_files, corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import (
  contamination,
  fuzzy_deduplication,
  margin_filter,
  output_files,
  provenance,
  worker_pool,
)
from xlflax.data.preprocessing.contamination import Decontamination
from xlflax.data.preprocessing.fuzzy_deduplication import Deduplication
from xlflax.data.preprocessing.margin_filter import MarginFilter
from xlflax.data.preprocessing.provenance import Prepared, Record
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.storage import paths
from xlflax.utils import (
  errors,
  name_suggestions,
  progress_reporting,
  validation,
)

_NONE = np.zeros(0, np.int64)
_NOTHING: collections.Counter[str] = collections.Counter()


@validation.validate_call
def preprocess_corpus(
  corpus: Corpus,
  output: validation.FilePath,
  *,
  processing: TextProcessing,
  code_switching: CodeSwitching | None = None,
  filters: TextFilters = TextFilters(),  # noqa: B008
  deduplication: Deduplication = Deduplication(),  # noqa: B008
  decontamination: Decontamination = Decontamination(),  # noqa: B008
  margins: tuple[MarginFilter, margin_filter.Encode] | None = None,
  languages: Sequence[str] | None = None,
  num_processes: validation.PositiveInt = 1,
  share: tuple[int, int] | None = None,
  overwrite: bool = False,
  report: Callable[[Prepared], None] = lambda prepared: None,
) -> list[Prepared]:
  """Writes a corpus directory of processed text.

  Dictionaries are processed like text, so that they go on matching it; those of
  languages that are left out switch text, and are not written. Only
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
    decontamination: which training lines are dropped since evaluation texts
      are in them.
    margins: which pairs are dropped as they are hardly translations, and the
      encoder that tells.
    languages: files of other languages are left out; None: all.
    num_processes: that work at the same time.
    share: (i, n): write the i-th of n shares of the files, beside processes
      that write the others; None: all of them.
    overwrite: replace what was made with other settings; not by a share.
    report: called after each file.

  Returns:
    The files of text, or those of the share, in the order of their paths.

  Raises:
    ConfigError: a share is to find duplicates, or to overwrite.
    CorpusError: a malformed line (file:line), the output holds something
      else or is being written, other shares have other settings or files, a
      language without text, nothing can be switched, or no line is left.
  """
  output = paths.to_local_path(output, where='output')
  _check(corpus, output, languages, code_switching)
  _check_share(share, deduplication, overwrite=overwrite)
  settings = _settings(
    corpus,
    processing,
    code_switching,
    filters,
    deduplication,
    decontamination,
    margins,
  )
  outputs = output_files.of_corpus(corpus, languages, code_switching)
  provenance.check_output(output)
  with provenance.lock_output(output, share):
    record = _open_record(corpus, output, settings, outputs, share, overwrite)
    if share:
      outputs = outputs[share[0] :: share[1]]
    dictionaries = _dictionaries(corpus, processing)
    if not share or share[0] == 0:
      record.check_dictionaries()
      written = [
        corpus_writer.write_dictionary(
          output, dictionary.languages, dictionary.entries
        )
        for dictionary in dictionaries
        if output_files.is_wanted(dictionary, languages)
      ]
      record.set_dictionaries(written, remove_others=not share)
    dropped = {
      'duplicate': fuzzy_deduplication.find_duplicates(corpus, deduplication),
      'evaluation text': contamination.find_contaminated_lines(
        corpus, decontamination
      ),
    }
    if margins is not None:
      files = [file.source for file in outputs]
      dropped['low margin'] = margin_filter.find_low_margin_pairs(
        corpus, files, *margins
      )
    with worker_pool.Workers(
      processing,
      code_switching,
      dictionaries,
      filters=filters,
      num_processes=num_processes,
    ) as workers:
      done = []
      for prepared in _write(
        corpus, outputs, record, workers, code_switching, dropped
      ):
        report(prepared)
        done.append(prepared)
  if not share:
    _check_is_left(output, done)
  return done


def _write(
  corpus, outputs, record: Record, workers, code_switching, dropped
) -> Iterator[Prepared]:
  """Each file in turn, written unless the record has it."""
  sources = [
    corpus_files.fingerprint_file(file.source.path, corpus.directory)
    for file in outputs
  ]
  recorded = [
    record.find(file.path, source)
    for file, source in zip(outputs, sources, strict=True)
  ]
  with progress_reporting.Progress(
    None,
    unit='MB',
    done=sum(s.size for s, k in zip(sources, recorded, strict=True) if k) / 1e6,
    total=sum(source.size for source in sources) / 1e6,
  ) as progress:
    for number, (file, source, prepared) in enumerate(
      zip(outputs, sources, recorded, strict=True), start=1
    ):
      if prepared is None:
        lines = {
          why: files.get(source.path, _NONE) for why, files in dropped.items()
        }
        prepared = output_files.write_output(
          file,
          record.output,
          workers,
          code_switching,
          lines,
          functools.partial(
            _tell,
            progress,
            f'preprocess, file {number} of {len(outputs)}, {file.path}',
          ),
        )
        record.add(prepared, source)
      yield prepared


def _tell(
  told: progress_reporting.Progress, what: str, lines: int, size: int
) -> None:
  """Says which file is read, so many lines and `size` bytes more of it."""
  told.what = f'{what}, {lines:,} lines'
  told(size / 1e6)


def _open_record(corpus, output, settings, outputs, share, overwrite) -> Record:
  """The record of all, without files that are to go, or that of a share."""
  if share:
    sources = {file.source.path for file in outputs}
    return Record.of_share(
      output,
      settings,
      share,
      [
        corpus_files.fingerprint_file(p, corpus.directory)
        for p in sorted(sources)
      ],
    )
  record = Record.of_all(output, settings, overwrite=overwrite)
  record.remove_others({file.path for file in outputs})
  return record


def _check_is_left(output: pathlib.Path, done: Sequence[Prepared]) -> None:
  if not any(prepared.lines for prepared in done):
    raise errors.CorpusError(
      'No line of the corpus is left',
      got=str(sum((collections.Counter(p.dropped) for p in done), _NOTHING)),
      where=str(output),
      fix='choose milder filters',
    )


def _settings(
  corpus,
  processing,
  code_switching,
  filters,
  deduplication,
  decontamination,
  margins,
) -> dict:
  """What the text depends on beside its files, as JSON data."""
  return json.loads(
    json.dumps(
      {
        'processing': dataclasses.asdict(processing),
        'filters': dataclasses.asdict(filters),
        'deduplication': _deduplication(corpus, deduplication),
        'decontamination': decontamination.identity(),
        'margins': margins and dataclasses.asdict(margins[0]),
        'code_switching': code_switching and dataclasses.asdict(code_switching),
        'dictionaries': [
          dataclasses.astuple(
            corpus_files.fingerprint_file(f.path, corpus.directory)
          )
          for f in corpus.dictionaries
        ],
      }
    )
  )


def _deduplication(corpus, deduplication: Deduplication) -> dict | None:
  """Which lines are kept depends on all files then."""
  if deduplication.kept is fuzzy_deduplication.Kept.ALL:
    return None
  return {
    **dataclasses.asdict(deduplication),
    'kept': deduplication.kept.value,
    'files': [
      dataclasses.astuple(
        corpus_files.fingerprint_file(f.path, corpus.directory)
      )
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
      fix=name_suggestions.suggest_languages(unknown, corpus.languages),
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


def _check_share(
  share: tuple[int, int] | None,
  deduplication: Deduplication,
  *,
  overwrite: bool,
) -> None:
  if not share:
    return
  if not 0 <= share[0] < share[1]:
    raise errors.ConfigError(
      'There is no such share', got=share, expected='(i, n) with 0 <= i < n'
    )
  if deduplication.kept is not fuzzy_deduplication.Kept.ALL:
    raise errors.ConfigError(
      'A share does not see the lines of others, and so no duplicates of them',
      got=f'share {share[0]}/{share[1]} and duplicates',
      fix='Preprocess the shards without --dedup. Then preprocess their '
      'output with --dedup and without a shard.',
    )
  if overwrite:
    raise errors.ConfigError(
      'A share overwrites nothing, as it may be what another one has written',
      got=f'share {share[0]}/{share[1]} and overwriting',
      fix='delete the output before the first share, or choose another one',
    )


def _dictionaries(corpus, processing) -> list[Dictionary]:
  """The processed dictionaries."""
  process = worker_pool.processor_factory(processing)
  out = []
  for file in corpus.dictionaries:
    dictionary = Dictionary.read(file.path, languages=file.languages)
    first, second = map(process, dictionary.languages)
    entries = tuple(
      entry._replace(
        word=first(entry.word), translation=second(entry.translation)
      )
      for entry in dictionary.entries
    )
    out.append(dataclasses.replace(dictionary, entries=entries))
  return out
