"""Attention modules and the Transformer encoder layer.

Shapes use these letters: B is the batch size, T the length of the queries, S
the length of keys and values, H the hidden width, N the number of heads, and D
the width of a head.
"""

import functools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  adapter_config,
  adapter_layers,
  custom_vjp,
  dropout,
  encoder_config,
  feed_forward,
  norms,
)
from xlflax.models.attention import (
  attention_backends,
  attention_weights,
  masks,
  rotary,
)
from xlflax.models.linear import dense
from xlflax.models.variants import disentangled

_Config = encoder_config.EncoderConfig

FeedForward = feed_forward.FeedForward
LayerNorm = norms.LayerNorm
Linear = dense.Linear
constrain = dense.constrain_sharding
gather_output_table = dense.gather_output_table
logits = dense.compute_logits
weights_init = dense.weights_init
table_init = dense.table_init
zeros_init = dense.zeros_init


class Attention(nn.Module):
  """Multi-head attention (Vaswani et al. 2017, section 3.2).

  If `config.num_kv_heads` is K, neighboring query heads share keys and values
  (Ainslie et al. 2023). Keys and values then have K heads instead of N.

  `__call__` of the subclasses applies `attend` to `keys_values`. A decoder that
  caches keys and values calls the two methods separately.
  """

  config: _Config

  def setup(self):
    config = self.config
    groups = config.num_kv_heads or config.num_heads
    self.query, self.key, self.value = (
      Linear(
        config,
        (heads, config.dim_per_head),
        ('embed', 'heads', 'kv'),
        use_bias=config.attention_bias,
      )
      for heads in (config.num_heads, groups, groups)
    )
    self.output = Linear(
      config,
      (config.hidden_dim,),
      ('heads', 'kv', 'embed'),
      use_bias=config.attention_bias,
    )

  def keys_values(
    self,
    memory: jax.Array,
    *,
    value_memory: jax.Array | None = None,
    deterministic: bool = True,
  ) -> tuple[jax.Array, jax.Array]:
    """Projects hidden states to keys and values.

    Args:
      memory: Hidden states of shape [B, S, H].
      value_memory: Copy of `memory` from which the values are computed (see
        `custom_vjp.split_for_accumulation`). If None, it is `memory`.
      deterministic: Whether to disable the dropout of LoRA.

    Returns:
      Keys and values of shape [B, S, N, D] each.
    """
    if value_memory is None:
      value_memory = memory
    key = self.key(memory, deterministic=deterministic)
    value = self.value(value_memory, deterministic=deterministic)
    return _constrain_heads(key), _constrain_heads(value)

  def attend(
    self,
    states: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation: rotary.Rotation | None = None,
  ) -> jax.Array:
    """Computes attention from hidden states to given keys and values.

    Args:
      states: Hidden states from which queries are computed, of shape [B, T, H].
      key: Keys of shape [B, S, N, D].
      value: Values of shape [B, S, N, D].
      mask: Attention mask, a `Mask` or a bool array of shape [B or 1, 1, T, S].
        If None, every query attends to every key.
      deterministic: Whether to disable dropout.
      rotation: Rotary angles of the queries. The keys must already be rotated.

    Returns:
      Output of shape [B, T, H].
    """
    query = _constrain_heads(self.query(states, deterministic=deterministic))
    if rotation is not None:
      query = rotary.apply_rotary(query, rotation)
    attention_weights.record_attention_weights(self, query, key, mask)
    context = self._context(query, key, value, mask, deterministic)
    return self.output(context, deterministic=deterministic)

  def _context(self, query, key, value, mask, deterministic) -> jax.Array:
    """Returns the weighted values of each head, of shape [B, T, N, D]."""
    config = self.config
    has_dropout = config.attention_dropout_rate and not deterministic
    return attention_backends.dot_product_attention(
      query,
      key,
      value,
      mask,
      backend=config.attention_backend,
      dropout_rate=config.attention_dropout_rate,
      dropout_key=self.make_rng('dropout') if has_dropout else None,
    )


