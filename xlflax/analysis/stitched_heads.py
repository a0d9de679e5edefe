"""Evaluation of a fine-tuned head on mapped hidden states of another model.

Source: ECS (Wu et al., 2020) section 5.1.2 and figure 5. Layer i of the target
model is mapped into the space of layer i of the source model, on which the
head was trained. In the paper, the head has four Transformer layers of its
own. Here it is a head of `xlflax.objectives.finetuning` with
`layer=i, freeze_encoder=True`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.evaluation import eval_task
from xlflax.objectives.finetuning import finetuning_objective
from xlflax.similarity import alignment_maps
from xlflax.utils import errors

_MAP = 'map'  # Key of the map among the head's parameters.


def stitch_eval_model(
  source: eval_task.EvalModel,
  target: eval_task.EvalModel,
  name: str,
  saved: alignment_maps.SavedMap | None,
) -> eval_task.EvalModel:
  """Combines the target model's encoder with a head of the source model.

  The result is evaluated like any fine-tuned model on text in the target's
  language.

  Args:
    source: Fine-tuned model from which the head is taken.
    target: Model whose hidden states are mapped.
    name: Name of the objective that trained the head in the source model.
    saved: Alignment map from the target model's layer to the source model's
      layer. If None, the states are not mapped.

  Raises:
    AnalysisError: If the source model does not have the head, or if the map's
      shape does not match the models.
  """
  objective = source.objectives.get(name)
  head = source.params.get('heads', {}).get(name)
  if not isinstance(objective, finetuning_objective.FineTuning) or head is None:
    raise errors.AnalysisError(
      'The source model does not have a head for the requested objective',
      got=name,
      expected=', '.join(source.params.get('heads', {})) or None,
      fix='Pass the name of a head as --objective, or fine-tune the source '
      'model.',
    )
  if objective.reads_decoder(source.model):
    raise errors.AnalysisError(
      f'The head of the objective {name!r} must read the hidden states of the '
      'encoder, but it reads the hidden states of the decoder',
      fix="Fine-tune the model with states_from='encoder'.",
    )
  source_depth = source.model.config.num_layers
  target_depth = target.model.config.num_layers
  layer = -1 if objective.layer is None else objective.layer
  if source_depth != target_depth and layer < 0:
    # Negative indices count from the end of the source model.
    objective = dataclasses.replace(objective, layer=source_depth + 1 + layer)
  if saved is not None:
    sizes = (target.model.config.hidden_dim, source.model.config.hidden_dim)
    if saved.alignment.matrix.shape != sizes[::-1]:
      raise errors.AnalysisError(
        'The shape of the alignment map does not match the hidden sizes of the '
        'two models',
        got=str(saved.alignment.matrix.shape),
        expected=str(sizes[::-1]),
      )
    objective_class: Any = type(objective)
    objective = _mapped_class(objective_class)(
      **{
        field.name: getattr(objective, field.name)
        for field in dataclasses.fields(objective)
        if field.init
      }
    )
    head = head | {_MAP: _parameters(saved)}
  return dataclasses.replace(
    target,
    objectives={name: objective},
    inputs=source.inputs,
    params={'model': target.params['model'], 'heads': {name: head}},
  )


def map_states(states: jax.Array, parameters: dict[str, Any]) -> jax.Array:
  """Maps hidden states and undoes the normalization of the target states.

  The states are normalized and mapped. The rounds of the target's normalization
  are then inverted in reverse order. A round maps a vector u of norm 1 to
  v = (u - m) / |u - m|. The norm |u - m| is not known, but u is determined by
  u = m + t v with |u| = 1 and t > 0. The result has the norm of the input,
  multiplied by `scale`.

  Args:
    states: Hidden states of shape [..., D].
    parameters: Map parameters: `matrix` of shape [D, D],
      `source_means` and `target_means` of shape [rounds, D], and `scale`, the
      mean norm of the target's states divided by that of the source's.

  Returns:
    Mapped states of shape [..., D], float32.
  """
  states = states.astype(jnp.float32)
  norm = jnp.linalg.norm(states, axis=-1, keepdims=True)
  vectors = _normalize(states)
  for mean in parameters['source_means']:
    vectors = _normalize(vectors - _expand_dims(mean, vectors.ndim))
  vectors = jnp.einsum(
    '...d,ed->...e',
    vectors,
    parameters['matrix'],
    precision=jax.lax.Precision.HIGHEST,
  )
  for mean in parameters['target_means'][::-1]:
    # t is the positive root of t^2 + 2 t m·v + |m|^2 - 1 = 0.
    product = jnp.einsum('...d,d->...', vectors, mean)[..., None]
    root = jnp.sqrt(jnp.maximum(product**2 + 1 - jnp.vdot(mean, mean), 0))
    vectors = _expand_dims(mean, vectors.ndim) + (root - product) * vectors
  return vectors * norm * parameters['scale']


@functools.cache
def _mapped_class(
  base: type[finetuning_objective.FineTuning],
) -> type[finetuning_objective.FineTuning]:
  """Returns a subclass of an objective that maps the hidden states.

  The class is cached, because equal objectives share compiled programs.
  """

  class Mapped(base):  # type: ignore[valid-type, misc]
    """Objective that maps hidden states before the head reads them."""

    def _encode(self, model, params, batch, vocabulary, rng) -> jax.Array:
      states = super()._encode(model, params, batch, vocabulary, rng)
      return map_states(states, self.head_params(params)[_MAP]).astype(
        states.dtype
      )

  return Mapped


def _parameters(saved: alignment_maps.SavedMap) -> dict[str, Any]:
  """Converts an alignment map to the parameters of `map_states`."""
  return {
    'matrix': jnp.asarray(saved.alignment.matrix, jnp.float32),
    'source_means': jnp.asarray(saved.alignment.source.means, jnp.float32),
    'target_means': jnp.asarray(saved.alignment.target.means, jnp.float32),
    'scale': jnp.float32(saved.scale),
  }


def _expand_dims(mean: jax.Array, ndim: int) -> jax.Array:
  """Reshapes a vector of shape [D] to [1, ..., 1, D] with `ndim` axes."""
  return mean.reshape((1,) * (ndim - 1) + mean.shape)


def _normalize(states: jax.Array) -> jax.Array:
  """Scales vectors to norm 1. Zero vectors stay zero."""
  norm = jnp.linalg.norm(states, axis=-1, keepdims=True)
  return states / jnp.where(norm > 0, norm, 1)
