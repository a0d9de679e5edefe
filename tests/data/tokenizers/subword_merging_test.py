"""Continued byte-pair encoding."""

from xlflax.data.tokenizers.subword_merging import NewToken, learn_merges


def _learn(words, num_merges=10, **options):
  options = {
    'join': lambda left, right: left + right,
    'can_merge': lambda token: True,
  } | options
  return learn_merges(words, num_merges, **options)


def test_frequent_pairs_are_merged_first():
  word_counts = {('▁a', 'b'): 3, ('▁a', 'b', 'c'): 2, ('▁x', 'y'): 1}
  assert _learn(word_counts) == [
    NewToken('▁ab', ('▁a', 'b'), 5),
    NewToken('▁abc', ('▁ab', 'c'), 2),
  ]


def test_number_of_merges_is_a_maximum():
  word_counts = {('▁a', 'b', 'c'): 4}
  assert [token.text for token in _learn(word_counts, 1)] == ['bc']


def test_repeated_tokens_are_counted_in_pairs_that_exist():
  # In "a a a", two overlapping pairs exist, and one of them is merged.
  assert _learn({('a', 'a', 'a'): 2}) == [
    NewToken('aa', ('a', 'a'), 4),
    NewToken('aaa', ('aa', 'a'), 2),
  ]


def test_excluded_tokens_are_not_created():
  word_counts = {('▁a', 'b', 'c'): 4}
  assert [
    t.text for t in _learn(word_counts, is_excluded=lambda t: t == 'bc')
  ] == ['▁ab', '▁abc']


def test_pairs_with_other_tokens_are_not_merged():
  word_counts = {('▁a', '!'): 4, ('▁a', 'b'): 2}
  merges = _learn(word_counts, can_merge=lambda token: token != '!')
  assert [token.text for token in merges] == ['▁ab']


def test_join_determines_the_notation():
  word_counts = {('a', '##b', '##c'): 2}
  merges = _learn(word_counts, join=lambda a, b: a + b.removeprefix('##'))
  assert [token.text for token in merges] == ['##bc', 'abc']
