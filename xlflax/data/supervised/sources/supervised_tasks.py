"""SeqIO tasks of labelled examples. This module imports TensorFlow.

Their examples are dicts of the columns of an example's class
(`Example.columns`), before any tokenisation, which depends on the model:
`TaskExamples` reads them back. A plain SeqIO task of one's own serves as well,
if its preprocessors give it features of these names and `set_labelled_task`
tells its kind and languages.
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

_FORMS = {
  labeled_examples.Form.TEXT: tf.TensorSpec([], tf.string),
  labeled_examples.Form.TEXTS: tf.TensorSpec([None], tf.string),
  labeled_examples.Form.NUMBER: tf.TensorSpec([], tf.float32),
  labeled_examples.Form.NUMBERS: tf.TensorSpec([None], tf.int32),
}
_kinds: dict[str, str] = {}


class LabelledSource(data_sources.TextSource):
  """A source of rows of columns, in order, that may be lists.

  Attributes:
    problems: function of a split that gives what is wrong with single
      examples.
  """

  def __init__(
    self,
    read: Callable[[str], Iterator[dict]],
    *,
    kind: str,
    files: Mapping[str, tuple[str, ...]],
    problems: Callable[[str], tuple[str, ...]],
  ):
    """Makes a source.

    Args:
      read: split -> rows; may raise an XlflaxError.
      kind: of the examples.
      files: split -> the files read, for the fingerprint.
      problems: see the class.
    """
    self._specs = {
      name: _FORMS[form]
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
    del shuffle_files, seed  # The rows of a file come in its order.

    def rows():  # A generator: `rows` itself may raise.
      yield from self.text.read(split)

    return tf.data.Dataset.from_generator(
      lambda: data_sources.with_errors_kept(rows()),
      output_signature=self._specs,
    )


@validation.validate_call
def add_labelled_task(
  name: str,
  *,
  format: str,
  language: str,
  files: Mapping[str, file_formats.Paths],
  kind: str | None = None,
  preprocessors: Sequence[Callable] = (),
  **options: Any,
) -> seqio.Task:
  """Registers files of labelled examples as a task.

  Args:
    name: the task's name.
    format: of the files.
    language: 'fr', or two, 'es-en': the part's name (`example_source.FileExamples`).
    files: split, such as 'train', to its file or files.
    kind: of the examples; None: that of the format.
    preprocessors: applied to the dicts of columns.
    **options: of the format's reader, such as columns and labels.

  Raises:
    ConfigError: no such format, option or kind, or one that is not the
      format's.
    CorpusError: the name is taken, or a file does not exist; on reading, what
      the readers raise.
  """
  example_kind = file_formats.find_of_examples(format).example.KIND
  if kind not in (None, example_kind):
    raise errors.ConfigError(
      'A file format has examples of another kind',
      got=kind,
      expected=example_kind,
      where=f'task {name}',
    )
  file_formats.check_options(format, options)

  def read(split: str):
    return file_formats.read_files(format, files[split], language, **options)

  source = LabelledSource(
    lambda split: (one.to_columns() for one in read(split).examples),
    kind=example_kind,
    files=_existing(files, name),
    problems=lambda split: read(split).problems,
  )
  return _add(name, source, example_kind, language, preprocessors)


@validation.validate_call
def add_mined_task(
  name: str,
  *,
  language: str,
  files: Mapping[str, tuple[str, ...]],
  format: str = 'bucc',
) -> seqio.Task:
  """Registers two collections with translations among them as a task.

  A row is one sentence of either; `translations` are the ids of its gold
  translations on the other side, for sentences of the first.

  Args:
    name: the task's name.
    language: the two languages, 'fr-en'.
    files: split to (first, second) or (first, second, gold).
    format: of the files.

  Raises:
    CorpusError: the name is taken, or a file does not exist; on reading, what
      the readers raise.
  """

  def read(split: str) -> Iterator[dict]:
    mined = example_source.MinedFiles(
      format=format, files={language: files[split]}
    ).load(language)
    for sentence in mined.sentences():
      yield sentence.to_columns()

  kind = labeled_examples.MinedSentence.KIND
  source = LabelledSource(
    read, kind=kind, files=_existing(files, name), problems=lambda split: ()
  )
  return _add(name, source, kind, language, ())


@validation.validate_call
def add_labelled_tfds_task(
  name: str,
  tfds_name: str,
  *,
  kind: str,
  language: str,
  splits: Mapping[str, str],
  preprocessors: Sequence[Callable],
  data_dir: str | None = None,
) -> seqio.Task:
  """Registers a TFDS dataset whose examples are labelled.

  Args:
    name: of the task.
    tfds_name: with configuration and version, as `xnli/plain_text:1.1.0`.
    kind: of the examples.
    language: 'fr', or two, 'es-en'.
    splits: see `tfds_source.TfdsSource`.
    preprocessors: from the dataset's features to the columns of the kind.
    data_dir: see `tfds_source.TfdsSource`.

  Raises:
    ConfigError: no such kind.
    CorpusError: the name is taken.
  """
  labeled_examples.class_of(kind)
  source = tfds_source.TfdsSource(tfds_name, splits=splits, data_dir=data_dir)
  return _add(name, source, kind, language, preprocessors)


@validation.validate_call
def add_labelled_mixture(name: str, tasks: Sequence[str]) -> seqio.Mixture:
  """Registers tasks under one name, from which `TaskExamples` takes parts.

  The rates are 1: examples are not drawn from it by chance.

  Raises:
    CorpusError: the name is taken.
  """
  if name in seqio.MixtureRegistry.names():
    raise errors.CorpusError("The mixture's name is taken", got=name)
  return seqio.MixtureRegistry.add(name, [(task, 1.0) for task in tasks])


@validation.validate_call
def set_labelled_task(name: str, *, kind: str, language: str) -> None:
  """Tells kind and languages of a task that was registered with plain SeqIO.

  Args:
    name: of the task.
    kind: of its examples, which have the features of that kind.
    language: 'fr', or two, 'es-en'.

  Raises:
    ConfigError: no such kind.
    CorpusError: no such task.
  """
  labeled_examples.class_of(kind)
  task_registry.get_task(name)
  task_registry.set_task_languages(name, language.split('-'))
  _kinds[name] = kind


def kind_of(name: str) -> str | None:
  """The kind of a task's examples; None for one that is not labelled."""
  return _kinds.get(name)


