"""The train state, which contains all values that change from step to step."""

import functools
from collections.abc import Collection
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import compile_targets, model_params
from xlflax.objectives import objective_mixture
from xlflax.training import param_tree
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers


class TrainState(flax.struct.PyTreeNode):
  """Train state, which is saved in checkpoints.

  Attributes:
    step: Number of completed steps, an int32 scalar.
    params: Parameters `{'model': ..., 'heads': {objective name: ...}}`,
      float32.
    opt_state: State of the optimizer, such as moments.
    ema: Exponential moving average of `params`, or () if it is disabled.
    objective_state: States of the objectives, such as a queue or a momentum
      encoder, by objective name. Objectives without state have no entry.
  """

  step: jax.Array
  params: Any
  opt_state: Any
  ema: Any
  objective_state: Any


def init_params(
  model, mixture: objective_mixture.ObjectiveMixture, rng: jax.Array
):
  """Initializes the boxed parameters of the model and the objectives' heads.

  Args:
    model: Linen module of the run.
    mixture: Mixture of objectives that the run trains.
    rng: Random key for the initialization.
  """
  model_rng, heads_rng = jax.random.split(rng)
  heads = {}
  for i, entry in enumerate(mixture.entries):
    head = entry.objective.init_heads(model, jax.random.fold_in(heads_rng, i))
    if head and entry.objective.name not in heads:
      heads[entry.objective.name] = head
  boxed = {'model': model_params.init_params(model, model_rng)}
  return boxed | {'heads': heads} if heads else boxed


def init_objective_state(model, mixture, params, vocabulary) -> dict[str, Any]:
  """Returns the objectives' initial states for unboxed parameters."""
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
  """Returns the initial train state for unboxed parameters.

  Args:
    model: Linen module of the run.
    mixture: Mixture of objectives that the run trains.
    optimizer: Optimizer that the run uses.
    vocabulary: Sizes and special token ids of the vocabulary.
    params: Unboxed parameters of the model and of the heads.
    use_ema: Whether to maintain an exponential moving average of the
      parameters.
  """
  return TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.transform.init(params),
    ema=jax.tree.map(jnp.copy, params) if use_ema else (),
    objective_state=init_objective_state(model, mixture, params, vocabulary),
  )


class StateFactory:
  """Factory for train states, abstract train states, and their shardings.

  Attributes:
    abstract: Train state in which ShapeDtypeStructs replace arrays.
    shardings: Shardings of the train state on the partitioner's mesh.

  Args:
    model: Linen module of the run.
    mixture: Mixture of objectives that the run trains.
    optimizer: Optimizer that the run uses.
    vocabulary: Sizes and special token ids of the vocabulary.
    partitioner: Partitioner, which provides the mesh and the sharding rules.
    use_ema: Whether to maintain an exponential moving average of the
      parameters.
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

    init_boxed = functools.partial(init_params, model, mixture)

    def build(boxed):
      params = nn.meta.unbox(boxed)
      return build_state(
        model, mixture, optimizer, vocabulary, params, use_ema=use_ema
      )

    def create(rng, without):
      params = nn.meta.unbox(init_boxed(rng))
      return build(
        param_tree.map_named(
          lambda n, leaf: jnp.zeros_like(leaf) if n in without else leaf, params
        )
      )

    self._create = create
    self._create_objective_state = lambda params: init_objective_state(
      model, mixture, params, vocabulary
    )
    # `create` runs in the same scope and can therefore reuse this trace.
    with partitioner.scope():
      boxed = jax.eval_shape(
        init_boxed, jax.eval_shape(lambda: jax.random.key(0))
      )
    optimizer.check(nn.meta.unbox(boxed))
    self.abstract = jax.eval_shape(build, boxed)
    self.shardings = self._compute_shardings(boxed)

  def _compute_shardings(self, boxed) -> TrainState:
    """Returns the shardings of the train state for boxed parameters."""
    param_shardings = self._partitioner.shardings(boxed)
    replicated = self._partitioner.replicated
    state_shardings = functools.partial(
      optimizers.state_shardings,
      params=self.abstract.params,
      shardings=param_shardings,
      replicated=replicated,
    )
    return self.abstract.replace(
      step=replicated,
      params=param_shardings,
      opt_state=state_shardings(self.abstract.opt_state),
      ema=param_shardings if jax.tree.leaves(self.abstract.ema) else (),
      objective_state=state_shardings(self.abstract.objective_state),
    )

  @property
  def abstract_sharded(self) -> TrainState:
    """Abstract train state, in which each ShapeDtypeStruct has a sharding."""
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
    """Creates a new train state that is sharded over the mesh.

    Each device computes only its own shards.

    Args:
      rng: Random key for the initialization.
      without: Names of parameters that will be replaced. They are initialized
        to 0, because drawing random values for all parameters of a published
        model takes as long as several training steps.
    """
    with self._partitioner.scope():
      return jax.jit(
        functools.partial(self._create, without=without),
        out_shardings=self.shardings,
        compiler_options=compile_targets.single_run_options(),
      )(rng)

  def create_objective_state(self, params) -> dict[str, Any]:
    """Creates the objectives' initial states for sharded parameters."""
    if not self.abstract.objective_state:
      return {}
    with self._partitioner.scope():
      return jax.jit(
        self._create_objective_state,
        out_shardings=self.shardings.objective_state,
      )(params)
