"""Tasks over TensorFlow Datasets that lie prepared on disk.

Registering looks at no file and at no network: data are looked for when a task
is read. They are never downloaded on the way, as many processes start at once;
`tfds build` (or `download_and_prepare`) does that beforehand.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import seqio

from xlflax.data.seqio_tasks import preprocessors, task_registry
from xlflax.utils import errors

DEFAULT_SPLITS = {'train': 'train', 'validation': 'validation', 'test': 'test'}


class TfdsSource(seqio.TfdsDataSource):
  """SeqIO's source, which tells a user how to get data that are not there."""

  def __init__(
    self,
    tfds_name: str,
    *,
    splits: Mapping[str, str],
    data_dir: str | None = None,
  ):
    """Makes a source.

    Args:
      tfds_name: dataset, configuration and version: `wiki40b/en:1.3.0`.
      splits: name in xlflax to TFDS split or slice (`'train[:1%]'`).
      data_dir: TFDS's directory; None: $TFDS_DATA_DIR, or what
        `seqio.set_tfds_data_dir_override` says.
    """
    self._described, self.slices = tfds_name, dict(splits)
    super().__init__(
      tfds_name, tfds_data_dir=data_dir, splits=self.slices, read_only=True
    )

  def get_dataset(self, *args, **kwargs):
    """See `seqio.DataSource.get_dataset`."""
    return self._explain(super().get_dataset, *args, **kwargs)

  def num_input_examples(self, split: str):
    """Examples of a split, as TFDS counts them."""
    return self._explain(super().num_input_examples, split)

  def list_shards(self, split: str):
    """See `seqio.DataSource.list_shards`."""
    return self._explain(super().list_shards, split)

  def _explain(self, function: Callable, *args, **kwargs):
    try:
      return function(*args, **kwargs)
    except (AssertionError, KeyError, ValueError, OSError) as error:
      dataset, _, _ = self._described.partition(':')
      raise errors.CorpusError(
        'A TensorFlow dataset cannot be read',
        got=_first_line(error),
        where=self._described,
        fix=f'prepare it with `tfds build {dataset}`, and name the directory '
        'by $TFDS_DATA_DIR or --tfds_data_dir',
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
    name: of the task.
    tfds_name: with configuration and version, as `wiki40b/en:1.3.0`.
    language: language code.
    splits: see `TfdsSource`.
    preprocessors: as for `task_registry.add_monolingual_task`.
    data_dir: see `TfdsSource`.

  Raises:
    CorpusError: the name is taken.
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
    name: of the task.
    tfds_name: with configuration and version, as `wmt14_translate/de-en:1.0.0`.
    languages: language codes of `inputs` and `targets`.
    splits: see `TfdsSource`.
    features: the dataset's names of the two; None: the language codes.
    data_dir: see `TfdsSource`.

  Raises:
    CorpusError: the name is taken.
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
