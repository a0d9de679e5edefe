"""Tasks over OPUS: sentence pairs from TFDS and from downloaded files.

Importing this module registers TFDS's five German-English configurations as
`opus.<configuration>.de_en`. For other pairs, download the Moses format (two
files with translations on the same line) or TSV from opus.nlpl.eu, and register
them in a `--task_module`:

    from xlflax.tasks import opus
    opus.add_moses_task('tanzil.en_sw', languages=('en', 'sw'), files={
        'train': ('Tanzil.en-sw.en', 'Tanzil.en-sw.sw')})
    opus.add_tsv_task('qed.en_sw', languages=('en', 'sw'), files={
        'train': 'QED.en-sw.tsv.gz'})

Tiedemann 2012, "Parallel Data, Tools and Interfaces in OPUS".
"""

import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping

import seqio

from xlflax.data.corpus import corpus_directory, corpus_files, line_reader
from xlflax.data.plain_text import text_source
from xlflax.data.seqio_tasks import data_sources, task_registry, tfds_source
from xlflax.utils import errors, line_splitting, validation

VERSION = '0.1.0'
CONFIGURATIONS = ('medical', 'law', 'koran', 'IT', 'subtitles')


def register(*, prefix: str = 'opus', data_dir: str | None = None) -> None:
  """Registers a task for each OPUS dataset in TFDS, and a mixture of them.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  names = []
  for configuration in CONFIGURATIONS:
    names.append(f'{prefix}.{configuration}.de_en')
    tfds_source.add_parallel(
      names[-1],
      f'opus/{configuration}:{VERSION}',
      languages=('de', 'en'),
      splits={'train': 'train'},
      data_dir=data_dir,
    )
  task_registry.add_mixture(prefix, names)


@validation.validate_call
def add_moses_task(
  name: str, *, languages: tuple[str, str], files: Mapping[str, tuple]
) -> seqio.Task:
  """Registers line-aligned files as a parallel task.

  For example, the lines `one` and `un` become `{'inputs': 'one', 'targets':
  'un'}`. OPUS contains pairs in which one of the two lines is empty. Such pairs
  are dropped.

  Args:
    name: Name of the task.
    languages: Languages of the two files.
    files: Map from split to the paths of the two files, which may have the
      extension .gz or .zst.

  Raises:
    CorpusError: If a task with this name exists, or a file is missing. Also
      raised when the task is read, if the files have different numbers of
      lines, or a line is not UTF-8.
  """
  return _add_files(
    name,
    languages,
    read_moses,
    {split: tuple(map(pathlib.Path, paths)) for split, paths in files.items()},
  )


@validation.validate_call
def add_tsv_task(
  name: str, *, languages: tuple[str, str], files: Mapping[str, str]
) -> seqio.Task:
  """Registers files with two tab-separated columns as a parallel task.

  Each line must have exactly two nonempty columns.

  Args:
    name: Name of the task.
    languages: Languages of the two columns.
    files: Map from split to the path of a file.

  Raises:
    CorpusError: If a task with this name exists, or a file is missing. Also
      raised when the task is read, if a line is malformed.
  """
  return _add_files(
    name,
    languages,
    corpus_directory.read_parallel,
    {split: (pathlib.Path(path),) for split, path in files.items()},
  )


def read_moses(
  first: pathlib.Path, second: pathlib.Path
) -> Iterator[corpus_directory.Pair]:
  """Yields the pairs of two line-aligned files; see `add_moses_task`."""
  sides = line_reader.read_lines(first), line_reader.read_lines(second)
  for number, (first_item, second_item) in enumerate(
    itertools.zip_longest(*sides), start=1
  ):
    if first_item is None or second_item is None:
      num_lines = [
        number - 1 if item is None else number + sum(1 for _ in side)
        for item, side in zip((first_item, second_item), sides, strict=True)
      ]
      raise line_splitting.unequal_lines_error((first, second), num_lines)
    first_number, first_line = first_item
    second_number, second_line = second_item
    if first_line and second_line:
      yield corpus_directory.Pair(
        line_reader.decode_line(first_line, first, first_number),
        line_reader.decode_line(second_line, second, second_number),
      )


def _add_files(name, languages, reader, files) -> seqio.Task:
  """Registers a parallel task that reads sentence pairs from files.

  Args:
    name: Name of the task.
    languages: Languages of the first and the second sentence in each pair.
    reader: Function that reads a split's files and returns their sentence
      pairs.
    files: Map from each split to the paths of its files.
  """
  for path in itertools.chain.from_iterable(files.values()):
    if not path.is_file():
      raise errors.CorpusError(
        f'A text file of the task {name!r} does not exist', got=str(path)
      )

  def fingerprint(split: str) -> tuple[corpus_files.Fingerprint, ...]:
    return tuple(map(corpus_files.fingerprint_file, files[split]))

  @functools.cache
  def count_pairs(split: str, fingerprints) -> int:
    del fingerprints  # Part of the cache key, so that changes are noticed.
    return sum(1 for _ in reader(*files[split]))

  rows = text_source.TextRows(
    read=lambda split: reader(*files[split]),
    columns=('inputs', 'targets'),
    splits=tuple(files),
    fingerprint=fingerprint,
    count=lambda split: count_pairs(split, fingerprint(split)),
  )
  return task_registry.add_parallel_task(
    name, data_sources.create_text_source(rows), languages=languages
  )


register()
