"""Functions that call the model, bind its parameters and pool hidden states."""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.variants import parameter_sharing
from xlflax.objectives.corruption import masking, random_words

# Batch keys and the model arguments that they are passed as.
_OPTIONAL_ARGUMENTS = {
  batch_keys.SEGMENT_IDS: 'segment_ids',
  batch_keys.POSITIONS: 'positions',
  batch_keys.LANGUAGE_IDS: 'language_ids',
  batch_keys.SIDE_IDS: 'token_type_ids',
}


class Pooling(enum.Enum):
  """Method of pooling hidden states to a sentence vector.

  Attributes:
    MEAN: Mean over all tokens except special tokens.
    MEAN_ALL: Mean over all tokens, as in Sentence-Transformers.
    FIRST: Hidden state of the first position.
  """

  MEAN = 'mean'
  MEAN_ALL = 'mean_all'
  FIRST = 'first'


def language_of(batch) -> jax.Array:
  """Returns the language id of a single-language batch, an int32 scalar.

  Padding, and the sequences that fill the last evaluation batch, have the
  language id 0. The maximum is therefore the language of the complete batch,
  even if the batch is sharded.
  """
  return jnp.max(batch[batch_keys.LANGUAGE_IDS])


def bind_language_params(model, params, batch, vocabulary: VocabularySpec):
  """Selects the parameters for a batch's language.

  If the languages share all parameters, `params` is returned unchanged. If some
  parameters are separate for each language (a sharing plan), the result has the
  shape of an ordinary encoder's parameters: the shared parameters and the
  parameters of the batch's language. If the language has separate embeddings,
  its softmax covers only its words and the special symbols. Words of other
  languages get probability 0, provided that the vocabulary records the
  languages of its words.

  Args:
    model: Linen module of the model.
    params: Parameters `{'model': ..., 'heads': ...}`.
    batch: Mapping from batch keys to arrays of single sequences. All sequences
      have the same language.
    vocabulary: Vocabulary specification with sizes, special ids and the words
      of each language.

  Returns:
    A tree like `params`, for `call_model` and `encode_batch`.
  """
  plan = parameter_sharing.get_sharing_plan(model)
  if plan is None:
    return params
  language = language_of(batch)
  selected = parameter_sharing.select_language_params(
    plan, params['model'], language
  )
  if plan.embeddings and vocabulary.language_words:
    bias = selected['output_bias']
    in_language = random_words.language_token_mask(
      language, vocabulary, bias.shape[0]
    )
    selected['output_bias'] = jnp.where(in_language, bias, MASKED_SCORE)
  return {**params, 'model': selected}


def call_model(
  model,
  params,
  method: str | Callable,
  *args,
  rng: jax.Array | None = None,
  **kwargs,
):
  """Calls a method of the model with `params['model']`.

  Args:
    model: Linen module of the model.
    params: Parameters returned by `bind_language_params`.
    method: Name of the model's method, or a function whose first argument is
      the bound model.
    *args: Positional arguments of the method.
    rng: Random key for dropout. If None, the model is called without a key.
    **kwargs: Keyword arguments of the method.
  """
  rngs = None if rng is None else {'dropout': rng}
  return model.apply(
    {'params': params['model']}, *args, method=method, rngs=rngs, **kwargs
  )


def model_kwargs(batch) -> dict[str, jax.Array]:
  """Returns a batch's optional model inputs as keyword arguments."""
  return {
    name: batch[key]
    for key, name in _OPTIONAL_ARGUMENTS.items()
    if key in batch
  }


def encode_batch(
  model, params, batch, *, context, rng: jax.Array, layer: int | None = None
) -> jax.Array:
  """Computes a batch's hidden states, with dropout during training.

  Args:
    model: Linen module of the model.
    params: Parameters `{'model': ..., 'heads': ...}`.
    batch: Mapping with `token_ids` of shape [B, T] and, optionally,
      segment_ids, positions and language_ids.
    context: `ObjectiveContext`, whose field `train` determines whether dropout
      is applied.
    rng: Random key for dropout.
    layer: Index of the layer whose output is returned, where 0 is the embedding
      layer. If None, the final hidden states are returned.

  Returns:
    Hidden states of shape [B, T, H] in the compute dtype of the model.
  """
  kwargs = model_kwargs(batch)
  method = 'encode' if layer is None else 'encode_layers'
  states = call_model(
    model,
    params,
    method,
    batch[batch_keys.TOKEN_IDS],
    rng=rng,
    deterministic=not context.train,
    **kwargs,
  )
  return states if layer is None else states[layer]


def pool_hidden_states(
  states: jax.Array, text: jax.Array, pooling: Pooling
) -> jax.Array:
  """Pools hidden states to sentence vectors.

  Args:
    states: Hidden states of shape [B, T, H].
    text: Boolean array of shape [B, T], True for tokens over which MEAN and
      MEAN_ALL average.
    pooling: Method of pooling hidden states: FIRST, MEAN or MEAN_ALL. FIRST
      returns the state of the first position, so in a packed sequence, the
      vector represents only the first text.

  Returns:
    float32 array of shape [B, H]. The mean over no tokens is 0.
  """
  if pooling is Pooling.FIRST:
    return states[:, 0].astype(jnp.float32)
  weights = text.astype(jnp.float32)
  total = jnp.einsum(
    'bth,bt->bh',
    states.astype(jnp.float32),
    weights,
    precision=jax.lax.Precision.HIGHEST,
  )
  return total / jnp.maximum(jnp.sum(weights, axis=1), 1.0)[:, None]


def sentence_vectors(
  model, params, batch, *, context, rng: jax.Array, pooling: Pooling
) -> jax.Array:
  """Encodes sequences and pools their hidden states.

  MEAN averages over text tokens and MEAN_ALL over all tokens.

  Args:
    model: Linen module of the model.
    params: Parameters returned by `bind_language_params`.
    batch: Mapping from batch keys to arrays of the sequences, as in
      `encode_batch`.
    context: `ObjectiveContext`, whose field `train` determines whether dropout
      is applied.
    rng: Random key for dropout.
    pooling: Method of pooling the hidden states.

  Returns:
    float32 array of shape [B, H].
  """
  token_mask = (
    masking.is_text if pooling is Pooling.MEAN else masking.is_present
  )
  states = encode_batch(model, params, batch, context=context, rng=rng)
  return pool_hidden_states(
    states, token_mask(batch, context.vocabulary), pooling
  )


def row_languages(batch, vocabulary: VocabularySpec) -> jax.Array:
  """Returns the language id of each sequence's first text token, int [B]."""
  text = masking.is_text(batch, vocabulary)
  first = jnp.argmax(text, axis=1)
  return masking.gather_rows(batch[batch_keys.LANGUAGE_IDS], first[:, None])[
    :, 0
  ]
