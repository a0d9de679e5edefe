"""Optimizers: optax transformations with decay masks and frozen parameters.

Each is a frozen dataclass, so that a run can record what it trains with. A new
one subclasses `Optimizer` and says in `make` which transformation it is.
"""

import abc
import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from xlflax.training import param_tree
from xlflax.training.optimization import schedules
from xlflax.utils import class_registry, errors, validation

Rate = schedules.Schedule | validation.NonNegativeFloat
# Pattern of parameters' names -> their own learning rate.
Rates = Sequence[tuple[str, Rate]]

# Biases, normalisation scales: no weight decay, as in BERT's code. Fairseq, in
# which RoBERTa and XLM-R were trained, decays all: there `no_decay=()`.
NO_DECAY = (r'bias$', r'norm[^/]*/scale$', r'/scale$')
# The matrices inside layers; not embeddings, heads and the output.
HIDDEN = (r'(^|/)layers(_\d+)?/.*kernel$',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(abc.ABC):
  """What every optimizer has: rates, clipping, which parameters train.

  Attributes:
    learning_rate: schedule or constant.
    clip_norm: global gradient norm to clip at; None does not clip.
    trainable: patterns of parameters that train; () for all.
    frozen: patterns of parameters that do not train, taken from those that
      do; they have no optimizer state.
    rates: (pattern, schedule or constant) pairs: learning rates of the
      parameters that a pattern matches, in place of `learning_rate`; the
      first pattern that matches counts. For a head that learns faster than
      the encoder under it: `(('heads/', 5e-6),)` (ECS on XNLI).
  """

  learning_rate: Rate
  clip_norm: validation.PositiveFloat | None = None
  trainable: tuple[str, ...] = ()
  frozen: tuple[str, ...] = ()
  rates: Rates = ()

  steps_as_adam = False  # whether a step is about as long as the rate

  def __post_init__(self):
    for name in ('trainable', 'frozen', 'rates'):
      object.__setattr__(self, name, tuple(getattr(self, name)))
    object.__setattr__(self, 'rates', tuple(map(tuple, self.rates)))

  @abc.abstractmethod
  def make(self, rate: Rate) -> optax.GradientTransformation:
    """The transformation with this learning rate, over all parameters."""

  @functools.cached_property
  def transform(self) -> optax.GradientTransformation:
    """The transformation over the whole tree, with all that fields ask for."""
    transform = self.make(self.learning_rate)
    if self.rates:
      transform = self._with_rates(transform)
    if self.clip_norm is not None:
      transform = optax.chain(clip_by_global_norm(self.clip_norm), transform)
    if not (self.trainable or self.frozen):
      return transform
    return optax.multi_transform(
      {'train': transform, 'freeze': optax.set_to_zero()},
      lambda tree: param_tree.map_named(
        lambda n, _: 'train' if self.is_trainable(n) else 'freeze', tree
      ),
    )

  def rate_at(self, step) -> Any:
    """The learning rate at a step, a scalar."""
    if callable(self.learning_rate):
      return self.learning_rate(step)
    return self.learning_rate

  def is_trainable(self, parameter: str) -> bool:
    """Whether the parameter of this name trains."""
    return (
      not self.trainable
      or param_tree.matches_pattern(self.trainable, parameter)
    ) and not param_tree.matches_pattern(self.frozen, parameter)

  def without_frozen_gradients(self, params):
    """`params`, of which those that do not train have no gradient.

    Their gradients are constant zeros, so that no step computes them, and
    the gradient's norm leaves them out.
    """
    if not (self.trainable or self.frozen):
      return params
    return param_tree.map_named(
      lambda name, leaf: (
        leaf if self.is_trainable(name) else jax.lax.stop_gradient(leaf)
      ),
      params,
    )

  def check(self, tree) -> None:
    """Raises ConfigError for patterns that match nothing, or nothing left."""
    rate_patterns = tuple(pattern for pattern, _ in self.rates)
    param_tree.check_patterns(
      self.trainable, tree, where='trainable parameters'
    )
    param_tree.check_patterns(self.frozen, tree, where='frozen parameters')
    param_tree.check_patterns(rate_patterns, tree, where='optimizer.rates')
    if not any(self.is_trainable(n) for n in param_tree.flatten_params(tree)):
      raise errors.ConfigError(
        'No parameter is left to train',
        got=f'trainable={self.trainable}, frozen={self.frozen}',
        expected='at least one trainable parameter',
      )

  def _with_rates(self, common) -> optax.GradientTransformation:
    """`common`, but for parameters that a pattern gives another rate."""

    def label(name, _):
      for i, (pattern, _) in enumerate(self.rates):
        if param_tree.matches_pattern((pattern,), name):
          return str(i)
      return 'common'

    transforms = {
      str(i): self.make(rate) for i, (_, rate) in enumerate(self.rates)
    }
    return optax.multi_transform(
      {'common': common} | transforms,
      lambda tree: param_tree.map_named(label, tree),
    )


@class_registry.register('adamw')
@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
  """AdamW (Loshchilov & Hutter 2019): decoupled decay times the rate.

  Attributes:
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.
    weight_decay: strength of the decay.
    no_decay: patterns of parameters without weight decay.
  """

  b1: validation.FractionBelowOne = 0.9
  b2: validation.FractionBelowOne = 0.98
  eps: validation.PositiveFloat = 1e-6
  weight_decay: validation.NonNegativeFloat = 0.01
  no_decay: Sequence[str] = NO_DECAY
  clip_norm: validation.PositiveFloat | None = 1.0

  steps_as_adam = True

  def make(self, rate: Rate) -> optax.GradientTransformation:
    return optax.adamw(
      rate,
      b1=self.b1,
      b2=self.b2,
      eps=self.eps,
      weight_decay=self.weight_decay,
      mask=_decay_mask(self.no_decay),
    )


@class_registry.register('stable_adamw')
@dataclasses.dataclass(frozen=True, kw_only=True)
class StableAdamW(AdamW):
  """AdamW with update clipping (Wortsman et al. 2023, algorithm 2).

  Each matrix has its step divided by max(1, RMS), where RMS is the root mean of
  g^2 / max(v, eps^2): above 1 where gradients g have outgrown their second
  moment v, which is when AdamW's steps are too long. Layers that are scanned
  have an RMS each. It takes the place of clipping gradients.
  """

  clip_norm: validation.PositiveFloat | None = None

  def make(self, rate: Rate) -> optax.GradientTransformation:
    step = optax.chain(
      optax.scale_by_adam(b1=self.b1, b2=self.b2, eps=self.eps),
      optax.add_decayed_weights(
        self.weight_decay, mask=_decay_mask(self.no_decay)
      ),
    )

    def update(gradients, state, params=None):
      updates, state = step.update(gradients, state, params)
      moments = optax.tree.bias_correction(state[0].nu, self.b2, state[0].count)
      return param_tree.map_named(
        self._clipped, updates, gradients, moments
      ), state

    return optax.chain(
      optax.GradientTransformation(step.init, update),
      optax.scale_by_learning_rate(rate),
    )

  def _clipped(self, name, update, gradient, moment):
    of_matrix = tuple(range(_stacked(name), update.ndim))
    squares = gradient**2 / jnp.maximum(moment, self.eps**2)
    mean = jnp.mean(squares, axis=of_matrix, keepdims=True)
    return update / jnp.sqrt(jnp.maximum(mean, 1.0))


@class_registry.register('muon')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(AdamW):
  """Muon (Jordan 2024) for the matrices of layers, AdamW for all the rest.

  A matrix steps along its momentum with all singular values brought near 1 by
  Newton-Schulz iterations, scaled as Liu et al. (2025, equation 4) do, so that
  rates and decay that suit AdamW suit it too. Heads of attention are one
  matrix: [hidden, heads * head_dim] of query, key and value, its transpose of
  the output.

  Attributes:
    momentum: decay of the matrices' averaged gradients.
    iterations: of Newton-Schulz.
    update_rms: root mean square of a full-rank step, times the rate.
    hidden: patterns of the parameters that are such matrices, with axes of
      scanned layers and languages before them.
  """

  momentum: validation.FractionBelowOne = 0.95
  iterations: validation.PositiveInt = 5
  update_rms: validation.PositiveFloat = 0.2
  hidden: Sequence[str] = HIDDEN

  def make(self, rate: Rate) -> optax.GradientTransformation:
    matrices = optax.chain(
      optax.contrib.scale_by_muon(
        beta=self.momentum,
        ns_steps=self.iterations,
        weight_dimension_numbers=functools.partial(
          param_tree.map_named, _matrix_axes
        ),
      ),
      optax.stateless(
        lambda updates, _: param_tree.map_named(self._scaled, updates)
      ),
      optax.add_decayed_weights(
        self.weight_decay, mask=_decay_mask(self.no_decay)
      ),
      optax.scale_by_learning_rate(rate),
    )
    return optax.multi_transform(
      {'matrices': matrices, 'rest': super().make(rate)},
      lambda tree: param_tree.map_named(
        lambda name, _: (
          'matrices'
          if param_tree.matches_pattern(self.hidden, name)
          else 'rest'
        ),
        tree,
      ),
    )

  def _scaled(self, name, update):
    axes = _matrix_axes(name, update)
    inputs, outputs = (
      math.prod(update.shape[i] for i in group)
      for group in (axes.reduction_axis, axes.output_axis)
    )
    return update * (self.update_rms * math.sqrt(max(inputs, outputs)))


@class_registry.register('adam')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
  """Adam (Kingma & Ba 2015), as ECS trains; attributes as in `AdamW`."""

  b1: validation.FractionBelowOne = 0.9
  b2: validation.FractionBelowOne = 0.999
  eps: validation.PositiveFloat = 1e-8

  steps_as_adam = True

  def make(self, rate: Rate) -> optax.GradientTransformation:
    return optax.adam(rate, b1=self.b1, b2=self.b2, eps=self.eps)


@class_registry.register('sgd')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
  """Gradient descent; `momentum` averages gradients, None does not."""

  momentum: validation.FractionBelowOne | None = None

  def make(self, rate: Rate) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=self.momentum)


