"""Interface that token caches use to read tasks.

`corpus_directory_tasks.CorpusTasks` implements the interface for a corpus
directory. `xlflax.data.seqio_tasks.cache_adapter`, which imports TensorFlow,
implements it for all SeqIO tasks.
"""

import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from xlflax.data import task_names, tokenized_examples
from xlflax.data.corpus import line_reader
from xlflax.utils import errors, name_suggestions, user_modules


class FilePiece(NamedTuple):
  """File of a task, or a range of bytes in the file.

  Attributes:
    path: Path of the file.
    span: Range of bytes in the file. If None, the piece is the entire file.
  """

  path: pathlib.Path
  span: line_reader.Span | None


class Tasks(Protocol):
  """Interface for reading tasks and mixtures by name.

  All methods raise a CorpusError if the name is unknown, or if the task does
  not have the split.
  """

  def names(self, mixture: str, *, split: str) -> list[str]:
    """Returns the names of the tasks in a mixture that have the split.

    The tasks of nested mixtures are included.
    """

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """Returns the unnormalized mixing rate of each task in a mixture.

    Args:
      mixture: Name of a task or mixture.
      split: Name of the split.
      sizes: Known numbers of source examples, by (task, split). They are not
        counted again.
    """

  def languages(self, task: str) -> tuple[str, ...]:
    """Returns the languages of a task's source and target texts."""

  def fingerprint(self, task: str, split: str) -> dict:
    """Returns JSON data that identifies a task's text.

    The data describes the source, the files and the preprocessing steps.
    """

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """Returns the files whose lines are a task's examples.

    The result is None if the examples do not correspond to lines of files.
    """

  def source_size(self, task: str, split: str) -> int | None:
    """Returns the number of examples in the source, or None if unknown."""

  def count_source(self, task: str, split: str) -> int | None:
    """Counts the examples in the source of a task, before preprocessing.

    The source is read completely. The result is None if the number that
    `source_size` returns does not have to be checked.
    """

  def read(
    self,
    task: str,
    vocabulary,
    *,
    split: str,
    start: int = 0,
    size: int = 1024,
    num_threads: int = 1,
    piece: FilePiece | None = None,
  ) -> Iterator[tokenized_examples.Examples]:
    """Tokenizes a task's examples and yields them in the order of the source.

    Args:
      task: Name of the task.
      vocabulary: Vocabulary that tokenizes the text.
      split: Name of the split.
      start: Number of examples to skip before tokenization starts.
      size: Number of examples in each batch. The last batch may be smaller.
      num_threads: Number of threads for tokenization.
      piece: File, or range of bytes in a file, to read. This requires a task
        with `files`. If None, all examples are read.
    """


# Picklable function that opens the same tasks in every process.
Open = Callable[[], Tasks]


def describe_wrong_size(
  task: str, split: str, declared_size: int, num_examples: int
) -> str:
  """Describes a source whose declared number of examples is wrong.

  The text ends with a hint and without a period, so that the caller can append
  a second hint.

  Args:
    task: Name of the task.
    split: Name of the split, such as 'train'.
    declared_size: Number of examples that the source declares.
    num_examples: Number of examples that the source contains.
  """
  return (
    f'The source of the task {task} declares {declared_size:,} examples in the '
    f'split {split} (num_input_examples), but {num_examples:,} examples were '
    'read. The mixing rates of mixtures with this task depend on the declared '
    'number. Correct num_input_examples'
  )


def unknown_task_error(
  name: str,
  kind: str,
  registered_names: Sequence[str],
  *,
  module_tasks: Mapping[str, Sequence[str]] | None = None,
) -> errors.CorpusError:
  """Returns the error for an unknown task or mixture.

  Args:
    name: Unknown name.
    kind: Noun for the message, such as 'task'.
    registered_names: Registered names, from which the error suggests similar
      ones.
    module_tasks: Names of the tasks that the user's modules register, by the
      file of the module.
  """
  names = task_names.split_names(name)
  if len(names) > 1 and set(names) & set(registered_names):
    return errors.CorpusError(
      f'The name of one {kind} is required, and not a list of names',
      got=name,
      expected=f'one of {name_suggestions.format_names(names)}',
      fix='Repeat the option --mixture for each name if the command accepts '
      'several mixtures, as `xlflax cache` and `xlflax vocab` do: '
      + ' '.join(f'--mixture={name}' for name in names)
      + f'. Otherwise: {task_names.suggest_mixture(names)}',
    )
  if name.startswith('corpus.'):
    registered_names = [x for x in registered_names if x.startswith('corpus.')]
    # Tasks of the corpus are registered if the corpus was passed.
    fix = user_modules.CORPUS_HINT
    if registered_names:
      fix = (
        'Run `xlflax tasks list --corpus=DIR` to list the tasks of the corpus.'
      )
  else:
    fix = (
      'Run `xlflax tasks list` to list the families of tasks, and `xlflax tasks '
      "list '*'` to list all tasks. "
    )
    fix += (
      ' '.join(
        f'The module {file} registers {name_suggestions.format_names(names)}.'
        if names
        else f'The module {file} registers no tasks.'
        for file, names in (module_tasks or {}).items()
      )
      or 'Your own tasks are registered by the modules that are passed as '
      '--task_module=MODULE.'
    )
  if '.code_switched' in name:
    fix += (
      ' Code-switched tasks require dictionaries/<l1>-<l2>.tsv in the corpus.'
    )
  # The name may lack its family, such as `mono` in place of `corpus.mono`.
  matches = [x for x in registered_names if x.endswith(f'.{name}')][:3]
  if not matches:
    candidates = _names_of_similar_families(name, registered_names)
    matches = name_suggestions.close_matches(name, candidates)
  if matches:
    fix = f'Did you mean {" or ".join(matches)}? {fix}'
  return errors.CorpusError(
    f'The requested {kind} is not registered',
    got=name,
    expected=', '.join(matches) or None,
    fix=fix,
  )


def _names_of_similar_families(
  name: str, registered_names: Sequence[str]
) -> list[str]:
  """Returns the registered names that a misspelled name may stand for.

  The family of a task is the part of its name before the first period. Names of
  other families are similar only by chance, such as `mc4.ne` to `mine`.
  """
  families = {name.partition('.')[0] for name in registered_names}
  similar_families = name_suggestions.close_matches(
    name.partition('.')[0], sorted(families), cutoff=0.8
  )
  return [
    registered_name
    for registered_name in registered_names
    if registered_name.partition('.')[0] in similar_families
  ]


def no_text_error(
  name: str, split: str | None, splits_of_tasks: Iterable[Iterable[str]]
) -> errors.CorpusError:
  """Returns the error for a task or mixture that has no text in a split.

  Args:
    name: Name of the task or mixture.
    split: Requested split.
    splits_of_tasks: Names of the splits of each task.
  """
  splits = list(dict.fromkeys(itertools.chain.from_iterable(splits_of_tasks)))
  return errors.CorpusError(
    f'The task or mixture {name!r} does not have text in the requested split',
    got=split,
    expected=', '.join(splits) or None,
    fix=name_suggestions.suggest_split(split or '', splits),
  )


def missing_split_error(
  name: str, split: str, splits: Sequence[str]
) -> errors.CorpusError:
  """Returns the error for a task that does not have a split."""
  return errors.CorpusError(
    f'The task {name!r} does not have the requested split',
    got=split,
    expected=', '.join(splits),
    fix=name_suggestions.suggest_split(split, splits),
  )
