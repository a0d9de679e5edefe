"""Optimizers: optax transformations with decay masks and frozen parameters."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlflax import errors
from xlflax.training import params as params_lib
from xlflax.training import schedules

# Pattern of parameters' names -> their own learning rate.
Rates = Sequence[tuple[str, schedules.Schedule | float]]

# Biases, normalisation scales: no weight decay (BERT, RoBERTa, XLM-R).
NO_DECAY = (r'bias$', r'norm[^/]*/scale$', r'/scale$')


class Optimizer(NamedTuple):
  """A gradient transformation, and the learning rate to report.

  Attributes:
    transform: the optax transformation over the whole parameter tree.
    learning_rate: step -> learning rate.
    trainable: patterns of the parameters that train; () for all.
    frozen: patterns of those that do not, taken from the trainable ones.
    own_rates: patterns of those that have a learning rate of their own.
  """

  transform: optax.GradientTransformation
  learning_rate: schedules.Schedule
  trainable: tuple[str, ...] = ()
  frozen: tuple[str, ...] = ()
  own_rates: tuple[str, ...] = ()

  def is_trainable(self, parameter: str) -> bool:
    """Whether the parameter of this name trains."""
    return (
      not self.trainable or params_lib.matches(self.trainable, parameter)
    ) and not params_lib.matches(self.frozen, parameter)

  def check(self, tree) -> None:
    """Raises ConfigError for patterns that match nothing, or nothing left."""
    params_lib.check_patterns(
      self.trainable, tree, where='trainable parameters'
    )
    params_lib.check_patterns(self.frozen, tree, where='frozen parameters')
    params_lib.check_patterns(self.own_rates, tree, where='optimizer.rates')
    if not any(self.is_trainable(n) for n in params_lib.names(tree)):
      raise errors.ConfigError(
        'No parameter is left to train',
        got=f'trainable={self.trainable}, frozen={self.frozen}',
        expected='at least one trainable parameter',
      )


def adamw(
  *,
  learning_rate: schedules.Schedule | float,
  b1: float = 0.9,
  b2: float = 0.98,
  eps: float = 1e-6,
  weight_decay: float = 0.01,
  no_decay: Sequence[str] = NO_DECAY,
  clip_norm: float | None = 1.0,
  trainable: Sequence[str] = (),
  frozen: Sequence[str] = (),
  rates: Rates = (),
) -> Optimizer:
  """AdamW (Loshchilov & Hutter 2019): decoupled decay times the rate.

  Args:
    learning_rate: schedule or constant.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.
    weight_decay: strength of the decay.
    no_decay: patterns of parameters without weight decay.
    clip_norm: global gradient norm to clip at; None does not clip.
    trainable: patterns of parameters that train; () for all.
    frozen: patterns of parameters that do not train.
    rates: (pattern, schedule or constant) pairs: learning rates of the
      parameters that a pattern matches, in place of `learning_rate`; the
      first pattern that matches counts. For a head that learns faster than
      the encoder under it: `(('heads/', 5e-6),)` (ECS on XNLI).

  Returns:
    The optimizer; frozen parameters have no optimizer state.
  """

  def make(rate):
    return optax.adamw(
      rate,
      b1=b1,
      b2=b2,
      eps=eps,
      weight_decay=weight_decay,
      mask=_decay_mask(no_decay),
    )

  return _build(make, learning_rate, clip_norm, trainable, frozen, rates)


def adam(
  *,
  learning_rate: schedules.Schedule | float,
  b1: float = 0.9,
  b2: float = 0.999,
  eps: float = 1e-8,
  clip_norm: float | None = None,
  trainable: Sequence[str] = (),
  frozen: Sequence[str] = (),
  rates: Rates = (),
) -> Optimizer:
  """Adam (Kingma & Ba 2015), as ECS trains; arguments as in `adamw`."""
  return _build(
    lambda rate: optax.adam(rate, b1=b1, b2=b2, eps=eps),
    learning_rate,
    clip_norm,
    trainable,
    frozen,
    rates,
  )


def adafactor(
  *,
  learning_rate: schedules.Schedule | float,
  decay_rate: float = 0.8,
  min_dim_size_to_factor: int = 128,
  multiply_by_parameter_scale: bool = True,
  clipping_threshold: float | None = 1.0,
  weight_decay: float | None = None,
  no_decay: Sequence[str] = NO_DECAY,
  clip_norm: float | None = None,
  trainable: Sequence[str] = (),
  frozen: Sequence[str] = (),
  rates: Rates = (),
) -> Optimizer:
  """Adafactor (Shazeer & Stern 2018) with factored second moments."""

  def make(rate):
    return optax.adafactor(
      rate,
      decay_rate=decay_rate,
      min_dim_size_to_factor=min_dim_size_to_factor,
      multiply_by_parameter_scale=multiply_by_parameter_scale,
      clipping_threshold=clipping_threshold,
      weight_decay_rate=weight_decay,
      weight_decay_mask=_decay_mask(no_decay),
    )

  return _build(make, learning_rate, clip_norm, trainable, frozen, rates)


def clip_by_global_norm(maximum: float) -> optax.GradientTransformation:
  """Scales gradients down to a global norm of at most `maximum`.

  As Optax's, by one factor instead of a division and a choice for each
  element, which XLA would write out before it is used.
  """

  def update(updates, state, params=None):
    del params
    norm = optax.tree.norm(updates)
    factor = maximum / jnp.maximum(norm, maximum)
    return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _decay_mask(no_decay):
  return lambda tree: params_lib.map_named(
    lambda n, _: not params_lib.matches(no_decay, n), tree
  )


def _build(
  make: Callable[..., optax.GradientTransformation],
  learning_rate,
  clip_norm,
  trainable,
  frozen,
  rates,
) -> Optimizer:
  """The optimizer of `make`, a function of a learning rate."""
  transform = make(learning_rate)
  if rates:
    transform = _with_rates(make, transform, rates)
  if clip_norm is not None:
    transform = optax.chain(clip_by_global_norm(clip_norm), transform)
  rate = (
    learning_rate
    if callable(learning_rate)
    else optax.constant_schedule(learning_rate)
  )
  optimizer = Optimizer(
    transform,
    rate,
    tuple(trainable),
    tuple(frozen),
    tuple(pattern for pattern, _ in rates),
  )
  if not (trainable or frozen):
    return optimizer

  def label(tree):
    return params_lib.map_named(
      lambda n, _: 'train' if optimizer.is_trainable(n) else 'freeze', tree
    )

  return optimizer._replace(
    transform=optax.multi_transform(
      {'train': transform, 'freeze': optax.set_to_zero()}, label
    )
  )


def _with_rates(make, common, rates: Rates) -> optax.GradientTransformation:
  """`common`, but for parameters that a pattern gives another rate."""

  def label(tree):
    return params_lib.map_named(
      lambda n, _: next(
        (
          str(i)
          for i, (pattern, _) in enumerate(rates)
          if params_lib.matches((pattern,), n)
        ),
        'common',
      ),
      tree,
    )

  return optax.multi_transform(
    {'common': common}
    | {str(i): make(rate) for i, (_, rate) in enumerate(rates)},
    label,
  )


def state_shardings(state, params, shardings, replicated):
  """Shardings of an optimizer state: as its parameter's where shapes agree.

  Args:
    state: abstract optimizer or objective state, in which moments or copies
      keep the tree of all parameters or of the model's.
    params: abstract parameters.
    shardings: sharding of each parameter, same tree.
    replicated: sharding of everything else (counts, factored moments).

  Returns:
    A tree like `state` of shardings.
  """
  known = {}
  for (n, leaf), sharding in zip(
    params_lib.names(params).items(), jax.tree.leaves(shardings), strict=True
  ):
    known[n] = known[n.removeprefix('model/')] = (leaf.shape, sharding)

  def leaf_sharding(n, leaf):
    parts = n.split('/')
    for i in range(len(parts)):
      shape, sharding = known.get('/'.join(parts[i:]), (None, None))
      if shape == leaf.shape:
        return sharding
    return replicated

  return params_lib.map_named(leaf_sharding, state)
