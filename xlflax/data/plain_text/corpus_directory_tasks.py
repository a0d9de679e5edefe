"""Tasks for a corpus directory, which are read without SeqIO or TensorFlow.

The names, examples and fingerprints of the tasks equal those of the SeqIO tasks
that `xlflax.data.seqio_tasks.corpus_tasks` registers.
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
from xlflax.data.plain_text import code_switched_rows, text_source, text_tasks

ALPHA = 0.7  # Sampling exponent of the mixtures of a corpus.
# Names of the source and the preprocessing steps in fingerprints. The keys are
# numbers of languages.
_SOURCE, _TOKENIZE = 'TextSource', 'tokenize'
_STEPS = {1: ['mark_documents', 'name_monolingual'], 2: ['name_parallel']}


@dataclasses.dataclass(frozen=True)
class TextTask:
  """Task that reads text from a corpus directory.

  Attributes:
    name: Name of the task.
    languages: Language codes of the task's source and target texts.
    source: Source that provides the text of the task.
    switch: Code-switching step. None if the text is not code-switched.
  """

  name: str
  languages: tuple[str, ...]
  source: text_source.TextRows
  switch: code_switched_rows.SwitchedRows | None = None

  @property
  def rows(self) -> text_source.TextRows:
    """Source that repeats the task's rows for each code-switched copy."""
    if self.switch is None:
      return self.source
    return self.source.repeated(self.switch.settings.num_copies)

  @property
  def steps(self) -> list[str | list]:
    """Names of the preprocessing steps, and a fingerprint of code-switching."""
    steps: list[str | list] = [*_STEPS[len(self.languages)]]
    if self.switch is not None:
      steps.append([self.switch.__name__, self.switch.fingerprint()])
    return [*steps, _TOKENIZE]


