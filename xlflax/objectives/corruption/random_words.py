"""Words of one language: random ones to draw, and all of them to score.

`VocabularySpec.language_words` says which ids they are. Source: Wu, Conneau
et al. (2020), section 4.3: with embeddings of its own a language has a softmax
of its own, and random words are sampled "within one language".
"""

import enum

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking
from xlflax.utils import errors


class RandomWords(enum.Enum):
  """Which words replace the chosen tokens that are shown as a random one."""

  VOCABULARY = 'vocabulary'  # any that are not special
  LANGUAGE = 'language'  # those of the token's own language


def draw_random_words(
  source: RandomWords,
  rng: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> jax.Array:
  """Ids from a source: `masking.uniform_words` or `language_words`."""
  function = (
    language_words if source is RandomWords.LANGUAGE else masking.uniform_words
  )
  return function(rng, language_ids, vocabulary)


def language_words(
  rng: jax.Array, language_ids: jax.Array, vocabulary: VocabularySpec
) -> jax.Array:
  """Ids drawn uniformly from the words of each position's language.

  Args:
    rng: key.
    language_ids: int [B, K], of the chosen positions.
    vocabulary: says which words each language has.

  Returns:
    int32 [B, K].

  Raises:
    VocabularyError: it does not say so, or a language has no word.
  """
  counts = _counts(vocabulary)
  word_ranges = np.asarray(
    [run for runs in vocabulary.language_words for run in runs], np.int32
  )
  lengths = word_ranges[:, 1] - word_ranges[:, 0]
  # Words are numbered through all languages; each run begins at one number.
  begins = jnp.asarray(np.cumsum(lengths) - lengths, jnp.int32)
  before = jnp.asarray(np.cumsum(counts) - counts, jnp.int32)[language_ids]
  number = before + jax.random.randint(
    rng, language_ids.shape, 0, jnp.asarray(counts)[language_ids], jnp.int32
  )
  run = jnp.searchsorted(begins, number, side='right') - 1
  return jnp.asarray(word_ranges[:, 0])[run] + number - begins[run]


def _counts(vocabulary: VocabularySpec) -> np.ndarray:
  """Number of words of each language, int32 [languages]; all above 0."""
  runs = vocabulary.language_words
  counts = [
    sum(stop - start for start, stop in language_ranges)
    for language_ranges in runs
  ]
  if not runs or min(counts) < 1:
    none = [
      code
      for code, count in zip(vocabulary.languages, counts, strict=False)
      if not count
    ]
    raise errors.VocabularyError(
      'Random words of its own language cannot be drawn for each token',
      got=f'no word of {", ".join(none)}'
      if none
      else 'a vocabulary that all languages have in common',
      expected='a vocabulary that says which words are whose',
      where="random_words='language'",
      fix="make the vocabulary with `xlflax vocab --vocab_sharing=shared`, 'none' "
      "or 'separate', or set random_words='vocabulary'",
    )
  return np.asarray(counts, np.int32)


def is_word_of(
  language: jax.Array, vocabulary: VocabularySpec, size: int
) -> jax.Array:
  """Whether text of a language can have an id: its words, special symbols.

  Args:
    language: int scalar.
    vocabulary: says which words each language has; where it does not, all
      words are everyone's.
    size: ids 0 .. size - 1 are answered for.

  Returns:
    bool [size].
  """
  if not vocabulary.language_words:
    return jnp.ones(size, bool)
  special = masking.special_runs(vocabulary.special_ids)
  runs = [
    sorted([*special, *id_ranges]) for id_ranges in vocabulary.language_words
  ]
  never = np.iinfo(np.int32).max
  edges = np.full((len(runs), 2 * max(map(len, runs))), never, np.int32)
  for row, id_ranges in zip(edges, runs, strict=True):
    row[: 2 * len(id_ranges)] = np.ravel(id_ranges)
  # Inside a run, an odd number of starts and stops lies at or before an id.
  passed = jnp.searchsorted(
    jnp.asarray(edges)[language],
    jnp.arange(size, dtype=jnp.int32),
    side='right',
  )
  return passed % 2 == 1