class SelfAttention(Attention):
  """Self-attention of one sequence (VECO, equations 2 to 5)."""

  def __call__(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation: rotary.Rotation | disentangled.Relative | None = None,
    copies: tuple[jax.Array, jax.Array] | None = None,
  ) -> jax.Array:
    """Computes attention between the positions of each sequence.

    Args:
      states: Hidden states of shape [B, T, H].
      mask: Attention mask between queries and keys, of shape [T, T]. If None,
        every position attends to all positions.
      deterministic: Whether to disable dropout.
      rotation: Rotary angles of queries and keys, or the relative embeddings of
        disentangled attention. If None, neither is applied.
      copies: Two copies of `states` from which the keys and the values are
        computed (see `custom_vjp.split_for_accumulation`). If None, `states`
        are used.

    Returns:
      Output of shape [B, T, H].
    """
    if isinstance(rotation, disentangled.Relative):
      return self._disentangled(states, mask, rotation, deterministic)
    key_states, value_states = copies or (states, states)
    key, value = self.keys_values(
      key_states, value_memory=value_states, deterministic=deterministic
    )
    if rotation is not None:
      key = rotary.apply_rotary(key, rotation)
    return self.attend(
      states, key, value, mask, rotation=rotation, deterministic=deterministic
    )

  def _disentangled(self, states, mask, relative, deterministic) -> jax.Array:
    """Returns attention to contents and distances, of shape [B, T, H]."""
    config = self.config
    key, value = self.keys_values(states, deterministic=deterministic)
    has_dropout = config.attention_dropout_rate and not deterministic
    table = relative.table[None]
    return self.output(
      disentangled.disentangled_attention(
        _constrain_heads(self.query(states, deterministic=deterministic)),
        key,
        value,
        relative_query=self.query(table)[0],
        relative_key=self.key(table)[0],
        index=relative.rows,
        mask=mask,
        dropout_rate=config.attention_dropout_rate,
        dropout_key=self.make_rng('dropout') if has_dropout else None,
      ),
      deterministic=deterministic,
    )


class CrossAttention(Attention):
  """Attention from one sequence to another sequence's hidden states.

  This is VECO's plug-in module (equations 6 to 9) and the attention of a
  decoder to its encoder. A query with no visible memory position yields zeros.
  """

  def __call__(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
  ) -> jax.Array:
    """Maps states [B, T, H], memory [B, S, H], mask [T, S] to [B, T, H]."""
    key, value = self.keys_values(memory, deterministic=deterministic)
    return self.attend(states, key, value, mask, deterministic=deterministic)