def list_tasks(
  corpus: Corpus,
  *,
  prefix: str = 'corpus',
  code_switching: CodeSwitching = CodeSwitching(),  # noqa: B008
) -> dict[str, list[TextTask]]:
  """Returns the tasks for a corpus directory, by mixture name.

  The tasks are `<prefix>.mono.<language>`, `<prefix>.parallel.<l1>_<l2>`, and,
  for languages with a dictionary, `<prefix>.code_switched.<language>`. The
  mixtures are `<prefix>.mono`, `<prefix>.parallel` and
  `<prefix>.code_switched`.

  Args:
    corpus: Corpus directory.
    prefix: Prefix of the task and mixture names.
    code_switching: Settings for code-switching.
  """
  return {
    f'{prefix}.mono': [
      TextTask(
        f'{prefix}.mono.{language}',
        (language,),
        text_source.monolingual_rows(corpus, language),
      )
      for language in corpus.languages
      if corpus.splits(language)
    ],
    f'{prefix}.parallel': [
      TextTask(
        f'{prefix}.parallel.{"_".join(pair)}',
        pair,
        text_source.parallel_rows(corpus, pair),
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
    text_source.monolingual_rows(corpus, language),
    code_switched_rows.SwitchedRows(name, language, paths, settings),
  )


def mixture_members(tasks: Sequence[TextTask]) -> list[TextTask]:
  """Returns the tasks that belong to the mixture of a corpus directory.

  The mixture contains all tasks that have training text, or all tasks if none
  of them has training text.
  """
  return [task for task in tasks if TRAIN in task.source.splits] or list(tasks)


class CorpusTasks:
  """Implementation of `text_tasks.Tasks` that reads a corpus directory."""

  def __init__(self, directory: str | os.PathLike):
    """Lists the tasks of a corpus directory.

    Args:
      directory: Path of the corpus directory.

    Raises:
      CorpusError: If the path is not a valid corpus directory.
    """
    tasks_by_mixture = list_tasks(Corpus(directory))
    self._mixtures = {
      name: mixture_members(tasks)
      for name, tasks in tasks_by_mixture.items()
      if tasks
    }
    self._tasks = {
      task.name: task for tasks in tasks_by_mixture.values() for task in tasks
    }

  def __contains__(self, name: str) -> bool:
    """Returns True if a task or mixture has this name."""
    return name in self._tasks or name in self._mixtures

  def names(self, mixture: str, *, split: str) -> list[str]:
    """Returns the tasks that have a split; see `text_tasks.Tasks.names`."""
    if mixture not in self:
      registered = [*self._tasks, *self._mixtures]
      raise text_tasks.unknown_task_error(
        mixture, 'task or mixture', registered
      )
    tasks = self._mixtures.get(mixture) or [self._tasks[mixture]]
    names = sorted(task.name for task in tasks if split in task.source.splits)
    if not names:
      raise text_tasks.no_text_error(
        mixture, split, (task.source.splits for task in tasks)
      )
    return names

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """Returns the mixing rate of each task; see `text_tasks.Tasks.rates`."""
    names = self.names(mixture, split=split)
    if mixture not in self._mixtures:
      return dict.fromkeys(names, 1.0)
    return {name: self._mixing_rate(name, sizes) for name in names}

  def languages(self, task: str) -> tuple[str, ...]:
    """Returns a task's languages; see `text_tasks.Tasks.languages`."""
    return self._get_task(task).languages

  def fingerprint(self, task: str, split: str) -> dict:
    """Returns a task's fingerprint; see `text_tasks.Tasks.fingerprint`."""
    text_task = self._get_task(task, split)
    return {
      'source': _SOURCE,
      'files': [
        list(dataclasses.astuple(file))
        for file in text_task.source.fingerprint(split)
      ],
      'preprocessors': text_task.steps,
    }

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """Returns the files of a task; see `text_tasks.Tasks.files`."""
    text_task = self._get_task(task, split)
    if text_task.switch is not None or text_task.source.files is None:
      return None
    return text_task.source.files(split)

  def count_source(self, task: str, split: str) -> None:
    """Returns None, because the result of `source_size` is exact."""
    del task, split

  def source_size(self, task: str, split: str) -> int:
    """Returns the source's size; see `text_tasks.Tasks.source_size`."""
    return self._get_task(task, split).rows.count(split)

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
    """Yields a task's tokenized examples; see `text_tasks.Tasks.read`."""
    text_task = self._get_task(task, split)
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

  def _get_task(self, name: str, split: str | None = None) -> TextTask:
    if name not in self._tasks:
      raise text_tasks.unknown_task_error(name, 'task', list(self._tasks))
    text_task = self._tasks[name]
    if split is not None and split not in text_task.source.splits:
      raise text_tasks.missing_split_error(name, split, text_task.source.splits)
    return text_task

  def _mixing_rate(
    self, name: str, sizes: Mapping[tuple[str, str], int]
  ) -> float:
    splits = self._tasks[name].source.splits
    split = TRAIN if TRAIN in splits else splits[0]
    size = sizes.get((name, split))
    return float(size or self.source_size(name, split)) ** ALPHA


def text_blocks(
  rows: text_source.TextRows,
  switch: code_switched_rows.SwitchedRows | None,
  *,
  split: str,
  start: int,
  size: int,
  piece: text_tasks.FilePiece | None = None,
) -> Iterator[dict[str, list]]:
  """Yields blocks of a task's rows as dicts from column names to values.

  Monolingual text also has the column `starts_document`.

  Args:
    rows: Source of the task's rows.
    switch: Code-switching step. If None, the text is not switched.
    split: Name of the split, such as 'train'.
    start: Number of rows to skip.
    size: Number of rows in each block. The last block may be shorter.
    piece: File or range of a file to read. If None, all rows are read. The
      argument is ignored if the rows do not correspond to lines of files.
  """
  if piece and rows.read_file:
    row_iterator = iter(rows.read_file(*piece))
  else:
    row_iterator = iter(rows.read(split))
  if switch:
    row_iterator = switch.rows(row_iterator, rows.names, start)
  else:
    row_iterator = itertools.islice(row_iterator, start, None)
  return text_source.iterate_blocks(row_iterator, rows.names, size)


def _examples(
  texts: dict[str, list],
  languages: Mapping[str, str],
  vocabulary,
  num_threads: int,
) -> tokenized_examples.Examples:
  """Tokenizes the texts of a block of rows."""
  sides = tuple(
    tokenized_examples.Ragged(ids, lengths.astype(np.int64))
    for ids, lengths in (
      vocabulary.encode_ragged(
        texts[side], language=language, num_threads=num_threads
      )
      for side, language in languages.items()
    )
  )
  starts_document = texts.get(text_source.STARTS)
  if starts_document is None:
    return tokenized_examples.Examples(
      sides, np.ones(sides[0].lengths.size, bool)
    )
  return tokenized_examples.Examples(
    sides, np.asarray(starts_document, np.bool_)
  )
