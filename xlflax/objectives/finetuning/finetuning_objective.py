"""The base of fine-tuning objectives: the features that a head reads.

The optimizer chooses which parameters train, by patterns of their names:

| setting | `frozen` |
| --- | --- |
| everything trains | `()` |
| ECS's sharing plans: each language's own parameters keep their pretrained
  values, so that another language's fit in at test time (section
  4.3) | `('model/language_specific',)` |
| frozen body, `head_layers` on one of its layers (ECS, section 5.1.2) |
  `('model/',)`, with `body='frozen'` here, which spares the body's backward
  pass and its dropout |

Parameters that fine-tuning does not use, such as those of the masked LM's
head, have no gradient, but they decay unless they are frozen.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import activations, dropout
from xlflax.models.heads import transformer_head
from xlflax.models.heads.classification_heads import Pooling
from xlflax.models.variants import parameter_sharing, veco
from xlflax.objectives import (
  batch_requirements,
  model_calls,
  objective_base,
  sentence_pairs,
)
from xlflax.objectives.finetuning.head_settings import (
  Body,
  Features,
  HeadKind,
  StatesFrom,
  body_config,
  init_linear,
)
from xlflax.utils import class_registry, errors, validation

__all__ = (
  'Body',
  'Features',
  'FineTuning',
  'HeadKind',
  'LAYERS',
  'StatesFrom',
  'body_config',
  'init_linear',
)

LAYERS = 'layers'  # of the head, in its parameters


@class_registry.register('fine_tuning')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(objective_base.Objective):
  """Base of objectives with a head on the states of a model.

  Subclasses have `name`, `num_outputs`, `__call__` and `predict`; they take
  features from `states` and the head's parameters from `head_of`.

  Of an encoder-decoder, heads read the states of the decoder by default: the
  encoder reads the sequence, and the decoder the same sequence shifted to the
  right by one position (BART, Lewis et al. 2020, section 3; mBART in VECO, note
  10). The decoder's first token is EOS, or PAD for T5. Its state at a position
  depends on all tokens through the encoder. Heads for sequences read its last
  position.

  Attributes:
    features: what the head reads.
    states_from: The part of an encoder-decoder whose states are read. If None,
      the decoder, or the encoder if `layer` is set. Encoders have one part.
    layer: Layer of the encoder whose states are read: 0 for the embeddings'
      output, i for layer i, -1 or None for the last. PLUG_IN has the last only.
    body: whether the encoder's states depend on what is trained.
    head_layers: Transformer layers of the head's own before its output (ECS:
      4), in size and kind the encoder's.
    head: kind of the head's output.
    activation: of the head's `dense`, one of `xlflax.models.activations`.
    head_dropout: on what each linear map of the head reads.
    memory_gradient: PLUG_IN only: whether the paired row's states are
      constants ('stop') or trained through ('flow').
  """

  features: Features = Features.PLUG_OUT
  states_from: StatesFrom | None = None
  layer: validation.LayerIndex | None = None
  body: Body = Body.TRAINED
  head_layers: validation.NonNegativeInt = 0
  head: HeadKind = HeadKind.OUTPUT
  activation: str = 'tanh'
  head_dropout: validation.FractionBelowOne = 0.1
  memory_gradient: veco.MemoryGradient = veco.MemoryGradient.STOP

  def __post_init__(self):
    where = type(self).__name__
    if self.activation not in activations.activation_names():
      raise errors.ConfigError(
        'A head has no such activation',
        got=repr(self.activation),
        expected='one of ' + ', '.join(activations.activation_names()),
        where=where,
      )
    if self.features is Features.PLUG_IN and self.layer not in (None, -1):
      raise errors.ConfigError(
        'Plugged-in features are those of the last layer',
        got=f'layer={self.layer}',
        expected='None',
        where=where,
      )
    if self.states_from is StatesFrom.DECODER and (
      self.layer is not None or self.features is Features.PLUG_IN
    ):
      raise errors.ConfigError(
        'Only the final states of a decoder can be read',
        got=f'layer={self.layer}, features={self.features.value!r}',
        expected="layer=None and features='plug_out'",
        where=f'{where}.states_from',
      )

  def reads_decoder(self, model) -> bool:
    """Returns whether the head reads the states of a decoder."""
    if self.states_from is not None:
      return self.states_from is StatesFrom.DECODER
    return hasattr(model, 'decode') and self.layer is None

  def sequence_pooling(self, model, pooling: Pooling | None) -> Pooling:
    """Returns the pooling of a head for sequences.

    Args:
      model: the Linen module.
      pooling: The setting. If None, LAST for a decoder, else FIRST.

    Raises:
      ConfigError: If FIRST is set for a decoder, whose first state is that of
        the start symbol.
    """
    if not self.reads_decoder(model):
      return Pooling.FIRST if pooling is None else pooling
    if pooling is Pooling.FIRST:
      raise errors.ConfigError(
        'The first state of a decoder is that of its start symbol',
        got="pooling='first'",
        expected="'last' or 'mean', or None for 'last'",
        where=f'{type(self).__name__}.pooling',
        fix="set states_from='encoder' to read the encoder's first state",
      )
    return Pooling.LAST if pooling is None else pooling

  def check_stream(self, stream) -> None:
    super().check_stream(stream)
    if self.features is Features.PLUG_IN:
      batch_requirements.check_batches(
        stream, objective_base.Rows.SIDES, self.GOLD, objective=self.name
      )

  @property
  def num_outputs(self) -> int:
    """C, the classes of the head."""
    raise NotImplementedError

  def predict(self, model, params, batch, vocabulary: VocabularySpec) -> Any:
    """Predicts a batch without dropout; pure, to be jitted.

    Args:
      model: the Linen module.
      params: `{'model': ..., 'heads': ...}`, unboxed.
      batch: arrays on the device; labels need not be among them.
      vocabulary: sizes and special ids.

    Returns:
      Arrays as the subclass says, one row for each of the batch's.
    """
    raise NotImplementedError

  def head_of(self, params) -> Any:
    """The head's own parameters."""
    return params['heads'][self.name]

  def width(self, model) -> int:
    """Returns W, the width of the features: H, or 2 H with PLUG_IN."""
    hidden = body_config(model).hidden_dim
    return hidden if self.features is Features.PLUG_OUT else 2 * hidden

  def init_heads(self, model, rng: jax.Array) -> dict[str, Any]:
    """Makes the head's parameters from the key `rng`; checks the model."""
    self._check(model)
    output_rng, layers_rng = jax.random.split(rng)
    head = self.init_output(model, output_rng)
    if self.head_layers:
      shape = (1, 2, self.width(model))
      head[LAYERS] = self._layers(model).init(
        layers_rng, jnp.zeros(shape, jnp.float32)
      )['params']
    return head

  def init_output(self, model, rng: jax.Array) -> dict[str, Any]:
    """Makes the boxed parameters except `layers`; `rng` is a key."""
    config = body_config(model)
    dense_rng, output_rng = jax.random.split(rng)
    width, hidden = self.width(model), config.hidden_dim
    init = functools.partial(init_linear, config=config)
    if self.head is HeadKind.OUTPUT:
      return {'output': init(output_rng, (width, self.num_outputs))}
    head = {
      'dense': init(dense_rng, (width, hidden)),
      'output': init(output_rng, (hidden, self.num_outputs)),
    }
    if self.head is HeadKind.DENSE_NORM:
      head['norm'] = {
        'scale': nn.LogicallyPartitioned(
          jnp.ones((hidden,), jnp.float32), ('norm',)
        )
      }
    return head

  def states(
    self,
    model,
    params,
    batch,
    vocabulary: VocabularySpec,
    rng: jax.Array | None = None,
  ) -> jax.Array:
    """Computes the features of each position, through the head's own layers.

    Args:
      model: the Linen module.
      params: `{'model': ..., 'heads': ...}`.
      batch: rows, and for PLUG_IN the paired ones.
      vocabulary: sizes and special ids.
      rng: key of dropout; None for none.

    Returns:
      [B, T, W] in the compute dtype.
    """
    self._check(model)
    body_rng, layers_rng = (
      (None, None) if rng is None else jax.random.split(rng)
    )
    frozen = self.body is Body.FROZEN
    states = self._encode(
      model, params, batch, vocabulary, None if frozen else body_rng
    )
    if frozen:
      states = jax.lax.stop_gradient(states)
    if not self.head_layers:
      return states
    arguments = model_calls.model_kwargs(batch_keys.select_side(batch))
    features: Any = self._layers(model).apply(
      {'params': self.head_of(params)[LAYERS]},
      states,
      segment_ids=arguments.get('segment_ids'),
      positions=arguments.get('positions'),
      deterministic=layers_rng is None,
      rngs=_rngs(layers_rng),
    )
    return features

  def through_head(
    self,
    head: Callable[..., jax.Array],
    model,
    params,
    batch,
    vocabulary: VocabularySpec,
    rng: jax.Array | None = None,
    **settings: Any,
  ) -> jax.Array:
    """Computes what `head` makes of the states.

    Args:
      head: function of its parameters and states [B, T, W], such as
        `classification_heads.token_logits`; takes `activation`, `epsilon`, `drop`, and
        `settings`.
      model: this and what follows as of `states`.
      params: `{'model': ..., 'heads': ...}`.
      batch: the rows.
      vocabulary: sizes and special ids.
      rng: key of dropout; None for none.
      **settings: further arguments of `head`.
    """
    states_rng, head_rng = (
      (None, None) if rng is None else jax.random.split(rng)
    )
    return head(
      self.head_of(params),
      self.states(model, params, batch, vocabulary, states_rng),
      activation=self.activation,
      epsilon=body_config(model).layer_norm_epsilon,
      drop=self.drop(head_rng),
      **settings,
    )

  def drop(self, rng: jax.Array | None):
    """Dropout of the head for `classification_heads.token_logits`; None without a key.

    Each call of the returned function draws a new mask.
    """
    if rng is None or not self.head_dropout:
      return None
    keys = iter(jax.random.split(rng, 4))
    return lambda states: dropout.apply_dropout(
      next(keys), states, rate=self.head_dropout
    )

  def _encode(self, model, params, batch, vocabulary, rng) -> jax.Array:
    """[B, T, W] of the encoder."""
    if self.features is Features.PLUG_IN:
      sides = [
        {'token_ids': side[batch_keys.TOKEN_IDS]}
        | model_calls.model_kwargs(side)
        for side in sentence_pairs.split_sides(batch, objective=self.name)
      ]
      return model_calls.call_model(
        model,
        params,
        veco.pair_features,
        *sides,
        rng=rng,
        deterministic=rng is None,
        memory_gradient=self.memory_gradient,
      )[0]
    batch = batch_keys.select_side(batch)
    params = model_calls.bind_language_params(model, params, batch, vocabulary)
    if self.reads_decoder(model):
      return _decode(model, params, batch, vocabulary, rng)
    method = 'encode' if self.layer is None else 'encode_layers'
    states = model_calls.call_model(
      model,
      params,
      method,
      batch[batch_keys.TOKEN_IDS],
      rng=rng,
      deterministic=rng is None,
      **model_calls.model_kwargs(batch),
    )
    return states if self.layer is None else states[self.layer]

  def _layers(self, model) -> transformer_head.HeadLayers:
    return transformer_head.HeadLayers(
      transformer_head.config_of(body_config(model), self.width(model)),
      self.head_layers,
    )

  def _check(self, model) -> None:
    if self.states_from is StatesFrom.DECODER and not hasattr(model, 'decode'):
      raise errors.ConfigError(
        'The model has no decoder',
        got=type(model).__name__,
        expected='an encoder-decoder',
        where=f'{type(self).__name__}.states_from',
      )
    depth = body_config(model).num_layers
    if self.layer is not None and not -depth - 1 <= self.layer <= depth:
      raise errors.ConfigError(
        'The model has no such layer',
        got=self.layer,
        expected=f'0 (embeddings) to {depth}, or counted from the end',
        where=f'{type(self).__name__}.layer',
      )
    positions = getattr(body_config(model), 'position_embedding', None)
    if self.head_layers and positions == 'disentangled':
      raise errors.ConfigError(
        'Layers of a head would not see positions',
        got=f'head_layers={self.head_layers}, disentangled attention',
        expected='head_layers=0',
        where=f'{type(self).__name__}.head_layers',
      )
    if self.features is Features.PLUG_IN:
      veco.check_enabled(model.config, where=f'{type(self).__name__}.features')
      if parameter_sharing.plan_of(model) is not None:
        raise errors.ConfigError(
          'Two languages of a pair cannot be read with the parts of one',
          got="features='plug_in' with a sharing plan",
          expected="'plug_out'",
          where=f'{type(self).__name__}.features',
        )


