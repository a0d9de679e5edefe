"""Base class of T5X models for encoders and encoder-decoders. Requires T5X.

The parameter tree has the same structure as in `xlflax train`: `{'model': ...,
'heads': {objective: ...}}`.
"""

import dataclasses
import enum
import functools
from collections.abc import Mapping
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
from flax import linen as nn
from t5x import models as t5x_models

from xlflax.data import batch_keys, dataset_config
from xlflax.data.seqio_tasks import seqio_vocabulary
from xlflax.interop.t5x import clu_metrics, feature_converters, logical_axes
from xlflax.models import adapter_config, encoder_config, model_params
from xlflax.objectives import duplicate_detection, objective_base
from xlflax.objectives.pretraining import seq2seq
from xlflax.utils import errors, validation


class Normalization(enum.Enum):
  """Normalization of the loss that T5X differentiates."""

  MEAN = 'mean'  # Mean over the predicted tokens of the batch, as in xlflax.
  SUM = 'sum'  # For Adafactor, and for several microbatches.


class ObjectiveModel(t5x_models.BaseModel):
  """T5X model that trains a module with a single objective.

  Attributes:
    module: Linen module to train. Its configuration contains the vocabulary
      sizes.
    objective: Training objective.
    optimizer_def: T5X optimizer definition that updates the parameters.
    input_vocabulary: Vocabulary of the SeqIO tasks. T5X requires that it equals
      `output_vocabulary`.
    output_vocabulary: Vocabulary of the SeqIO tasks, the same as
      `input_vocabulary`.
    spec: Sizes and special ids of the vocabulary.
    FEATURE_CONVERTER_CLS: Function that creates the feature converter for the
      layout of the examples.
  """

  def __init__(
    self,
    *,
    module: Any,
    vocabulary: seqio_vocabulary.SeqioVocabulary,
    objective: objective_base.Objective,
    optimizer_def: Any,
    layout: dataset_config.ExampleLayout | str,
    pairs: dataset_config.PairOptions = dataset_config.PairOptions(),  # noqa: B008
    normalization: Normalization | str = Normalization.MEAN,
    seed: int = 0,
  ):
    """Initializes the model and checks that T5X can train the objective.

    Args:
      module: Encoder or encoder-decoder to train.
      vocabulary: Vocabulary of the SeqIO tasks.
      objective: Training objective. It must not have a state or schedules,
        because T5X does not store them.
      optimizer_def: T5X optimizer definition that updates the parameters.
      layout: Layout of the examples: SENTENCES, PAIRS or DUAL.
      pairs: Separator and position options of text pairs, for the layout PAIRS.
      normalization: Normalization of the loss: MEAN or SUM. T5X sums the
        gradients of microbatches, so several microbatches require SUM.
      seed: Random seed for masking tokens in evaluations.

    Raises:
      ConfigError: If T5X does not support the objective, or if the objective
        does not support the layout.
    """
    super().__init__(optimizer_def=optimizer_def)
    spec = vocabulary.vocabulary.spec
    self.module = module.clone(
      config=encoder_config.with_vocabulary(module.config, spec)
    )
    self.objective = objective
    self.input_vocabulary = self.output_vocabulary = vocabulary
    self.FEATURE_CONVERTER_CLS = functools.partial(
      feature_converters.RowConverter, spec=spec, layout=layout, pairs=pairs
    )
    self.spec, self._seed = spec, seed
    self._normalization = validation.validate(
      normalization, Normalization, name='normalization'
    )
    _check(objective, self.module)
    objective.check_dataset(
      dataset_config.DatasetConfig(
        name='t5x',
        mixture="T5X's tasks",
        layout=validation.validate(
          layout, dataset_config.ExampleLayout, name='layout'
        ),
        length=8,
        batch_size=1,
      )
    )

  def get_initial_variables(self, rng, input_shapes, input_types=None):
    """Returns initialized 'params' and their 'params_axes'."""
    del input_shapes, input_types  # The parameters do not depend on the batch.
    model_rng, head_rng = jax.random.split(rng)
    boxed = {'model': model_params.init_params(self.module, model_rng)}
    heads = self.objective.init_heads(self.module, head_rng)
    if heads:
      boxed['heads'] = {self.objective.name: heads}
    return flax.core.freeze(
      {
        'params': nn.meta.unbox(boxed),
        'params_axes': logical_axes.params_axes(boxed),
      }
    )

  def loss_fn(self, params, batch: Mapping[str, jax.Array], dropout_rng):
    """Computes the normalized loss of the objective and its metrics.

    Args:
      params: Parameters, as returned by `get_initial_variables`.
      batch: Mapping from batch keys (`xlflax.data.batch_keys`) to arrays of
        shape [batch, length].
      dropout_rng: Random key for masking and dropout. If None, dropout is
        disabled, and the masked tokens depend only on the batch.

    Returns:
      The loss and the metrics by name.
    """
    train = dropout_rng is not None
    rng = dropout_rng if train else self.key(batch)
    output = self._output(self.objective, params, batch, rng, train=train)
    if self._normalization is Normalization.MEAN:
      loss = objective_base.weighted_mean(output.loss)
    else:
      loss = output.loss.total
    return loss, clu_metrics.from_output(output, self.spec.languages)

  def score_batch(
    self,
    params,
    batch: Mapping[str, jax.Array],
    return_intermediates: bool = False,
  ):
    """Computes each sequence's log-likelihood over its predicted tokens.

    For a masked language model, the predicted tokens depend only on the
    sequence.

    Args:
      params: Parameters, as returned by `get_initial_variables`.
      batch: Mapping from batch keys (`xlflax.data.batch_keys`) to arrays.
      return_intermediates: Whether to also return `{'tokens': ...}`, the number
        of predicted tokens, as float32 of shape [batch].

    Returns:
      Log-likelihoods as float32, of shape [batch].
    """
    objective = self.objective
    if isinstance(objective, seq2seq.SequenceToSequence):
      objective = dataclasses.replace(objective, label_smoothing=0.0)

    def score(example, fingerprint):
      rng = jax.random.fold_in(jax.random.key(self._seed), fingerprint)
      example = {name: array[None] for name, array in example.items()}
      return self._output(objective, params, example, rng, train=False).loss

    losses = jax.vmap(score)(dict(batch), _fingerprints(batch))
    if return_intermediates:
      return -losses.total, {'tokens': losses.weight}
    return -losses.total

  def key(self, batch) -> jax.Array:
    """Returns a random key that depends only on the tokens of the batch."""
    return jax.random.fold_in(
      jax.random.key(self._seed),
      jnp.sum(_fingerprints(batch), dtype=jnp.uint32),
    )

  def context(self, rng, *, train: bool) -> objective_base.ObjectiveContext:
    """Returns the `ObjectiveContext` that is passed to the objective."""
    return objective_base.ObjectiveContext(
      vocabulary=self.spec, step=jnp.int32(0), train=train, rng=rng
    )

  def _output(self, objective, params, batch, rng, *, train: bool):
    return objective_base.compute_output(
      objective,
      self.module,
      unfreeze_params(params),
      dict(batch),
      self.context(rng, train=train),
    )


