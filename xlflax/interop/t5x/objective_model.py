"""What T5X models of every kind of module share. Needs T5X.

The parameters are those of a run of `xlflax train`: `{'model': ..., 'heads':
{objective: ...}}`.
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
from xlflax.models import encoder_config as model_config
from xlflax.models import model_params as models_api
from xlflax.objectives import duplicate_detection, objective_base
from xlflax.objectives.pretraining import seq2seq
from xlflax.utils import errors, validation


class Normalization(enum.Enum):
  """What T5X takes the gradient of."""

  MEAN = 'mean'  # over the predicted tokens of the batch, as xlflax does
  SUM = 'sum'  # for Adafactor, and with several micro-batches


class ObjectiveModel(t5x_models.BaseModel):
  """A module trained by one objective.

  Attributes:
    module: the Linen module, with the vocabulary's sizes filled in.
    objective: what it is trained by.
    optimizer_def: T5X's optimizer.
    input_vocabulary: the tasks' vocabulary; T5X compares the two.
    output_vocabulary: the same.
    spec: its sizes and special ids.
    FEATURE_CONVERTER_CLS: makes converters of the layout.
  """

  def __init__(
    self,
    *,
    module: Any,
    vocabulary: seqio_vocabulary.SeqioVocabulary,
    objective: objective_base.Objective,
    optimizer_def: Any,
    layout: dataset_config.Layout | str,
    pairs: dataset_config.PairOptions = dataset_config.PairOptions(),  # noqa: B008
    normalization: Normalization | str = Normalization.MEAN,
    seed: int = 0,
  ):
    """Checks that the objective can be trained by T5X.

    Args:
      module: an encoder or encoder-decoder.
      vocabulary: of the tasks.
      objective: without a state or schedules, which T5X does not keep.
      optimizer_def: T5X's optimizer.
      layout: how examples become rows: SENTENCES, PAIRS or SIDES.
      pairs: separator and positions, with PAIRS.
      normalization: T5X adds the gradients of micro-batches, so several of
        them need SUM.
      seed: of what is masked in evaluations.

    Raises:
      ConfigError: the objective needs what T5X does not have, or other rows.
    """
    super().__init__(optimizer_def=optimizer_def)
    spec = vocabulary.vocabulary.spec
    self.module = module.clone(
      config=model_config.with_vocabulary(module.config, spec)
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
    objective.check_stream(
      dataset_config.Stream(
        name='t5x',
        mixture="T5X's tasks",
        layout=validation.validate(
          layout, dataset_config.Layout, name='layout'
        ),
        length=8,
        batch_size=1,
      )
    )

  def get_initial_variables(self, rng, input_shapes, input_types=None):
    """Fresh 'params' and their 'params_axes'."""
    del input_shapes, input_types  # nothing depends on the batch
    model_rng, head_rng = jax.random.split(rng)
    boxed = {'model': models_api.init_params(self.module, model_rng)}
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
    """The objective's loss, as `Normalization` says, and its metrics.

    Args:
      params: as `get_initial_variables` makes them.
      batch: arrays [batch, length] as `xlflax.data.batch_keys` documents.
      dropout_rng: key of masking and dropout; None for an evaluation, which
        masks the same tokens of a batch each time.
    """
    train = dropout_rng is not None
    rng = dropout_rng if train else self.key(batch)
    output = self._output(self.objective, params, batch, rng, train=train)
    loss = (
      objective_base.weighted_mean(output.loss)
      if self._normalization is Normalization.MEAN
      else output.loss.total
    )
    return loss, clu_metrics.from_output(output, self.spec.languages)

  def score_batch(
    self,
    params,
    batch: Mapping[str, jax.Array],
    return_intermediates: bool = False,
  ):
    """Log-likelihood of each row's predicted tokens, float32 [B].

    Of a masked language model, the tokens depend on the row alone.

    Args:
      params: as `get_initial_variables` makes them.
      batch: as `xlflax.data.batch_keys` documents.
      return_intermediates: whether to give, besides, `{'tokens': float32
        [B]}`: how many tokens were predicted.
    """
    objective = self.objective
    if isinstance(objective, seq2seq.SequenceToSequence):
      objective = dataclasses.replace(objective, label_smoothing=0.0)

    def score(row, mark):
      rng = jax.random.fold_in(jax.random.key(self._seed), mark)
      row = {name: array[None] for name, array in row.items()}
      return self._output(objective, params, row, rng, train=False).loss

    losses = jax.vmap(score)(dict(batch), _marks(batch))
    if return_intermediates:
      return -losses.total, {'tokens': losses.weight}
    return -losses.total

  def key(self, batch) -> jax.Array:
    """A key that depends on the batch's tokens alone."""
    return jax.random.fold_in(
      jax.random.key(self._seed), jnp.sum(_marks(batch), dtype=jnp.uint32)
    )

  def context(self, rng, *, train: bool) -> objective_base.Context:
    """What the objective is told."""
    return objective_base.Context(
      vocabulary=self.spec, step=jnp.int32(0), train=train, rng=rng
    )

  def _output(self, objective, params, batch, rng, *, train: bool):
    return objective(
      self.module,
      unfreeze_params(params),
      dict(batch),
      self.context(rng, train=train),
    )


def unfreeze_params(params):
  """T5X freezes its parameters."""
  return (
    flax.core.unfreeze(params)
    if isinstance(params, flax.core.FrozenDict)
    else params
  )


def _marks(batch) -> jax.Array:
  """A number for each row's tokens, uint32 [B]."""
  return duplicate_detection.fingerprint_rows(batch[batch_keys.TOKEN_IDS])[:, 0]


def _check(objective: objective_base.Objective, module) -> None:
  """Raises ConfigError for what T5X's training would leave out."""
  where = f'objective {objective.name!r}'
  schedules = [
    field.name
    for field in dataclasses.fields(objective)
    if callable(getattr(objective, field.name))
  ]
  if schedules:
    raise errors.ConfigError(
      'A schedule of an objective needs the step, which T5X does not tell',
      got=', '.join(schedules),
      expected='numbers',
      where=where,
      fix='set them to numbers, or train with `xlflax train`',
    )
  kind = type(objective)
  kept = [
    name
    for name in ('init_state', 'load_state', 'start_step')
    if getattr(kind, name) is not getattr(objective_base.Objective, name)
  ]
  if kept:
    raise errors.ConfigError(
      'The objective has a state, which T5X does not keep',
      got=kind.__name__,
      expected='one without',
      where=where,
      fix='train with `xlflax train`',
    )
  objective.init_heads(module, jax.random.key(0))