def find_example_problems(name: str, split: str) -> tuple[str, ...]:
  """What is wrong with single examples of a task that were read all the same."""
  source = task_registry.get_task(name, split=split).source
  return source.problems(split) if isinstance(source, LabelledSource) else ()


def _add(
  name: str,
  source: seqio.DataSource,
  kind: str,
  language: str,
  preprocessors: Sequence[Callable],
) -> seqio.Task:
  task_registry.check_free(name)
  columns = {
    column: seqio.Feature(
      seqio.PassThroughVocabulary(1),
      add_eos=False,
      required=False,
      dtype=_FORMS[form].dtype,
      rank=_FORMS[form].shape.rank,
    )
    for column, form in labeled_examples.class_of(kind).columns().items()
  }
  task = seqio.TaskRegistry.add(
    name, source, preprocessors=list(preprocessors), output_features=columns
  )
  set_labelled_task(name, kind=kind, language=language)
  return task


def _existing(
  files: Mapping[str, file_formats.Paths], name: str
) -> dict[str, tuple[str, ...]]:
  paths_by_split = {
    split: (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
    for split, paths in files.items()
  }
  for path in (path for paths in paths_by_split.values() for path in paths):
    if not os.path.isfile(path):
      raise errors.CorpusError(
        'A file of labelled examples does not exist',
        got=str(path),
        where=f'task {name}',
      )
  return paths_by_split
