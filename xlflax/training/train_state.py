"""The train state: all that changes from step to step, and its shardings."""

import functools
from collections.abc import Collection
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import compile_targets
from xlflax.models import model_params as models_api
from xlflax.objectives import objective_mixture
from xlflax.training import param_tree
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers


class TrainState(flax.struct.PyTreeNode):
  """What a checkpoint holds, besides the loaders' positions.

  Attributes:
    step: int32 [], number of finished steps.
    params: `{'model': ..., 'heads': {objective name: ...}}`, float32.
    opt_state: the optimizer's state.
    ema: running average of `params`, or () when it is off.
    objective_state: objective name -> what it keeps (queue, momentum
      encoder); an objective without state has no entry.
  """

  step: jax.Array
  params: Any
  opt_state: Any
  ema: Any
  objective_state: Any


def init_params(
  model, mixture: objective_mixture.ObjectiveMixture, rng: jax.Array
):
  """Boxed parameters of the model and of the objectives' heads."""
  model_rng, heads_rng = jax.random.split(rng)
  heads = {}
  for i, entry in enumerate(mixture.entries):
    head = entry.objective.init_heads(model, jax.random.fold_in(heads_rng, i))
    if head and entry.objective.name not in heads:
      heads[entry.objective.name] = head
  boxed = {'model': models_api.init_params(model, model_rng)}
  return boxed | {'heads': heads} if heads else boxed


def init_objective_state(model, mixture, params, vocabulary) -> dict[str, Any]:
  """What the objectives keep, at step 0 with these unboxed parameters."""
  states = {
    objective.name: objective.init_state(model, params, vocabulary)
    for objective in mixture.objectives
  }
  return {
    name: objective_state
    for name, objective_state in states.items()
    if jax.tree.leaves(objective_state)
  }


def build_state(
  model,
  mixture,
  optimizer: optimizers.Optimizer,
  vocabulary: vocabulary_spec.VocabularySpec,
  params,
  *,
  use_ema: bool,
) -> TrainState:
  """The state at step 0 around unboxed parameters."""
  return TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.transform.init(params),
    ema=jax.tree.map(jnp.copy, params) if use_ema else (),
    objective_state=init_objective_state(model, mixture, params, vocabulary),
  )


class StateFactory:
  """Makes train states, abstract ones, and their shardings.

  Attributes:
    abstract: the state as ShapeDtypeStructs.
    shardings: the state's shardings on the partitioner's mesh.
  """

  def __init__(
    self,
    model,
    mixture,
    optimizer: optimizers.Optimizer,
    vocabulary: vocabulary_spec.VocabularySpec,
    partitioner: partitioning.Partitioner,
    *,
    use_ema: bool,
  ):
    self._partitioner = partitioner

    make = functools.partial(init_params, model, mixture)

    def around(boxed):
      params = nn.meta.unbox(boxed)
      return build_state(
        model, mixture, optimizer, vocabulary, params, use_ema=use_ema
      )

    def create(rng, without):
      fresh = nn.meta.unbox(make(rng))
      return around(
        param_tree.map_named(
          lambda n, leaf: jnp.zeros_like(leaf) if n in without else leaf, fresh
        )
      )

    self._create = create
    self._create_objective_state = lambda params: init_objective_state(
      model, mixture, params, vocabulary
    )
    with partitioner.scope():  # as `create`, which then traces no second time
      boxed = jax.eval_shape(make, jax.eval_shape(lambda: jax.random.key(0)))
    optimizer.check(nn.meta.unbox(boxed))
    self.abstract = jax.eval_shape(around, boxed)
    self.shardings = self._shardings(boxed)

  def _shardings(self, boxed) -> TrainState:
    of_params = self._partitioner.shardings(boxed)
    replicated = self._partitioner.replicated
    match = functools.partial(
      optimizers.state_shardings,
      params=self.abstract.params,
      shardings=of_params,
      replicated=replicated,
    )
    return self.abstract.replace(
      step=replicated,
      params=of_params,
      opt_state=match(self.abstract.opt_state),
      ema=of_params if jax.tree.leaves(self.abstract.ema) else (),
      objective_state=match(self.abstract.objective_state),
    )

  @property
  def abstract_sharded(self) -> TrainState:
    """`abstract` with the sharding in each ShapeDtypeStruct."""
    return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=sharding
      ),
      self.abstract,
      self.shardings,
    )

  def create(
    self, rng: jax.Array, *, without: Collection[str] = ()
  ) -> TrainState:
    """A fresh, sharded state; each device makes only its own parts.

    Args:
      rng: a key.
      without: names of parameters that will be replaced: they are 0, since to
        draw all of a published model's takes as long as some training steps.
    """
    with self._partitioner.scope():
      return jax.jit(
        functools.partial(self._create, without=without),
        out_shardings=self.shardings,
        compiler_options=compile_targets.options_of_one_run(),
      )(rng)

  def create_objective_state(self, params) -> dict[str, Any]:
    """The objectives' state at step 0 with these sharded parameters."""
    if not self.abstract.objective_state:
      return {}
    with self._partitioner.scope():
      return jax.jit(
        self._create_objective_state,
        out_shardings=self.shardings.objective_state,
      )(params)
