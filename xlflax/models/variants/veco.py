"""VECO's plug-in module: its pass, checks of its inputs, features of pairs."""

import enum
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import encoder_config as model_config
from xlflax.models.attention import masks
from xlflax.utils import errors, validation


class MemoryGradient(enum.Enum):
  """Whether the loss of one side of a pair trains the other side's states."""

  STOP = 'stop'  # the memory is a constant (VECO, section 2.2)
  FLOW = 'flow'  # the gradient runs through 2 L layers


class PlugIn(nn.Module):
  """What an encoder with cross-attention does beside an ordinary one.

  A base of `Encoder`, which has the parameters and runs the layers (`_run`).
  """

  config: model_config.EncoderConfig

  def plug_in(
    self,
    token_ids: jax.Array,
    memory: jax.Array,
    *,
    memory_segment_ids: jax.Array | None = None,
    segment_ids: jax.Array | None = None,
    **inputs,
  ) -> jax.Array:
    """VECO's S^L: each layer also attends to a paired input's states.

    A layer is self-attention, cross-attention to `memory`, feed-forward, with
    residual and layer norm each: attention "to its own context and then to all
    words" of the pair (section 1; figure 2c; equations 6 to 9). Equation 6
    writes the query as S^{l-1}; it is that of the self-attention block's
    output, as in the decoder that such a layer initialises (section 3.2).

    Args:
      token_ids: int32 [B, T].
      memory: [B, S, H], the last layer's states of the paired input, from
        `encode`. Its gradient is the caller's to stop.
      memory_segment_ids: int32 [B, S]; segment k of `segment_ids` attends to
        segment k of the memory, 0 is padding. None: all of it is seen.
      segment_ids: as of every method (see the class).
      **inputs: likewise.

    Returns:
      [B, T, H] in the compute dtype.

    Raises:
      ConfigError: the encoder has no cross-attention, or memory and tokens do
        not fit together.
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
  config: model_config.EncoderConfig,
  token_ids: jax.Array,
  memory: jax.Array,
  memory_segment_ids: jax.Array | None,
) -> None:
  """Raises ConfigError without the module or if the memory does not fit.

  Args:
    config: of the encoder.
    token_ids: int32 [B, T].
    memory: [B, S, H].
    memory_segment_ids: int32 [B, S], or None.
  """
  check_enabled(config, where='Encoder.plug_in')
  rows = token_ids.shape[0]
  if (
    memory.ndim != 3
    or memory.shape[0] != rows
    or memory.shape[2] != config.hidden_dim
  ):
    raise errors.ConfigError(
      'The memory does not fit the tokens that attend to it',
      got=f'a memory {tuple(memory.shape)} for token ids '
      f'{tuple(token_ids.shape)}',
      expected=f'({rows}, length, {config.hidden_dim})',
      where='Encoder.plug_in',
      fix='take the states that this encoder gives the paired rows',
    )
  if (
    memory_segment_ids is not None
    and memory_segment_ids.shape != memory.shape[:2]
  ):
    raise errors.ConfigError(
      'The segments of the memory do not fit it',
      got=tuple(memory_segment_ids.shape),
      expected=tuple(memory.shape[:2]),
      where='Encoder.plug_in',
    )


def check_enabled(config, *, where: str) -> None:
  """Raises ConfigError if a model of this config has no cross-attention."""
  if not hasattr(config, 'cross_attention'):
    raise errors.ConfigError(
      'Only an encoder has cross-attention to plug in',
      got=type(config).__name__,
      expected='EncoderConfig',
      where=where,
      fix='set MODEL to an Encoder',
    )
  if not config.cross_attention:
    raise errors.ConfigError(
      'The model has no cross-attention to plug in',
      got='cross_attention = False',
      expected='cross_attention = True',
      where=where,
      fix='set EncoderConfig.cross_attention = True',
    )


def pair_features(
  encoder,
  first: dict[str, Any],
  second: dict[str, Any],
  *,
  memory_gradient: MemoryGradient = MemoryGradient.STOP,
  deterministic: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """Returns [H^L_x : S^L_x] and [H^L_y : S^L_y] for plug-in fine-tuning.

  H^L comes from the plug-out pass, S^L from the plug-in pass that attends to
  the other side's H^L (VECO, section 3.1). Plug-out fine-tuning uses
  `Encoder.encode` alone. The function serves as a method of the encoder:

    model.apply({'params': params}, first, second, method=pair_features)

  Args:
    encoder: a bound `Encoder`.
    first: its inputs by name: `token_ids` [B, T], and what there is of
      segment_ids, positions, language_ids, token_type_ids.
    second: those of the paired rows, [B, S].
    memory_gradient: STOP, as in pretraining, or FLOW.
    deterministic: False turns dropout on.

  Returns:
    [B, T, 2 H] and [B, S, 2 H] in the compute dtype.

  Raises:
    ConfigError: the encoder has no cross-attention, or the sides have different
      numbers of rows.
  """
  gradient = validation.validate(
    memory_gradient, MemoryGradient, name='memory_gradient'
  )
  sides = (first, second)
  plug_out = [
    encoder.encode(**side, deterministic=deterministic) for side in sides
  ]
  features = []
  for i, side in enumerate(sides):
    memory = plug_out[1 - i]
    if gradient is MemoryGradient.STOP:
      memory = jax.lax.stop_gradient(memory)
    plug_in = encoder.plug_in(
      **side,
      memory=memory,
      deterministic=deterministic,
      memory_segment_ids=sides[1 - i].get('segment_ids'),
    )
    features.append(jnp.concatenate([plug_out[i], plug_in], axis=-1))
  return features[0], features[1]
