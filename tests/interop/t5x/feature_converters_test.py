"""Compares batches of SeqIO feature converters with those of xlflax."""

import numpy as np
import pytest

from xlflax.data import dataset_config
from xlflax.data.batching import collate as rows
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors

pytest.importorskip('seqio')

import tensorflow as tf  # noqa: E402

from xlflax.interop.t5x import feature_converters  # noqa: E402

_SPEC = vocabulary_spec.VocabularySpec(
  size=40,
  pad_id=3,
  bos_id=0,
  eos_id=1,
  unk_id=2,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('de', 'en', 'ru'),
)
_TEXTS = [
  ([7, 8, 9], [10, 11]),
  ([12], [13, 14, 15, 16, 17, 18, 19, 20]),
  ([21, 22, 23, 24, 25, 26, 27, 28, 29], [30, 31, 32, 33, 34, 35]),
]


def _examples(*sides):
  def examples():
    for texts in _TEXTS:
      example = {}
      for name, index, language in sides:
        example[name] = texts[index]
        example[name + '_language'] = [language]
      yield example

  number = tf.TensorSpec([None], tf.int32)
  return tf.data.Dataset.from_generator(
    examples,
    output_signature={
      key: number for name, _, _ in sides for key in (name, f'{name}_language')
    },
  )


def _converted(dataset, lengths, **options):
  converter = feature_converters.RowConverter(spec=_SPEC, **options)
  # SeqIO truncates the features like this.
  dataset = dataset.map(
    lambda e: {key: value[: lengths.get(key, 1)] for key, value in e.items()}
  )
  converted = list(converter(dataset, lengths).as_numpy_iterator())
  return {
    key: np.stack([row[key] for row in converted]) for key in converted[0]
  }


def _dataset(layout, length, **options):
  return dataset_config.DatasetConfig(
    name='s', mixture='m', layout=layout, length=length, batch_size=3, **options
  )


def _check(features, expected):
  assert set(features) == set(expected)
  for key, array in expected.items():
    np.testing.assert_array_equal(features[key], array, err_msg=key)


def _truncate(text, size):
  return np.asarray(text[:size], np.int32)


def test_sentences_equal_xlflax_batches():
  converted = _converted(
    _examples(('targets', 0, 2)), {'targets': 7}, layout='sentences', pack=False
  )
  _check(
    converted,
    rows.build_batch(
      [rows.Row([(_truncate(text, 5),)], (2,)) for text, _ in _TEXTS],
      _dataset('sentences', 7),
      _SPEC,
    ),
  )


def test_packed_sentences_equal_xlflax_batches():
  converted = _converted(
    _examples(('targets', 0, 2)), {'targets': 12}, layout='sentences', pack=True
  )
  texts = [(_truncate(text, 10),) for text, _ in _TEXTS]
  _check(
    converted,
    rows.build_batch(
      [rows.Row(texts[:2], (2,)), rows.Row(texts[2:], (2,))],
      _dataset('sentences', 12, packing='next_fit'),
      _SPEC,
    ),
  )


@pytest.mark.parametrize('separator', ['bert', 'xlmr', 'xlm'])
@pytest.mark.parametrize('positions', ['continuous', 'reset'])
def test_pairs_equal_xlflax_batches(separator, positions):
  pairs = dataset_config.PairOptions(separator=separator, positions=positions)
  converted = _converted(
    _examples(('inputs', 0, 0), ('targets', 1, 1)),
    {'inputs': 8, 'targets': 6},
    layout='pairs',
    pairs=pairs,
    pack=False,
  )
  room = 14 - pairs.separator.num_special
  expected = []
  for first, second in _TEXTS:
    first, second = first[:8], second[:6]  # SeqIO first truncates each text.
    first = first[: max(room - len(second), (room + 1) // 2)]
    expected.append(
      rows.Row(
        [(_truncate(first, 99), _truncate(second, room - len(first)))], (0, 1)
      )
    )
  _check(
    converted,
    rows.build_batch(expected, _dataset('pairs', 14, pairs=pairs), _SPEC),
  )


def test_dual_layout_equals_xlflax_batches():
  converted = _converted(
    _examples(('inputs', 0, 0), ('targets', 1, 1)),
    {'inputs': 8, 'targets': 8},
    layout='dual',
    pack=False,
  )
  _check(
    converted,
    rows.build_batch(
      [
        rows.Row([(_truncate(a, 6), _truncate(b, 6))], (0, 1))
        for a, b in _TEXTS
      ],
      _dataset('dual', 8),
      _SPEC,
    ),
  )


def test_packing_the_dual_layout_is_rejected():
  with pytest.raises(
    errors.ConfigError, match='utils.DatasetConfig.pack = False'
  ):
    feature_converters.RowConverter(spec=_SPEC, layout='dual', pack=True)


def test_blocks_layout_is_rejected():
  with pytest.raises(
    errors.ConfigError, match='`layout`.*Got: blocks. Expected: sentences'
  ):
    feature_converters.RowConverter(spec=_SPEC, layout='blocks')
