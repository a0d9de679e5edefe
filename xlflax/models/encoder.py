"""The Transformer encoder: BERT, RoBERTa, XLM and XLM-R by configuration."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import activations, embeddings, layers, scan_layers
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import attention_masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.variants import disentangled, veco
from xlflax.utils import class_registry, errors


@class_registry.register('encoder')
class Encoder(veco.PlugIn):
  """From token ids to states, and from states to tied logits.

  Every method that reads tokens takes `token_ids` int32 [B, T] and, by
  keyword:

  - segment_ids: int32 [B, T]; a position attends to its own segment only, 0
    is padding, which no text attends to. None: all attend to all.
  - positions: int32 [B, T], from 0. None: 0 .. T - 1.
  - language_ids: int32 [B, T]; read if `config.use_language_embeddings`.
  - token_type_ids: int32 [B, T]; read if `config.type_vocab_size`; None: 0.
  - deterministic: False turns dropout on, which draws from 'dropout'.

  `plug_in` (of `PlugIn`, its base) also reads the states of a paired input; it
  raises `ConfigError` if `config.cross_attention` is off.

  They raise `ConfigError` for rows longer than `config.max_length`, missing
  language ids and an attention backend that cannot serve the case; `transform`,
  `output_table` and `logits` for an encoder without a head.
  """

  def setup(self):
    config = self.config
    self.embeddings = embeddings.Embeddings(config)
    self.layers: Any = (
      layers.EncoderLayer(config)
      if config.scan_layers
      else [layers.EncoderLayer(config) for _ in range(config.num_layers)]
    )
    if self._is_disentangled:
      self.relative = disentangled.RelativeEmbeddings(config)
    if config.norm_position is model_config.NormPosition.PRE:
      self.final_norm = layers.LayerNorm(config)
    if config.mlm_head is model_config.MlmHead.TRANSFORM:
      self.head_dense = layers.Linear(
        config,
        (config.hidden_dim,),
        ('embed', 'norm'),
        use_bias=config.head_bias,
      )
      self.head_norm = layers.LayerNorm(config)
    if config.output_bias and (
      config.mlm_head is not model_config.MlmHead.NONE
    ):
      self.output_bias = self.param(
        'output_bias',
        layers.zeros_init('vocab'),
        (config.table_size,),
        jnp.float32,
      )
    if config.output_embeddings is model_config.OutputEmbeddings.OWN:
      assert config.vocab_size is not None  # `table_size` requires it.
      self.output = self.param(
        'output',
        layers.table_init(config.initializer_range, config.vocab_size),
        (config.table_size, config.hidden_dim),
        jnp.float32,
      )

  @property
  def _is_disentangled(self) -> bool:
    kind = model_config.PositionEmbedding.DISENTANGLED
    return self.config.position_embedding is kind

  def __call__(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Logits [B, T, V] of every position; states, if there is no head.

    Its initialisation makes every parameter, those of `plug_in` included.
    """
    if self.is_initializing() and self.config.cross_attention:
      shape = (*token_ids.shape, self.config.hidden_dim)
      memory = jnp.zeros(shape, self.config.compute_dtype)
      states = self.plug_in(token_ids, memory, **inputs)
    else:
      states = self.encode(token_ids, **inputs)
    if self.config.mlm_head is model_config.MlmHead.NONE:
      return states
    return self.logits(states)

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns states [B, T, H] of the last layer, in the compute dtype.

    With `config.cross_attention` they are VECO's H^L, the plug-out pass, which
    does not use the module.
    """
    states, _ = self._run(token_ids, collect=False, **inputs)
    return states

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [L + 1, B, T, H]: the embeddings', then each layer's.

    The last is what `encode` returns.
    """
    _, all_states = self._run(token_ids, collect=True, **inputs)
    return all_states

  def transform(self, states: jax.Array) -> jax.Array:
    """Applies the head before the output table: [..., H] -> [..., H]."""
    self._require_head()
    config = self.config
    if config.mlm_head is model_config.MlmHead.TIED:
      return states
    activation = activations.activation_function(
      config.head_activation or config.activation
    )
    return self.head_norm(activation(self.head_dense(states)))

  def output_table(self) -> tuple[jax.Array, jax.Array]:
    """Output embeddings [R, H] and output bias [R].

    They are float32; on several accelerators the table's values are rounded
    to the compute dtype.

    R is the vocabulary's size V, or beyond it if `config.pad_vocab_size_multiple` asks
    for it; the bias of the rows from V on is so low that their probability is
    zero.
    """
    self._require_head()
    rows = jnp.arange(self.config.table_size)
    assert self.config.vocab_size is not None  # `table_size` refuses that
    learned_bias = self.output_bias if self.config.output_bias else 0.0
    bias = jnp.where(rows < self.config.vocab_size, learned_bias, MASKED_SCORE)
    tied = self.config.output_embeddings is model_config.OutputEmbeddings.TIED
    table = self.embeddings.token if tied else self.output
    return layers.for_head(table, self.config.compute_dtype), bias

  def _require_head(self) -> None:
    if self.config.mlm_head is model_config.MlmHead.NONE:
      raise errors.ConfigError(
        'The encoder has no head that predicts tokens',
        got='mlm_head = none',
        expected="'transform' or 'tied'",
        where='EncoderConfig.mlm_head',
        fix='import a checkpoint with a masked-LM head, or initialise a '
        'model with a fresh one from this by InitFrom(allow_missing=True)',
      )

  def logits(self, states: jax.Array) -> jax.Array:
    """float32 logits over the vocabulary: [..., H] -> [..., V]."""
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
    """States after the last layer and, to collect, after each."""
    states = self.embeddings(
      token_ids,
      positions=positions,
      language_ids=language_ids,
      token_type_ids=token_type_ids,
      deterministic=deterministic,
    )
    masks = attention_masks.make_attention_masks(
      self.config, segment_ids, positions, token_ids.shape[1]
    )
    if self._is_disentangled:
      relative = self.relative(
        positions, token_ids.shape[1], deterministic=deterministic
      )
      masks = masks._replace(of_global=(masks.of_global[0], relative))
    keep = None
    if segment_ids is not None and (
      self.config.padding_states is model_config.PaddingStates.ZERO
    ):
      keep = (segment_ids > 0)[:, :, None].astype(states.dtype)
      states = states * keep
    embedded = states
    states, all_states = self._layers(
      states,
      (masks, keep, memory, memory_mask),
      collect=collect,
      deterministic=deterministic,
    )
    states = self._final(states)
    if collect:  # L of [B, T, H], and the embeddings before them
      all_states = jnp.concatenate(
        [embedded[None], all_states[:-1], states[None]], axis=0
      )
    return states, all_states

  def _layers(self, states, shared, *, collect, deterministic):
    """Scans over the stacked layers, or runs one after the other.

    `shared` is what all layers read: (masks, keep, memory, memory_mask).
    """
    config = self.config

    def body(layer, states, shared, index):
      masks, keep, memory, memory_mask = shared
      layer_mask = attention_masks.of_layer(config, masks, index)
      states = layer(
        states,
        layer_mask.mask,
        deterministic=deterministic,
        memory=memory,
        memory_mask=memory_mask,
        rotation=layer_mask.rotation,
        is_first=layer_mask.is_first,
      )
      if keep is not None:
        states = states * keep
      return states, states if collect else None

    if config.scan_layers:
      indices = (
        jnp.arange(config.num_layers)
        if attention_masks.layers_differ(config)
        else None
      )
      return nn.scan(
        _remat(body, config),
        variable_axes={'params': 0},
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
    if self.config.norm_position is model_config.NormPosition.POST:
      return states
    return self.final_norm(states)


def _remat(body, config: model_config.EncoderConfig):
  """Rematerialises `body(layer, states, shared, ...)` as configured."""
  if config.remat is model_config.Remat.NONE:
    return body
  return nn.remat(
    body,
    policy=scan_layers.remat_policy(config.remat),
    prevent_cse=scan_layers.is_unrolled(config),
  )
