"""Tasks over web corpora: FineWeb2, HPLT, MADLAD-400, GlotCC and CC-100.

The tasks are `<corpus>.<language>`, such as `fineweb2.sw`, and the mixture
`<corpus>` contains all tasks of a corpus. The language codes are those of
`language_codes.normalize_code`, so that the same language has the same code in
all corpora: `fineweb2.zh`, `hplt3.zh` and `madlad400.zh`. `web_corpora.csv`
lists the publishers' codes.

If the environment variable XLFLAX_WEB_CORPORA_DIR is set, the tasks read files
from `$XLFLAX_WEB_CORPORA_DIR/<corpus>`, in the publisher's directory layout.
Otherwise, the text is streamed from the Hugging Face Hub or from the
publisher's server with the library `datasets`. Each document becomes one
document with the same lines.

Penedo et al. 2025, "FineWeb2"; Burchell et al. 2025, "An Expanded Massive
Multilingual Dataset for High-Performance Language Technologies (HPLT)"; Oepen
et al. 2025, "HPLT 3.0"; Kudugunta et al. 2023, "MADLAD-400"; Kargaran et al.
2024, "GlotCC"; Conneau et al. 2020, "Unsupervised Cross-lingual Representation
Learning at Scale" (CC-100).
"""

import csv
import dataclasses
import functools
import importlib.resources
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xlflax.data.corpus import (
  corpus_files,
  language_codes,
  line_reader,
  record_formats,
  record_reader,
)
from xlflax.data.plain_text import text_source
from xlflax.data.seqio_tasks import data_sources, preprocessors, task_registry
from xlflax.utils import errors

DIRECTORY_VARIABLE = 'XLFLAX_WEB_CORPORA_DIR'
TABLE = 'web_corpora.csv'


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebCorpus:
  """Description of a web corpus with one subset for each language.

  In `arguments` and `files`, `{code}` stands for the publisher's language code.

  Attributes:
    name: Name of the corpus, which is the prefix of its tasks.
    arguments: Map from each split to the arguments of `datasets.load_dataset`.
    files: Map from each split to glob patterns of file names, relative to the
      directory of the corpus. Only the files of the first pattern that matches
      any file are read.
    text_field: Column that contains the text of a document.
    has_escaped_line_ends: Whether line ends in the text are written as a
      backslash and an `n`.
    has_blank_lines: Whether each record is a line of text, with empty records
      between documents. If False, each record is a document.
  """

  name: str
  arguments: Mapping[str, Mapping[str, str]]
  files: Mapping[str, Sequence[str]]
  text_field: str = 'text'
  has_escaped_line_ends: bool = False
  has_blank_lines: bool = False

  def dataset_arguments(self, code: str, split: str) -> dict[str, str]:
    """Returns the arguments of `datasets.load_dataset` for a language.

    Args:
      code: Language code in the notation of the corpus's publisher.
      split: Name of the split.
    """
    return {
      name: value.format(code=code)
      for name, value in self.arguments[split].items()
    }

  def find_files(
    self, directory: pathlib.Path, code: str, split: str
  ) -> list[pathlib.Path]:
    """Returns the local files of a language, sorted by name.

    Args:
      directory: Directory of the corpus.
      code: Language code in the notation of the corpus's publisher.
      split: Name of the split.

    Raises:
      CorpusError: If the directory contains no file of the language.
    """
    patterns = [pattern.format(code=code) for pattern in self.files[split]]
    for pattern in patterns:
      if paths := sorted(directory.glob(pattern)):
        return paths
    raise errors.CorpusError(
      f'The directory does not contain files of the corpus {self.name} for the '
      f'language {code}. The names of the files must match '
      f'{" or ".join(patterns)}',
      where=str(directory),
      fix='Download the files to this directory. To stream the text instead, '
      f'unset {DIRECTORY_VARIABLE}.',
    )

  def read_documents(
    self, records: Iterable[tuple[int, record_reader.Record]], where: str
  ) -> Iterator[tuple[str]]:
    """Yields each document as a row with a single column, the text.

    Args:
      records: Pairs of a record's number and the record, which has the column
        `text_field`.
      where: Location of the records to report in error messages.

    Raises:
      BadRecordError: If a record has no text.
    """
    lines: list[str] = []
    for number, record in records:
      text = record_reader.get_field(record, self.text_field)
      if not isinstance(text, str):
        raise errors.BadRecordError(
          'A record must have a column that contains the text of the document as '
          'a string',
          got=', '.join(map(str, record)),
          expected=self.text_field,
          where=errors.line_location(where, number),
        )
      if not self.has_blank_lines:
        if self.has_escaped_line_ends:
          text = text.replace('\\n', '\n')
        yield (text,)
      elif text.strip():
        lines.append(text)
      elif lines:
        yield ('\n'.join(lines),)
        lines = []
    if lines:
      yield ('\n'.join(lines),)


