"""The train step: gradients of an objective mixture and one update."""

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlflax.data import batch as batch_lib
from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.foundation import errors
from xlflax.models import targets
from xlflax.objectives import base
from xlflax.objectives import mixture as mixture_lib
from xlflax.training import randomness
from xlflax.training import state as state_lib
from xlflax.training.optimization import optimizers


class NonFinite(enum.Enum):
  """What happens at a step whose loss or gradient is not finite.

  Either way the update is not applied, so the state stays good. Parameters
  that a finite gradient made infinite end the run either way.
  """

  STOP = 'stop'  # the run ends with an error that names the last checkpoint
  SKIP = 'skip'  # the step is counted, and training goes on


class StepOutput(NamedTuple):
  """What a step reports; all arrays are small and replicated.

  Attributes:
    metrics: 'objective/metric' -> Sum.
    loss: [] weighted total over the mixture's entries.
    grad_norm: [] global norm before clipping.
    finite: [] bool, False where the update was not applied.
    param_norm: [] global norm of the parameters after it; not finite where
      one is not, or is so large that its square is not.
    tokens: [] tokens of all streams' batches, without padding.
  """

  metrics: dict[str, base.WeightedMean]
  loss: jax.Array
  grad_norm: jax.Array
  finite: jax.Array
  param_norm: jax.Array
  tokens: jax.Array


class StepBuilder(NamedTuple):
  """What steps are made from; see `build`.

  Attributes:
    model: the Linen module.
    mixture: entries of (stream, objective, weight).
    optimizer: transformation and learning rate.
    vocabulary: sizes and special ids.
    seed: the run's seed.
    accumulation: micro-batches per step.
    ema_decay: decay of the parameter average, or None.
    shardings: those of the parameters, which gradients get; None for one
      device.
  """

  model: Any
  mixture: mixture_lib.ObjectiveMixture
  optimizer: optimizers.Optimizer
  vocabulary: vocabulary_spec.VocabularySpec
  seed: int
  accumulation: int = 1
  ema_decay: float | None = None
  shardings: Any = None

  def build(self, active: Sequence[int]):
    """The step for these entries of the mixture.

    Args:
      active: indices of the mixture's entries that this step trains.

    Returns:
      A function (state, {stream: batch}) -> (state, StepOutput), to be jitted;
      a loss above a third argument, float32 [], is not trained on.
    """

    def step(state: state_lib.TrainState, batches, limit=None):
      grads, outputs, objective_state = self._gradients(active, state, batches)
      loss = jnp.asarray(
        sum(
          self.mixture.loss_weight(i) * base.mean(out.loss)
          for i, out in outputs.items()
        )
      )
      norm = optax.tree.norm(grads)
      finite = jnp.isfinite(loss) & jnp.isfinite(norm)
      if limit is not None:
        finite &= loss <= limit
      state = self._update(state, grads, objective_state, finite)
      return state, StepOutput(
        self._named(outputs),
        loss,
        norm,
        finite,
        optax.tree.norm(state.params),
        jnp.asarray(sum(map(count_tokens, batches.values()))),
      )

    return step

  def _gradients(self, active, state, batches):
    """Weighted gradient of all entries, their outputs, objectives' states."""
    rng = jax.random.fold_in(
      randomness.key(self.seed, randomness.Purpose.TRAINING), state.step
    )
    grads, outputs, kept = None, {}, dict(state.objective_state)
    for objective in {
      self.mixture.entries[i].objective.name: self.mixture.entries[i].objective
      for i in active
    }.values():
      if objective.name in kept:
        kept[objective.name] = objective.start_step(
          state.params, kept[objective.name]
        )
    for i in active:
      entry = self.mixture.entries[i]
      entry_grads, out = self._entry(
        entry,
        state,
        batches[entry.stream],
        jax.random.fold_in(rng, i),
        kept.get(entry.objective.name, ()),
        self.mixture.loss_weight(i),
      )
      grads = (
        entry_grads
        if grads is None
        else jax.tree.map(jnp.add, grads, entry_grads)
      )
      outputs[i] = out
      if entry.objective.name in kept:
        kept[entry.objective.name] = out.state
    return grads, outputs, kept

  def _entry(self, entry, state, batch, rng, objective_state, weight):
    """Gradient of `weight` times the mean loss of one entry, its output."""

    def loss_fn(params, micro, key, kept, micro_batch=0):
      params = self.optimizer.without_frozen_gradients(params)
      context = base.Context(
        vocabulary=self.vocabulary,
        step=state.step,
        train=True,
        rng=key,
        state=kept,
        micro_batches=self.accumulation,
        micro_batch=micro_batch,
      )
      out = entry.objective(self.model, params, micro, context)
      return out.loss.total, out

    def scale(out):
      return weight / jnp.maximum(out.loss.weight, 1e-8)

    def scaled_loss_fn(*args):
      total, out = loss_fn(*args)
      return total * jax.lax.stop_gradient(scale(out)), out

    if self.accumulation == 1:  # scaling the loss spares a pass over gradients
      grads, out = jax.grad(scaled_loss_fn, has_aux=True)(
        state.params, batch, rng, objective_state
      )
      return self._split(grads), out
    grads, out = self._accumulate(
      jax.grad(loss_fn, has_aux=True),
      state.params,
      micro_batches(
        batch, self.accumulation, together=entry.objective.rows_together
      ),
      rng,
      objective_state,
    )
    factor = scale(out)
    return jax.tree.map(lambda g: g * factor, grads), out

  def _split(self, grads):
    """Gives gradients their parameters' shardings, before all else.

    Each is then summed over devices into parts (a reduce-scatter). Otherwise
    the global norm, which reads them whole, has XLA sum them whole.
    """
    if self.shardings is None:
      return grads
    return jax.lax.with_sharding_constraint(grads, self.shardings)

  def _accumulate(self, grad_fn, params, micros, rng, objective_state):
    """Scans micro-batches [k, B / k, ...]."""
    places = jnp.arange(self.accumulation)
    keys = jax.vmap(lambda j: jax.random.fold_in(rng, j))(places)

    def body(carry, inputs):
      grads, kept, sums = carry
      micro, key, place = inputs
      new_grads, out = grad_fn(params, micro, key, kept, place)
      new_grads = self._split(new_grads)
      sums = jax.tree.map(jnp.add, sums, (out.loss, out.metrics))
      return (jax.tree.map(jnp.add, grads, new_grads), out.state, sums), None

    first = jax.tree.map(lambda x: x[0], (micros, keys))
    shapes = jax.eval_shape(grad_fn, params, *first, objective_state)[1]
    zeros = jax.tree.map(
      lambda s: jnp.zeros(s.shape, s.dtype), (shapes.loss, shapes.metrics)
    )
    (grads, kept, sums), _ = jax.lax.scan(
      body,
      (jax.tree.map(jnp.zeros_like, params), objective_state, zeros),
      (micros, keys, places),
    )
    return grads, base.ObjectiveOutput(sums[0], sums[1], kept)

  def _update(self, state, grads, objective_state, finite):
    """Applies the gradient, or only counts the step if it is not finite."""

    def advance(state):
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

    state = choose(finite, advance, state, _schedules_on)
    return state.replace(step=state.step + 1)

  def _named(self, outputs) -> dict[str, base.WeightedMean]:
    metrics: dict[str, base.WeightedMean] = {}
    for i, out in outputs.items():
      prefix = metric_prefix(self.mixture, i)
      own = f'{self.mixture.entries[i].objective.name}/'
      named = {'loss': out.loss} | {
        k.removeprefix(own): v for k, v in out.metrics.items()
      }
      metrics.update({f'{prefix}/{k}': v for k, v in named.items()})
    return metrics


