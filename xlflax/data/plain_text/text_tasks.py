"""What a token cache asks of tasks.

`corpus_directory_tasks.CorpusTasks` answers for a corpus directory, and
`xlflax.data.seqio_tasks.cache_adapter`, which imports TensorFlow, for whatever
SeqIO knows.
"""

import difflib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from xlflax.data import tokenized_examples
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.utils import errors


class FilePiece(NamedTuple):
  """A file of a task, or a part of one.

  Attributes:
    path: of the file.
    span: of its bytes; None: all.
  """

  path: pathlib.Path
  span: corpus_lines.Span | None


class Tasks(Protocol):
  """Tasks and mixtures by name; all methods raise CorpusError for unknown ones.

  A task has the splits that a mixture is asked for; `split` names one.
  """

  def names(self, mixture: str, *, split: str) -> list[str]:
    """The tasks of a task or (nested) mixture that have the split, sorted."""

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """Mixing rates by task, not normalised; `sizes`: known source sizes."""

  def languages(self, task: str) -> tuple[str, ...]:
    """Of the task's sides."""

  def fingerprint(self, task: str, split: str) -> dict:
    """What identifies a task's text, as JSON data: source, files, steps."""

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """Files whose lines are the examples; None where that is not so."""

  def source_size(self, task: str, split: str) -> int | None:
    """Examples of a task's source; None where it does not tell."""

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
    """Tokenised examples in the source's order.

    Args:
      task: its name.
      vocabulary: a `base_vocabulary.Vocabulary`.
      split: of the task.
      start: examples passed over, before any is encoded.
      size: examples at once; the last ones may be fewer.
      num_threads: threads that tokenise.
      piece: only the examples of this, of a task that has `files`.
    """


# Opens the same tasks in every process; can be pickled.
Open = Callable[[], Tasks]


def unknown_task_error(
  name: str, kind: str, known: list[str]
) -> errors.CorpusError:
  """The error for a name that no task or mixture has."""
  fix = (
    '`xlflax tasks list` shows them; corpus tasks need --corpus, your own '
    '--task_module'
  )
  if '.code_switched' in name:
    fix += '; code-switched ones need dictionaries/<l1>-<l2>.tsv in the corpus'
  near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
  return errors.CorpusError(
    f'No {kind} of this name is registered',
    got=name,
    expected=', '.join(near) or None,
    fix=fix,
  )


def no_text(name: str, split: str | None) -> errors.CorpusError:
  """The error for a mixture of which no task has a split."""
  return errors.CorpusError(
    f'No text in the {split} split', where=f'task or mixture {name}'
  )


def lacks_split(
  name: str, split: str, splits: Sequence[str]
) -> errors.CorpusError:
  """The error for a task without a split."""
  return errors.CorpusError(
    'The task lacks a split',
    got=split,
    expected=', '.join(splits),
    where=f'task {name}',
  )
