"""Random words of the language of a token."""

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

# Special ids are 0-4, 10 and 22. Word 11 is in two languages, 20 in none.
WORDS = {0: [5, 6, 7, 8, 9, 11, 12], 1: [11, 13, 14, 21], 2: [16]}
RUNS = (((5, 10), (11, 13)), ((11, 12), (13, 15), (21, 22)), ((16, 17),))


@pytest.fixture
def language_vocabulary(vocabulary):
  return dataclasses.replace(vocabulary, language_words=RUNS)


_draw = jax.jit(random_words.draw_random_words, static_argnums=(0, 3))


def test_random_words_are_uniform_over_the_language(language_vocabulary):
  languages = np.random.default_rng(0).integers(0, 3, (1000, 300))
  samples = np.asarray(
    _draw(
      RandomWords.LANGUAGE, jax.random.key(1), languages, language_vocabulary
    )
  )
  assert samples.shape == languages.shape and samples.dtype == np.int32
  for language, vocabulary_range in WORDS.items():
    mine = samples[languages == language]
    counts = np.bincount(mine, minlength=language_vocabulary.size)
    assert counts[vocabulary_range].sum() == len(mine) > 99_000
    if len(vocabulary_range) > 1:
      assert stats.chisquare(counts[vocabulary_range]).pvalue > 1e-3


def test_random_words_of_the_vocabulary_ignore_languages(language_vocabulary):
  languages = jnp.ones((20, 50), jnp.int32)
  key = jax.random.key(0)
  samples = _draw(RandomWords.VOCABULARY, key, languages, language_vocabulary)
  np.testing.assert_array_equal(
    samples, masking.uniform_words(key, languages, language_vocabulary)
  )
  assert len(np.unique(samples)) == language_vocabulary.size - len(
    language_vocabulary.special_ids
  )


@pytest.mark.parametrize('language', WORDS)
def test_language_token_mask_includes_special_symbols(
  language_vocabulary, language
):
  got = jax.jit(random_words.language_token_mask, static_argnums=(1, 2))(
    jnp.int32(language), language_vocabulary, 30
  )
  want = np.isin(
    np.arange(30), [*WORDS[language], *language_vocabulary.special_ids]
  )
  np.testing.assert_array_equal(got, want)


def test_language_token_mask_without_language_words(vocabulary):
  assert np.asarray(random_words.language_token_mask(1, vocabulary, 25)).all()


def test_missing_language_words_are_rejected(vocabulary):
  with raises_error(
    errors.VocabularyError,
    mentions=("random_words='language'", "random_words='vocabulary'"),
  ):
    random_words.language_words(
      jax.random.key(0), jnp.zeros((1, 1), jnp.int32), vocabulary
    )


def test_language_without_words_is_rejected(vocabulary):
  empty = dataclasses.replace(
    vocabulary, language_words=(((5, 9),), (), ((9, 10),))
  )
  with raises_error(
    errors.VocabularyError, mentions=("random_words='language'", 'de')
  ):
    random_words.language_words(
      jax.random.key(0), jnp.zeros((1, 1), jnp.int32), empty
    )
