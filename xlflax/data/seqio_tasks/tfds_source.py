"""SeqIO tasks that read prepared TensorFlow Datasets (TFDS).

Registering a task does not access files or the network. The data is opened when
a task is read, but it is never downloaded at that time, because many processes
start simultaneously. Run `tfds build` (or `download_and_prepare`) before you
read a task.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import seqio

from xlflax.data.seqio_tasks import preprocessors, task_registry
from xlflax.utils import errors

DEFAULT_SPLITS = {'train': 'train', 'validation': 'validation', 'test': 'test'}


class TfdsSource(seqio.TfdsDataSource):
  """SeqIO data source for TFDS, with errors that explain missing data."""

  def __init__(
    self,
    tfds_name: str,
    *,
    splits: Mapping[str, str],
    data_dir: str | None = None,
  ):
    """Creates a source.

    Args:
      tfds_name: Name of the TFDS dataset with its configuration and version,
        such as `wiki40b/en:1.3.0`.
      splits: Mapping from xlflax split names to TFDS splits or slices
        (`'train[:1%]'`).
      data_dir: TFDS data directory. If None, it is $TFDS_DATA_DIR or the value
        set by `seqio.set_tfds_data_dir_override`.
    """
    self._tfds_name = tfds_name
    self.slices = dict(splits)
    super().__init__(
      tfds_name, tfds_data_dir=data_dir, splits=self.slices, read_only=True
    )

  def get_dataset(self, *args, **kwargs):
    """Returns a split as a dataset; see `seqio.DataSource.get_dataset`."""
    return self._call_with_hint(super().get_dataset, *args, **kwargs)

  def num_input_examples(self, split: str):
    """Returns the number of examples in a split, as reported by TFDS."""
    return self._call_with_hint(super().num_input_examples, split)

  def list_shards(self, split: str):
    """Returns the names of a split's shards; see `seqio.DataSource`."""
    return self._call_with_hint(super().list_shards, split)

  def _call_with_hint(self, function: Callable, *args, **kwargs):
    """Calls a function, and raises its errors as CorpusErrors with a hint."""
    try:
      return function(*args, **kwargs)
    except (AssertionError, KeyError, ValueError, OSError) as error:
      dataset, _, _ = self._tfds_name.partition(':')
      raise errors.CorpusError(
        'The TensorFlow dataset cannot be read',
        got=_first_line(error),
        where=self._tfds_name,
        fix=f'Prepare the dataset with `tfds build {dataset}`, and pass its '
        'directory as --tfds_data_dir or $TFDS_DATA_DIR.',
      ) from error


def add_monolingual(
  name: str,
  tfds_name: str,
  *,
  language: str,
  splits: Mapping[str, str] = DEFAULT_SPLITS,
  preprocessors: Sequence[Callable] = (),
  data_dir: str | None = None,
) -> seqio.Task:
  """Registers a TFDS dataset with a `text` feature as a monolingual task.

  Args:
    name: Name of the task.
    tfds_name: Name of the TFDS dataset with its configuration and version, such
      as `wiki40b/en:1.3.0`.
    language: Language code of the text.
    splits: Mapping from xlflax split names to TFDS splits or slices.
    preprocessors: Preprocessors for `task_registry.add_monolingual_task`.
    data_dir: TFDS data directory; see `TfdsSource`.

  Raises:
    CorpusError: If a task with this name already exists.
  """
  source = TfdsSource(tfds_name, splits=splits, data_dir=data_dir)
  return task_registry.add_monolingual_task(
    name, source, language=language, preprocessors=preprocessors
  )


def add_parallel(
  name: str,
  tfds_name: str,
  *,
  languages: tuple[str, str],
  splits: Mapping[str, str] = DEFAULT_SPLITS,
  features: tuple[str, str] | None = None,
  data_dir: str | None = None,
) -> seqio.Task:
  """Registers a TFDS translation dataset as a parallel task.

  Args:
    name: Name of the task.
    tfds_name: Name of the TFDS dataset with its configuration and version, such
      as `wmt14_translate/de-en:1.0.0`.
    languages: Language codes of `inputs` and `targets`.
    splits: Mapping from xlflax split names to TFDS splits or slices.
    features: Names of the dataset features that become `inputs` and `targets`.
      If None, they are the language codes.
    data_dir: TFDS data directory; see `TfdsSource`.

  Raises:
    CorpusError: If a task with this name already exists.
  """
  source = TfdsSource(tfds_name, splits=splits, data_dir=data_dir)
  step = functools.partial(
    preprocessors.name_translation_sides, languages=features or languages
  )
  return task_registry.add_parallel_task(
    name, source, languages=languages, preprocessors=[step]
  )


def _first_line(error: Exception) -> str:
  return f'{type(error).__name__}: {error}'.splitlines()[0][:200]
