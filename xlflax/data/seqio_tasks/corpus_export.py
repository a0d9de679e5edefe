"""Export of the text of SeqIO tasks as a corpus directory."""

import contextlib
import json
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xlflax.data.corpus import corpus_directory, corpus_files, corpus_writer
from xlflax.data.seqio_tasks import mixture_text, seqio_reader, task_registry
from xlflax.storage import checksums, file_lock, paths
from xlflax.utils import errors, plurals

RECORD_FILE = 'corpus.json'
_LOCK = '.corpus.lock'
_FORMAT = 2
_LOG = logging.getLogger(__name__)


class _Output(NamedTuple):
  """File of the corpus that contains one split of one task.

  Attributes:
    path: Path relative to the corpus directory.
    task: Name of the task.
    split: Name of the split.
    languages: Language codes in the name of the file.
  """

  path: str
  task: str
  split: str
  languages: tuple[str, ...]


def export_tasks(
  mixtures: Sequence[str],
  output: pathlib.Path,
  *,
  splits: Sequence[str] = corpus_directory.SPLITS,
  max_examples: int | None = None,
  renamed_languages: Mapping[str, str] | None = None,
  overwrite: bool = False,
) -> dict[str, Any]:
  """Writes the text of tasks, before tokenization, to a corpus directory.

  Each split of each task becomes one file, such as `mono/en.wiki40b.en.txt.zst`
  or `valid/parallel/de-en.wmt14.de_en.tsv.zst`. The text is streamed, and each
  file appears when it is complete. If the call is interrupted, `Corpus` rejects
  the directory, and the next call with the same arguments keeps the complete
  files. Several calls with different
  tasks can write to the same directory one after the other.

  Args:
    mixtures: Names of registered tasks or mixtures. Rates are ignored.
    output: Corpus directory.
    splits: Splits to export. Splits that a task does not have are skipped.
    max_examples: Maximum number of examples of each task and split. If None,
      all examples are exported.
    renamed_languages: Mapping from language codes in the tasks to language
      codes in the corpus.
    overwrite: Whether to replace files that were exported before.

  Returns:
    The content of `corpus.json`: the task, the split, the languages and the
    numbers of lines (or pairs), documents and characters of each file, and the
    number of examples that were skipped because they have an empty text.

  Raises:
    CorpusError: If a mixture or split does not exist, if the text of a task
      cannot be read before it is tokenized, if no task has one of the splits,
      or if the directory contains other files or files that were exported with
      different settings.
  """
  for split in splits:
    corpus_directory.check_split(split)
  outputs = _list_outputs(mixtures, splits, dict(renamed_languages or {}))
  settings = {'max_examples': max_examples}
  with file_lock.lock_directory(
    output, name=_LOCK, what='corpus', error=errors.CorpusError
  ):
    record = _open_record(output)
    if not overwrite:
      for file in outputs:
        if previous := record['files'].get(file.path):
          _check_settings(output, file, previous, settings)
    corpus_writer.mark_incomplete(output, 'build-corpus seqio')
    # An interrupted first file must not look like a directory of other files.
    _write_record(output, record)
    for file in outputs:
      previous = record['files'].get(file.path)
      if (
        previous
        and not overwrite
        and _is_unchanged(output / file.path, previous)
      ):
        _LOG.info('%s: unchanged', file.path)
        continue
      statistics = _write_file(output, file, max_examples)
      record['files'][file.path] = {
        'task': file.task,
        'split': file.split,
        'languages': list(file.languages),
        **settings,
        **statistics,
      }
      _write_record(output, record)
      _LOG.info(
        '%s: %s', file.path, plurals.format_count(statistics['lines'], 'line')
      )
      if statistics['empty_examples']:
        _LOG.warning(
          '%s: Skipped %s with an empty text.',
          file.path,
          plurals.format_count(statistics['empty_examples'], 'example'),
        )
    corpus_writer.mark_complete(output)
  return record


