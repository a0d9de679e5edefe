"""How objectives call the model: keyword arguments from a batch."""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.variants import parameter_sharing
from xlflax.objectives.corruption import masking, random_words

# Key of the batch -> the model's argument.
_OPTIONAL = {
  batch_keys.SEGMENT_IDS: 'segment_ids',
  batch_keys.POSITIONS: 'positions',
  batch_keys.LANGUAGE_IDS: 'language_ids',
  batch_keys.SIDE_IDS: 'token_type_ids',
}


class Pooling(enum.Enum):
  """How the states of a sentence become its vector."""

  MEAN = 'mean'  # over the tokens that are not special
  MEAN_ALL = 'mean_all'  # over all tokens (Sentence-Transformers' mean)
  FIRST = 'first'  # the state of the first position


# Output bias of a word that the batch's language does not have.


def language_of(batch) -> jax.Array:
  """Returns the language id of a batch of one language, int32 scalar.

  Over a sharded batch it is that of the whole batch: padding, and rows that
  fill up an evaluation's last batch, have the language id 0.
  """
  return jnp.max(batch[batch_keys.LANGUAGE_IDS])


def bind_language_params(model, params, batch, vocabulary: VocabularySpec):
  """Returns the parameters that read the text of a batch.

  For a model without a sharing plan these are `params`. Otherwise they are
  those of an ordinary encoder: the shared ones and those of the batch's
  language. Where the language has embeddings of its own, its softmax is over
  its own words and the special symbols: other languages' words get
  probability 0, if the vocabulary knows the language of a word.

  Args:
    model: the Linen module.
    params: `{'model': ..., 'heads': ...}`.
    batch: one side's arrays, all of one language.
    vocabulary: says which words each language has.

  Returns:
    A tree like `params`, for `call_model` and `encode_batch`.
  """
  plan = parameter_sharing.plan_of(model)
  if plan is None:
    return params
  language = language_of(batch)
  selected = parameter_sharing.select_language_params(
    plan, params['model'], language
  )
  if plan.embeddings and vocabulary.language_words:
    bias = selected['output_bias']
    is_own_word = random_words.is_word_of(language, vocabulary, bias.shape[0])
    selected['output_bias'] = jnp.where(is_own_word, bias, MASKED_SCORE)
  return {**params, 'model': selected}


def call_model(
  model,
  params,
  method: str | Callable,
  *args,
  rng: jax.Array | None = None,
  **kwargs,
):
  """Calls `model.method(*args, **kwargs)` with `params['model']` of `bind_language_params`.

  A function serves as a method, too; it takes the bound model first.
  """
  rngs = None if rng is None else {'dropout': rng}
  return model.apply(
    {'params': params['model']}, *args, method=method, rngs=rngs, **kwargs
  )


def model_kwargs(batch) -> dict[str, jax.Array]:
  """Returns the model's keyword arguments in a batch except `token_ids`."""
  return {name: batch[key] for key, name in _OPTIONAL.items() if key in batch}


def encode_batch(
  model, params, batch, *, context, rng: jax.Array, layer: int | None = None
) -> jax.Array:
  """Computes states [B, T, H] of a batch, with dropout in training.

  Args:
    model: the Linen module.
    params: `{'model': ..., 'heads': ...}`.
    batch: `token_ids [B, T]` and what there is of segment_ids, positions and
      language_ids.
    context: says whether dropout is on.
    rng: key of dropout.
    layer: None for the final states; 0 for the embeddings' output, i for
      layer i's.

  Returns:
    [B, T, H] in the model's compute dtype.
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
  """Pools states to sentence vectors.

  Args:
    states: [B, T, H].
    text: bool [B, T], the tokens that count for the mean.
    pooling: a mean, or FIRST.

  Returns:
    float32 [B, H]; the mean over no token is 0.
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
  """Encodes rows and pools their states: float32 [B, H].

  MEAN is over text, the other mean over all tokens; arguments of `encode_batch` and
  `pool_hidden_states`, `params` those of `bind_language_params`.
  """
  counted = masking.is_text if pooling is Pooling.MEAN else masking.is_present
  states = encode_batch(model, params, batch, context=context, rng=rng)
  return pool_hidden_states(states, counted(batch, context.vocabulary), pooling)


def row_languages(batch, vocabulary: VocabularySpec) -> jax.Array:
  """Returns the language of each row's first token of text, int [B]."""
  text = masking.is_text(batch, vocabulary)
  first = jnp.argmax(text, axis=1)
  return masking.gather_rows(batch[batch_keys.LANGUAGE_IDS], first[:, None])[
    :, 0
  ]
