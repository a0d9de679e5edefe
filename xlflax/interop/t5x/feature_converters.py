"""Conversion of SeqIO examples to xlflax batches. Requires TensorFlow."""

from collections.abc import Mapping
from typing import Any

import seqio
import tensorflow as tf

from xlflax.data import batch_keys
from xlflax.data.dataset_config import (
  ExampleLayout,
  PairOptions,
  PositionIds,
  SpecialTokenTemplate,
)
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors, validation

# Suffix of the feature that contains the language id of a feature's text, int32
# of shape [1].
LANGUAGE_SUFFIX = '_language'
_KEYS = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
)
_SEPARATORS = {
  SpecialTokenTemplate.BERT: (),
  SpecialTokenTemplate.XLMR: ('eos_id',),
  SpecialTokenTemplate.XLM: ('bos_id',),
}


class RowConverter(seqio.FeatureConverter):
  """SeqIO converter that builds the same sequences as `data.batching.collate`.

  The layout determines the sequence:

  - SENTENCES: `<s> targets </s>`.
  - PAIRS: `<s> inputs </s> </s> targets </s>`, whose length is the sum of the
    two lengths.
  - DUAL: `<s> inputs </s>`, and `<s> targets </s>` under `paired_*`.

  The feature `targets_language` (int32 of shape [1]) contains the language id
  of the text, as `t5x_tasks.register_mixture` adds it. Without this feature,
  the id is 0. Every token of the text has a language id, a segment id and a
  position. The objective selects the tokens to predict. (SeqIO's converter for
  encoders assigns weights only to the positions of mask symbols.)
  """

  TASK_FEATURES: Mapping[str, Any] = {}
  MODEL_FEATURES: Mapping[str, Any] = {}
  PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}

  def __init__(
    self,
    *,
    spec: vocabulary_spec.VocabularySpec,
    layout: ExampleLayout | str,
    pairs: PairOptions = PairOptions(),  # noqa: B008
    pack: bool = False,
    **options,
  ):
    """Initializes the converter.

    Args:
      spec: Sizes and special ids of the vocabulary.
      layout: Layout of the examples: SENTENCES, PAIRS or DUAL.
      pairs: Separator and position options of text pairs, for the layout PAIRS.
      pack: Whether to pack several examples into one sequence.
      **options: Keyword arguments for `seqio.FeatureConverter`.

    Raises:
      ConfigError: If the layout is not supported or cannot be packed.
    """
    layout = validation.validate(layout, ExampleLayout, name='layout')
    _check(layout, pack)
    names: tuple[str, ...] = ('inputs', 'targets')
    if layout is ExampleLayout.SENTENCES:
      names = ('targets',)
    feature_spec = self.FeatureSpec(tf.int32)
    self.TASK_FEATURES = dict.fromkeys(names, feature_spec)
    self._spec = spec
    self._layout = layout
    self._pairs = pairs
    self.MODEL_FEATURES = dict.fromkeys(
      self.get_model_feature_lengths(dict.fromkeys(names, 0)), feature_spec
    )
    super().__init__(pack=pack, **options)

  def __call__(self, ds, task_feature_lengths):
    """Converts a dataset. See `seqio.FeatureConverter`.

    `t5x.eval` also passes the lengths of the language features, which are
    removed.
    """
    return super().__call__(
      ds,
      {
        name: length
        for name, length in task_feature_lengths.items()
        if not name.endswith(LANGUAGE_SUFFIX)
      },
    )

  def get_model_feature_lengths(self, task_feature_lengths):
    """Returns the sequence length for each key of the batch."""
    lengths = task_feature_lengths
    if self._layout is ExampleLayout.DUAL:
      return dict.fromkeys(_KEYS, lengths['inputs']) | {
        batch_keys.PAIRED + key: lengths['targets'] for key in _KEYS
      }
    if self._layout is ExampleLayout.PAIRS:
      return dict.fromkeys(
        (*_KEYS, batch_keys.SIDE_IDS), lengths['inputs'] + lengths['targets']
      )
    return dict.fromkeys(_KEYS, lengths['targets'])

  def _convert_features(self, ds, task_feature_lengths):
    lengths = self.get_model_feature_lengths(task_feature_lengths)
    padded_lengths = {
      key: length
      for key, length in lengths.items()
      if not key.endswith(batch_keys.SEGMENT_IDS)
    }

    @tf.autograph.experimental.do_not_convert
    def convert(example):
      # SeqIO interprets 0 as padding. All values are therefore incremented, and
      # `finish` decrements them.
      arrays = self._convert_example(example, lengths)
      return {key: value + 1 for key, value in arrays.items()}

    @tf.autograph.experimental.do_not_convert
    def finish(arrays):
      return self._finish(arrays, lengths)

    ds = ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)
    return self._pack_or_pad(ds, padded_lengths).map(
      finish, num_parallel_calls=tf.data.AUTOTUNE
    )

  def _convert_example(self, example, lengths):
    """Returns the arrays of one example, without padding."""
    length = lengths[batch_keys.TOKEN_IDS]
    if self._layout is ExampleLayout.SENTENCES:
      return self._convert_text(example, 'targets', length)
    if self._layout is ExampleLayout.DUAL:
      paired_length = lengths[batch_keys.PAIRED + batch_keys.TOKEN_IDS]
      paired = self._convert_text(example, 'targets', paired_length)
      return self._convert_text(example, 'inputs', length) | {
        batch_keys.PAIRED + key: value for key, value in paired.items()
      }
    return self._convert_pair(example, length)

  def _convert_text(self, example, name: str, length: int):
    """Returns the arrays of one text."""
    ids = example[name][: length - 2]
    language = _language(example, name)
    return self._text_arrays(ids, language, (self._spec.bos_id,))

  def _convert_pair(self, example, length: int):
    """Returns the arrays of a pair. The longer text is truncated first."""
    first, second = example['inputs'], example['targets']
    max_tokens = length - self._pairs.separator.num_special
    first = first[
      : tf.maximum(max_tokens - tf.size(second), (max_tokens + 1) // 2)
    ]
    second = second[: max_tokens - tf.size(first)]
    separator_ids = [
      getattr(self._spec, name) for name in _SEPARATORS[self._pairs.separator]
    ]
    first_arrays = self._text_arrays(
      first, _language(example, 'inputs'), (self._spec.bos_id,)
    )
    second_arrays = self._text_arrays(
      second, _language(example, 'targets'), separator_ids
    )
    if self._pairs.positions is PositionIds.CONTINUOUS:
      offset = tf.size(first_arrays[batch_keys.TOKEN_IDS])
      second_arrays[batch_keys.POSITIONS] += offset
    for side, arrays in enumerate((first_arrays, second_arrays)):
      arrays[batch_keys.SIDE_IDS] = tf.fill(
        tf.shape(arrays[batch_keys.TOKEN_IDS]), side
      )
    return {
      key: tf.concat([first_arrays[key], second_arrays[key]], 0)
      for key in first_arrays
    }

  def _text_arrays(self, ids, language, prefix):
    """Returns the arrays of the sequence `prefix ids eos`."""
    ids = tf.concat(
      [tf.constant(prefix, tf.int32, [len(prefix)]), ids, [self._spec.eos_id]],
      0,
    )
    return {
      batch_keys.TOKEN_IDS: ids,
      batch_keys.POSITIONS: tf.range(tf.size(ids)),
      batch_keys.LANGUAGE_IDS: tf.fill(tf.shape(ids), language),
    }

  def _finish(self, arrays, lengths):
    """Adds the segment ids and sets the values at padding positions."""
    batch = {}
    for key in lengths:
      prefix = batch_keys.PAIRED if key.startswith(batch_keys.PAIRED) else ''
      tokens = arrays[prefix + batch_keys.TOKEN_IDS]
      if key == prefix + batch_keys.SEGMENT_IDS:
        segment_ids = arrays.get(f'{prefix}{batch_keys.TOKEN_IDS}_segment_ids')
        if segment_ids is None:  # The examples were not packed.
          segment_ids = tokens > 0
        values = segment_ids
      else:
        padding = self._spec.pad_id if key.endswith(batch_keys.TOKEN_IDS) else 0
        values = tf.where(tokens > 0, arrays[key] - 1, padding)
      batch[key] = tf.ensure_shape(tf.cast(values, tf.int32), [lengths[key]])
    return batch


def _language(example, name: str):
  """Returns the language id of a feature's text, an int32 scalar."""
  language = example.get(name + LANGUAGE_SUFFIX)
  return tf.constant(0) if language is None else tf.cast(language[0], tf.int32)


def _check(layout: ExampleLayout, pack: bool) -> None:
  """Checks that a layout is supported.

  Raises:
    ConfigError: If the layout is not supported or cannot be packed.
  """
  supported = (ExampleLayout.SENTENCES, ExampleLayout.PAIRS, ExampleLayout.DUAL)
  if layout not in supported:
    raise errors.ConfigError(
      'The feature converters for T5X do not support the requested `layout` '
      'of examples',
      got=layout.value,
      expected=', '.join(
        supported_layout.value for supported_layout in supported
      ),
    )
  if pack and layout is ExampleLayout.DUAL:
    raise errors.ConfigError(
      'Examples with the layout DUAL cannot be packed, because the two texts '
      'of a pair are separate sequences',
      fix='Set utils.DatasetConfig.pack = False.',
    )