def _list_outputs(
  mixtures: Sequence[str], splits: Sequence[str], renamed: Mapping[str, str]
) -> list[_Output]:
  """Lists the files of all tasks and splits, sorted by path."""
  text = mixture_text.MixtureText(mixtures)
  unknown = sorted(set(renamed) - set(text.languages))
  if unknown:
    raise errors.CorpusError(
      'The language codes in --rename_language must occur in at least one task',
      got=', '.join(unknown),
      expected=', '.join(text.languages),
    )
  outputs = []
  for task in text.tasks:
    languages = tuple(
      renamed.get(code, code) for code in task_registry.task_languages(task)
    )
    for code in languages:
      corpus_files.check_language(code)
    kind, suffix = (
      ('mono', 'txt') if len(languages) == 1 else ('parallel', 'tsv')
    )
    name = f'{"-".join(languages)}.{task}.{suffix}.zst'
    for split in text.task_splits(task):
      if split in splits:
        path = pathlib.Path(corpus_directory.FOLDERS[split], kind, name)
        outputs.append(_Output(path.as_posix(), task, split, languages))
  if not outputs:
    raise errors.CorpusError(
      'At least one task must have one of the splits in --splits',
      got=', '.join(splits),
      expected=', '.join(
        sorted(
          {split for task in text.tasks for split in text.task_splits(task)}
        )
      )
      or 'tasks with the split train, validation or test',
    )
  return sorted(outputs)


def _open_record(output: pathlib.Path) -> dict[str, Any]:
  """Returns the record of an earlier call, or an empty record.

  Raises:
    CorpusError: If the directory contains files, but no record of an earlier
      export.
  """
  path = output / RECORD_FILE
  if path.exists():
    record = checksums.read_json(path, error=errors.CorpusError)
    if isinstance(record, dict) and record.get('format') == _FORMAT:
      return record
  elif not {entry.name for entry in output.iterdir()} - {
    _LOCK,
    corpus_directory.INCOMPLETE_FILE,
  }:
    return {'format': _FORMAT, 'files': {}}
  raise errors.CorpusError(
    'The output directory must be new, empty or written by `xlflax '
    'build-corpus seqio`',
    got=str(output),
    fix='Pass a different --output, or remove the existing directory.',
  )


def _write_record(output: pathlib.Path, record: Mapping[str, Any]) -> None:
  """Writes the record of the exported files."""
  paths.write_atomically(
    output / RECORD_FILE,
    json.dumps(record, indent=2, ensure_ascii=False) + '\n',
  )


def _check_settings(
  output: pathlib.Path,
  file: _Output,
  previous: Mapping[str, Any],
  settings: Mapping[str, Any],
) -> None:
  """Raises CorpusError if a file was exported with different settings."""
  for name, value in settings.items():
    if previous.get(name) != value:
      raise errors.CorpusError(
        f'The file was exported with {name}={previous.get(name)}, but the '
        f'current value is {name}={value}',
        where=str(output / file.path),
        fix='Pass a different --output, or pass --overwrite to replace the '
        'existing files.',
      )


def _is_unchanged(path: pathlib.Path, previous: Mapping[str, Any]) -> bool:
  """Returns whether a file still has the size that was recorded."""
  if not previous['lines']:  # A split without text has no file.
    return not path.exists()
  return path.exists() and path.stat().st_size == previous['bytes']


def _write_file(
  output: pathlib.Path, file: _Output, max_examples: int | None
) -> dict[str, int]:
  """Writes a split of a task and returns the statistics of the file.

  Files without text are not valid in a corpus and are not written.
  """
  path = output / file.path
  path.parent.mkdir(parents=True, exist_ok=True)
  counts = {'lines': 0, 'documents': 0, 'characters': 0, 'empty_examples': 0}
  with corpus_writer.open_atomic(path) as stream:
    for line, starts_document in _read_lines(file, max_examples):
      if not line:
        counts['empty_examples'] += 1
        continue
      if starts_document and counts['lines'] and len(file.languages) == 1:
        stream.write('\n')
      counts['documents'] += starts_document or not counts['lines']
      counts['lines'] += 1
      counts['characters'] += len(line)
      stream.write(line + '\n')
  if not counts['lines']:
    path.unlink()
    with contextlib.suppress(OSError):
      path.parent.rmdir()
    return counts | {'bytes': 0}
  return counts | {'bytes': path.stat().st_size}


def _read_lines(
  file: _Output, max_examples: int | None
) -> Iterator[tuple[str, bool]]:
  """Yields the line of each example, and whether a document starts at the line.

  A pair is a line with a tab. It is a document of its own. The line of an
  example with an empty text or an empty side is empty.
  """
  starts_document = True
  examples = seqio_reader.read_texts(file.task, split=file.split)
  for number, example in enumerate(examples):
    if number == max_examples:
      return
    if len(file.languages) == 2:
      sentences = [
        corpus_writer.clean_line(example[key]) for key in ('inputs', 'targets')
      ]
      yield '\t'.join(sentences) if all(sentences) else '', True
      continue
    starts_document |= bool(example['starts_document'])
    line = corpus_writer.clean_line(example['targets'])
    yield line, starts_document
    if line:
      starts_document = False
