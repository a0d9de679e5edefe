"""Random replacement words, and vocabulary masks for single languages.

`VocabularySpec.language_words` contains the ids of each language's words.
Source: Wu, Conneau et al. (2020), section 4.3. A language with separate
embeddings also has a separate softmax, and random words are sampled "within one
language".
"""

import enum

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking
from xlflax.utils import errors


class RandomWords(enum.Enum):
  """Set of words from which random replacement tokens are drawn.

  Attributes:
    VOCABULARY: All tokens of the vocabulary that are not special.
    LANGUAGE: The words of the replaced token's language.
  """

  VOCABULARY = 'vocabulary'
  LANGUAGE = 'language'


def draw_random_words(
  source: RandomWords,
  rng: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> jax.Array:
  """Draws random words from the vocabulary or from each position's language.

  See `masking.uniform_words` and `language_words` for the other arguments.
  """
  if source is RandomWords.LANGUAGE:
    return language_words(rng, language_ids, vocabulary)
  return masking.uniform_words(rng, language_ids, vocabulary)


def language_words(
  rng: jax.Array, language_ids: jax.Array, vocabulary: VocabularySpec
) -> jax.Array:
  """Draws one token id per position, uniformly from the words of its language.

  Args:
    rng: Random key.
    language_ids: Language ids of the selected positions, int [B, K].
    vocabulary: Vocabulary specification with the words of each language.

  Returns:
    int32 array of shape [B, K].

  Raises:
    VocabularyError: If the vocabulary does not record the words of each
      language, or a language has no words.
  """
  counts = _count_language_words(vocabulary)
  id_ranges = np.asarray(
    [
      id_range
      for language_ranges in vocabulary.language_words
      for id_range in language_ranges
    ],
    np.int32,
  )
  lengths = id_ranges[:, 1] - id_ranges[:, 0]
  # Words have consecutive numbers over all languages. A draw is the number of
  # a word, and the range with the largest start not above it contains the word.
  range_starts = jnp.asarray(np.cumsum(lengths) - lengths, jnp.int32)
  language_starts = jnp.asarray(np.cumsum(counts) - counts, jnp.int32)
  number = language_starts[language_ids] + jax.random.randint(
    rng, language_ids.shape, 0, jnp.asarray(counts)[language_ids], jnp.int32
  )
  index = jnp.searchsorted(range_starts, number, side='right') - 1
  return jnp.asarray(id_ranges[:, 0])[index] + number - range_starts[index]


def _count_language_words(vocabulary: VocabularySpec) -> np.ndarray:
  """Returns the number of words of each language, int32 of shape [languages].

  Raises:
    VocabularyError: If the vocabulary does not record the words of each
      language, or a language has no words.
  """
  counts = [
    sum(stop - start for start, stop in language_ranges)
    for language_ranges in vocabulary.language_words
  ]
  if not counts or min(counts) < 1:
    empty_languages = [
      code
      for code, count in zip(vocabulary.languages, counts, strict=False)
      if not count
    ]
    problem = (
      f'The vocabulary has no words of {", ".join(empty_languages)}'
      if empty_languages
      else 'The vocabulary is shared by all languages and does not record '
      'which words occur in a language'
    )
    raise errors.VocabularyError(
      "random_words='language' requires a vocabulary that records at least one "
      f'word of each language. {problem}',
      fix="Set random_words='vocabulary', or train a vocabulary with `xlflax "
      'vocab --vocab_sharing=VALUE`, where VALUE is separate, shared or none.',
    )
  return np.asarray(counts, np.int32)


def language_token_mask(
  language: jax.Array, vocabulary: VocabularySpec, size: int
) -> jax.Array:
  """Returns a boolean mask of the ids that can occur in a language's text.

  These ids are the words of the language and the special symbols.

  Args:
    language: Language id, an integer scalar.
    vocabulary: Vocabulary specification with the words of each language. If it
      does not record them, all ids can occur in all languages.
    size: Number of token ids to check, which are 0 to size - 1.

  Returns:
    Boolean array of shape [size].
  """
  if not vocabulary.language_words:
    return jnp.ones(size, bool)
  special = masking.special_runs(vocabulary.special_ids)
  allowed_ranges = [
    sorted([*special, *id_ranges]) for id_ranges in vocabulary.language_words
  ]
  max_edges = 2 * max(map(len, allowed_ranges))
  padding = np.iinfo(np.int32).max
  edges = np.full((len(allowed_ranges), max_edges), padding, np.int32)
  for row, id_ranges in zip(edges, allowed_ranges, strict=True):
    row[: 2 * len(id_ranges)] = np.ravel(id_ranges)
  # An id is in a range if the number of edges (starts and stops) up to and
  # including the id is not divisible by two.
  num_edges = jnp.searchsorted(
    jnp.asarray(edges)[language],
    jnp.arange(size, dtype=jnp.int32),
    side='right',
  )
  return num_edges % 2 == 1
