"""From a batch of source rows to generated rows."""

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

# Key of the batch -> the encoder's argument.
_INPUTS = {
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
  """Generates one or more rows for each row of a batch.

  The program is compiled once for batches of the same shapes. Within a
  partitioner's scope it runs sharded, as training does.

  Args:
    model: an `EncoderDecoder`.
    params: `{'model': ...}`, as in training and in checkpoints.
    batch: `token_ids` int32 [B, T] of the source and what there is of
      segment_ids (one segment a row, 0 is padding), positions, language_ids and
      side_ids.
    options: how to generate.
    vocabulary: says which tokens end and fill rows.
    decoder_start: int32 [B], or [B, P]: the first tokens that the decoder reads
      (a language's symbol, the padding symbol for T5, ..).
    language_ids: int32 [B], of what is generated; for models with language
      embeddings.
    max_lengths: int32 [B], tokens generated at most for each row; None, or more
      than `options.max_length`: that many.
    rng: key, for `Method.SAMPLE`.

  Returns:
    The hypotheses, [B, num_samples, max_length].

  Raises:
    ConfigError: `max_length` is beyond the model's positions, there is no key
      to sample with, or the start does not fit the batch.
  """
  inputs = {
    argument: jnp.asarray(batch[key])
    for key, argument in _INPUTS.items()
    if key in batch
  }
  prefix = jnp.asarray(decoder_start, jnp.int32)
  prefix = prefix[:, None] if prefix.ndim == 1 else prefix
  _check(model, options, inputs, prefix, rng)
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
  """Returns the jitted program for a model and way of generating."""

  def program(params, inputs, prefix, limits, language_ids, rng):
    rows_per_source = options.rows_per_source
    if language_ids is not None:
      language_ids = jnp.repeat(language_ids, rows_per_source)[:, None]
    stepper = decoding_step.Stepper(
      model,
      params,
      options,
      eos_id,
      pad_id,
      jnp.repeat(prefix, rows_per_source, axis=0),
      jnp.repeat(limits, rows_per_source),
      language_ids,
    )
    if options.method is Method.BEAM:
      return beam_search.beam_search(stepper, inputs)
    return sampling.sample_tokens(stepper, inputs, rng)

  return jax.jit(program)


def _check(model, options, inputs, prefix, rng) -> None:
  needed = prefix.shape[1] - 1 + options.max_length
  if needed > model.config.max_length:
    raise errors.ConfigError(
      'The decoder has fewer positions than decoding needs',
      got=f'{needed} (max_length = {options.max_length}, and a start of '
      f'{prefix.shape[1]})',
      expected=f'at most {model.config.max_length}',
      where='DecodingOptions.max_length',
    )
  if prefix.shape[0] != inputs['token_ids'].shape[0] or prefix.ndim != 2:
    raise errors.ConfigError(
      'The start of decoding does not fit the batch',
      got=f'shape {prefix.shape}',
      expected=f'one row for each of {inputs["token_ids"].shape[0]}',
      where='decoder_start',
    )
  if options.method is Method.SAMPLE and rng is None:
    raise errors.ConfigError(
      'Sampling needs a key',
      got='rng = None',
      expected='a jax.random key',
      where='generate',
    )
