# ruff: noqa: E402
"""SeqIO's tasks as a token cache asks for them. Imports TensorFlow."""

import pathlib
from collections.abc import Mapping, Sequence

from xlflax.data.seqio_tasks import tensorflow_setup

tensorflow_setup.load_tensorflow()

from xlflax.data.seqio_tasks import seqio_examples as task_examples
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks import task_registration, task_registry


def open_tasks(
  corpus: str | None,
  task_modules: Sequence[str] = (),
  tfds_data_dir: str | None = None,
) -> 'RegisteredTasks':
  """Registers tasks; see `task_registration.register_tasks`, also for errors."""
  task_registration.register_tasks(corpus, task_modules, tfds_data_dir)
  return RegisteredTasks()


class RegisteredTasks:
  """See `text_tasks.Tasks`: what SeqIO's registries hold."""

  fingerprint = staticmethod(task_examples.task_fingerprint)
  source_size = staticmethod(task_examples.source_size)
  read = staticmethod(task_examples.read_task_examples)

  def names(self, mixture: str, *, split: str) -> list[str]:
    """See `text_tasks.Tasks`."""
    return task_registry.task_names(mixture, split=split)

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """See `text_tasks.Tasks`."""
    with task_registry.known_sizes(sizes):
      return task_registry.expand_mixture(mixture, split=split)

  def languages(self, task: str) -> tuple[str, ...]:
    """See `text_tasks.Tasks`."""
    return task_registry.task_languages(task)

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """See `text_tasks.Tasks`."""
    source = task_reader.plain_source(task)
    if source is None or source.text.files is None:
      return None
    return source.text.files(split)
