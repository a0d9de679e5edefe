"""SeqIO data sources for plain text files; imports TensorFlow.

The sources pass blocks of lines from the readers of `corpus_directory` to
`tf.data`. All loaders therefore treat blank lines, encodings and errors in the
same way.
"""

import collections
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import seqio
import tensorflow as tf

from xlflax.data import task_errors
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.plain_text import text_source
from xlflax.utils import errors, user_modules, validation

# Seed of the random preprocessors of SeqIO (`map_over_dataset(num_seeds=1)`).
# It is constant, so that the examples of a task are the same in each read.
PREPROCESSING_SEED = 0
_BLOCK_SIZE = 1024
# Errors of TensorFlow that the files or the preprocessors of a task cause.
_INVALID_TEXT = (
  tf.errors.NotFoundError,
  tf.errors.InvalidArgumentError,
  tf.errors.DataLossError,
  tf.errors.PermissionDeniedError,
)
# Messages of SeqIO for examples that lack an output feature of their task, or
# in which its type or rank is different.
_INVALID_FEATURE = re.compile(
  'Task dataset (is missing expected output feature|has incorrect)'
)
# Messages for a tensor that a preprocessor uses as a dictionary.
_NO_DICTIONARY = re.compile(
  r'Only integers, slices|not a mapping|'
  "has no attribute '(items|keys|values|get|copy|update|pop)'"
)
# Lines of the user's modules that register tasks, by task.
_definitions: dict[str, str] = {}
# Errors of sources, which TensorFlow does not pass on.
_source_errors: collections.deque = collections.deque(maxlen=16)


class TextSource(seqio.FunctionDataSource):
  """SeqIO data source that reads rows of text in order.

  Attributes:
    text: Source of the rows. Its rows can also be read without tf.data.
    types: Data type of each column, by column name.
  """

  def __init__(
    self, text: text_source.TextRows, *, types: Mapping[str, tf.DType]
  ):
    """Creates a source.

    Args:
      text: Rows of text. Errors that occur while the rows are read are raised
        by `numpy_examples`.
      types: Data type of each column, by column name.
    """
    self.text, self.types = text, dict(types)
    super().__init__(self._make_dataset, splits=tuple(text.splits))

  def num_input_examples(self, split: str) -> int:
    """Returns the number of sentences or pairs in a split."""
    return self.text.count(split)

  def _make_dataset(
    self, split: str, shuffle_files: bool, seed: int | None = None
  ) -> tf.data.Dataset:
    del shuffle_files, seed  # The rows are always read in order.
    dataset = tf.data.Dataset.from_generator(
      lambda: text_source.iterate_blocks(
        record_errors(self.text.read(split)), list(self.types), _BLOCK_SIZE
      ),
      output_signature={
        name: tf.TensorSpec([None], dtype) for name, dtype in self.types.items()
      },
    )
    return dataset.unbatch()


def create_text_source(text: text_source.TextRows) -> TextSource:
  """Returns a SeqIO data source that yields the rows of `text`."""
  return TextSource(
    text,
    types={
      name: tf.bool if name == text_source.STARTS else tf.string
      for name in text.columns
    },
  )


@validation.validate_call
def monolingual_source(corpus: Corpus, language: str) -> TextSource:
  """Returns a data source for the lines in one language.

  The source has the columns `text` and `starts_document`.
  """
  return create_text_source(text_source.monolingual_rows(corpus, language))


def load_dataset(task: seqio.Task, split: str) -> tf.data.Dataset:
  """Returns the examples of a task in the order of its source.

  In contrast to `Task.get_dataset(shuffle=False)`, random preprocessors that
  use the seeds of SeqIO give the same examples in each call. The seed is not
  passed to the source, because the function of a `FunctionDataSource` that does
  not shuffle needs no argument `seed`.

  Args:
    task: Task to read. It is not read from a cache of SeqIO.
    split: Name of the split, such as 'train'.

  Raises:
    ValueError: If the task can only be read from a cache of SeqIO, or if its
      preprocessors provide invalid features.
  """
  if task.requires_caching:
    raise ValueError(f'The task {task.name} requires a cache of SeqIO')
  dataset = task.source.get_dataset(split=split, shuffle=False)
  dataset = task.preprocess_precache(dataset, seed=PREPROCESSING_SEED)
  dataset = task.preprocess_postcache(
    dataset, sequence_length=None, seed=PREPROCESSING_SEED
  )
  return task._validate_preprocessing(dataset)


def numpy_examples(dataset: tf.data.Dataset) -> Iterator:
  """Yields the examples of a dataset as NumPy arrays.

  TensorFlow wraps errors that a source raises. This function raises the
  original error, such as the CorpusError for a malformed line with its file and
  line number.
  """
  iterator = dataset.as_numpy_iterator()
  while True:
    try:
      yield next(iterator)
    except StopIteration:
      return
    except tf.errors.OpError as error:
      raise original_error(error) from None