def _decode(
  model, params, batch, vocabulary: VocabularySpec, rng: jax.Array | None
) -> jax.Array:
  """Returns the decoder's states [B, T, H] for the shifted sequence.

  Before: token_ids `<s> x </s>`; the decoder reads `</s> <s> x`.
  """
  encoder_rng, decoder_rng = (
    (None, None) if rng is None else jax.random.split(rng)
  )
  token_ids = batch[batch_keys.TOKEN_IDS]
  memory = model_calls.call_model(
    model,
    params,
    'encode',
    token_ids,
    rng=encoder_rng,
    deterministic=rng is None,
    **model_calls.model_kwargs(batch),
  )
  is_t5 = getattr(model.config, 'is_t5', False)
  start = vocabulary.pad_id if is_t5 else vocabulary.eos_id
  segments = batch.get(batch_keys.SEGMENT_IDS)
  languages = batch.get(batch_keys.LANGUAGE_IDS)
  return model_calls.call_model(
    model,
    params,
    'decode',
    jnp.pad(token_ids[:, :-1], ((0, 0), (1, 0)), constant_values=start),
    memory,
    rng=decoder_rng,
    deterministic=rng is None,
    memory_segment_ids=segments,
    segment_ids=segments,
    language_ids=languages,
  )


def _rngs(rng):
  return None if rng is None else {'dropout': rng}
