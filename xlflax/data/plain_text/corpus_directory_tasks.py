"""The tasks of a corpus directory, read without SeqIO and TensorFlow.

They have the names, examples and fingerprints that SeqIO knows them by:
`xlflax.data.seqio_tasks.corpus_tasks` registers these very tasks.
"""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from xlflax.data import tokenized_examples
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.plain_text import code_switched_rows, text_tasks
from xlflax.data.plain_text import text_source as text_rows

ALPHA = 0.7  # of a corpus's mixtures
# Steps of the tasks, as fingerprints name them.
_SOURCE, _TOKENIZE = 'TextSource', 'tokenize'
_STEPS = {1: ['mark_documents', 'name_monolingual'], 2: ['name_parallel']}


@dataclasses.dataclass(frozen=True)
class TextTask:
  """A task over the text of a corpus directory.

  Attributes:
    name: of the task.
    languages: of its sides.
    source: its text.
    switch: the step that code-switches it, if there is one.
  """

  name: str
  languages: tuple[str, ...]
  source: text_rows.TextRows
  switch: code_switched_rows.SwitchedRows | None = None

  @property
  def rows(self) -> text_rows.TextRows:
    """The text, as often as it is switched."""
    if self.switch is None:
      return self.source
    return self.source.repeated(self.switch.settings.copies)

  @property
  def steps(self) -> list[str | list]:
    """Names of the steps, with fingerprints of those that have one."""
    switch = [] if self.switch is None else [self.switch]
    return [
      *_STEPS[len(self.languages)],
      *([step.__name__, step.fingerprint()] for step in switch),
      _TOKENIZE,
    ]


def list_tasks(
  corpus: Corpus,
  *,
  prefix: str = 'corpus',
  code_switching: CodeSwitching = CodeSwitching(),  # noqa: B008
) -> dict[str, list[TextTask]]:
  """The tasks of each mixture of a corpus directory.

  `<prefix>.mono.<language>`, `<prefix>.parallel.<l1>_<l2>`, and
  `<prefix>.code_switched.<language>` for languages that a dictionary is of,
  in the mixtures `<prefix>.mono`, `.parallel` and `.code_switched`.
  """
  return {
    f'{prefix}.mono': [
      TextTask(
        f'{prefix}.mono.{language}',
        (language,),
        text_rows.monolingual_rows(corpus, language),
      )
      for language in corpus.languages
      if corpus.splits(language)
    ],
    f'{prefix}.parallel': [
      TextTask(
        f'{prefix}.parallel.{"_".join(pair)}',
        pair,
        text_rows.parallel_rows(corpus, pair),
      )
      for pair in corpus.pairs
    ],
    f'{prefix}.code_switched': [
      _code_switched(corpus, language, prefix, code_switching)
      for language in sorted(
        code_switching.sources(file.languages for file in corpus.dictionaries)
      )
      if corpus.splits(language)
    ],
  }


def _code_switched(corpus, language, prefix, settings) -> TextTask:
  name = f'{prefix}.code_switched.{language}'
  paths = [
    file.path for file in corpus.dictionaries if language in file.languages
  ]
  return TextTask(
    name,
    (language,),
    text_rows.monolingual_rows(corpus, language),
    code_switched_rows.SwitchedRows(name, language, paths, settings),
  )


def mixture_members(tasks: Sequence[TextTask]) -> list[TextTask]:
  """Those of a mixture: the ones with training text; all, where none has."""
  return [t for t in tasks if TRAIN in t.source.splits] or list(tasks)


