"""Preprocessing pipeline from one corpus directory to another.

Files are written one after the other. Each file is written atomically and
recorded in `.prepared.json`, so that a second call writes only the missing
files. `Corpus` rejects the output until all files are written. A file is not
written if no lines remain. The order of the lines, the document boundaries and
the alignment of pairs are preserved.

The text of a file does not depend on the number of processes or shards. The
files are sorted by path and assigned to the shards of a job in turn. Each shard
records its files in a separate file (`.prepared-3-of-16.json`). A call without
a shard merges these records.
"""

import collections
import dataclasses
import functools
import json
import logging
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xlflax.data.corpus import (
  bad_records,
  corpus_directory,
  corpus_files,
  corpus_writer,
)
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
from xlflax.data.preprocessing.fuzzy_deduplication import (
  Deduplication,
  DeduplicationMode,
)
from xlflax.data.preprocessing.hold_out import hold_out_documents
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

# Options of `xlflax preprocess` that cause lines to be dropped for a reason.
_OPTIONS_OF_REASONS = {
  'no letters': '--min_letters',
  'few letters': '--min_letters',
  'code': '--strip_markup',
  worker_pool.MARKUP: '--strip_markup',
  'wrong encoding': '--drop_wrong_encoding',
  'too short': '--min_characters',
  'too long': '--max_characters',
  'unequal lengths': '--max_length_ratio',
  'equal sides': '--max_copy_similarity',
  'nearly equal sides': '--max_copy_similarity',
  'another script': '--min_script_share',
  'another language': '--min_language_probability',
  'duplicate': '--dedup',
  'equal to held-out text': '--dedup',
  'similar to held-out text': '--dedup',
  'evaluation text': '--decontaminate_against',
  'low margin': '--min_margin',
}
_BAD_RECORD_REMEDY = (
  'Correct the lines and records that cannot be used. Run `xlflax inspect` to '
  'list them.'
)
_NO_LINES = np.zeros(0, np.int64)


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
  hold_out: validation.PositiveInt | None = None,
  num_processes: validation.PositiveInt = 1,
  shard: tuple[int, int] | None = None,
  overwrite: bool = False,
  report: Callable[[Prepared], None] = lambda prepared: None,
) -> list[Prepared]:
  """Preprocesses a corpus and writes the result as a corpus directory.

  Dictionaries are processed like text, so that they still match the text.
  Dictionaries for languages that are not written are used for code-switching
  but are not written themselves. Only monolingual training text is
  code-switched, with the processed dictionaries. The random seed depends on the
  file names. Copy k of a file `en.txt` is named `en.copy<k>.txt`.

  Args:
    corpus: Corpus to preprocess.
    output: Output directory. It is created if it does not exist.
    processing: Settings for processing each line.
    code_switching: Settings for code-switching. If None, text is not
      code-switched.
    filters: Line filters, which are applied before the lines are processed.
    deduplication: Settings for removing duplicate lines.
    decontamination: Evaluation texts that are removed from the training text.
    margins: Margin filter for pairs, and the function that computes embeddings.
      If None, pairs are not filtered by their margins.
    languages: Languages of the files to write. If None, all files are written.
    hold_out: Number of documents to hold out for validation, and the same
      number for test, in each language. In each language pair, this number of
      pairs is held out for each split (`hold_out.hold_out_documents`).
      Documents are counted before filtering. This is not available for a shard.
      If None, no documents are held out.
    num_processes: Number of worker processes.
    shard: Pair (i, n) to write shard i of n shards, where i is zero-based.
      Other processes write the other shards. If None, all files are written.
    overwrite: Whether to replace files that were written with different
      settings. This is not available for a shard.
    report: Function that is called after each file.

  Returns:
    The output files of the corpus or of the shard, sorted by path.

  Raises:
    ConfigError: If deduplication, held-out documents or overwriting are
      requested for a shard.
    CorpusError: If a line is malformed (the error contains the file and the
      line), if the output directory contains unrelated files or is being
      written by another process, if other shards have different settings or
      files, if a language has no text, if no text can be code-switched, or if
      no training text remains.
  """
  output = paths.to_local_path(output, where='output')
  _check_inputs(corpus, output, languages, code_switching)
  _check_shard(shard, deduplication, hold_out, overwrite=overwrite)
  settings = _describe_settings(
    corpus,
    processing,
    code_switching,
    filters,
    deduplication,
    decontamination,
    margins,
    hold_out,
  )
  if hold_out:
    corpus = hold_out_documents(corpus, hold_out, languages)
  outputs = output_files.list_outputs(corpus, languages, code_switching)
  provenance.check_output(output)
  with provenance.lock_output(output, shard):
    record = _open_record(corpus, output, settings, outputs, shard, overwrite)
    if shard:
      outputs = outputs[shard[0] :: shard[1]]

    dictionaries = _process_dictionaries(corpus, processing)
    if not shard or shard[0] == 0:
      record.check_dictionaries()
      dictionary_paths = [
        corpus_writer.write_dictionary(
          output, dictionary.languages, dictionary.entries
        )
        for dictionary in dictionaries
        if output_files.has_languages(dictionary, languages)
      ]
      record.set_dictionaries(dictionary_paths, remove_others=not shard)

    duplicates = fuzzy_deduplication.find_duplicates(corpus, deduplication)
    held_out_reason = (
      'similar to held-out text'
      if deduplication.mode is DeduplicationMode.FUZZY
      else 'equal to held-out text'
    )
    dropped = {
      'duplicate': duplicates.repeated,
      held_out_reason: duplicates.held_out,
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
      prepared_files = []
      for prepared in _write_files(
        corpus, outputs, record, workers, code_switching, dropped
      ):
        report(prepared)
        prepared_files.append(prepared)
    if not shard:
      _check_not_empty(output, outputs, prepared_files, hold_out)
      _warn_of_empty_groups(outputs, prepared_files, hold_out)
      record.finish()
  return prepared_files


def _write_files(
  corpus, outputs, record: Record, workers, code_switching, dropped
) -> Iterator[Prepared]:
  """Writes the output files, except those that an earlier run has written."""
  sources = [
    corpus_files.fingerprint_file(file.source.path, corpus.directory)
    for file in outputs
  ]
  recorded = [
    record.find(
      file.path, source, allow_bad_records=file.source.skips_bad_records
    )
    for file, source in zip(outputs, sources, strict=True)
  ]
  if not all(recorded):
    record.start_writing()
  bytes_done = sum(
    source.size
    for source, prepared in zip(sources, recorded, strict=True)
    if prepared
  )
  with progress_reporting.Progress(
    None,
    unit='MB',
    done=bytes_done / 1e6,
    total=sum(source.size for source in sources) / 1e6,
  ) as progress:
    for number, (file, source, prepared) in enumerate(
      zip(outputs, sources, recorded, strict=True), start=1
    ):
      if prepared is None:
        name = corpus_directory.relative_path(file.source)
        lines_to_drop = {
          reason: lines_of_files.get(name, _NO_LINES)
          for reason, lines_of_files in dropped.items()
        }
        description = (
          f'preprocess, file {number} of {len(outputs)}, {file.path}'
        )
        prepared = output_files.write_output(
          file,
          record.output,
          workers,
          code_switching,
          lines_to_drop,
          functools.partial(_report_progress, progress, description),
        )
        record.add(prepared, source)
      yield prepared


def _report_progress(
  progress: progress_reporting.Progress,
  description: str,
  num_lines: int,
  num_bytes: int,
) -> None:
  """Reports the progress of reading a file.

  Args:
    progress: Progress bar for preprocessing, in MB.
    description: Description of the file for the progress bar.
    num_lines: Number of lines that have been read.
    num_bytes: Number of bytes that have been read since the previous call.
  """
  progress.what = f'{description}, {num_lines:,} lines'
  progress(num_bytes / 1e6)


def _open_record(corpus, output, settings, outputs, shard, overwrite) -> Record:
  """Opens the provenance record of a shard, or of the complete output.

  If the record is complete, files that are no longer part of the output are
  deleted.
  """
  if shard:
    paths_of_sources = {file.source.path for file in outputs}
    sources = [
      corpus_files.fingerprint_file(path, corpus.directory)
      for path in sorted(paths_of_sources)
    ]
    return Record.open_shard(output, settings, shard, sources)
  record = Record.open_complete(output, settings, overwrite=overwrite)
  record.remove_others({file.path for file in outputs})
  return record


def _check_not_empty(
  output: pathlib.Path,
  outputs: Sequence[output_files.Output],
  prepared_files: Sequence[Prepared],
  hold_out: int | None,
) -> None:
  """Raises a CorpusError if no text remains, or if no training text remains."""
  training_files = [
    prepared
    for file, prepared in zip(outputs, prepared_files, strict=True)
    if file.source.split == corpus_directory.TRAIN
  ]
  # A corpus of held-out text only has no training files.
  files = training_files or prepared_files
  if any(prepared.lines for prepared in files):
    return
  kind = 'training text' if training_files else 'text'
  raise errors.CorpusError(
    f'Preprocessing dropped all {kind} of the corpus',
    got=_describe_dropped(files) or 'files without text',
    where=str(output),
    fix=_suggest_remedy(files, hold_out),
  )


def _warn_of_empty_groups(
  outputs: Sequence[output_files.Output],
  prepared_files: Sequence[Prepared],
  hold_out: int | None,
) -> None:
  """Logs a warning for each language and split whose text was all dropped."""
  groups: dict[tuple, list[Prepared]] = {}
  for file, prepared in zip(outputs, prepared_files, strict=True):
    source = file.source
    key = (source.split, source.kind, source.languages)
    groups.setdefault(key, []).append(prepared)
  for (split, kind, languages), files in groups.items():
    if not any(prepared.lines for prepared in files):
      logging.warning(
        'No %s text of the %s split remains in %s: all lines were dropped '
        '(%s). %s',
        kind.value,
        split,
        '-'.join(languages),
        _describe_dropped(files) or 'the files contain no text',
        _suggest_remedy(files, hold_out),
      )


def _suggest_remedy(files: Sequence[Prepared], hold_out: int | None) -> str:
  """Returns a recommendation for files whose lines were all dropped.

  Args:
    files: Files whose lines were all dropped.
    hold_out: Number of held-out documents or pairs. If None, the recommendation
      does not mention the option `--hold_out`.
  """
  reasons = {reason for prepared in files for reason in prepared.dropped}
  sentences = sorted(
    {
      problem.fix or _BAD_RECORD_REMEDY
      for prepared in files
      for problem in prepared.bad_records
    }
  )
  if bad_records.FILTERED in reasons:
    sentences.append('Change the filters in corpus.toml.')
  options = sorted(
    {
      _OPTIONS_OF_REASONS[reason]
      for reason in reasons
      if reason in _OPTIONS_OF_REASONS
    }
  )
  if hold_out and options:
    options.append('--hold_out')
  if options:
    noun = 'option' if len(options) == 1 else 'options'
    sentences.append(
      f'Change the {noun} {name_suggestions.format_names(options)}.'
    )
  return ' '.join(sentences) or 'Add text to the files, or delete them.'


def _describe_dropped(files: Sequence[Prepared]) -> str:
  """Returns the numbers of dropped lines in files, by reason."""
  dropped: collections.Counter[str] = collections.Counter()
  for prepared in files:
    dropped.update(prepared.dropped)
  return ', '.join(
    f'{count:,} × {reason}' for reason, count in sorted(dropped.items())
  )


def _describe_settings(
  corpus,
  processing,
  code_switching,
  filters,
  deduplication,
  decontamination,
  margins,
  hold_out,
) -> dict:
  """Returns all settings that determine the output text, as JSON data.

  The settings include the fingerprints of the dictionaries. The fingerprints of
  text files are recorded separately for each file.
  """
  return json.loads(
    json.dumps(
      {
        'processing': dataclasses.asdict(processing),
        'filters': dataclasses.asdict(filters),
        'deduplication': _describe_deduplication(corpus, deduplication),
        'decontamination': decontamination.identity(),
        'hold_out': hold_out
        and {'documents': hold_out, 'files': _fingerprints(corpus)},
        'margins': margins and dataclasses.asdict(margins[0]),
        'code_switching': code_switching and dataclasses.asdict(code_switching),
        'dictionaries': [
          dataclasses.astuple(
            corpus_files.fingerprint_file(file.path, corpus.directory)
          )
          for file in corpus.dictionaries
        ],
      }
    )
  )


def _describe_deduplication(
  corpus, deduplication: Deduplication
) -> dict | None:
  """Returns the settings and files that determine which lines are dropped.

  The deduplication of a file depends on all other files.
  """
  if deduplication.mode is DeduplicationMode.NONE:
    return None
  return {
    **dataclasses.asdict(deduplication),
    'mode': deduplication.mode.value,
    'files': _fingerprints(corpus),
  }


def _fingerprints(corpus: Corpus) -> list[tuple]:
  """Returns the fingerprints of all files of a corpus as tuples."""
  return [
    dataclasses.astuple(
      corpus_files.fingerprint_file(file.path, corpus.directory)
    )
    for file in corpus.files
  ]


def _check_inputs(corpus, output, languages, code_switching):
  if output.resolve().is_relative_to(corpus.directory.resolve()):
    raise errors.CorpusError(
      'The output directory must not be inside the corpus directory',
      got=str(output),
      fix='Choose an output directory outside the corpus directory.',
    )
  unknown = sorted(set(languages or ()) - set(corpus.languages))
  if unknown:
    raise errors.CorpusError(
      'The corpus contains no text in some of the requested languages',
      got=', '.join(unknown),
      expected=', '.join(corpus.languages),
      where=str(corpus.directory),
      fix=name_suggestions.suggest_languages(unknown, corpus.languages),
    )
  if code_switching and not (
    code_switching.sources(f.languages for f in corpus.dictionaries)
    & set(corpus.monolingual_languages())
  ):
    targets = code_switching.languages
    target = 'another language' if targets is None else ' or '.join(targets)
    raise errors.CorpusError(
      'Code-switching requires a dictionary from a language with monolingual '
      f'training text into {target}',
      where=str(corpus.directory),
      fix='Add a dictionary dictionaries/<l1>-<l2>.tsv to the corpus.',
    )


def _check_shard(
  shard: tuple[int, int] | None,
  deduplication: Deduplication,
  hold_out: int | None,
  *,
  overwrite: bool,
) -> None:
  if not shard:
    return
  index, num_shards = shard
  if not 0 <= index < num_shards:
    raise errors.ConfigError(
      'The shard must be a pair (i, n) of the shard index and the number of '
      'shards, with 0 <= i < n',
      got=shard,
    )
  if deduplication.mode is not DeduplicationMode.NONE:
    raise errors.ConfigError(
      f'Shard {index}/{num_shards} cannot be deduplicated, because '
      'deduplication depends on all files',
      fix='Preprocess the shards without --dedup, then preprocess their output '
      'with --dedup, but without --shard_index and --num_shards.',
    )
  if hold_out:
    raise errors.ConfigError(
      f'Documents cannot be held out from shard {index}/{num_shards} with '
      f'hold_out={hold_out}, because the selection of documents depends on all '
      'files',
      fix='Preprocess the shards without --hold_out, then preprocess their '
      'output with --hold_out, but without --shard_index and --num_shards.',
    )
  if overwrite:
    raise errors.ConfigError(
      f'Shard {index}/{num_shards} cannot overwrite the output directory, '
      'because other shards write to it',
      fix='Delete the output directory before you write the first shard, or '
      'choose a different directory.',
    )


def _process_dictionaries(corpus, processing) -> list[Dictionary]:
  """Reads and processes the dictionaries of a corpus."""
  create_processor = worker_pool.processor_factory(processing)
  dictionaries = []
  for file in corpus.dictionaries:
    dictionary = _read_dictionary(file)
    first, second = map(create_processor, dictionary.languages)
    entries = tuple(
      entry._replace(
        word=first(entry.word), translation=second(entry.translation)
      )
      for entry in dictionary.entries
    )
    dictionaries.append(dataclasses.replace(dictionary, entries=entries))
  return dictionaries


def _read_dictionary(file: corpus_files.TextFile) -> Dictionary:
  """Reads a dictionary, and logs its malformed lines if they are skipped."""
  bad_entries = bad_records.BadRecords()
  dictionary = Dictionary.read(
    file.path,
    languages=file.languages,
    on_bad_record=bad_entries.add if file.skips_bad_records else None,
  )
  for problem in bad_entries.problems:
    logging.warning('Dropping lines of a dictionary: %s', problem)
  return dictionary
