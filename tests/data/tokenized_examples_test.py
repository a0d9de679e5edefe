import numpy as np

from xlflax.data import tokenized_examples


def _ragged(texts):
  return tokenized_examples.Ragged(
    np.array([t for text in texts for t in text], np.int32),
    np.array([len(text) for text in texts]),
  )


def test_with_eos_docstring_example():
  joined = _ragged([[10, 11], [12]]).with_eos(2, np.uint16)
  assert joined.dtype == np.uint16
  np.testing.assert_array_equal(joined, [10, 11, 2, 12, 2])


def test_texts_can_be_truncated():
  texts = _ragged([[10, 11], [], [12]]).texts(np.array([1, 0, 1]))
  assert [text.tolist() for text in texts] == [[10], [], [12]]


def test_document_start_moves_to_the_next_nonempty_line():
  examples = tokenized_examples.Examples(
    (_ragged([[10], [], [11], [], []]),),
    np.array([True, True, False, False, True]),
  )
  remaining, begins = tokenized_examples.drop_empty(examples, False)
  np.testing.assert_array_equal(remaining.sides[0].tokens, [10, 11])
  np.testing.assert_array_equal(remaining.starts_document, [True, True])
  assert begins
  # The document start also moves to the next batch.
  following = tokenized_examples.Examples(
    (_ragged([[12], [13]]),), np.array([False, False])
  )
  remaining, begins = tokenized_examples.drop_empty(following, True)
  np.testing.assert_array_equal(remaining.starts_document, [True, False])
  assert not begins


def test_document_start_is_kept_if_all_lines_are_dropped():
  empty = tokenized_examples.Examples((_ragged([[]]),), np.array([False]))
  remaining, begins = tokenized_examples.drop_empty(empty, True)
  assert len(remaining) == 0 and begins
  assert not tokenized_examples.drop_empty(empty, False)[1]


def test_a_pair_with_one_empty_side_is_dropped():
  pairs = tokenized_examples.Examples(
    (_ragged([[10], [11, 12]]), _ragged([[], [20]])), np.array([True, True])
  )
  remaining, _ = tokenized_examples.drop_empty(pairs, False)
  assert [s.tokens.tolist() for s in remaining.sides] == [[11, 12], [20]]
