"""Text generation for batches of source sequences."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models.decoding import beam_search, decoding_step, sampling
from xlflax.models.decoding.decoding_options import DecodingOptions, Method
from xlflax.utils import errors

# Key of the batch -> argument of the encoder.
_ENCODER_ARGUMENTS = {
  batch_keys.TOKEN_IDS: 'token_ids',
  batch_keys.SEGMENT_IDS: 'segment_ids',
  batch_keys.POSITIONS: 'positions',
  batch_keys.LANGUAGE_IDS: 'language_ids',
  batch_keys.SIDE_IDS: 'token_type_ids',
}


def generate(
  model,
  params,
  batch: Mapping[str, jax.Array],
  *,
  options: DecodingOptions,
  vocabulary: vocabulary_spec.VocabularySpec,
  decoder_start: jax.Array,
  language_ids: jax.Array | None = None,
  max_lengths: jax.Array | None = None,
  rng: jax.Array | None = None,
) -> decoding_step.Hypotheses:
  """Generates one or more sequences for each source sequence of a batch.

  The program is compiled once for each batch shape. Inside the scope of a
  partitioner, it runs sharded, as in training.

  Args:
    model: `EncoderDecoder` model to decode with.
    params: Parameters `{'model': ...}`, as in training and in checkpoints.
    batch: Arrays of the source sequences: `token_ids`, int32 of shape [B, T],
      and optionally segment_ids (one segment per sequence, 0 for padding),
      positions, language_ids and side_ids.
    options: Decoding options, such as the method and the maximum length.
    vocabulary: Vocabulary specification with the ids of the end symbol and the
      padding symbol.
    decoder_start: First input tokens of the decoder, int32 of shape [B] or
      [B, P], such as the symbol of a language, or the padding symbol for T5.
    language_ids: Language ids of the generated sequences, int32 of shape [B],
      for models with language embeddings.
    max_lengths: Maximum number of generated tokens per sequence, int32 of shape
      [B]. It is limited to `options.max_length`, which is also the default.
    rng: Random key for `Method.SAMPLE`. Other methods do not need it.

  Returns:
    Hypotheses with tokens of shape [B, num_samples, max_length].

  Raises:
    ConfigError: If the model has too few positions, sampling has no random key,
      or the shape of `decoder_start` does not match the batch.
  """
  inputs = {
    argument: jnp.asarray(batch[key])
    for key, argument in _ENCODER_ARGUMENTS.items()
    if key in batch
  }
  prefix = jnp.asarray(decoder_start, jnp.int32)
  prefix = prefix[:, None] if prefix.ndim == 1 else prefix
  _check_arguments(model, options, inputs, prefix, rng)
  program = compile_generate(
    model, options, vocabulary.eos_id, vocabulary.pad_id
  )
  if max_lengths is None:
    max_lengths = jnp.full(prefix.shape[0], options.max_length)
  limits = jnp.minimum(jnp.asarray(max_lengths, jnp.int32), options.max_length)
  return program(params['model'], inputs, prefix, limits, language_ids, rng)


@functools.lru_cache(maxsize=32)
def compile_generate(
  model: Any, options: DecodingOptions, eos_id: int, pad_id: int
):
  """Returns the jitted generation program for a model and decoding options.

  Args:
    model: `EncoderDecoder` model to decode with.
    options: Decoding options, such as the method and the maximum length.
    eos_id: Id of the token that ends a sequence.
    pad_id: Id of the token that follows the end symbol.

  Returns:
    A function of parameters, encoder inputs, prefix, limits, language ids and
    random key that returns `Hypotheses`.
  """

  def program(params, inputs, prefix, limits, language_ids, rng):
    rows_per_source = options.rows_per_source
    if language_ids is not None:
      language_ids = jnp.repeat(language_ids, rows_per_source)[:, None]
    stepper = decoding_step.Stepper(
      model=model,
      params=params,
      options=options,
      eos_id=eos_id,
      pad_id=pad_id,
      prefix=jnp.repeat(prefix, rows_per_source, axis=0),
      limits=jnp.repeat(limits, rows_per_source),
      language_ids=language_ids,
    )
    if options.method is Method.BEAM:
      return beam_search.beam_search(stepper, inputs)
    return sampling.sample_tokens(stepper, inputs, rng)

  return jax.jit(program)


def _check_arguments(model, options, inputs, prefix, rng) -> None:
  """Raises ConfigError for arguments that `generate` does not support."""
  num_positions = prefix.shape[1] - 1 + options.max_length
  if num_positions > model.config.max_position_embeddings:
    raise errors.ConfigError(
      f'Decoding requires {num_positions} positions, because max_length is '
      f'{options.max_length} and the number of start tokens is '
      f'{prefix.shape[1]}, but the decoder supports at most '
      f'{model.config.max_position_embeddings} positions',
      where=errors.field_location(options, 'max_length'),
    )
  batch_size = inputs['token_ids'].shape[0]
  if prefix.shape[0] != batch_size or prefix.ndim != 2:
    raise errors.ConfigError(
      f'`decoder_start` must have the shape [{batch_size}] or [{batch_size}, '
      'length], because the first dimension is the batch dimension',
      got=prefix.shape,
    )
  if options.method is Method.SAMPLE and rng is None:
    raise errors.ConfigError(
      '`generate` requires a jax.random key for sampling, but `rng` is None'
    )
