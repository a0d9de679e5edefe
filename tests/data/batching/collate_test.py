import numpy as np
import pytest

from xlflax.data import dataset_config
from xlflax.data.batching import collate as rows
from xlflax.data.tokenizers import vocabulary_spec

_SPEC = vocabulary_spec.VocabularySpec(
  size=50,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('de', 'en', 'fr'),
)


def _batch(entries, layout, length, **settings):
  pairs = {
    k: settings.pop(k) for k in ('separator', 'positions') if k in settings
  }
  dataset = dataset_config.DatasetConfig(
    name='s',
    mixture='m',
    layout=layout,
    length=length,
    batch_size=2,
    pairs=dataset_config.PairOptions(**pairs),
    **settings,
  )
  examples = [
    rows.Row(
      [tuple(np.array(side) for side in unit) for unit in units], *features
    )
    for units, *features in entries
  ]
  batch = rows.build_batch(examples, dataset, _SPEC)
  assert list(batch) == list(dataset.batch_spec(_SPEC))
  for value in batch.values():
    assert value.dtype == np.int32 and value.shape == (len(entries), length)
  return {key: value.tolist() for key, value in batch.items()}


def test_batch_of_sentences():
  batch = _batch(
    [([([7, 8],)], (1,)), ([([9, 10, 11, 12],)], (2,))], 'sentences', 6
  )
  assert batch == {
    'token_ids': [[1, 7, 8, 2, 0, 0], [1, 9, 10, 11, 12, 2]],
    'segment_ids': [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]],
    'positions': [[0, 1, 2, 3, 0, 0], [0, 1, 2, 3, 4, 5]],
    'language_ids': [[1, 1, 1, 1, 0, 0], [2, 2, 2, 2, 2, 2]],
  }


def test_full_rows_do_not_depend_on_shorter_rows_in_the_batch():
  """Batches of only full rows are copied by another code path."""
  full_rows = [([([7, 8, 9, 10],)], (1,)), ([([11, 12, 13, 14],)], (2,))]
  full_batch = _batch(full_rows, 'sentences', 6)
  mixed = _batch([*full_rows, ([([7],)], (1,))], 'sentences', 6)
  assert full_batch == {key: value[:2] for key, value in mixed.items()}


def test_batch_of_packed_sentences():
  batch = _batch(
    [([([7, 8],), ([9],)], (1,))], 'sentences', 8, packing='next_fit'
  )
  assert batch == {
    'token_ids': [[1, 7, 8, 2, 1, 9, 2, 0]],
    'segment_ids': [[1, 1, 1, 1, 2, 2, 2, 0]],
    'positions': [[0, 1, 2, 3, 0, 1, 2, 0]],
    'language_ids': [[1, 1, 1, 1, 1, 1, 1, 0]],
  }


@pytest.mark.parametrize(
  'separator, tokens, sides, running, reset',
  [
    (
      'bert',
      [1, 7, 8, 2, 9, 2, 0, 0],
      [0, 0, 0, 0, 1, 1, 0, 0],
      [0, 1, 2, 3, 4, 5, 0, 0],
      [0, 1, 2, 3, 0, 1, 0, 0],
    ),
    (
      'xlmr',
      [1, 7, 8, 2, 2, 9, 2, 0],
      [0, 0, 0, 0, 1, 1, 1, 0],
      [0, 1, 2, 3, 4, 5, 6, 0],
      [0, 1, 2, 3, 0, 1, 2, 0],
    ),
    (
      'xlm',
      [1, 7, 8, 2, 1, 9, 2, 0],
      [0, 0, 0, 0, 1, 1, 1, 0],
      [0, 1, 2, 3, 4, 5, 6, 0],
      [0, 1, 2, 3, 0, 1, 2, 0],
    ),
  ],
)
def test_batch_of_pairs_by_template_and_positions(
  separator, tokens, sides, running, reset
):
  entry = ([([7, 8], [9])], (0, 2))
  for name, positions in (('continuous', running), ('reset', reset)):
    batch = _batch([entry], 'pairs', 8, separator=separator, positions=name)
    assert batch == {
      'token_ids': [tokens],
      'segment_ids': [[int(t > 0) for t in tokens]],
      'positions': [positions],
      'language_ids': [[2 * side for side in sides]],
      'side_ids': [sides],
    }


def test_batch_of_swapped_and_packed_pairs():
  """Only the sides of the second pair are exchanged."""
  batch = _batch(
    [([([7], [8]), ([9], [10, 11])], (1, 2), 0b10)],
    'pairs',
    12,
    separator='bert',
    packing='next_fit',
  )
  assert batch == {
    'token_ids': [[1, 7, 2, 8, 2, 1, 10, 11, 2, 9, 2, 0]],
    'segment_ids': [[1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0]],
    'positions': [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0]],
    'language_ids': [[1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 0]],
    'side_ids': [[0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0]],
  }


def test_batch_of_dual_layout():
  batch = _batch(
    [([([7, 8], [9])], (0, 2), 0), ([([5], [6])], (0, 2), 1)], 'dual', 4
  )
  assert batch['token_ids'] == [[1, 7, 8, 2], [1, 6, 2, 0]]
  assert batch['paired_token_ids'] == [[1, 9, 2, 0], [1, 5, 2, 0]]
  assert batch['language_ids'] == [[0, 0, 0, 0], [2, 2, 2, 0]]
  assert batch['paired_language_ids'] == [[2, 2, 2, 0], [0, 0, 0, 0]]
  assert batch['paired_positions'] == [[0, 1, 2, 0], [0, 1, 2, 0]]
