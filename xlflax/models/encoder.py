"""The Transformer encoder: BERT, RoBERTa, XLM and XLM-R by configuration."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import attention, embeddings, layers
from xlflax.models import config as model_config

_NEVER = -1e9  # output bias of the table's rows beyond the vocabulary


class Encoder(nn.Module):
  """From token ids to states, and from states to tied logits.

  Every method that reads tokens takes `token_ids` int32 [B, T] and, by
  keyword:

  - segment_ids: int32 [B, T]; a position attends to its own segment only, 0
    is padding, which no text attends to. None: all attend to all.
  - positions: int32 [B, T], from 0. None: 0 .. T - 1.
  - language_ids: int32 [B, T]; read if `config.use_language_embeddings`.
  - token_type_ids: int32 [B, T]; read if `config.type_vocab_size`; None: 0.
  - deterministic: False turns dropout on, which draws from 'dropout'.

  They raise `ConfigError` for rows longer than `config.max_length`, missing
  language ids and an attention backend that cannot serve the case.
  """

  config: model_config.EncoderConfig

  def setup(self):
    config = self.config
    self.embeddings = embeddings.Embeddings(config)
    self.layers: Any = (
        layers.EncoderLayer(config) if config.scan_layers else
        [layers.EncoderLayer(config) for _ in range(config.num_layers)])
    if config.norm_position is model_config.NormPosition.PRE:
      self.final_norm = layers.LayerNorm(config)
    if config.mlm_head is model_config.MlmHead.TRANSFORM:
      self.head_dense = layers.Linear(
          config, (config.hidden_dim,), ('embed', 'norm'))
      self.head_norm = layers.LayerNorm(config)
    self.output_bias = self.param(
        'output_bias', layers.zeros_init('vocab'), (config.table_size,),
        jnp.float32)

  def __call__(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Logits [B, T, V] of every position; touches every parameter."""
    return self.logits(self.encode(token_ids, **inputs))

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [B, T, H] of the last layer, in the compute dtype."""
    states, _ = self._run(token_ids, collect=False, **inputs)
    return states

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [L + 1, B, T, H]: the embeddings', then each layer's.

    The last is what `encode` returns.
    """
    _, every = self._run(token_ids, collect=True, **inputs)
    return every

  def transform(self, states: jax.Array) -> jax.Array:
    """What the output table is multiplied with: [..., H] -> [..., H]."""
    if self.config.mlm_head is model_config.MlmHead.TIED:
      return states
    activation = layers.ACTIVATIONS[self.config.activation]
    return self.head_norm(activation(self.head_dense(states)))

  def output_table(self) -> tuple[jax.Array, jax.Array]:
    """Tied embeddings [R, H] and output bias [R], float32.

    R is the vocabulary's size V, or beyond it if `config.vocab_multiple` asks
    for it; the bias of the rows from V on is so low that their probability is
    zero.
    """
    rows = jnp.arange(self.config.table_size)
    assert self.config.vocab_size is not None  # `table_size` refuses that
    bias = jnp.where(rows < self.config.vocab_size, self.output_bias, _NEVER)
    table = layers.constrain(self.embeddings.token, 'vocab', None)
    return table, bias

  def logits(self, states: jax.Array) -> jax.Array:
    """float32 logits over the vocabulary: [..., H] -> [..., V]."""
    table, bias = self.output_table()
    hidden = self.transform(states)
    logits = jnp.einsum(
        '...h,vh->...v', hidden, table.astype(hidden.dtype),
        preferred_element_type=jnp.float32)
    logits = logits + jnp.expand_dims(bias, tuple(range(logits.ndim - 1)))
    return logits[..., :self.config.vocab_size]

  def _run(self, token_ids, *, collect: bool, segment_ids=None,
           positions=None, language_ids=None, token_type_ids=None,
           deterministic: bool = True):
    """States after the last layer and, to collect, after each."""
    states = self.embeddings(
        token_ids, positions=positions, language_ids=language_ids,
        token_type_ids=token_type_ids, deterministic=deterministic)
    mask = keep = None
    if segment_ids is not None:
      mask = attention.segment_mask(segment_ids)
      if self.config.padding_states is model_config.PaddingStates.ZERO:
        keep = (segment_ids > 0)[:, :, None].astype(states.dtype)
        states = states * keep
    embedded = states
    states, every = self._layers(states, mask, keep, collect=collect,
                                 deterministic=deterministic)
    states = self._final(states)
    if collect:  # L of [B, T, H], and the embeddings before them
      every = jnp.concatenate(
          [embedded[None], every[:-1], states[None]], axis=0)
    return states, every

  def _layers(self, states, mask, keep, *, collect, deterministic):
    """Scans over the stacked layers, or runs one after the other."""
    config = self.config

    def body(layer, states, mask, keep):
      states = layer(states, mask, deterministic=deterministic)
      if keep is not None:
        states = states * keep
      return states, states if collect else None

    body = _remat(body, config)
    if config.scan_layers:
      return nn.scan(
          body, variable_axes={'params': 0},
          split_rngs={'params': True, 'dropout': True},
          in_axes=(nn.broadcast, nn.broadcast), length=config.num_layers,
          metadata_params={nn.PARTITION_NAME: 'layers'},
      )(self.layers, states, mask, keep)
    outputs = []
    for layer in self.layers:
      states, output = body(layer, states, mask, keep)
      outputs.append(output)
    return states, jnp.stack(outputs) if collect else None

  def _final(self, states: jax.Array) -> jax.Array:
    if self.config.norm_position is model_config.NormPosition.POST:
      return states
    return self.final_norm(states)


def _remat(body, config: model_config.EncoderConfig):
  """`body(layer, states, mask, keep)`, rematerialised as configured."""
  if config.remat is model_config.Remat.NONE:
    return body
  policies = jax.checkpoint_policies
  policy = (policies.nothing_saveable
            if config.remat is model_config.Remat.FULL
            else policies.checkpoint_dots_with_no_batch_dims)
  # A scan's body is compiled by itself: nothing to protect from CSE.
  return nn.remat(body, policy=policy, prevent_cse=not config.scan_layers)
