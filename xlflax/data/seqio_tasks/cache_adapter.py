# ruff: noqa: E402
"""Adapter for reading SeqIO tasks into token caches. Requires TensorFlow."""

import pathlib
from collections.abc import Mapping, Sequence

from xlflax.data.seqio_tasks import tensorflow_setup

tensorflow_setup.load_tensorflow()

from xlflax.data.seqio_tasks import (
  seqio_examples,
  seqio_reader,
  task_registration,
  task_registry,
  task_samples,
)


def open_tasks(
  corpus: str | None,
  task_modules: Sequence[str] = (),
  tfds_data_dir: str | None = None,
) -> 'RegisteredTasks':
  """Registers tasks and returns the adapter that reads all SeqIO tasks.

  Args:
    corpus: Path of a corpus directory. If None, no corpus is registered.
    task_modules: Names or paths of modules that register tasks.
    tfds_data_dir: Directory of prepared TensorFlow datasets.

  Raises:
    ConfigError: If a module is not found.
    CorpusError: If the corpus directory is invalid.
  """
  task_registration.register_tasks(corpus, task_modules, tfds_data_dir)
  return RegisteredTasks()


class RegisteredTasks:
  """Implementation of the `text_tasks.Tasks` interface for all SeqIO tasks."""

  fingerprint = staticmethod(seqio_examples.task_fingerprint)
  source_size = staticmethod(seqio_examples.source_size)
  count_source = staticmethod(seqio_examples.count_source)
  read = staticmethod(seqio_examples.read_task_examples)
  find_anomalies = staticmethod(task_samples.find_anomalies)

  def names(self, mixture: str, *, split: str) -> list[str]:
    """Returns the tasks that have a split; see `text_tasks.Tasks.names`."""
    return task_registry.task_names(mixture, split=split)

  def rates(
    self, mixture: str, *, split: str, sizes: Mapping[tuple[str, str], int]
  ) -> dict[str, float]:
    """Returns the mixing rate of each task; see `text_tasks.Tasks.rates`."""
    with task_registry.cached_sizes(sizes):
      return task_registry.expand_mixture(mixture, split=split)

  def languages(self, task: str) -> tuple[str, ...]:
    """Returns a task's languages; see `text_tasks.Tasks.languages`."""
    return task_registry.task_languages(task)

  def files(self, task: str, split: str) -> Sequence[pathlib.Path] | None:
    """Returns the files of a task; see `text_tasks.Tasks.files`."""
    source = seqio_reader.find_plain_source(task)
    if source is None or source.text.files is None:
      return None
    return source.text.files(split)