@contextlib.contextmanager
def converting_task_errors(
  name: str, *, is_shown: bool = False
) -> Iterator[None]:
  """Context manager that converts errors in a task to CorpusError.

  The name of the task becomes the location of an error without a location.

  Args:
    name: Name of the task that is read.
    is_shown: Whether the command has printed the examples of the steps before
      the error. If False, the hints of errors recommend this command.

  Raises:
    CorpusError: If a file is missing, if TensorFlow cannot process an example,
      if the examples do not have the output features of the task, or if a
      function of the user or a preprocessor of a library raises an exception.
      In the last two cases, the error contains the line of the user's code, or
      the line that registers the task.
  """
  try:
    yield
  except errors.XlflaxError as error:
    error.where = error.where or f'task {name}'
    raise
  except _INVALID_TEXT as error:
    message = re.sub(r'\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*', '', str(error))
    raise errors.CorpusError(
      f'The text of the task {name!r} cannot be read',
      got=' '.join(message.split()),
      fix='Check the files of the task, and the step that was printed last.'
      if is_shown
      else 'Check the files and the preprocessors of the task. '
      + task_errors.suggest_show(name),
    ) from error
  except Exception as error:
    if isinstance(error, ValueError) and _INVALID_FEATURE.match(str(error)):
      raise errors.CorpusError(
        'The preprocessors of a task must return examples with the output '
        'features of the task',
        got=str(error).removeprefix('Task dataset '),
        where=f'task {name}',
        fix='Correct the preprocessors, or the argument `output_features` of '
        'the task.'
        + ('' if is_shown else f' {task_errors.suggest_show(name)}'),
      ) from error
    line = user_modules.find_user_line(error)
    step, spec = _find_failing_step(name, error)
    if line is None and step is None:
      raise
    # TensorFlow's message ends in that of the original exception.
    *_, message = ['', *str(error).strip().splitlines()]
    name_of_type = f'{type(error).__name__}: '
    raise errors.CorpusError(
      f'The code of the task {name!r} raised an exception'
      + (f' in the preprocessor {step}' if step else ''),
      got=name_of_type + message.strip().removeprefix(name_of_type),
      where=line or _definitions.get(name, f'task {name}'),
      fix=f'The examples before {step} are tensors, such as lines of text, and '
      f'not dictionaries. Add a preprocessor before {step} that returns '
      "dictionaries, such as `lambda dataset: dataset.map(lambda line: {'text': "
      'line})`.'
      if isinstance(spec, tf.TensorSpec) and _NO_DICTIONARY.search(message)
      else None,
    ) from error


def record_definition(name: str) -> None:
  """Records the line of the user's module that registers a task, if any.

  Args:
    name: Name of the task that is being registered.
  """
  if line := user_modules.find_direct_caller():
    _definitions[name] = line
  else:
    _definitions.pop(name, None)


def find_definition(name: str) -> str | None:
  """Returns the line of the user's module that registers a task, if any."""
  return _definitions.get(name)


def step_name(step: Callable) -> str:
  """Returns the name of a preprocessor, for messages."""
  step = getattr(step, 'func', step)  # Unwraps a functools.partial.
  return getattr(step, '__name__', type(step).__name__)


def _find_failing_step(name: str, error: Exception) -> tuple[str | None, Any]:
  """Finds the preprocessor of a task that raises an exception.

  The preprocessors are called again, without reading examples.

  Args:
    name: Name of the task.
    error: Exception that the task raised.

  Returns:
    The name of the preprocessor, and the specification of the examples before
    it. Both are None if no preprocessor raises an exception of the same class,
    or if the preprocessor is a function of xlflax.
  """
  try:
    task = seqio.TaskRegistry.get(name)
    dataset = task.source.get_dataset(task.splits[0], shuffle=False)
  except Exception:  # The error is not an error of a preprocessor.
    return None, None
  for step in task.preprocessors:
    try:
      dataset = seqio.utils.add_kwargs_to_transform(
        step, sequence_length=None, output_features=task.output_features
      )(dataset)
    except Exception as step_error:
      function = getattr(step, 'func', step)
      module = getattr(function, '__module__', None) or ''
      if type(step_error) is type(error) and not user_modules.is_xlflax(module):
        return step_name(step), dataset.element_spec
      break
  return None, None


def original_error(error: tf.errors.OpError) -> Exception:
  """Returns the XlflaxError behind a TensorFlow error, or the error itself."""
  message = str(error)
  for source_error in reversed(_source_errors):
    if str(source_error) in message:
      return source_error
  return error


def record_errors(rows: Iterable) -> Iterator:
  """Yields rows, and records an XlflaxError that is raised while reading a row.

  TensorFlow replaces the exception by its own. `original_error` returns the
  recorded exception.
  """
  try:
    yield from rows
  except errors.XlflaxError as error:
    _source_errors.append(error)
    raise