def _copy_for_projections(
  states: jax.Array,
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
  """Returns copies of states: (for the keys, for the values), for the queries."""
  key_states, states = custom_vjp.split_for_accumulation(states)
  value_states, states = custom_vjp.split_for_accumulation(states)
  return (key_states, value_states), states


def _constrain_heads(states: jax.Array) -> jax.Array:
  """Constrains the sharding of an array of shape [B, T, N, D]."""
  return constrain(states, 'batch', 'length', 'heads', 'kv')


class EncoderLayer(nn.Module):
  """Encoder layer with self-attention, cross-attention and feed-forward blocks.

  Each block has a residual connection and a layer norm. The cross-attention
  exists only if `config.cross_attention` is set, and is skipped if there is no
  memory (VECO's layer with the module plugged out, section 2.2). The blocks are
  methods, so that a decoder can run them separately.
  """

  config: _Config

  def setup(self):
    self.attention = SelfAttention(self.config)
    self.attention_norm = LayerNorm(self.config)
    if self.config.cross_attention:
      self.cross_attention = CrossAttention(self.config)
      self.cross_attention_norm = LayerNorm(self.config)
    self.mlp = FeedForward(self.config)
    self.mlp_norm = LayerNorm(self.config)
    self.dropout = dropout.Dropout(self.config.dropout_rate)
    self.adapters = {
      adapter.name: adapter_layers.make_bottleneck(self.config, adapter)
      for adapter in adapter_config.bottlenecks_of(self.config)
    }

  def __call__(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    memory: jax.Array | None = None,
    memory_mask: masks.Mask | None = None,
    rotation: rotary.Rotation | disentangled.Relative | None = None,
    is_first: jax.Array | bool | None = None,
  ) -> jax.Array:
    """Applies the blocks in order.

    Args:
      states: Hidden states of shape [B, T, H].
      mask: Mask of the self-attention. If None, every position attends to all
        positions.
      deterministic: Whether to disable dropout.
      memory: Hidden states for the cross-attention, of shape [B, S, H]. If
        None, the cross-attention is skipped.
      memory_mask: Mask of the cross-attention. If None, every position attends
        to the complete memory.
      rotation: Rotary angles of queries and keys, or the relative embeddings of
        disentangled attention. If None, neither is applied.
      is_first: Whether this is the first layer of a model whose first layer
        skips the norm before the self-attention. If None, the norm is applied.

    Returns:
      Hidden states of shape [B, T, H].
    """
    states = self.attention_block(
      states,
      mask,
      deterministic=deterministic,
      rotation=rotation,
      is_first=is_first,
    )
    if memory is not None:
      states = self.cross_attention_block(
        states, memory, memory_mask, deterministic=deterministic
      )
    return self.mlp_block(states, deterministic=deterministic)

  def attention_block(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation=None,
    is_first=None,
  ) -> jax.Array:
    """Applies self-attention to states [B, T, H] with a mask [T, T]."""
    copies = None
    is_pre_norm = self.config.norm_position is encoder_config.NormPosition.PRE
    if not is_pre_norm:
      # The residual connection also uses the last copy, so that the matmuls add
      # its gradient.
      copies, states = _copy_for_projections(states)

    def attend(inputs):
      if is_first is not None:
        inputs = jnp.where(is_first, states, inputs)
      input_copies = copies
      if is_pre_norm:
        input_copies, inputs = _copy_for_projections(inputs)
      return self.attention(
        inputs,
        mask,
        rotation=rotation,
        copies=input_copies,
        deterministic=deterministic,
      )

    return self.residual(
      attend, states, self.attention_norm, deterministic=deterministic
    )

  def cross_attention_block(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
  ) -> jax.Array:
    """Applies cross-attention to states [B, T, H] and memory [B, S, H]."""

    def attend(inputs):
      return self.cross_attention(
        inputs, memory, mask, deterministic=deterministic
      )

    return self.residual(
      attend, states, self.cross_attention_norm, deterministic=deterministic
    )

  def mlp_block(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    """Applies the feed-forward block to states [B, T, H]."""
    mlp = functools.partial(self.mlp, deterministic=deterministic)
    return self.residual(
      mlp,
      states,
      self.mlp_norm,
      deterministic=deterministic,
      adapters=[
        self.adapters[adapter.name]
        for adapter in adapter_config.bottlenecks_of(self.config)
      ],
    )

  def residual(
    self,
    function: Callable[[jax.Array], jax.Array],
    states: jax.Array,
    norm: nn.Module,
    *,
    deterministic: bool,
    adapters: Sequence[Callable[[jax.Array], jax.Array]] = (),
  ) -> jax.Array:
    """Applies a block with a residual connection and a layer norm.

    Computes x + f(norm(x)) with pre-norm and norm(x + f(x)) with post-norm,
    where f includes dropout of its output.

    Args:
      function: Function f of the block, which maps hidden states [B, T, H] to
        [B, T, H].
      states: Hidden states x of shape [B, T, H].
      norm: Layer norm, applied to the input x (pre-norm) or to the sum x + f(x)
        (post-norm).
      deterministic: Whether to disable dropout.
      adapters: Bottleneck adapters to apply to the block's output, in order
        (see `adapter_config.Bottleneck`).

    Returns:
      Hidden states of shape [B, T, H].
    """
    is_pre_norm = self.config.norm_position is encoder_config.NormPosition.PRE
    inputs = norm(states) if is_pre_norm else states
    outputs = self.dropout(function(inputs), deterministic=deterministic)
    for adapter in adapters:
      total = states + outputs
      outputs = outputs + adapter(total if is_pre_norm else norm(total))
    states = states + outputs
    if not is_pre_norm:
      states = norm(states)
    return constrain(states, 'batch', 'length', 'embed')