class CorpusTasks:
  """The `text_tasks.Tasks` of a corpus directory."""

  def __init__(self, directory: str | os.PathLike):
    """Lists them.

    Args:
      directory: of the corpus.

    Raises:
      CorpusError: it is no corpus directory.
    """
    tasks_by_mixture = list_tasks(Corpus(directory))
    self._mixtures = {
      name: mixture_members(ts) for name, ts in tasks_by_mixture.items() if ts
    }
    self._tasks = {
      t.name: t for tasks in tasks_by_mixture.values() for t in tasks
    }

  def __contains__(self, name: str) -> bool:
    """Whether a task or mixture has this name."""
    return name in self._tasks or name in self._mixtures

  def names(self, mixture: str, *, split: str) -> list[str]:
    """See `text_tasks.Tasks`."""
    if mixture not in self:
      registered = [*self._tasks, *self._mixtures]
      raise text_tasks.unknown_task_error(
        mixture, 'task or mixture', registered
      )
    tasks = self._mixtures.get(mixture) or [self._tasks[mixture]]
    names = sorted(task.name for task in tasks if split in task.source.splits)
    if not names:
      raise text_tasks.no_text(mixture, split)
    return names

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """See `text_tasks.Tasks`."""
    names = self.names(mixture, split=split)
    if mixture not in self._mixtures:
      return dict.fromkeys(names, 1.0)
    return {name: self._rate(name, sizes) for name in names}

  def languages(self, task: str) -> tuple[str, ...]:
    """See `text_tasks.Tasks`."""
    return self._get(task).languages

  def fingerprint(self, task: str, split: str) -> dict:
    """See `text_tasks.Tasks`."""
    text_task = self._get(task, split)
    return {
      'source': _SOURCE,
      'files': [
        list(dataclasses.astuple(file))
        for file in text_task.source.fingerprint(split)
      ],
      'preprocessors': text_task.steps,
    }

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """See `text_tasks.Tasks`."""
    text_task = self._get(task, split)
    if text_task.switch is not None or text_task.source.files is None:
      return None
    return text_task.source.files(split)

  def source_size(self, task: str, split: str) -> int:
    """See `text_tasks.Tasks`."""
    return self._get(task, split).rows.count(split)

  def read(
    self,
    task: str,
    vocabulary,
    *,
    split: str,
    start: int = 0,
    size: int = 1024,
    num_threads: int = 1,
    piece: text_tasks.FilePiece | None = None,
  ) -> Iterator[tokenized_examples.Examples]:
    """See `text_tasks.Tasks`."""
    text_task = self._get(task, split)
    languages = dict(
      zip(
        tokenized_examples.SIDES[len(text_task.languages)],
        text_task.languages,
        strict=True,
      )
    )
    for texts in text_blocks(
      text_task.rows,
      text_task.switch,
      split=split,
      start=start,
      size=size,
      piece=piece,
    ):
      yield _examples(texts, languages, vocabulary, num_threads)

  def _get(self, name: str, split: str | None = None) -> TextTask:
    if name not in self._tasks:
      raise text_tasks.unknown_task_error(name, 'task', list(self._tasks))
    text_task = self._tasks[name]
    if split is not None and split not in text_task.source.splits:
      raise text_tasks.lacks_split(name, split, text_task.source.splits)
    return text_task

  def _rate(self, name: str, sizes: Mapping[tuple[str, str], int]) -> float:
    splits = self._tasks[name].source.splits
    split = TRAIN if TRAIN in splits else splits[0]
    size = sizes.get((name, split))
    return float(size or self.source_size(name, split)) ** ALPHA


def text_blocks(
  rows: text_rows.TextRows,
  switch: code_switched_rows.SwitchedRows | None,
  *,
  split: str,
  start: int,
  size: int,
  piece: text_tasks.FilePiece | None = None,
) -> Iterator[dict[str, list]]:
  """Blocks of columns of rows: texts and, of one language, `starts_document`.

  Args:
    rows: of a task.
    switch: code-switches them, if it is there.
    split: of the rows.
    start: rows passed over.
    size: rows in a block; the last may be shorter.
    piece: only the rows of this, where rows are those of files.
  """
  if piece and rows.read_file:
    row_iterator = iter(rows.read_file(*piece))
  else:
    row_iterator = iter(rows.read(split))
  row_iterator = (
    switch.rows(row_iterator, rows.names, start)
    if switch
    else itertools.islice(row_iterator, start, None)
  )
  return text_rows.iterate_blocks(row_iterator, rows.names, size)


def _examples(
  texts: dict[str, list],
  languages: Mapping[str, str],
  vocabulary,
  num_threads: int,
) -> tokenized_examples.Examples:
  sides = tuple(
    tokenized_examples.Ragged(ids, lengths.astype(np.int64))
    for ids, lengths in (
      vocabulary.encode_ragged(
        texts[side], language=language, num_threads=num_threads
      )
      for side, language in languages.items()
    )
  )
  starts = texts.get(text_rows.STARTS)
  if starts is None:
    return tokenized_examples.Examples(
      sides, np.ones(sides[0].lengths.size, bool)
    )
  return tokenized_examples.Examples(sides, np.asarray(starts, np.bool_))
