"""Registration of labeled examples as SeqIO tasks; imports TensorFlow.

The examples of these tasks are dicts with the columns of an example class
(`Example.columns`). They are not tokenized, because tokenization depends on the
model. `SeqioDataset` converts them back to examples. A task that was registered
with SeqIO directly can also be used if its preprocessors return features named
after the columns and if `set_labeled_task` is called for it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from xlflax.data.corpus import corpus_files
from xlflax.data.plain_text import text_source as text_rows
from xlflax.data.seqio_tasks import data_sources, task_registry, tfds_source
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import errors, validation

_TENSOR_SPECS = {
  labeled_examples.FeatureType.TEXT: tf.TensorSpec([], tf.string),
  labeled_examples.FeatureType.TEXTS: tf.TensorSpec([None], tf.string),
  labeled_examples.FeatureType.NUMBER: tf.TensorSpec([], tf.float32),
  labeled_examples.FeatureType.NUMBERS: tf.TensorSpec([None], tf.int32),
}
_kinds_by_task: dict[str, str] = {}


class LabeledDataSource(data_sources.TextSource):
  """SeqIO data source that yields labeled examples as dicts of column values.

  Attributes:
    problems: Function that returns messages about problems with individual
      examples in a split.
  """

  def __init__(
    self,
    read: Callable[[str], Iterator[dict]],
    *,
    kind: str,
    files: Mapping[str, tuple[str, ...]],
    problems: Callable[[str], tuple[str, ...]],
  ):
    """Creates a source.

    Args:
      read: Function that returns the rows in a split. It may raise an
        XlflaxError.
      kind: Name of the examples' task family.
      files: Paths of each split's files, which determine the fingerprint.
      problems: Function that returns messages about problems with individual
        examples in a split.
    """
    self._specs = {
      name: _TENSOR_SPECS[form]
      for name, form in labeled_examples.class_of(kind).columns().items()
    }
    self.problems = problems
    super().__init__(
      text_rows.TextRows(
        read=read,
        columns=tuple(self._specs),
        splits=tuple(files),
        count=lambda split: sum(1 for _ in read(split)),
        fingerprint=lambda split: tuple(
          corpus_files.fingerprint_file(path) for path in files[split]
        ),
      ),
      types={name: spec.dtype for name, spec in self._specs.items()},
    )

  def _make_dataset(
    self, split: str, shuffle_files: bool, seed: int | None = None
  ) -> tf.data.Dataset:
    del shuffle_files, seed  # Rows always have the order of the file.

    # `read` may raise when it is called, and not only during the iteration.
    def rows():
      yield from self.text.read(split)

    return tf.data.Dataset.from_generator(
      lambda: data_sources.record_errors(rows()), output_signature=self._specs
    )


@validation.validate_call
def add_labeled_task(
  name: str,
  *,
  format: str,
  language: str,
  files: Mapping[str, file_formats.Paths],
  kind: str | None = None,
  preprocessors: Sequence[Callable] = (),
  **options: Any,
) -> seqio.Task:
  """Registers files of labeled examples as a SeqIO task.

  Args:
    name: Name of the task.
    format: Name of the file format.
    language: Language code such as 'fr', or two language codes such as 'es-en'.
      It is the name of the language split in `example_source.FileDataset`.
    files: Path or paths for each split, such as 'train'.
    kind: Name of the examples' task family. If None, the format's task family
      is used.
    preprocessors: SeqIO preprocessors that are applied to the dicts of columns.
    **options: Options of the format's reader, such as columns and labels.

  Raises:
    ConfigError: If the format or an option does not exist, or if `kind` is not
      the format's task family.
    CorpusError: If the name is already registered, or if a file does not exist.
      Errors of the reader are raised later, when the task is read.
  """
  example_kind = file_formats.find_of_examples(format).example.KIND
  if kind not in (None, example_kind):
    raise errors.ConfigError(
      f'The argument `kind` of the task {name!r} must be the task family of '
      f'the file format {format!r}',
      got=kind,
      expected=example_kind,
    )
  file_formats.check_options(format, options)

  def read(split: str):
    return file_formats.read_files(format, files[split], language, **options)

  source = LabeledDataSource(
    lambda split: (example.to_columns() for example in read(split).examples),
    kind=example_kind,
    files=_check_files(files, name),
    problems=lambda split: read(split).problems,
  )
  return _add_task(name, source, example_kind, language, preprocessors)


@validation.validate_call
def add_mined_task(
  name: str,
  *,
  language: str,
  files: Mapping[str, tuple[str, ...]],
  format: str = 'bucc',
) -> seqio.Task:
  """Registers two sentence collections for bitext mining as a SeqIO task.

  Each row of the task is a sentence from one of the collections. For a sentence
  in the first collection, `translations` contains the ids of its gold
  translations in the second collection.

  Args:
    name: Name of the task.
    language: Codes of the two collections' languages, such as 'fr-en'.
    files: Paths for each split: (first collection, second collection) or (first
      collection, second collection, gold pairs).
    format: Name of the file format.

  Raises:
    CorpusError: If the name is already registered, or if a file does not exist.
      Errors of the reader are raised later, when the task is read.
  """

  def read(split: str) -> Iterator[dict]:
    mined = example_source.BitextMiningFiles(
      format=format, files={language: files[split]}
    ).load(language)
    for sentence in mined.sentences():
      yield sentence.to_columns()

  kind = labeled_examples.BitextSentence.KIND
  source = LabeledDataSource(
    read, kind=kind, files=_check_files(files, name), problems=lambda split: ()
  )
  return _add_task(name, source, kind, language, ())


@validation.validate_call
def add_labeled_tfds_task(
  name: str,
  tfds_name: str,
  *,
  kind: str,
  language: str,
  splits: Mapping[str, str],
  preprocessors: Sequence[Callable],
  data_dir: str | None = None,
) -> seqio.Task:
  """Registers a TFDS dataset of labeled examples as a SeqIO task.

  Args:
    name: Name of the task.
    tfds_name: Name of the TFDS dataset with its configuration and version, such
      as `xnli/plain_text:1.1.0`.
    kind: Name of the examples' task family.
    language: Language code such as 'fr', or two language codes such as 'es-en'.
    splits: Names of the dataset's splits; see `tfds_source.TfdsSource`.
    preprocessors: SeqIO preprocessors that convert the dataset's features to
      the task family's columns.
    data_dir: Directory of the dataset; see `tfds_source.TfdsSource`.

  Raises:
    ConfigError: If the task family does not exist.
    CorpusError: If the name is already registered.
  """
  labeled_examples.class_of(kind)
  source = tfds_source.TfdsSource(tfds_name, splits=splits, data_dir=data_dir)
  return _add_task(name, source, kind, language, preprocessors)


@validation.validate_call
def add_labeled_mixture(name: str, tasks: Sequence[str]) -> seqio.Mixture:
  """Registers a mixture whose tasks `SeqioDataset` reads as language splits.

  All mixing rates are 1, because the tasks are not sampled.

  Raises:
    CorpusError: If the name is already registered.
  """
  if name in seqio.MixtureRegistry.names():
    raise errors.CorpusError(
      'A mixture with the same name is already registered', got=name
    )
  return seqio.MixtureRegistry.add(name, [(task, 1.0) for task in tasks])


@validation.validate_call
def set_labeled_task(name: str, *, kind: str, language: str) -> None:
  """Records the task family and languages of an existing SeqIO task.

  Call this function for a task of labeled examples that was registered directly
  with SeqIO.

  Args:
    name: Name of the task.
    kind: Name of the task family. The task must have the family's features.
    language: Language code such as 'fr', or two language codes such as 'es-en'.

  Raises:
    ConfigError: If the task family does not exist.
    CorpusError: If the task does not exist.
  """
  labeled_examples.class_of(kind)
  task_registry.get_task(name)
  task_registry.set_task_languages(name, language.split('-'))
  _kinds_by_task[name] = kind


def kind_of(name: str) -> str | None:
  """Returns the task family of a SeqIO task, such as 'tagging'."""
  return _kinds_by_task.get(name)


def find_example_problems(name: str, split: str) -> tuple[str, ...]:
  """Returns messages about problems with individual examples of a task."""
  source = task_registry.get_task(name, split=split).source
  return source.problems(split) if isinstance(source, LabeledDataSource) else ()


def _add_task(
  name: str,
  source: seqio.DataSource,
  kind: str,
  language: str,
  preprocessors: Sequence[Callable],
) -> seqio.Task:
  """Registers a task with the columns of its task family."""
  task_registry.check_unused_name(name)
  data_sources.record_definition(name)
  columns = {
    column: seqio.Feature(
      seqio.PassThroughVocabulary(1),
      add_eos=False,
      required=False,
      dtype=_TENSOR_SPECS[form].dtype,
      rank=_TENSOR_SPECS[form].shape.rank,
    )
    for column, form in labeled_examples.class_of(kind).columns().items()
  }
  task = seqio.TaskRegistry.add(
    name, source, preprocessors=list(preprocessors), output_features=columns
  )
  set_labeled_task(name, kind=kind, language=language)
  return task


def _check_files(
  files: Mapping[str, file_formats.Paths], name: str
) -> dict[str, tuple[str, ...]]:
  """Returns the files of each split as tuples and checks that they exist."""
  paths_by_split = {
    split: (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
    for split, paths in files.items()
  }
  for path in (path for paths in paths_by_split.values() for path in paths):
    if not os.path.isfile(path):
      raise errors.CorpusError(
        f'The file of labeled examples was not found for the task {name!r}',
        got=str(path),
      )
  return paths_by_split
