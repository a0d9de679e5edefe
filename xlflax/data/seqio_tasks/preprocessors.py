"""Preprocessors for SeqIO tasks: functions that transform a dataset.

Each docstring shows examples before and after the step, and the tests check
them. Requires TensorFlow.
"""

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from xlflax.utils import errors

TOKENIZE_BATCH = 256  # Number of texts that are tokenized at a time.


def tokenize_features(
  dataset: tf.data.Dataset,
  output_features: Mapping,
  *,
  batch_size: int = TOKENIZE_BATCH,
) -> tf.data.Dataset:
  """Tokenizes the strings in a task's output features in batches.

  Before: `{'targets': 'ab b', 'starts_document': True}`; after: `{'targets':
  [7, 9], 'starts_document': True}` (int32). No special tokens are added.
  Features that already contain token ids are not changed.

  Args:
    dataset: Examples whose features are scalar strings.
    output_features: Mapping from feature names to the output features of the
      SeqIO task, which SeqIO passes to preprocessors.
    batch_size: Number of texts that are tokenized at a time. The returned
      dataset is not batched.

  Raises:
    VocabularyError: If the vocabulary of the task is a placeholder
      (`DeferredVocabulary`).
  """
  vocabularies = {
    name: feature.vocabulary
    for name, feature in output_features.items()
    if name in dataset.element_spec
    and dataset.element_spec[name].dtype == tf.string
  }
  for vocabulary in vocabularies.values():
    _ = vocabulary.vocab_size  # Raises an error for a deferred vocabulary.

  @tf.autograph.experimental.do_not_convert
  def encode(batch):
    return {
      name: vocabularies[name].encode_tf(value)
      if name in vocabularies
      else value
      for name, value in batch.items()
    }

  return (
    dataset.batch(batch_size)
    .map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    .unbatch()
  )


def rename_features(
  dataset: tf.data.Dataset, names: Mapping[str, str]
) -> tf.data.Dataset:
  """Renames some features and drops all others.

  With `names={'targets': 'text'}`, before: `{'text': 'a', 'url': 'b'}`; after:
  `{'targets': 'a'}`.

  Args:
    dataset: Dataset of examples.
    names: Mapping from new to old feature names.

  Raises:
    CorpusError: If the examples lack a feature.
  """
  _check_features(dataset, names.values(), 'rename_features')

  @tf.autograph.experimental.do_not_convert
  def select(example):
    return {new: example[old] for new, old in names.items()}

  return dataset.map(select, num_parallel_calls=tf.data.AUTOTUNE)


def name_translation_sides(
  dataset: tf.data.Dataset, languages: Sequence[str]
) -> tf.data.Dataset:
  """Renames the texts of TFDS translation examples to `inputs` and `targets`.

  With `languages=('de', 'en')`, before: `{'de': 'ja', 'en': 'yes'}`; after:
  `{'inputs': 'ja', 'targets': 'yes'}`. Pairs in which one text is empty are
  dropped.

  Args:
    dataset: Examples with one feature for each language.
    languages: Names of the features that become `inputs` and `targets`.
  """
  first, second = languages
  dataset = rename_features(dataset, {'inputs': first, 'targets': second})

  @tf.autograph.experimental.do_not_convert
  def strip(example):
    return {name: tf.strings.strip(text) for name, text in example.items()}

  @tf.autograph.experimental.do_not_convert
  def is_complete(example):
    return tf.reduce_all(
      [tf.strings.length(text) > 0 for text in example.values()]
    )

  return dataset.map(strip, num_parallel_calls=tf.data.AUTOTUNE).filter(
    is_complete
  )


def split_lines(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Splits documents into lines, which become separate examples.

  Before: `{'text': 'a\\n\\n b\\n'}`, `{'text': 'c'}`; after:
  `{'text': 'a', 'starts_document': True}`,
  `{'text': 'b', 'starts_document': False}`,
  `{'text': 'c', 'starts_document': True}`. Blank lines and other features are
  dropped.

  Raises:
    CorpusError: If the examples lack the feature `text`.
  """
  _check_features(dataset, ['text'], 'split_lines')

  @tf.autograph.experimental.do_not_convert
  def split(example):
    lines = tf.strings.strip(tf.strings.split(example['text'], '\n'))
    lines = tf.boolean_mask(lines, tf.strings.length(lines) > 0)
    starts = tf.range(tf.size(lines)) == 0
    return tf.data.Dataset.from_tensor_slices(
      {'text': lines, 'starts_document': starts}
    )

  return dataset.flat_map(split)


def mark_documents(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Sets `starts_document` to True in examples that lack this feature.

  Before: `{'text': 'a'}`; after: `{'text': 'a', 'starts_document': True}`.

  Raises:
    CorpusError: If the examples lack the feature `text`.
  """
  _check_features(dataset, ['text'], 'mark_documents')
  if 'starts_document' in dataset.element_spec:
    return dataset

  @tf.autograph.experimental.do_not_convert
  def mark(example):
    return example | {'starts_document': True}

  return dataset.map(mark, num_parallel_calls=tf.data.AUTOTUNE)


def _check_features(
  dataset: tf.data.Dataset, names: Iterable[str], preprocessor: str
) -> None:
  """Raises a CorpusError if the examples of a dataset lack a named feature."""
  spec = dataset.element_spec
  is_mapping = isinstance(spec, Mapping)
  missing = sorted(set(names) - set(spec if is_mapping else ()))
  if not missing:
    return
  features = ', '.join(f'{name!r}: …' for name in missing)
  raise errors.CorpusError(
    f'The preprocessor {preprocessor} requires examples with the '
    f'{"feature" if len(missing) == 1 else "features"} {", ".join(missing)}',
    got=', '.join(sorted(spec)) if is_mapping else 'examples without names',
    fix=f'Add a preprocessor before {preprocessor} that returns examples with '
    + (
      "this feature, such as `lambda dataset: dataset.map(lambda line: {'text': "
      'line})` for lines of text.'
      if missing == ['text'] and not is_mapping
      else f'these features: {{{features}}}.'
    ),
  )


def check_text_features(dataset: tf.data.Dataset, names: Iterable[str]) -> None:
  """Checks that features of the examples in a dataset are scalar strings.

  Args:
    dataset: Dataset of examples.
    names: Names of the features to check, which all examples must have.

  Raises:
    CorpusError: If a feature is not a scalar string.
  """
  for name in names:
    spec = dataset.element_spec[name]
    dtype = getattr(spec, 'dtype', None)
    rank = tf.TensorShape(getattr(spec, 'shape', None)).rank
    if dtype == tf.string and rank == 0:
      continue
    if dtype != tf.string:
      advice = 'return text, for example with tf.strings.as_string'
    elif rank is None:
      advice = 'set the shape, as in tf.ensure_shape(text, [])'
    else:
      advice = (
        'join the strings with tf.strings.reduce_join, or return one example '
        'for each string'
      )
    raise errors.CorpusError(
      f'The feature `{name}` must be a scalar string',
      got=str(spec)
      if dtype is None
      else f'type {dtype.name}, rank {"unknown" if rank is None else rank}',
      fix=f'In the preprocessor that returns this feature, {advice}.',
    )