@class_registry.register('adafactor')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
  """Adafactor (Shazeer & Stern 2018) with factored second moments.

  `weight_decay` is multiplied by the rate, as in `AdamW`.
  """

  decay_rate: validation.PositiveFraction = 0.8
  min_dim_size_to_factor: validation.PositiveInt = 128
  multiply_by_parameter_scale: bool = True
  clipping_threshold: validation.PositiveFloat | None = 1.0
  weight_decay: validation.NonNegativeFloat | None = None
  no_decay: Sequence[str] = NO_DECAY

  def make(self, rate: Rate) -> optax.GradientTransformation:
    steps = optax.adafactor(
      decay_rate=self.decay_rate,
      min_dim_size_to_factor=self.min_dim_size_to_factor,
      multiply_by_parameter_scale=self.multiply_by_parameter_scale,
      clipping_threshold=self.clipping_threshold,
      weight_decay_rate=self.weight_decay,
      weight_decay_mask=_decay_mask(self.no_decay),
    )
    scale = optax.scale_by_learning_rate(rate, flip_sign=False)
    return optax.chain(steps, scale)


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


def _stacked(name: str) -> int:
  """How many leading axes hold a parameter of each language or layer."""
  unstacked_name = re.sub(
    r'\blayers/layer_\d+/', '', name
  )  # of heads: not stacked
  return len({'language_specific', 'layers'} & set(unstacked_name.split('/')))


def _matrix_axes(name: str, leaf) -> optax.contrib.MuonDimensionNumbers:
  """Axes of inputs and outputs: [embed | heads, kv], [heads, kv | embed]."""
  first = _stacked(name)
  joins_heads = name.endswith('output/kernel')
  split = leaf.ndim - 1 if joins_heads else first + 1
  return optax.contrib.MuonDimensionNumbers(
    tuple(range(first, split)), tuple(range(split, leaf.ndim))
  )


def _decay_mask(no_decay):
  return lambda tree: param_tree.map_named(
    lambda n, _: not param_tree.matches_pattern(no_decay, n), tree
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
  shardings_by_name = {}
  for (n, leaf), sharding in zip(
    param_tree.flatten_params(params).items(),
    jax.tree.leaves(shardings),
    strict=True,
  ):
    shardings_by_name[n] = shardings_by_name[n.removeprefix('model/')] = (
      leaf.shape,
      sharding,
    )

  def leaf_sharding(n, leaf):
    parts = n.split('/')
    for i in range(len(parts)):
      shape, sharding = shardings_by_name.get('/'.join(parts[i:]), (None, None))
      if shape == leaf.shape:
        return sharding
    return replicated

  return param_tree.map_named(leaf_sharding, state)
