"""Training step, which computes gradients and applies one optimizer update.

`TrainStepBuilder.build` returns the function `train_step(state, batches)` that
the training loop compiles and calls.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlflax.data import batch_keys
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import compile_targets
from xlflax.objectives import objective_base, objective_mixture
from xlflax.training import randomness, train_state
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


class NonFinitePolicy(enum.Enum):
  """Policy for steps whose loss or gradient is not finite.

  Under both policies, the update is not applied, so the state stays finite.
  Parameters that become infinite through a finite gradient end the run under
  both policies.

  Attributes:
    STOP: The run ends with an error that names the last checkpoint.
    SKIP: The update is skipped, the step is counted, and training continues.
  """

  STOP = 'stop'
  SKIP = 'skip'


class StepOutput(NamedTuple):
  """Loss and metrics of one training step, as small replicated arrays.

  Attributes:
    metrics: Mapping from metric names, such as 'mlm/accuracy', to weighted
      means.
    loss: Weighted sum of the objectives' losses, a float32 scalar.
    grad_norm: Global norm of the gradient before clipping, a float32 scalar.
    finite: Whether the update was applied, a boolean scalar. False if the loss
      or the gradient is not finite, or if the loss spikes.
    param_norm: Global norm of the updated parameters, a float32 scalar. It is
      not finite if a parameter is not finite, or if the squared norm overflows.
    tokens: Number of tokens in all batches without padding, a float32 scalar.
  """

  metrics: dict[str, objective_base.WeightedMean]
  loss: jax.Array
  grad_norm: jax.Array
  finite: jax.Array
  param_norm: jax.Array
  tokens: jax.Array


class TrainStepBuilder(NamedTuple):
  """Builder of the step functions that a run executes.

  Attributes:
    model: Linen module of the run.
    mixture: Objectives with their datasets and weights.
    optimizer: Optimizer with its learning rate schedule.
    vocabulary: Vocabulary sizes and special token ids.
    seed: Random seed of the run.
    gradient_accumulation_steps: Number of micro-batches per step.
    ema_decay: Decay rate of the exponential moving average of the parameters.
      If None, no average is kept.
    shardings: Shardings of the parameters, which are also used for gradients.
      If None, gradients are not constrained (single device).
  """

  model: Any
  mixture: objective_mixture.ObjectiveMixture
  optimizer: optimizers.Optimizer
  vocabulary: vocabulary_spec.VocabularySpec
  seed: int
  gradient_accumulation_steps: int = 1
  ema_decay: float | None = None
  shardings: Any = None

  def build(self, active: Sequence[int]):
    """Builds the step function for the given objectives of the mixture.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.

    Returns:
      A function `(state, batches, loss_limit=None) -> (state, StepOutput)` to
      be compiled, where `batches` are batches by dataset name. If the loss of a
      step exceeds `loss_limit`, float32 [], its update is not applied.
    """

    def train_step(state: train_state.TrainState, batches, loss_limit=None):
      grads, outputs, objective_state = self.compute_gradients(
        active, state, batches
      )
      loss = jnp.asarray(
        sum(
          self.mixture.loss_weight(i) * objective_base.weighted_mean(out.loss)
          for i, out in outputs.items()
        )
      )
      grad_norm = optax.tree.norm(grads)
      finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
      if loss_limit is not None:
        finite &= loss <= loss_limit
      state = self.apply_gradients(state, grads, objective_state, finite)
      return state, StepOutput(
        metrics=self._name_metrics(outputs),
        loss=loss,
        grad_norm=grad_norm,
        finite=finite,
        param_norm=optax.tree.norm(state.params),
        tokens=jnp.asarray(sum(map(count_tokens, batches.values()))),
      )

    return train_step

  def compute_gradients(self, active, state, batches):
    """Computes the gradient of the weighted sum of the objectives' losses.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.
      state: Train state before the step.
      batches: Batches of examples by dataset name.

    Returns:
      The gradient, the outputs by index of the entry, and the states of the
      objectives.
    """
    rng = jax.random.fold_in(
      randomness.purpose_key(self.seed, randomness.Purpose.TRAINING), state.step
    )
    grads, outputs = None, {}
    objective_state = dict(state.objective_state)
    for objective in {
      self.mixture.entries[i].objective.name: self.mixture.entries[i].objective
      for i in active
    }.values():
      if objective.name in objective_state:
        objective_state[objective.name] = objective.start_step(
          state.params, objective_state[objective.name]
        )
    for i in active:
      entry = self.mixture.entries[i]
      entry_grads, out = self._entry_gradients(
        entry,
        state,
        batches[entry.dataset],
        jax.random.fold_in(rng, i),
        objective_state.get(entry.objective.name, ()),
        self.mixture.loss_weight(i),
      )
      grads = (
        entry_grads
        if grads is None
        else jax.tree.map(jnp.add, grads, entry_grads)
      )
      outputs[i] = out
      if entry.objective.name in objective_state:
        objective_state[entry.objective.name] = out.state
    return grads, outputs, objective_state

  def _entry_gradients(self, entry, state, batch, rng, objective_state, weight):
    """Computes the gradient of `weight` times one objective's mean loss.

    Returns:
      The gradient and the output of the objective.
    """

    def loss_fn(params, micro_batch, key, objective_state, index=0):
      params = self.optimizer.without_frozen_gradients(params)
      context = objective_base.ObjectiveContext(
        vocabulary=self.vocabulary,
        step=state.step,
        train=True,
        rng=key,
        state=objective_state,
        micro_batches=self.gradient_accumulation_steps,
        micro_batch=index,
      )
      out = objective_base.compute_output(
        entry.objective, self.model, params, micro_batch, context
      )
      return out.loss.total, out

    def scale(out):
      return weight / jnp.maximum(out.loss.weight, 1e-8)

    def scaled_loss_fn(*args):
      total, out = loss_fn(*args)
      return total * jax.lax.stop_gradient(scale(out)), out

    # Scaling the loss instead of the gradient saves a pass over the gradient.
    if self.gradient_accumulation_steps == 1:
      grads, out = jax.grad(scaled_loss_fn, has_aux=True)(
        state.params, batch, rng, objective_state
      )
      return self._constrain_shardings(grads), out
    grads, out = self._accumulate(
      jax.grad(loss_fn, has_aux=True),
      state.params,
      micro_batches(
        batch,
        self.gradient_accumulation_steps,
        together=entry.objective.rows_together,
      ),
      rng,
      objective_state,
    )
    factor = scale(out)
    return jax.tree.map(lambda g: g * factor, grads), out

  def _constrain_shardings(self, grads):
    """Gives gradients the shardings of their parameters.

    Each gradient is then summed over devices by a reduce-scatter. Without the
    constraint, XLA uses an all-reduce because the global norm reads the
    complete gradients.
    """
    if self.shardings is None:
      return grads
    return jax.lax.with_sharding_constraint(grads, self.shardings)

  def _accumulate(self, grad_fn, params, batches, rng, objective_state):
    """Sums gradients and outputs over micro-batches [k, B / k, ...]."""
    indices = jnp.arange(self.gradient_accumulation_steps)
    keys = jax.vmap(lambda j: jax.random.fold_in(rng, j))(indices)

    def body(carry, inputs):
      grads, state, sums = carry
      micro_batch, key, index = inputs
      micro_grads, out = grad_fn(params, micro_batch, key, state, index)
      micro_grads = self._constrain_shardings(micro_grads)
      grads = jax.tree.map(jnp.add, grads, micro_grads)
      sums = jax.tree.map(jnp.add, sums, (out.loss, out.metrics))
      return (grads, out.state, sums), None

    first = jax.tree.map(lambda x: x[0], (batches, keys))
    shapes = jax.eval_shape(grad_fn, params, *first, objective_state)[1]
    zeros = jax.tree.map(
      lambda s: jnp.zeros(s.shape, s.dtype), (shapes.loss, shapes.metrics)
    )
    (grads, state, sums), _ = jax.lax.scan(
      body,
      (jax.tree.map(jnp.zeros_like, params), objective_state, zeros),
      (batches, keys, indices),
    )
    return grads, objective_base.ObjectiveOutput(sums[0], sums[1], state)

  def apply_gradients(self, state, grads, objective_state, finite):
    """Applies the gradient if it is finite, and increments the step."""

    def update(state):
      updates, opt_state = self.optimizer.transform.update(
        grads, state.opt_state, state.params
      )
      params = optax.apply_updates(state.params, updates)
      ema = state.ema
      if self.ema_decay is not None:
        ema = optax.incremental_update(params, ema, 1 - self.ema_decay)
      return state.replace(
        params=params,
        opt_state=opt_state,
        ema=ema,
        objective_state=objective_state,
      )

    state = select_update(finite, update, state, _advance_schedules)
    return state.replace(step=state.step + 1)

  def _name_metrics(self, outputs) -> dict[str, objective_base.WeightedMean]:
    """Returns the metrics of all objectives, with a prefix for each."""
    metrics: dict[str, objective_base.WeightedMean] = {}
    for i, out in outputs.items():
      prefix = self.mixture.metric_prefixes[i]
      objective_prefix = f'{self.mixture.entries[i].objective.name}/'
      named = {'loss': out.loss} | {
        k.removeprefix(objective_prefix): v for k, v in out.metrics.items()
      }
      metrics.update({f'{prefix}/{k}': v for k, v in named.items()})
    return metrics


def _advance_schedules(state: train_state.TrainState) -> train_state.TrainState:
  """Advances the step counts of the schedules after a skipped step."""
  opt_state = jax.tree.map(
    lambda x: x._replace(count=x.count + 1) if _is_schedule(x) else x,
    state.opt_state,
    is_leaf=_is_schedule,
  )
  return state.replace(opt_state=opt_state)


def _is_schedule(state: Any) -> bool:
  """Returns whether a node of an optimizer state belongs to a schedule."""
  return isinstance(state, optax.ScaleByScheduleState)


def select_update(
  condition: jax.Array,
  update: Callable[[Any], Any],
  state: Any,
  otherwise: Callable[[Any], Any] = lambda state: state,
) -> Any:
  """Returns `update(state)` if a condition holds, else `otherwise(state)`.

  On a CPU, a conditional lets XLA update donated arrays in place. A selection
  of values would copy arrays that several new values depend on, such as Adam's
  moments. On other devices, a conditional makes the host wait for the
  condition, so values are selected instead.

  Args:
    condition: Condition that selects the function, a boolean scalar.
    update: Function of `state` whose result is returned if the condition holds.
      The result must have the same structure, shapes and dtypes as that of
      `otherwise`.
    state: Argument of the selected function.
    otherwise: Function of `state` whose result is returned if the condition
      does not hold. By default, it returns `state` unchanged.

  Returns:
    The selected tree.
  """
  if compile_targets.current_target().platform == 'cpu':
    return jax.lax.cond(condition, update, otherwise, state)
  return jax.tree.map(
    lambda new, old: jnp.where(condition, new, old),
    update(state),
    otherwise(state),
  )


def count_tokens(batch) -> jax.Array:
  """Counts the tokens that are not padding. The result is a float32 scalar.

  The tokens of both sentences of a pair are counted.
  """
  keys = [
    k
    for k in batch
    if k.removeprefix(batch_keys.PAIRED) == batch_keys.SEGMENT_IDS
  ]
  return jnp.asarray(
    sum(jnp.sum(batch[k] > 0, dtype=jnp.float32) for k in keys)
  )


def micro_batches(batch, count: int, *, together: int = 1):
  """Splits a batch into micro-batches: [B, ...] to [count, B / count, ...].

  Micro-batch j contains the groups j, j + count, j + 2 count, … of `together`
  consecutive sequences.

  Args:
    batch: Batch of examples, with arrays of shape [B, ...].
    count: Number of micro-batches to create.
    together: Number of consecutive sequences that must stay in the same
      micro-batch.

  Returns:
    The batch with a leading dimension of size `count`.

  Raises:
    ConfigError: If the groups cannot be distributed evenly over the
      micro-batches.
  """

  def split(x):
    rows, other_dims = x.shape[0], x.shape[1:]
    if rows % (count * together):
      raise errors.ConfigError(
        f'The batch size must be a multiple of {count * together}, the product '
        f'of the number of micro-batches ({count}) and the group size '
        f'({together})',
        got=rows,
        fix='Change the batch size or the number of micro-batches.',
      )
    groups = x.reshape(-1, count, together, *other_dims)
    return jnp.swapaxes(groups, 0, 1).reshape(count, rows // count, *other_dims)

  return jax.tree.map(split, batch)
