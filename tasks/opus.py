"""OPUS: pairs from TFDS, and from files in the formats that OPUS offers.

Importing registers TFDS's five German-English configurations as
`opus.<configuration>.de_en`. For all other pairs, download the Moses format (two
files with a translation on the same line) or TSV from opus.nlpl.eu and register
it from a `--task_module`:

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

from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_files as corpus_files
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.plain_text import text_source as text_rows
from xlflax.data.seqio_tasks import data_sources, tfds_source
from xlflax.data.seqio_tasks import task_registry as task_registry
from xlflax.utils import errors, validation

VERSION = '0.1.0'
CONFIGURATIONS = ('medical', 'law', 'koran', 'IT', 'subtitles')


def register(*, prefix: str = 'opus', data_dir: str | None = None) -> None:
  """Registers TFDS's configurations; see `tfds_source.TfdsSource`."""
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

  Before: lines `one` and `un`; after: `{'inputs': 'one', 'targets': 'un'}`.
  Pairs with an empty side are dropped, as OPUS's files have them.

  Args:
    name: of the task.
    languages: of the two files.
    files: split to the two paths; they may end in .gz or .zst.

  Raises:
    CorpusError: the name is taken, or a file is missing; on reading: the files
      have unequal numbers of lines, or one is not UTF-8.
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
  """Registers files of two tab-separated columns as a parallel task.

  Arguments and errors as for `add_moses_task`, with one path per split; a line
  without exactly two full columns is an error.
  """
  return _add_files(
    name,
    languages,
    corpus.read_parallel,
    {split: (pathlib.Path(path),) for split, path in files.items()},
  )


def read_moses(
  first: pathlib.Path, second: pathlib.Path
) -> Iterator[corpus.Pair]:
  """Yields the pairs of two line-aligned files; see `add_moses_task`."""
  lines = itertools.zip_longest(
    corpus_lines.read_lines(first), corpus_lines.read_lines(second)
  )
  for a, b in lines:
    if a is None or b is None:
      longer, (number, _) = (first, a) if b is None else (second, b)
      raise errors.CorpusError(
        'Two files that should be line-aligned have unequal lengths',
        got=f'{longer} goes on',
        where=f'{longer}:{number}',
        expected=f'as many lines in {first} as in {second}',
      )
    if a[1] and b[1]:
      yield corpus.Pair(
        corpus_lines.decode_line(a[1], first, a[0]),
        corpus_lines.decode_line(b[1], second, b[0]),
      )


def _add_files(name, languages, reader, files) -> seqio.Task:
  for path in itertools.chain.from_iterable(files.values()):
    if not path.is_file():
      raise errors.CorpusError(
        'A text file does not exist', got=str(path), where=f'task {name}'
      )
  fingerprint = lambda split: tuple(  # noqa: E731
    corpus_files.fingerprint_file(path) for path in files[split]
  )
  count = functools.cache(
    lambda split, _: sum(1 for _ in reader(*files[split]))
  )
  rows = text_rows.TextRows(
    read=lambda split: reader(*files[split]),
    columns=('inputs', 'targets'),
    splits=tuple(files),
    fingerprint=fingerprint,
    count=lambda split: count(split, fingerprint(split)),
  )
  return task_registry.add_parallel_task(
    name, data_sources.of_rows(rows), languages=languages
  )


register()
