"""Transformer encoder for BERT, RoBERTa, XLM, XLM-R and related models."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  activations,
  adapter_config,
  adapter_layers,
  embeddings,
  encoder_config,
  layers,
  scan_layers,
)
from xlflax.models.attention import attention_weights, layer_masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.variants import disentangled, veco
from xlflax.utils import class_registry, errors


@class_registry.register('encoder')
class Encoder(veco.PlugIn):
  """Transformer encoder with an optional head for masked-LM logits.

  All methods that read tokens take `token_ids`, int32 of shape [B, T], and
  these keyword arguments:

  - segment_ids: Segment ids, int32 of shape [B, T]. A position attends only to
    its own segment. Segment 0 is padding, which no text attends to. If None,
    every position attends to all positions.
  - positions: Positions from 0, int32 of shape [B, T]. If None, 0 to T - 1.
  - language_ids: Language ids, int32 of shape [B, T], used if
    `config.use_language_embeddings` is set.
  - token_type_ids: Token types, int32 of shape [B, T], used if
    `config.type_vocab_size` is not 0. If None, 0.
  - deterministic: Whether to disable dropout. Dropout draws from the random
    stream 'dropout'.

  `plug_in`, which the base class `PlugIn` defines, also takes the hidden states
  of a paired input. It raises `ConfigError` if `config.cross_attention` is not
  set.

  These methods raise `ConfigError` if the sequences are longer than
  `config.max_position_embeddings`, if language ids are missing, or if the
  attention backend does not support the call. `transform`, `output_table` and
  `logits` raise `ConfigError` if the encoder has no head.
  """

  def setup(self):
    config = self.config
    self.embeddings = embeddings.Embeddings(config)
    self.adapters = {
      adapter.name: adapter_layers.InvertibleAdapter(config, adapter)
      for adapter in adapter_config.bottlenecks_of(config)
      if adapter.invertible
    }
    self.layers: Any = (
      layers.EncoderLayer(config)
      if config.scan_layers
      else [layers.EncoderLayer(config) for _ in range(config.num_layers)]
    )
    if self._is_disentangled:
      self.relative = disentangled.RelativeEmbeddings(config)
    if config.norm_position is encoder_config.NormPosition.PRE:
      self.final_norm = layers.LayerNorm(config)
    if config.mlm_head is encoder_config.MlmHead.TRANSFORM:
      self.head_dense = layers.Linear(
        config,
        (config.hidden_dim,),
        ('embed', 'norm'),
        use_bias=config.head_bias,
      )
      self.head_norm = layers.LayerNorm(config)
    if config.output_bias and (
      config.mlm_head is not encoder_config.MlmHead.NONE
    ):
      self.output_bias = self.param(
        'output_bias',
        layers.zeros_init('vocab'),
        (config.table_size,),
        jnp.float32,
      )
    if not config.tie_word_embeddings:
      assert config.vocab_size is not None  # `table_size` requires it.
      self.output = self.param(
        'output',
        layers.table_init(config.initializer_range, config.vocab_size),
        (config.table_size, config.hidden_dim),
        jnp.float32,
      )

  @property
  def _is_disentangled(self) -> bool:
    """True if the attention uses disentangled relative positions."""
    return (
      self.config.position_embedding
      is encoder_config.PositionEmbedding.DISENTANGLED
    )

  @property
  def _invertible_adapters(self) -> list[adapter_layers.InvertibleAdapter]:
    """Invertible adapters, in the order in which they are applied."""
    return [
      self.adapters[adapter.name]
      for adapter in adapter_config.bottlenecks_of(self.config)
      if adapter.invertible
    ]

  def __call__(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns logits [B, T, V], or hidden states [B, T, H] if it has no head.

    Initialization through this method creates all parameters, including the
    parameters of `plug_in`.
    """
    if self.is_initializing() and self.config.cross_attention:
      shape = (*token_ids.shape, self.config.hidden_dim)
      memory = jnp.zeros(shape, self.config.compute_dtype)
      states = self.plug_in(token_ids, memory, **inputs)
    else:
      states = self.encode(token_ids, **inputs)
    if self.config.mlm_head is encoder_config.MlmHead.NONE:
      return states
    return self.logits(states)

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns the hidden states of the last layer, of shape [B, T, H].

    The states have the compute dtype. With `config.cross_attention`, the states
    are VECO's H^L, the states of the plug-out pass, which does not use the
    plug-in module.
    """
    states, _ = self._run(token_ids, collect=False, **inputs)
    return states

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns the embeddings and hidden states of all layers, [L + 1, B, T, H].

    The last element is the result of `encode`.
    """
    _, all_states = self._run(token_ids, collect=True, **inputs)
    return all_states

  def transform(self, states: jax.Array) -> jax.Array:
    """Applies the layers of the masked-LM head before the output embeddings.

    The inverse functions of invertible adapters are applied last.

    Args:
      states: Hidden states of shape [..., H].

    Returns:
      States of shape [..., H].

    Raises:
      ConfigError: If the encoder has no masked-LM head.
    """
    self._require_head()
    config = self.config
    if config.mlm_head is not encoder_config.MlmHead.TIED:
      activation = activations.activation_function(
        config.head_activation or config.activation
      )
      states = self.head_norm(activation(self.head_dense(states)))
    for adapter in reversed(self._invertible_adapters):
      states = adapter.inverse(states)
    return states

  def output_table(self) -> tuple[jax.Array, jax.Array]:
    """Returns the output embeddings [R, H] and the output bias [R].

    Both are float32. On several accelerators, the values of the table are
    rounded to the compute dtype.

    R is the size V of the vocabulary, rounded up to a multiple of
    `config.pad_vocab_size_multiple`. The bias of the rows from V on is so low
    that their probability is zero.

    Raises:
      ConfigError: If the encoder has no masked-LM head.
    """
    self._require_head()
    rows = jnp.arange(self.config.table_size)
    assert self.config.vocab_size is not None  # `table_size` requires it.
    learned_bias = self.output_bias if self.config.output_bias else 0.0
    bias = jnp.where(rows < self.config.vocab_size, learned_bias, MASKED_SCORE)
    tied = self.config.tie_word_embeddings
    table = self.embeddings.token if tied else self.output
    return layers.gather_output_table(table, self.config.compute_dtype), bias

  def _require_head(self) -> None:
    """Raises ConfigError if the encoder has no head."""
    if self.config.mlm_head is encoder_config.MlmHead.NONE:
      raise errors.ConfigError(
        "Predicting tokens requires an encoder with mlm_head='transform' or "
        "mlm_head='tied', but found mlm_head='none'",
        where=errors.field_location(self.config, 'mlm_head'),
        fix='Use a checkpoint with a masked LM head, or add a new head: set '
        "mlm_head='transform' in the model, and initialize it with "
        'InitFromCheckpoint(allow_missing=True) '
        '(docs/huggingface.md#train-a-masked-lm-from-a-checkpoint-without-a-head).',
      )

  def logits(self, states: jax.Array) -> jax.Array:
    """Returns logits over the vocabulary.

    Args:
      states: Hidden states of shape [..., H].

    Returns:
      A float32 array of shape [..., V].

    Raises:
      ConfigError: If the encoder has no masked-LM head.
    """
    table, bias = self.output_table()
    table_logits = layers.logits(self.transform(states), table, bias)
    return table_logits[..., : self.config.vocab_size]

  def _run(
    self,
    token_ids,
    *,
    collect: bool,
    segment_ids=None,
    positions=None,
    language_ids=None,
    token_type_ids=None,
    deterministic: bool = True,
    memory=None,
    memory_mask=None,
  ):
    """Returns the last hidden states and, if collected, all hidden states."""
    states = self.embeddings(
      token_ids,
      positions=positions,
      language_ids=language_ids,
      token_type_ids=token_type_ids,
      deterministic=deterministic,
    )
    for adapter in self._invertible_adapters:
      states = adapter(states)
    masks = layer_masks.make_attention_masks(
      self.config, segment_ids, positions, token_ids.shape[1]
    )
    if self._is_disentangled:
      relative = self.relative(
        positions, token_ids.shape[1], deterministic=deterministic
      )
      masks = masks._replace(global_layers=(masks.global_layers[0], relative))
    text_mask = None
    if segment_ids is not None and self.config.zero_padding_states:
      text_mask = (segment_ids > 0)[:, :, None].astype(states.dtype)
      states = states * text_mask
    embedded = states
    states, all_states = self._layers(
      states,
      (masks, text_mask, memory, memory_mask),
      collect=collect,
      deterministic=deterministic,
    )
    states = self._final(states)
    if collect:
      all_states = jnp.concatenate(
        [embedded[None], all_states[:-1], states[None]], axis=0
      )
    return states, all_states

  def _layers(self, states, shared, *, collect, deterministic):
    """Runs the layers, scanned or unrolled.

    Args:
      states: Embeddings of the input tokens, of shape [B, T, H].
      shared: Tuple of inputs that all layers share: attention masks, text mask,
        memory and memory mask.
      collect: Whether to also return the hidden states after each layer.
      deterministic: Whether to disable dropout.

    Returns:
      The states after the last layer, and the states after each layer, of shape
      [L, B, T, H], or None.
    """
    config = self.config

    def body(layer, states, shared, index):
      masks, text_mask, memory, memory_mask = shared
      layer_mask = layer_masks.select_layer_mask(config, masks, index)
      states = layer(
        states,
        layer_mask.mask,
        deterministic=deterministic,
        memory=memory,
        memory_mask=memory_mask,
        rotation=layer_mask.rotation,
        is_first=layer_mask.is_first,
      )
      if text_mask is not None:
        states = states * text_mask
      return states, states if collect else None

    if config.scan_layers:
      indices = (
        jnp.arange(config.num_layers)
        if layer_masks.layers_differ(config)
        else None
      )
      return nn.scan(
        _remat(body, config),
        variable_axes={'params': 0, attention_weights.COLLECTION: 0},
        split_rngs={'params': True, 'dropout': True},
        in_axes=(nn.broadcast, 0),
        length=config.num_layers,
        unroll=config.num_layers if scan_layers.is_unrolled(config) else 1,
        metadata_params={nn.PARTITION_NAME: 'layers'},
      )(self.layers, states, shared, indices)
    outputs = []
    for i, layer in enumerate(self.layers):
      run = _remat(functools.partial(body, index=i), config)
      states, output = run(layer, states, shared)
      outputs.append(output)
    return states, jnp.stack(outputs) if collect else None

  def _final(self, states: jax.Array) -> jax.Array:
    """Applies the final norm of an encoder with norms before the blocks."""
    if self.config.norm_position is encoder_config.NormPosition.POST:
      return states
    return self.final_norm(states)


def _remat(body, config: encoder_config.EncoderConfig):
  """Returns `body(layer, states, shared, ...)` with rematerialization."""
  if config.remat is encoder_config.Remat.NONE:
    return body
  return nn.remat(
    body,
    policy=scan_layers.remat_policy(config.remat),
    prevent_cse=scan_layers.is_unrolled(config),
  )
