"""Base class of fine-tuning objectives, which computes features for heads.

The optimizer selects the parameters to train by name patterns. Typical values
of its field `frozen` are:

- `()`: All parameters are trained.
- `('model/language_specific',)`: The language-specific parameters keep their
  pretrained values, so that a different language's parameters can replace them
  at test time, as in ECS's sharing plans (section 4.3).
- `('model/',)`: The encoder is frozen, and `head_layers` are trained on one of
  its layers (ECS, section 5.1.2). The objective's `freeze_encoder=True` then
  avoids the backward pass and the dropout of the encoder.

Parameters that fine-tuning does not use, such as those of the masked LM's head,
have no gradient, but weight decay changes them unless they are frozen.
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
  Features,
  HeadKind,
  StatesFrom,
  body_config,
  init_linear,
)
from xlflax.utils import class_registry, errors, validation

__all__ = (
  'Features',
  'FineTuning',
  'HeadKind',
  'LAYERS',
  'StatesFrom',
  'body_config',
  'init_linear',
)

LAYERS = 'layers'  # Key of the head's Transformer layers in its parameters.


@class_registry.register('fine_tuning')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(objective_base.Objective):
  """Base class of objectives with a head on a model's hidden states.

  Subclasses define `name`, `num_outputs`, `__call__` and `predict`. They read
  features from `states` and the parameters of the head from `head_params`.

  For an encoder-decoder, heads read the hidden states of the decoder by
  default. The encoder reads the sequence, and the decoder reads the same
  sequence shifted to the right by one position (BART, Lewis et al. 2020,
  section 3; mBART in VECO, note 10). The first token of the decoder is EOS, or
  PAD for T5. The hidden state of the decoder at a position depends on all
  tokens through the encoder. Heads for sequences read its last position.

  Attributes:
    features: Features that the head reads: PLUG_OUT for the hidden states of
      each sequence, or PLUG_IN for VECO's features of text pairs.
    states_from: Component of an encoder-decoder whose hidden states the head
      reads. If None, it is the decoder, or the encoder if `layer` is set. For a
      model without a decoder, it must be None or ENCODER.
    layer: Encoder layer whose hidden states the head reads: 0 for the embedding
      output, i for layer i, and -1 or None for the last layer. PLUG_IN requires
      the last layer.
    freeze_encoder: Whether to treat the encoder's hidden states as constants
      and to disable the encoder's dropout.
    head_layers: Number of Transformer layers in the head before its output
      layers (ECS: 4). They have the same size and architecture as the encoder's
      layers.
    head_type: Type of the head's output layers: OUTPUT, DENSE or DENSE_NORM.
    activation: Activation of the head's dense layer, one of
      `xlflax.models.activations`.
    head_dropout: Dropout rate for the inputs of the head's linear layers.
    stop_gradient_memory: Whether PLUG_IN treats the hidden states of the paired
      sequence as constants. If False, the gradient passes through these states.
  """

  features: Features = Features.PLUG_OUT
  states_from: StatesFrom | None = None
  layer: validation.LayerIndex | None = None
  freeze_encoder: bool = False
  head_layers: validation.NonNegativeInt = 0
  head_type: HeadKind = HeadKind.OUTPUT
  activation: str = 'tanh'
  head_dropout: validation.FractionBelowOne = 0.1
  stop_gradient_memory: bool = True

  def __post_init__(self):
    if self.activation not in activations.activation_names():
      raise errors.ConfigError(
        '`activation` must be the name of a registered activation function',
        got=repr(self.activation),
        expected='one of ' + ', '.join(activations.activation_names()),
        where=errors.field_location(self, 'activation'),
      )
    if self.features is Features.PLUG_IN and self.layer not in (None, -1):
      raise errors.ConfigError(
        "features='plug_in' requires that `layer` is None or -1, because these "
        'features can only be computed from the last layer',
        got=self.layer,
        where=errors.field_location(self, 'layer'),
      )
    if self.states_from is StatesFrom.DECODER and (
      self.layer is not None or self.features is Features.PLUG_IN
    ):
      raise errors.ConfigError(
        "states_from='decoder' requires layer=None and features='plug_out', "
        'because heads can only read the final hidden states of a decoder. '
        f'Found layer={self.layer} and features={self.features.value!r}',
        where=errors.field_location(self, 'states_from'),
      )

  def reads_decoder(self, model) -> bool:
    """Returns whether the head reads a decoder's hidden states."""
    if self.states_from is not None:
      return self.states_from is StatesFrom.DECODER
    return hasattr(model, 'decode') and self.layer is None

  def sequence_pooling(self, model, pooling: Pooling | None) -> Pooling:
    """Returns the pooling method of a head that classifies sequences.

    Args:
      model: Linen module of the model.
      pooling: Configured pooling method. If None, LAST is used for a decoder
        and FIRST otherwise.

    Raises:
      ConfigError: If `pooling` is FIRST and the model is a decoder. The first
        hidden state of a decoder belongs to the start symbol.
    """
    if not self.reads_decoder(model):
      return Pooling.FIRST if pooling is None else pooling
    if pooling is Pooling.FIRST:
      raise errors.ConfigError(
        "`pooling` cannot be 'first' if the head reads the hidden states of a "
        'decoder, because the first position of a decoder is its start symbol',
        where=errors.field_location(self, 'pooling'),
        fix="Set `pooling` to 'last', 'mean', or None, which selects 'last'. "
        "To read the first hidden state of the encoder, set states_from='encoder'.",
      )
    return Pooling.LAST if pooling is None else pooling

  def check_dataset(self, dataset) -> None:
    """Checks that a dataset provides the batches that the objective reads.

    PLUG_IN features require paired sequences.
    """
    super().check_dataset(dataset)
    if self.features is Features.PLUG_IN:
      batch_requirements.check_batches(
        dataset, objective_base.Rows.DUAL, self.GOLD, objective=self.name
      )

  @property
  def num_outputs(self) -> int:
    """Number of outputs of the head, C."""
    raise NotImplementedError

  def predict(self, model, params, batch, vocabulary: VocabularySpec) -> Any:
    """Computes predictions for a batch without dropout, as a pure function.

    Args:
      model: Linen module of the model.
      params: Unboxed parameters `{'model': ..., 'heads': ...}`.
      batch: Mapping from batch keys to arrays of the batch, on the device.
        Labels are not required.
      vocabulary: Vocabulary specification with sizes and special ids.

    Returns:
      Predictions of the subclass, one per sequence of the batch.
    """
    raise NotImplementedError

  def head_params(self, params) -> Any:
    """Returns the parameters of the objective's head."""
    return params['heads'][self.name]

  def width(self, model) -> int:
    """Returns the head's input width: `hidden_dim`, doubled for PLUG_IN."""
    hidden = body_config(model).hidden_dim
    return hidden if self.features is Features.PLUG_OUT else 2 * hidden

  def init_heads(self, model, rng: jax.Array) -> dict[str, Any]:
    """Checks the model and initializes the head's parameters.

    Args:
      model: Linen module of the model.
      rng: Random key.
    """
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
    """Initializes the parameters of the head's output layers, boxed.

    Args:
      model: Linen module of the model.
      rng: Random key.
    """
    config = body_config(model)
    dense_rng, output_rng = jax.random.split(rng)
    width, hidden = self.width(model), config.hidden_dim
    init = functools.partial(init_linear, config=config)
    if self.head_type is HeadKind.OUTPUT:
      return {'output': init(output_rng, (width, self.num_outputs))}
    head = {
      'dense': init(dense_rng, (width, hidden)),
      'output': init(output_rng, (hidden, self.num_outputs)),
    }
    if self.head_type is HeadKind.DENSE_NORM:
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
    """Computes each position's features for the head's output layers.

    Args:
      model: Linen module of the model.
      params: Parameters `{'model': ..., 'heads': ...}`.
      batch: Batch of sequences. PLUG_IN also requires the sequences with which
        they are paired.
      vocabulary: Vocabulary specification with sizes and special ids.
      rng: Random key for dropout. If None, dropout is not applied.

    Returns:
      Array of shape [B, T, W] in the compute dtype.
    """
    self._check(model)
    body_rng, layers_rng = (
      (None, None) if rng is None else jax.random.split(rng)
    )
    if self.freeze_encoder:
      body_rng = None
    states = self._encode(model, params, batch, vocabulary, body_rng)
    if self.freeze_encoder:
      states = jax.lax.stop_gradient(states)
    if not self.head_layers:
      return states
    arguments = model_calls.model_kwargs(batch_keys.select_side(batch))
    features: Any = self._layers(model).apply(
      {'params': self.head_params(params)[LAYERS]},
      states,
      segment_ids=arguments.get('segment_ids'),
      positions=arguments.get('positions'),
      deterministic=layers_rng is None,
      rngs=None if layers_rng is None else {'dropout': layers_rng},
    )
    return features

  def apply_head(
    self,
    head: Callable[..., jax.Array],
    model,
    params,
    batch,
    vocabulary: VocabularySpec,
    rng: jax.Array | None = None,
    **settings: Any,
  ) -> jax.Array:
    """Applies a head to a batch's features.

    Args:
      head: Function that computes the result from the head's parameters and the
        features [B, T, W], such as `classification_heads.token_logits`. It
        accepts the keyword arguments `activation`, `epsilon`, `drop`, and
        `settings`.
      model: Linen module of the model.
      params: Parameters `{'model': ..., 'heads': ...}`.
      batch: Batch of sequences.
      vocabulary: Vocabulary specification with sizes and special ids.
      rng: Random key for dropout. If None, dropout is not applied.
      **settings: Further arguments of `head`.

    Returns:
      The result of `head`.
    """
    states_rng, head_rng = (
      (None, None) if rng is None else jax.random.split(rng)
    )
    return head(
      self.head_params(params),
      self.states(model, params, batch, vocabulary, states_rng),
      activation=self.activation,
      epsilon=body_config(model).layer_norm_epsilon,
      drop=self.drop(head_rng),
      **settings,
    )

  def drop(self, rng: jax.Array | None):
    """Returns the head's dropout function, or None if dropout is disabled.

    Each call of the function draws a new mask from `rng`. It is the argument
    `drop` of `classification_heads.token_logits`.
    """
    if rng is None or not self.head_dropout:
      return None
    keys = iter(jax.random.split(rng, 4))
    return lambda states: dropout.apply_dropout(
      next(keys), states, rate=self.head_dropout
    )

  def _encode(self, model, params, batch, vocabulary, rng) -> jax.Array:
    """Computes the features [B, T, W] before the head's own layers."""
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
        stop_gradient_memory=self.stop_gradient_memory,
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
    """Returns the module with the head's Transformer layers."""
    return transformer_head.HeadLayers(
      transformer_head.make_head_config(body_config(model), self.width(model)),
      self.head_layers,
    )

  def _check(self, model) -> None:
    """Checks that the model provides the features that the head reads.

    Raises:
      ConfigError: If the model does not support one of the head's settings.
    """
    if self.states_from is StatesFrom.DECODER and not hasattr(model, 'decode'):
      raise errors.ConfigError(
        "states_from='decoder' requires a model with an encoder and a decoder",
        got=type(model).__name__,
        where=errors.field_location(self, 'states_from'),
      )
    depth = body_config(model).num_layers
    if self.layer is not None and not -depth - 1 <= self.layer <= depth:
      raise errors.ConfigError(
        f'`layer` must be an integer from 0 (the embeddings) to {depth} (the '
        'last layer), or a negative integer that counts from the last layer '
        f'(-1 to {-depth - 1})',
        got=self.layer,
        where=errors.field_location(self, 'layer'),
      )
    positions = getattr(body_config(model), 'position_embedding', None)
    if self.head_layers and positions == 'disentangled':
      raise errors.ConfigError(
        '`head_layers` must be 0 for models with disentangled attention',
        got=self.head_layers,
        where=errors.field_location(self, 'head_layers'),
      )
    if self.features is Features.PLUG_IN:
      veco.check_enabled(
        model.config, where=errors.field_location(self, 'features')
      )
      if parameter_sharing.get_sharing_plan(model) is not None:
        raise errors.ConfigError(
          "features='plug_in' does not support models with a sharing plan, because "
          'a sharing plan selects the parameters of one language',
          where=errors.field_location(self, 'features'),
          fix="Set features='plug_out'.",
        )


def _decode(
  model, params, batch, vocabulary: VocabularySpec, rng: jax.Array | None
) -> jax.Array:
  """Returns the hidden states of the decoder for the shifted sequence.

  For the token_ids `<s> x </s>`, the decoder reads `</s> <s> x`.

  Returns:
    Array of shape [B, T, H].
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