def _hub_subset(path: str, *splits: str) -> dict[str, dict[str, str]]:
  """Returns arguments for a Hub dataset with one configuration per language."""
  return {
    split: {'path': path, 'name': '{code}', 'split': split} for split in splits
  }


CORPORA = {
  corpus.name: corpus
  for corpus in (
    WebCorpus(
      name='fineweb2',
      arguments=_hub_subset('HuggingFaceFW/fineweb-2', 'train', 'test'),
      files={
        split: (f'data/{{code}}/{split}/*.parquet',)
        for split in ('train', 'test')
      },
    ),
    WebCorpus(
      name='hplt2',
      arguments=_hub_subset('HPLT/HPLT2.0_cleaned', 'train'),
      files={'train': ('{code}/*.parquet', '{code}/*.jsonl.zst')},
    ),
    WebCorpus(
      name='hplt3',
      arguments=_hub_subset('HPLT/HPLT3.0', 'train'),
      files={'train': ('{code}/*.jsonl.zst', '{code}/*.parquet')},
    ),
    WebCorpus(
      name='madlad400',
      # The Hub dataset has a loading script, which `datasets` does not run.
      arguments={
        split: {
          'path': 'json',
          'data_files': 'hf://datasets/allenai/MADLAD-400/data/{code}/'
          f'{{code}}_{subset}_*.jsonl.gz',
          'split': 'train',
        }
        for split, subset in (('train', 'clean'), ('noisy', 'noisy'))
      },
      files={
        split: (f'data/{{code}}/{{code}}_{subset}_*.jsonl.gz',)
        for split, subset in (('train', 'clean'), ('noisy', 'noisy'))
      },
      has_escaped_line_ends=True,
    ),
    WebCorpus(
      name='glotcc',
      arguments=_hub_subset('cis-lmu/GlotCC-V1', 'train'),
      files={'train': ('v1.0/{code}/*.parquet',)},
      text_field='content',
    ),
    WebCorpus(
      name='cc100',
      arguments={
        'train': {
          'path': 'text',
          'data_files': 'https://data.statmt.org/cc-100/{code}.txt.xz',
          'split': 'train',
        }
      },
      files={'train': ('{code}.txt.xz', '{code}.txt', '{code}.txt.zst')},
      has_blank_lines=True,
    ),
  )
}


@functools.cache
def list_languages(corpus: str) -> dict[str, str]:
  """Returns a map from xlflax language code to the corpus publisher's code.

  For example, `list_languages('fineweb2')['sw']` is `swh_Latn`. If two subsets
  have the same xlflax code, the code of the subset with more documents is
  shortened, and the other code keeps the publisher's spelling.

  Args:
    corpus: Name of the corpus.
  """
  rows = [row for row in _read_table() if row['corpus'] == corpus]
  rows.sort(key=lambda row: -int(row['documents'] or 0))
  languages: dict[str, str] = {}
  for row in rows:
    code = language_code(row['code'])
    if code in languages:
      code = row['code'].replace('-', '_')
    languages[code] = row['code']
  return dict(sorted(languages.items()))


def language_code(code: str) -> str:
  """Converts a corpus publisher's language code to the code used in task names.

  The result is the shortest code of the language. A script or a region is
  included only if it is not the usual one: `swh_Latn` becomes `sw`, `rus-Latn`
  becomes `ru_Latn`, and `zh-Hant` becomes `zh_Hant`.

  Args:
    code: Language code of the publisher, such as `swh_Latn`, `swh-Latn`, `sw`
      or `hi_rom`.
  """
  return language_codes.normalize_code(code)