def unfreeze_params(params):
  """Converts the parameters from T5X's `FrozenDict` to plain dicts."""
  if isinstance(params, flax.core.FrozenDict):
    return flax.core.unfreeze(params)
  return params


def _fingerprints(batch) -> jax.Array:
  """Returns a hash of the tokens of each sequence, uint32 of shape [batch]."""
  return duplicate_detection.fingerprint_rows(batch[batch_keys.TOKEN_IDS])[:, 0]


def _check(objective: objective_base.Objective, module) -> None:
  """Checks that T5X supports the objective.

  Raises:
    ConfigError: If the objective has a state or uses schedules, or if the model
      has adapters.
  """
  adapters = adapter_config.model_adapters(module)
  if adapters:
    raise errors.ConfigError(
      'Models with adapters are not supported, because T5X trains all '
      'parameters',
      got=', '.join(adapter.name for adapter in adapters),
      where=errors.field_location(module.config, 'adapters'),
      fix='Train the model with `xlflax train`.',
    )
  schedules = [
    field.name
    for field in dataclasses.fields(objective)
    if callable(getattr(objective, field.name))
  ]
  if schedules:
    raise errors.ConfigError(
      f'The objective {objective.name!r} must not use schedules, because T5X '
      'does not pass the training step to the model',
      got=', '.join(schedules),
      fix='Set the scheduled fields to constant numbers, or train the model '
      'with `xlflax train`.',
    )
  objective_class = type(objective)
  has_state = any(
    getattr(objective_class, name)
    is not getattr(objective_base.Objective, name)
    for name in ('init_state', 'load_state', 'start_step')
  )
  if has_state:
    raise errors.ConfigError(
      f'The objective {objective.name!r} has a state, which T5X does not store',
      got=objective_class.__name__,
      fix='Train the model with `xlflax train`.',
    )
  objective.init_heads(module, jax.random.key(0))
