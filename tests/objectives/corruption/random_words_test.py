"""Random words of a token's own language, and whose a word is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.errors import raises_error
from xlflax.objectives.corruption import masking, random_words
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.utils import errors

# Special ids are 0-4, 10 and 22. Word 11 is an anchor, 20 is nobody's.
WORDS = {0: [5, 6, 7, 8, 9, 11, 12], 1: [11, 13, 14, 21], 2: [16]}
RUNS = (((5, 10), (11, 13)), ((11, 12), (13, 15), (21, 22)), ((16, 17),))


@pytest.fixture
def apart(vocabulary):
  return dataclasses.replace(vocabulary, language_words=RUNS)


_draw = jax.jit(random_words.draw_random_words, static_argnums=(0, 3))


def test_words_are_uniform_over_those_of_each_positions_language(apart):
  languages = np.random.default_rng(0).integers(0, 3, (1000, 300))
  samples = np.asarray(
    _draw(RandomWords.LANGUAGE, jax.random.key(1), languages, apart)
  )
  assert samples.shape == languages.shape and samples.dtype == np.int32
  for language, vocabulary_range in WORDS.items():
    mine = samples[languages == language]
    counts = np.bincount(mine, minlength=apart.size)
    assert counts[vocabulary_range].sum() == len(mine) > 99_000
    if len(vocabulary_range) > 1:
      assert stats.chisquare(counts[vocabulary_range]).pvalue > 1e-3


def test_words_of_the_whole_vocabulary_do_not_look_at_languages(apart):
  languages = jnp.ones((20, 50), jnp.int32)
  key = jax.random.key(0)
  samples = _draw(RandomWords.VOCABULARY, key, languages, apart)
  np.testing.assert_array_equal(
    samples, masking.uniform_words(key, languages, apart)
  )
  assert len(np.unique(samples)) == apart.size - len(apart.special_ids)


@pytest.mark.parametrize('language', WORDS)
def test_words_of_a_language_and_special_symbols(apart, language):
  got = jax.jit(random_words.language_token_mask, static_argnums=(1, 2))(
    jnp.int32(language), apart, 30
  )
  want = np.isin(np.arange(30), [*WORDS[language], *apart.special_ids])
  np.testing.assert_array_equal(got, want)


def test_every_word_is_everyones_where_the_vocabulary_does_not_say(vocabulary):
  assert np.asarray(random_words.language_token_mask(1, vocabulary, 25)).all()


def test_vocabulary_that_does_not_say_whose_words_are(vocabulary):
  with raises_error(
    errors.VocabularyError,
    mentions=("random_words='language'", "random_words='vocabulary'"),
  ):
    random_words.language_words(
      jax.random.key(0), jnp.zeros((1, 1), jnp.int32), vocabulary
    )


def test_language_without_words(vocabulary):
  empty = dataclasses.replace(
    vocabulary, language_words=(((5, 9),), (), ((9, 10),))
  )
  with raises_error(
    errors.VocabularyError, mentions=("random_words='language'", 'de')
  ):
    random_words.language_words(
      jax.random.key(0), jnp.zeros((1, 1), jnp.int32), empty
    )