def _schedules_on(state: state_lib.TrainState) -> state_lib.TrainState:
  """The state after a step that is skipped: rates go by the run's steps."""
  opt_state = jax.tree.map(
    lambda x: x._replace(count=x.count + 1) if _is_schedule(x) else x,
    state.opt_state,
    is_leaf=_is_schedule,
  )
  return state.replace(opt_state=opt_state)


def _is_schedule(state: Any) -> bool:
  return isinstance(state, optax.ScaleByScheduleState)


def choose(
  condition: jax.Array,
  update: Callable[[Any], Any],
  state: Any,
  otherwise: Callable[[Any], Any] = lambda same: same,
) -> Any:
  """`update(state)` where the condition holds, else `otherwise(state)`.

  On a CPU a branch lets XLA update donated arrays in place; a choice of
  values makes it copy those that several of the new ones are computed from,
  such as Adam's moments. Elsewhere a branch would have the host wait for the
  condition.

  Args:
    condition: bool [].
    update: returns a tree of the same structure, shapes and dtypes.
    state: its argument.
    otherwise: the same; what it was given, without one.
  """
  if targets.current().platform == 'cpu':
    return jax.lax.cond(condition, update, otherwise, state)
  return jax.tree.map(
    lambda new, old: jnp.where(condition, new, old),
    update(state),
    otherwise(state),
  )


def metric_prefix(mixture: mixture_lib.ObjectiveMixture, index: int) -> str:
  """The objective's name; with the stream's where two entries share a name."""
  entry = mixture.entries[index]
  same = [
    e for e in mixture.entries if e.objective.name == entry.objective.name
  ]
  if len(same) == 1:
    return entry.objective.name
  return f'{entry.stream}_{entry.objective.name}'


def count_tokens(batch) -> jax.Array:
  """Tokens of a batch that are not padding, both sides of pairs; float32."""
  keys = [
    k
    for k in batch
    if k.removeprefix(batch_lib.PAIRED) == batch_lib.SEGMENT_IDS
  ]
  return jnp.asarray(
    sum(jnp.sum(batch[k] > 0, dtype=jnp.float32) for k in keys)
  )


def micro_batches(batch, count: int, *, together: int = 1):
  """The parts of a batch, [B, ...] -> [count, B / count, ...].

  Part j holds the groups j, j + count, j + 2 count, … of `together` rows.

  Raises:
    ConfigError: the rows are not as many groups for each part.
  """

  def parted(x):
    rows, rest = x.shape[0], x.shape[1:]
    if rows % (count * together):
      raise errors.ConfigError(
        'Rows that belong together do not fill the micro-batches',
        got=f'{rows} rows',
        expected=f'a multiple of {count * together}: {count} micro-batches of '
        f'groups of {together}',
        fix='change the batch size or the accumulation',
      )
    parts = x.reshape(-1, count, together, *rest)
    return jnp.swapaxes(parts, 0, 1).reshape(count, rows // count, *rest)

  return jax.tree.map(parted, batch)
