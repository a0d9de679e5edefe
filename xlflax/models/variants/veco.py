"""Plug-in cross-attention and sentence-pair features of VECO."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import encoder_config
from xlflax.models.attention import masks
from xlflax.utils import errors


class PlugIn(nn.Module):
  """Base class that defines the methods of encoders with cross-attention.

  This is a base class of `Encoder`, which has the parameters and runs the
  layers (`_run`).
  """

  config: encoder_config.EncoderConfig

  def plug_in(
    self,
    token_ids: jax.Array,
    memory: jax.Array,
    *,
    memory_segment_ids: jax.Array | None = None,
    segment_ids: jax.Array | None = None,
    **inputs,
  ) -> jax.Array:
    """Returns VECO's hidden states S^L, with cross-attention to a paired input.

    A layer consists of self-attention, cross-attention to `memory` and a
    feed-forward block, each with residual connection and layer norm: attention
    "to its own context and then to all words" of the pair (section 1; figure
    2c; equations 6 to 9). Equation 6 denotes the query by S^{l-1}. Here, the
    query is computed from the output of the self-attention block, as in the
    decoder that such a layer initializes (section 3.2).

    Args:
      token_ids: Token ids, int32 of shape [B, T].
      memory: Hidden states of the paired input, as returned by `encode`, of
        shape [B, S, H]. The caller stops their gradient if necessary.
      memory_segment_ids: Segment ids of the memory, int32 of shape [B, S], with
        0 for padding. Segment k of `segment_ids` attends to segment k of the
        memory. If None, every position attends to the complete memory.
      segment_ids: Segment ids, as in the other methods of `Encoder`.
      **inputs: Further inputs, as in the other methods of `Encoder`.

    Returns:
      An array of shape [B, T, H] and the compute dtype.

    Raises:
      ConfigError: If the encoder has no cross-attention, or the shapes of
        memory and tokens do not match.
    """
    check_memory(self.config, token_ids, memory, memory_segment_ids)
    mask = masks.make_cross_attention_mask(
      segment_ids, memory_segment_ids, length=token_ids.shape[1]
    )
    states, _ = self._run(
      token_ids,
      collect=False,
      segment_ids=segment_ids,
      memory=memory.astype(self.config.compute_dtype),
      memory_mask=mask,
      **inputs,
    )
    return states


def check_memory(
  config: encoder_config.EncoderConfig,
  token_ids: jax.Array,
  memory: jax.Array,
  memory_segment_ids: jax.Array | None,
) -> None:
  """Raises ConfigError if cross-attention is disabled or shapes do not match.

  Args:
    config: Configuration of the encoder.
    token_ids: Token ids, int32 of shape [B, T].
    memory: Hidden states of the paired input, of shape [B, S, H].
    memory_segment_ids: Segment ids of the memory, int32 of shape [B, S], or
      None.
  """
  check_enabled(config, where='Encoder.plug_in')
  rows = token_ids.shape[0]
  if (
    memory.ndim != 3
    or memory.shape[0] != rows
    or memory.shape[2] != config.hidden_dim
  ):
    raise errors.ConfigError(
      f'Encoder.plug_in requires `memory` of shape ({rows}, length, '
      f'{config.hidden_dim}) for token ids of shape {tuple(token_ids.shape)}',
      got=tuple(memory.shape),
      fix='Pass the result of `encode` for the paired sequences.',
    )
  if (
    memory_segment_ids is not None
    and memory_segment_ids.shape != memory.shape[:2]
  ):
    raise errors.ConfigError(
      'Encoder.plug_in requires that the shape of `memory_segment_ids` equals '
      'the first two dimensions of `memory`',
      got=tuple(memory_segment_ids.shape),
      expected=tuple(memory.shape[:2]),
    )


def check_enabled(config, *, where: str) -> None:
  """Raises ConfigError if a model has no cross-attention.

  Args:
    config: Configuration of the model.
    where: Location that the error message reports, such as 'Encoder.plug_in'.
  """
  if not hasattr(config, 'cross_attention'):
    raise errors.ConfigError(
      'The plug-in module requires a model with an EncoderConfig',
      got=type(config).__name__,
      where=where,
      fix='Set the macro MODEL to an Encoder.',
    )
  if not config.cross_attention:
    raise errors.ConfigError(
      'The encoder has no cross-attention, which the plug-in module requires',
      got='cross_attention=False',
      where=where,
      fix='Set EncoderConfig.cross_attention = True.',
    )


def pair_features(
  encoder,
  first: dict[str, Any],
  second: dict[str, Any],
  *,
  stop_gradient_memory: bool = True,
  deterministic: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """Computes the sentence-pair features that VECO passes to fine-tuned heads.

  The features [H^L : S^L] are concatenations of hidden states. H^L is the
  result of the plug-out pass. S^L is the result of the plug-in pass that
  attends to H^L of the other sentence (VECO, section 3.1). Plug-out fine-tuning
  uses only `Encoder.encode`. The function can be applied as a method of the
  encoder:

    model.apply({'params': params}, first, second, method=pair_features)

  Args:
    encoder: `Encoder` module that is bound to its parameters.
    first: Mapping from names to inputs of the first sentences: `token_ids` of
      shape [B, T], and optionally segment_ids, positions, language_ids and
      token_type_ids.
    second: Mapping from names to inputs of the second sentences, as in `first`,
      of shape [B, S].
    stop_gradient_memory: Whether to stop the gradient of H^L, the hidden states
      of the paired sentence, when S^L is computed. Pretraining stops this
      gradient (VECO, section 2.2). If False, the gradient passes through 2 L
      layers.
    deterministic: Whether to disable dropout.

  Returns:
    Arrays of shape [B, T, 2 H] and [B, S, 2 H] and the compute dtype.

  Raises:
    ConfigError: If the encoder has no cross-attention, or the inputs have
      different batch sizes.
  """
  first_states, second_states = (
    encoder.encode(**inputs, deterministic=deterministic)
    for inputs in (first, second)
  )

  def add_plug_in_states(inputs, states, paired_inputs, paired_states):
    memory = paired_states
    if stop_gradient_memory:
      memory = jax.lax.stop_gradient(memory)
    plug_in_states = encoder.plug_in(
      **inputs,
      memory=memory,
      deterministic=deterministic,
      memory_segment_ids=paired_inputs.get('segment_ids'),
    )
    return jnp.concatenate([states, plug_in_states], axis=-1)

  return (
    add_plug_in_states(first, first_states, second, second_states),
    add_plug_in_states(second, second_states, first, first_states),
  )
