"""From examples of SeqIO tasks to xlflax's batches. Needs TensorFlow."""

from collections.abc import Mapping
from typing import Any

import seqio
import tensorflow as tf

from xlflax.data import batch_keys
from xlflax.data.dataset_config import Layout, PairOptions, Positions, Separator
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors, validation

# A task's feature -> the one that holds its language's id, int32 [1].
LANGUAGE_SUFFIX = '_language'
_KEYS = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
)
_SEPARATORS = {
  Separator.BERT: (),
  Separator.XLMR: ('eos_id',),
  Separator.XLM: ('bos_id',),
}


class RowConverter(seqio.FeatureConverter):
  """Makes the rows of a `Layout`, as `xlflax.data.batching.collate` does.

  | layout | task features | row |
  | --- | --- | --- |
  | SENTENCES | targets | `<s> targets </s>` |
  | PAIRS | inputs, targets | `<s> inputs </s> </s> targets </s>`, as long as
    the two lengths together |
  | SIDES | inputs, targets | `<s> inputs </s>`, and under `paired_*`
    `<s> targets </s>` |

  A feature `targets_language` (int32 [1]) tells the id of the text's
  language, as `tasks.mixture` adds it; without one, it is 0. Every position
  of the text has its language, segment and position; objectives choose what
  is predicted. (SeqIO's own converter for encoders weights the positions of
  mask symbols only.)
  """

  TASK_FEATURES: Mapping[str, Any] = {}
  MODEL_FEATURES: Mapping[str, Any] = {}
  PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}

  def __init__(
    self,
    *,
    spec: vocabulary_spec.VocabularySpec,
    layout: Layout | str,
    pairs: PairOptions = PairOptions(),  # noqa: B008
    pack: bool = False,
    **options,
  ):
    """Checks the layout.

    Args:
      spec: special symbols.
      layout: SENTENCES, PAIRS or SIDES.
      pairs: separator and positions, with PAIRS.
      pack: whether several examples share a row.
      **options: of `seqio.FeatureConverter`.

    Raises:
      ConfigError: another layout, or one that cannot be packed.
    """
    layout = validation.validate(layout, Layout, name='layout')
    _check(layout, pack)
    names = (
      ('targets',) if layout is Layout.SENTENCES else ('inputs', 'targets')
    )
    number = self.FeatureSpec(tf.int32)
    self.TASK_FEATURES = dict.fromkeys(names, number)
    self._spec, self._layout, self._pairs = spec, layout, pairs
    self.MODEL_FEATURES = dict.fromkeys(
      self.get_model_feature_lengths(dict.fromkeys(names, 0)), number
    )
    super().__init__(pack=pack, **options)

  def __call__(self, ds, task_feature_lengths):
    """As SeqIO's; `t5x.eval` tells the languages' lengths as well."""
    return super().__call__(
      ds,
      {
        name: length
        for name, length in task_feature_lengths.items()
        if not name.endswith(LANGUAGE_SUFFIX)
      },
    )

  def get_model_feature_lengths(self, task_feature_lengths):
    """Key of the batch -> length of its rows."""
    lengths = task_feature_lengths
    if self._layout is Layout.SIDES:
      return dict.fromkeys(_KEYS, lengths['inputs']) | {
        batch_keys.PAIRED + key: lengths['targets'] for key in _KEYS
      }
    if self._layout is Layout.PAIRS:
      return dict.fromkeys(
        (*_KEYS, batch_keys.SIDE_IDS), lengths['inputs'] + lengths['targets']
      )
    return dict.fromkeys(_KEYS, lengths['targets'])

  def _convert_features(self, ds, task_feature_lengths):
    lengths = self.get_model_feature_lengths(task_feature_lengths)
    written = {
      key: length
      for key, length in lengths.items()
      if not key.endswith(batch_keys.SEGMENT_IDS)
    }

    @tf.autograph.experimental.do_not_convert
    def rows(example):
      # SeqIO takes 0 for padding: all values are one more until `finish`.
      return {
        key: value + 1 for key, value in self._rows(example, lengths).items()
      }

    @tf.autograph.experimental.do_not_convert
    def finish(row):
      return self._finish(row, lengths)

    ds = ds.map(rows, num_parallel_calls=tf.data.AUTOTUNE)
    return self._pack_or_pad(ds, written).map(
      finish, num_parallel_calls=tf.data.AUTOTUNE
    )

  def _rows(self, example, lengths):
    """Arrays of the rows of one example, without padding."""
    room = lengths[batch_keys.TOKEN_IDS]
    if self._layout is Layout.SENTENCES:
      return self._side(example, 'targets', room)
    if self._layout is Layout.SIDES:
      paired = self._side(
        example, 'targets', lengths[batch_keys.PAIRED + batch_keys.TOKEN_IDS]
      )
      return self._side(example, 'inputs', room) | {
        batch_keys.PAIRED + key: value for key, value in paired.items()
      }
    return self._pair(example, room)

  def _side(self, example, name: str, length: int):
    ids = example[name][: length - 2]
    return self._piece(ids, _language(example, name), (self._spec.bos_id,))

  def _pair(self, example, length: int):
    """Both sides in one row, the longer one cut first."""
    first, second = example['inputs'], example['targets']
    room = length - self._pairs.separator.num_special
    first = first[: tf.maximum(room - tf.size(second), (room + 1) // 2)]
    second = second[: room - tf.size(first)]
    symbols = [
      getattr(self._spec, name) for name in _SEPARATORS[self._pairs.separator]
    ]
    start = self._piece(
      first, _language(example, 'inputs'), (self._spec.bos_id,)
    )
    end = self._piece(second, _language(example, 'targets'), symbols)
    if self._pairs.positions is Positions.RUNNING:
      end[batch_keys.POSITIONS] += tf.size(start[batch_keys.TOKEN_IDS])
    for side, piece in enumerate((start, end)):
      piece[batch_keys.SIDE_IDS] = tf.fill(
        tf.shape(piece[batch_keys.TOKEN_IDS]), side
      )
    return {key: tf.concat([start[key], end[key]], 0) for key in start}

  def _piece(self, ids, language, prefix):
    """`prefix ids eos` with its positions and language."""
    ids = tf.concat(
      [tf.constant(prefix, tf.int32, [len(prefix)]), ids, [self._spec.eos_id]],
      0,
    )
    return {
      batch_keys.TOKEN_IDS: ids,
      batch_keys.POSITIONS: tf.range(tf.size(ids)),
      batch_keys.LANGUAGE_IDS: tf.fill(tf.shape(ids), language),
    }

  def _finish(self, row, lengths):
    """Segments and the padding symbol."""
    out = {}
    for key in lengths:
      prefix = batch_keys.PAIRED if key.startswith(batch_keys.PAIRED) else ''
      tokens = row[prefix + batch_keys.TOKEN_IDS]
      if key == prefix + batch_keys.SEGMENT_IDS:
        packed = row.get(f'{prefix}{batch_keys.TOKEN_IDS}_segment_ids')
        out[key] = tf.cast(tokens > 0, tf.int32) if packed is None else packed
      else:
        empty = self._spec.pad_id if key.endswith(batch_keys.TOKEN_IDS) else 0
        out[key] = tf.where(tokens > 0, row[key] - 1, empty)
      out[key] = tf.ensure_shape(tf.cast(out[key], tf.int32), [lengths[key]])
    return out


def _language(example, name: str):
  """The language id of a feature's text, int32 scalar."""
  found = example.get(name + LANGUAGE_SUFFIX)
  return tf.constant(0) if found is None else tf.cast(found[0], tf.int32)


def _check(layout: Layout, pack: bool) -> None:
  allowed = (Layout.SENTENCES, Layout.PAIRS, Layout.SIDES)
  if layout not in allowed:
    raise errors.ConfigError(
      'A feature converter has no such layout',
      got=layout.value,
      expected=', '.join(kind.value for kind in allowed),
      where='layout',
    )
  if pack and layout is Layout.SIDES:
    raise errors.ConfigError(
      'The two sides of pairs are rows of their own and cannot be packed',
      got='pack = True',
      where='utils.DatasetConfig.pack',
      fix='set pack = False',
    )
