"""A task's head on the mapped states of another model.

Source: ECS (Wu et al., 2020) section 5.1.2 and figure 5: the target model's
layer i is mapped into the space of the source model's layer i, on which the
head (there with four Transformer layers of its own) was trained. The head is
one of `xlflax.objectives.finetuning` with `layer=i, body='frozen'`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.evaluation import eval_task
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.similarity import alignment_maps
from xlflax.utils import errors

_MAP = 'map'  # beside the head's parameters


def subject_of(
  source: eval_task.Subject,
  target: eval_task.Subject,
  name: str,
  saved: alignment_maps.SavedMap | None,
) -> eval_task.Subject:
  """The target's encoder under a head of the source.

  It is evaluated as any fine-tuned model is, on the target's text.

  Args:
    source: has the head.
    target: the model whose states are mapped.
    name: of the source's objective.
    saved: the map from the target's layer to the source's; None: the states
      as they are.

  Raises:
    AnalysisError: the source has no such head, or the map has other sizes.
  """
  objective = source.objectives.get(name)
  head = source.params.get('heads', {}).get(name)
  if not isinstance(objective, finetuning.FineTuning) or head is None:
    raise errors.AnalysisError(
      'The source has no such head',
      got=name,
      expected='one of '
      + (', '.join(source.params.get('heads', {})) or 'none'),
      fix='name it by --objective, or fine-tune the source first',
    )
  if objective.reads_decoder(source.model):
    raise errors.AnalysisError(
      'Only states of an encoder can be mapped',
      got=f'objective {name!r}, which reads the states of a decoder',
      expected="a head with states_from='encoder'",
      fix="fine-tune with states_from='encoder'",
    )
  depths = [one.model.config.num_layers for one in (source, target)]
  last = -1 if objective.layer is None else objective.layer
  if depths[0] != depths[1] and last < 0:
    # Layers from the end are the source's, not the target's.
    objective = dataclasses.replace(objective, layer=depths[0] + 1 + last)
  if saved is not None:
    sizes = (target.model.config.hidden_dim, source.model.config.hidden_dim)
    if saved.alignment.matrix.shape != sizes[::-1]:
      raise errors.AnalysisError(
        'A map is of models of other sizes',
        got=str(saved.alignment.matrix.shape),
        expected=str(sizes[::-1]),
      )
    kind: Any = type(objective)
    objective = _mapped(kind)(
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
  """Maps states of the source to the target's own coordinates.

  They are normalised and mapped; then the rounds of the target's normalisation
  are undone in reverse order. A round's division by the length cannot be undone
  without the length; a vector v of length 1 after `(u - m) / |u - m|` with
  |u| = 1 is brought back to the u = m + t v of length 1 with t > 0. The result
  has the length of the source's state, times `scale`.

  Args:
    states: [..., D].
    parameters: `matrix` [D, D], `source_means` and `target_means`
      [rounds, D], `scale`: the target's mean length divided by the source's.

  Returns:
    [..., D] float32.
  """
  states = states.astype(jnp.float32)
  length = jnp.linalg.norm(states, axis=-1, keepdims=True)
  found = _unit(states)
  for mean in parameters['source_means']:
    found = _unit(found - _like(mean, found))
  found = jnp.einsum(
    '...d,ed->...e',
    found,
    parameters['matrix'],
    precision=jax.lax.Precision.HIGHEST,
  )
  for mean in parameters['target_means'][::-1]:
    # t^2 + 2 t m·v + |m|^2 - 1 = 0
    along = jnp.einsum('...d,d->...', found, mean)[..., None]
    root = jnp.sqrt(jnp.maximum(along**2 + 1 - jnp.vdot(mean, mean), 0))
    found = _like(mean, found) + (root - along) * found
  return found * length * parameters['scale']


@functools.cache
def _mapped(kind: type[finetuning.FineTuning]) -> type[finetuning.FineTuning]:
  """The objective with mapped states; equal ones share compiled programs."""

  class Mapped(kind):  # type: ignore[valid-type, misc]
    """Maps what the encoder gives, then does as its base does."""

    def _encode(self, model, params, batch, vocabulary, rng) -> jax.Array:
      states = super()._encode(model, params, batch, vocabulary, rng)
      return map_states(states, self.head_of(params)[_MAP]).astype(states.dtype)

  return Mapped


def _parameters(saved: alignment_maps.SavedMap) -> dict[str, Any]:
  return {
    'matrix': jnp.asarray(saved.alignment.matrix, jnp.float32),
    'source_means': jnp.asarray(saved.alignment.source.means, jnp.float32),
    'target_means': jnp.asarray(saved.alignment.target.means, jnp.float32),
    'scale': jnp.float32(saved.scale),
  }


def _like(mean: jax.Array, states: jax.Array) -> jax.Array:
  """[D] with as many axes as the states."""
  return mean.reshape((1,) * (states.ndim - 1) + mean.shape)


def _unit(states: jax.Array) -> jax.Array:
  length = jnp.linalg.norm(states, axis=-1, keepdims=True)
  return states / jnp.where(length > 0, length, 1)
