import numpy as np

from xlflax.data.sampling import hashing


def test_mix_bits_is_splitmix64():
  """Compares with the published generator for the seed 1234567."""
  golden = 0x9E3779B97F4A7C15
  seeds = np.array(
    [(1234567 + i * golden) % 2**64 for i in range(3)], np.uint64
  )
  np.testing.assert_array_equal(
    hashing.mix_bits(seeds),
    np.array(
      [6457827717110365317, 3203168211198807973, 9817491932198370423], np.uint64
    ),
  )


def test_keys_distinguish_names_and_numbers():
  keys = {
    hashing.make_key(*parts)
    for parts in [
      (1, 2),
      (12,),
      ('1', 2),
      (1, '2'),
      ('a', 'b'),
      ('ab',),
      (2, 1),
    ]
  }
  assert len(keys) == 7
  assert hashing.make_key(3, 'order') == hashing.make_key(3, 'order')


def test_draws_depend_only_on_key_and_counter():
  all_draws = hashing.draw_words(7, np.arange(10))
  np.testing.assert_array_equal(
    hashing.draw_words(7, np.array([4, 9])), all_draws[[4, 9]]
  )
  assert not np.isin(hashing.draw_words(8, np.arange(10)), all_draws).any()


def test_shuffled_indices_are_a_permutation():
  order = hashing.shuffled_indices(5, 300)
  np.testing.assert_array_equal(np.sort(order), np.arange(300))
  assert np.sum(order == np.arange(300)) < 10
