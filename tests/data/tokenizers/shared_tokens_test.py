"""Tests of token ids for several languages."""

import numpy as np
import pytest

from xlflax.data.tokenizers import shared_tokens
from xlflax.data.tokenizers.vocabulary_config import Anchors

_PIECES = (['▁a', 'b', 'x'], ['b', '▁c', 'x'])


def _ids(anchors, pieces=_PIECES):
  return [
    ids.tolist() for ids in shared_tokens.assign_word_ids(pieces, 5, anchors)
  ]


def test_shared_strings_have_one_id():
  # The order is: first language (▁a), both (b, x), second language (▁c).
  assert _ids(Anchors.SHARED) == [[5, 6, 7], [6, 8, 7]]


def test_no_anchors_gives_separate_rows_to_each_language():
  assert _ids(Anchors.NONE) == [[5, 6, 7], [8, 9, 10]]
  assert _ids(Anchors.NONE, [['a'], ['a', 'b'], ['a']]) == [[5], [6, 7], [8]]


def test_separate_ids_overlap():
  assert _ids(Anchors.SEPARATE, [['a', 'b'], ['c']]) == [[5, 6], [5]]


def test_shared_ids_of_three_languages_form_few_ranges():
  """The order of language sets is 0, 01, 012, 02, 1, 12, 2."""
  pieces = (
    ['p0', 'p01', 'p012', 'p02'],
    ['p012', 'p1', 'p12', 'p01'],
    ['p2', 'p12', 'p02', 'p012'],
  )
  word_ids = shared_tokens.assign_word_ids(pieces, 5, Anchors.SHARED)
  assert [ids.tolist() for ids in word_ids] == [
    [5, 6, 7, 8],
    [7, 9, 10, 6],
    [11, 10, 8, 7],
  ]
  assert [shared_tokens.id_ranges(ids) for ids in word_ids] == [
    ((5, 9),),
    ((6, 8), (9, 11)),
    ((7, 9), (10, 12)),
  ]


@pytest.mark.parametrize(
  'ids, expected',
  [([], ()), ([4], ((4, 5),)), ([7, 5, 6, 9], ((5, 8), (9, 10)))],
)
def test_id_ranges(ids, expected):
  assert shared_tokens.id_ranges(np.array(ids, np.int32)) == expected


def test_owners_are_the_first_languages():
  languages, owner_ids = shared_tokens.find_owners(
    [np.array([0, 1, 2]), np.array([0, 2, 3])], 4
  )
  assert languages.tolist() == [0, 0, 0, 1]
  assert owner_ids.tolist() == [0, 1, 2, 2]
