"""Errors about tasks, usable by modules that do not import JAX."""

from xlflax.utils import errors


def no_text_error(task: str, split: str) -> errors.CorpusError:
  """Returns the error for a task that provides no examples with text."""
  return errors.CorpusError(
    f'The task {task} provides no examples with text in the split {split!r}',
    where=f'task {task}',
    fix='Check whether its files contain text, and whether its preprocessors '
    f'drop all examples. Run `xlflax tasks show {task}` to print examples after '
    'each preprocessor.',
  )
