"""Greedy decoding and sampling, one token at a time."""

import jax
import jax.numpy as jnp

from xlflax.models.decoding import decoding_step
from xlflax.models.decoding.decoding_options import DecodingOptions, Method


def sample_tokens(
  stepper: decoding_step.Stepper, inputs, rng: jax.Array | None
) -> decoding_step.Hypotheses:
  """Decodes greedily, or samples with the key `rng`."""
  options = stepper.options
  rows, length = stepper.prefix.shape[0], options.max_length

  def body(carry):
    i, tokens, current, finished, scores, cache = carry
    log_probs, cache = stepper.log_probabilities(current, cache, i)
    chosen = _choose(log_probs, options, rng, i)
    chosen = jnp.where(finished, stepper.pad_id, chosen)
    gain = jnp.take_along_axis(log_probs, chosen[:, None], axis=1)[:, 0]
    scores = scores + jnp.where(finished, 0.0, gain)
    tokens = tokens.at[:, i].set(chosen)
    finished |= (chosen == stepper.eos_id) | (i + 1 >= stepper.limits)
    return i + 1, tokens, chosen, finished, scores, cache

  _, tokens, _, _, scores, _ = jax.lax.while_loop(
    lambda carry: (carry[0] < length) & ~carry[3].all(),
    body,
    (
      jnp.int32(0),
      jnp.full((rows, length), stepper.pad_id, jnp.int32),
      stepper.prefix[:, -1],
      jnp.zeros(rows, bool),
      jnp.zeros(rows),
      stepper.start(inputs),
    ),
  )
  num_samples = options.num_samples
  return decoding_step.Hypotheses(
    tokens.reshape(-1, num_samples, length), scores.reshape(-1, num_samples)
  )


def _choose(log_probs, options: DecodingOptions, rng, i) -> jax.Array:
  """The next token of each row: [R, V] -> int32 [R]."""
  if options.method is Method.GREEDY:
    return jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
  logits = truncate_logits(
    log_probs / options.temperature, top_k=options.top_k, top_p=options.top_p
  )
  key = jax.random.fold_in(rng, i)
  return jax.random.categorical(key, logits).astype(jnp.int32)


def truncate_logits(
  logits: jax.Array, *, top_k: int | None, top_p: float
) -> jax.Array:
  """Returns `logits` with -inf for tokens that must not be drawn.

  Tokens as probable as the last one that is kept are kept as well.

  Args:
    logits: [R, V].
    top_k: keep this many; None: all.
    top_p: of those, keep the most probable ones until their probabilities sum
      to this; at least one.

  Returns:
    [R, V].
  """
  if top_k is not None and top_k < logits.shape[-1]:
    smallest_kept = jax.lax.top_k(logits, top_k)[0][:, -1:]
    logits = jnp.where(logits < smallest_kept, -jnp.inf, logits)
  if top_p < 1:
    falling = jnp.sort(logits, axis=-1, descending=True)
    probabilities = jax.nn.softmax(falling, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    kept_logits = jnp.where(before < top_p, falling, jnp.inf)
    smallest_kept = jnp.min(kept_logits, axis=-1, keepdims=True)
    logits = jnp.where(logits < smallest_kept, -jnp.inf, logits)
  return logits