@functools.cache
def _read_table() -> list[dict[str, str]]:
  table = importlib.resources.files('xlflax.tasks') / TABLE
  return list(csv.DictReader(table.read_text(encoding='utf-8').splitlines()))


@functools.cache
def _published_counts() -> dict[tuple[str, str], int]:
  """Returns the published numbers of training documents in all web corpora."""
  return {
    (row['corpus'], row['code']): int(row['documents'])
    for row in _read_table()
    if row['documents']
  }


def _document_rows(
  corpus: WebCorpus, code: str, data_dir: str | None
) -> text_source.TextRows:
  """Returns the documents of a language as rows of text.

  Args:
    corpus: Web corpus.
    code: Language code in the notation of the corpus's publisher.
    data_dir: Directory that contains the directory of the corpus. If None, the
      environment variable XLFLAX_WEB_CORPORA_DIR specifies it when the rows are
      read.
  """

  def files(split: str) -> list[pathlib.Path] | None:
    directory = data_dir or os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
      return None
    return corpus.find_files(pathlib.Path(directory) / corpus.name, code, split)

  def read(split: str) -> Iterator[tuple[str]]:
    paths = files(split)
    if paths is None:
      where = f'{corpus.name}, language {code}'
      records = record_reader.stream_dataset(
        corpus.dataset_arguments(code, split),
        where=where,
        fix=f'Run the command again. Without network access, download the '
        f'corpus and set {DIRECTORY_VARIABLE}.',
      )
      yield from corpus.read_documents(enumerate(records, start=1), where)
    else:
      for path in paths:
        yield from corpus.read_documents(_read_file(path), str(path))

  def fingerprint(split: str) -> text_source.Fingerprints:
    return tuple(map(corpus_files.fingerprint_file, files(split) or ()))

  @functools.cache
  def count_local(split: str, fingerprints) -> int:
    del fingerprints  # Part of the cache key, so that changes are noticed.
    return sum(1 for _ in read(split))

  def count(split: str) -> int:
    if files(split) is not None:
      return count_local(split, fingerprint(split))
    number = _published_counts().get((corpus.name, code))
    if split != task_registry.TRAIN or number is None:
      raise errors.CorpusError(
        'The number of documents of the streamed corpus '
        f'{corpus.name} is not published for language {code} and split {split}',
        fix='Set fixed rates in the mixture, or download the corpus and set '
        f'{DIRECTORY_VARIABLE}.',
      )
    return number

  return text_source.TextRows(
    read=read,
    columns=(text_source.TEXT,),
    splits=tuple(corpus.files),
    count=count,
    fingerprint=fingerprint,
  )


def _read_file(
  path: pathlib.Path,
) -> Iterator[tuple[int, record_reader.Record]]:
  """Yields a file's records, or its lines as records, with their numbers."""
  if record_formats.is_records(path):
    yield from line_reader.read_records(path)
    return
  for number, line in line_reader.read_lines(path):
    yield number, {'text': line_reader.decode_line(line, path, number)}


def register(
  corpus: str, *, prefix: str | None = None, data_dir: str | None = None
) -> None:
  """Registers the tasks and the mixture of a web corpus.

  Args:
    corpus: Name of the corpus, such as `fineweb2`.
    prefix: Prefix of the names of the registered tasks and mixture. If None,
      the name of the corpus is used.
    data_dir: Directory that contains the directory of the corpus. If None, the
      environment variable XLFLAX_WEB_CORPORA_DIR specifies it when a task is
      read.
  """
  prefix = prefix or corpus
  names = []
  for language, code in list_languages(corpus).items():
    names.append(f'{prefix}.{language}')
    rows = _document_rows(CORPORA[corpus], code, data_dir)
    task_registry.add_monolingual_task(
      names[-1],
      data_sources.create_text_source(rows),
      language=language,
      preprocessors=(preprocessors.split_lines,),
    )
  task_registry.add_mixture(prefix, names)


for _name in CORPORA:
  register(_name)
