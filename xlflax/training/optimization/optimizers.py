"""Optax-based optimizers with weight decay masks and frozen parameters.

Each optimizer is a frozen dataclass, so that a run can record its settings. A
new optimizer subclasses `Optimizer` and returns its transformation from `make`.
"""

import abc
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from xlflax.training import param_tree
from xlflax.training.optimization import schedules
from xlflax.utils import class_registry, errors, user_modules, validation

Rate = schedules.Schedule | validation.NonNegativeFloat
# Pairs of a pattern of parameter names and their learning rate.
Rates = Sequence[tuple[str, Rate]]

# Biases and normalization scales have no weight decay, as in BERT's code.
# Fairseq, in which RoBERTa and XLM-R were trained, decays all parameters, which
# corresponds to `no_decay=()`.
NO_DECAY = (r'bias$', r'norm[^/]*/scale$', r'/scale$')
# A pattern in `no_decay` may match these names in a model without biases.
_NAMES_WITHOUT_DECAY = ('model/layers/norm/bias', 'model/layers/norm/scale')
# The matrices of the layers, without embeddings, heads and the output.
HIDDEN = (r'(^|/)layers(_\d+)?/.*kernel$',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(validation.ValidatedFields, abc.ABC):
  """Base class of all optimizers.

  Attributes:
    learning_rate: Learning rate schedule, or a constant.
    clip_norm: Maximum global norm of the gradient. If None, gradients are not
      clipped.
    trainable: Regular expressions for the names of the parameters to train. If
      empty, all parameters are trained.
    frozen: Regular expressions that select the parameters that are not trained,
      even if `trainable` selects them. They have no optimizer state.
    learning_rate_overrides: Pairs (pattern, learning rate), which replace
      `learning_rate` for the parameters whose names match the regular
      expression. A learning rate is a schedule or a constant. The first
      matching pattern is used. For a head that learns faster than the encoder
      below it, use `(('heads/', 5e-6),)` (as in ECS on XNLI).
  """

  learning_rate: Rate
  clip_norm: validation.PositiveFloat | None = None
  trainable: tuple[str, ...] = ()
  frozen: tuple[str, ...] = ()
  learning_rate_overrides: Rates = ()

  # True if updates have the size of Adam's, which is about the learning rate.
  steps_as_adam = False

  def __post_init__(self):
    for name in ('trainable', 'frozen', 'learning_rate_overrides'):
      object.__setattr__(self, name, tuple(getattr(self, name)))
    object.__setattr__(
      self,
      'learning_rate_overrides',
      tuple(map(tuple, self.learning_rate_overrides)),
    )

  @abc.abstractmethod
  def make(self, rate: Rate) -> optax.GradientTransformation:
    """Creates the gradient transformation for all parameters.

    The updates are added to the parameters, so they must point against the
    gradient. `optax.scale_by_learning_rate(rate)` accepts a number and a
    function, and includes the minus sign.

    Args:
      rate: Learning rate. A float if it is constant, and otherwise a
        `Schedule`, which is a function of the step.
    """

  @functools.cached_property
  def transform(self) -> optax.GradientTransformation:
    """Optax gradient transformation with the optimizer's settings."""
    transform = self._make_transform(self.learning_rate)
    if self.learning_rate_overrides:
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
    """Returns the learning rate at a training step as a scalar."""
    if callable(self.learning_rate):
      return self.learning_rate(step)
    return self.learning_rate

  def is_trainable(self, parameter: str) -> bool:
    """Returns whether the parameter with this name is trained."""
    return (
      not self.trainable
      or param_tree.matches_pattern(self.trainable, parameter)
    ) and not param_tree.matches_pattern(self.frozen, parameter)

  def without_frozen_gradients(self, params):
    """Stops the gradients of parameters that are not trained.

    The gradients of frozen parameters are constant zeros, so they are not
    computed and do not contribute to the norm of the gradient.

    Args:
      params: Parameters as a tree.
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
    """Checks that each parameter pattern of the optimizer matches a parameter.

    At least one parameter must be trained.

    Args:
      tree: Parameters as a tree.

    Raises:
      ConfigError: If a pattern matches no parameter, or no parameter is
        trained.
    """
    patterns = {
      'trainable': self.trainable,
      'frozen': self.frozen,
      'learning_rate_overrides': tuple(
        pattern for pattern, _ in self.learning_rate_overrides
      ),
    }
    no_decay = getattr(self, 'no_decay', ())
    if isinstance(no_decay, tuple | list):
      patterns['no_decay'] = tuple(no_decay)
    for name, values in patterns.items():
      param_tree.check_patterns(
        values,
        tree,
        where=errors.field_location(self, name),
        optional_names=_NAMES_WITHOUT_DECAY if name == 'no_decay' else (),
      )
    if not any(self.is_trainable(n) for n in param_tree.flatten_params(tree)):
      raise errors.ConfigError(
        'The optimizer must have at least one trainable parameter, but it has '
        f'none with trainable={self.trainable} and frozen={self.frozen}'
      )

  def _make_transform(self, rate: Rate) -> optax.GradientTransformation:
    """Calls `make` and, for a user-defined optimizer, checks its result.

    Exceptions of a user-defined optimizer become a ConfigError, also if the
    functions of the transformation raise them.

    Raises:
      ConfigError: If `make` does not return a gradient transformation, or if
        the transformation accumulates gradients.
    """
    if not user_modules.is_user_extension(type(self)):
      return self.make(rate)
    name = type(self).__name__
    converting_errors = functools.partial(
      user_modules.converting_class_errors,
      self,
      'make',
      suggest=functools.partial(_suggest_rate, rate),
    )
    with converting_errors():
      transform = self.make(rate)
    if isinstance(transform, optax.MultiSteps):
      raise self._accumulation_error()
    if not isinstance(transform, optax.GradientTransformation):
      raise errors.ConfigError(
        f'The method `{name}.make` must return an Optax gradient '
        'transformation',
        got=user_modules.describe_value(transform),
        expected='an optax.GradientTransformation',
        where=user_modules.find_method(type(self), 'make'),
        fix='Add a return statement to `make`.' if transform is None else None,
      )

    def init(params):
      with converting_errors():
        state = transform.init(params)
      if callable(rate) and _has_accumulated_gradients(state):
        raise self._accumulation_error()
      return state

    def update(gradients, state, params=None):
      with converting_errors():
        return transform.update(gradients, state, params)

    return optax.GradientTransformation(init, update)

  def _accumulation_error(self) -> errors.ConfigError:
    """Returns the error for a `make` that uses `optax.MultiSteps`."""
    cls = type(self)
    return errors.ConfigError(
      f'The method `{cls.__name__}.make` must not use optax.MultiSteps. It '
      'counts only the steps with an update, so the learning rate schedule '
      'would change more slowly and would not reach its end in the run',
      got='optax.MultiSteps',
      where=user_modules.find_definition(cls.make),
      fix='Return the inner transformation. To accumulate k batches, set '
      'Trainer.gradient_accumulation_steps=k and multiply the batch size by k.',
    )

  def _with_rates(self, common) -> optax.GradientTransformation:
    """Applies `learning_rate_overrides` to the matching parameters."""

    def label(name, _):
      for i, (pattern, _) in enumerate(self.learning_rate_overrides):
        if param_tree.matches_pattern((pattern,), name):
          return str(i)
      return 'common'

    transforms = {
      str(i): self._make_transform(rate)
      for i, (_, rate) in enumerate(self.learning_rate_overrides)
    }
    return optax.multi_transform(
      {'common': common} | transforms,
      lambda tree: param_tree.map_named(label, tree),
    )


@class_registry.register('adamw')
@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
  """The AdamW optimizer (Loshchilov & Hutter 2019).

  The decoupled weight decay is multiplied by the learning rate.

  Attributes:
    b1: Decay rate of the gradients' first moment.
    b2: Decay rate of the gradients' second moment.
    eps: Constant added to the square root of the second moment.
    weight_decay: Coefficient of the weight decay.
    no_decay: Regular expressions for the names of the parameters without weight
      decay.
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
      mask=decay_mask(self.no_decay),
    )


@class_registry.register('stable_adamw')
@dataclasses.dataclass(frozen=True, kw_only=True)
class StableAdamW(AdamW):
  """AdamW with update clipping (Wortsman et al. 2023, algorithm 2).

  The update of each matrix is divided by max(1, RMS), where RMS is the root
  mean of g^2 / max(v, eps^2). It exceeds 1 if the gradients g have outgrown
  their second moment v, in which case the updates of AdamW are too large. Each
  scanned layer has its own RMS. Update clipping replaces gradient clipping.
  """

  clip_norm: validation.PositiveFloat | None = None

  def make(self, rate: Rate) -> optax.GradientTransformation:
    adamw = optax.chain(
      optax.scale_by_adam(b1=self.b1, b2=self.b2, eps=self.eps),
      optax.add_decayed_weights(
        self.weight_decay, mask=decay_mask(self.no_decay)
      ),
    )

    def update(gradients, state, params=None):
      updates, state = adamw.update(gradients, state, params)
      moments = optax.tree.bias_correction(state[0].nu, self.b2, state[0].count)
      updates = param_tree.map_named(
        self._clip_update, updates, gradients, moments
      )
      return updates, state

    return optax.chain(
      optax.GradientTransformation(adamw.init, update),
      optax.scale_by_learning_rate(rate),
    )

  def _clip_update(self, name, update, gradient, moment):
    """Divides each matrix's update by max(1, RMS of the scaled gradient)."""
    matrix_axes = tuple(range(num_stacked_axes(name), update.ndim))
    squares = gradient**2 / jnp.maximum(moment, self.eps**2)
    mean = jnp.mean(squares, axis=matrix_axes, keepdims=True)
    return update / jnp.sqrt(jnp.maximum(mean, 1.0))


@class_registry.register('muon')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(AdamW):
  """Muon (Jordan 2024) for the matrices of layers, AdamW for other parameters.

  The update of a matrix is its momentum with all singular values brought close
  to 1 by Newton-Schulz iterations. It is scaled as in Liu et al. (2025,
  equation 4), so that learning rates and weight decay of AdamW can be reused.
  All heads of an attention layer form one matrix: [hidden, heads * head_dim]
  for query, key and value, and its transpose for the output.

  Attributes:
    momentum: Decay rate of the moving average of the matrices' gradients.
    ns_steps: Number of Newton-Schulz iterations.
    update_rms: Root mean square of a full-rank update, divided by the learning
      rate.
    muon_params: Regular expressions that select the parameters that Muon
      trains. These parameters must be matrices of layers. Axes of scanned
      layers and languages precede the axes of the matrix.
  """

  momentum: validation.FractionBelowOne = 0.95
  ns_steps: validation.PositiveInt = 5
  update_rms: validation.PositiveFloat = 0.2
  muon_params: Sequence[str] = HIDDEN

  def make(self, rate: Rate) -> optax.GradientTransformation:
    matrices = optax.chain(
      optax.contrib.scale_by_muon(
        beta=self.momentum,
        ns_steps=self.ns_steps,
        weight_dimension_numbers=functools.partial(
          param_tree.map_named, _matrix_axes
        ),
      ),
      optax.stateless(
        lambda updates, _: param_tree.map_named(self._scale_update, updates)
      ),
      optax.add_decayed_weights(
        self.weight_decay, mask=decay_mask(self.no_decay)
      ),
      optax.scale_by_learning_rate(rate),
    )
    return optax.multi_transform(
      {'matrices': matrices, 'rest': super().make(rate)},
      lambda tree: param_tree.map_named(
        lambda name, _: (
          'matrices'
          if param_tree.matches_pattern(self.muon_params, name)
          else 'rest'
        ),
        tree,
      ),
    )

  def _scale_update(self, name, update):
    """Scales an orthogonalized update to the configured RMS."""
    axes = _matrix_axes(name, update)
    inputs, outputs = (
      math.prod(update.shape[i] for i in group)
      for group in (axes.reduction_axis, axes.output_axis)
    )
    return update * (self.update_rms * math.sqrt(max(inputs, outputs)))


@class_registry.register('adam')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
  """The Adam optimizer (Kingma & Ba 2015), as used by ECS.

  Attributes:
    b1: Decay rate of the gradients' first moment.
    b2: Decay rate of the gradients' second moment.
    eps: Constant added to the square root of the second moment.
  """

  b1: validation.FractionBelowOne = 0.9
  b2: validation.FractionBelowOne = 0.999
  eps: validation.PositiveFloat = 1e-8

  steps_as_adam = True

  def make(self, rate: Rate) -> optax.GradientTransformation:
    return optax.adam(rate, b1=self.b1, b2=self.b2, eps=self.eps)


@class_registry.register('sgd')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
  """Stochastic gradient descent, with optional momentum.

  Attributes:
    momentum: Decay rate of the averaged gradients. If None, gradients are not
      averaged.
  """

  momentum: validation.FractionBelowOne | None = None

  def make(self, rate: Rate) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=self.momentum)


@class_registry.register('adafactor')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
  """Adafactor (Shazeer & Stern 2018), which factors second moments.

  The fields have the same meaning as the arguments of `optax.adafactor`.

  Attributes:
    decay_rate: Exponent c of the second moment's decay rate, which is
      1 - step^-c.
    min_dim_size_to_factor: Minimum size that both dimensions must have for the
      second moment to be factored.
    multiply_by_parameter_scale: Whether to multiply each update by the scale of
      its parameter.
    clipping_threshold: Maximum RMS of an update. If None, updates are not
      clipped.
    weight_decay: Coefficient of the weight decay, which is multiplied by the
      learning rate, as in `AdamW`. If None, there is no weight decay.
    no_decay: Regular expressions for the names of the parameters without weight
      decay.
  """

  decay_rate: validation.PositiveFraction = 0.8
  min_dim_size_to_factor: validation.PositiveInt = 128
  multiply_by_parameter_scale: bool = True
  clipping_threshold: validation.PositiveFloat | None = 1.0
  weight_decay: validation.NonNegativeFloat | None = None
  no_decay: Sequence[str] = NO_DECAY

  def make(self, rate: Rate) -> optax.GradientTransformation:
    adafactor = optax.adafactor(
      decay_rate=self.decay_rate,
      min_dim_size_to_factor=self.min_dim_size_to_factor,
      multiply_by_parameter_scale=self.multiply_by_parameter_scale,
      clipping_threshold=self.clipping_threshold,
      weight_decay_rate=self.weight_decay,
      weight_decay_mask=decay_mask(self.no_decay),
    )
    scale = optax.scale_by_learning_rate(rate, flip_sign=False)
    return optax.chain(adafactor, scale)


def _has_accumulated_gradients(state: Any) -> bool:
  """Returns whether an optimizer's state contains that of `MultiSteps`."""

  def is_accumulation(node: Any) -> bool:
    return isinstance(node, optax.MultiStepsState)

  nodes = jax.tree.leaves(state, is_leaf=is_accumulation)
  return any(map(is_accumulation, nodes))


def _suggest_rate(rate: Rate, error: Exception) -> str | None:
  """Returns a hint if an optimizer uses the learning rate as another type."""
  name = re.escape(type(rate).__name__)
  if not isinstance(error, TypeError) or not re.search(
    rf'\b{name}\b', str(error)
  ):
    return None
  return (
    '`rate` is a number if the learning rate is constant, and otherwise a '
    'function of the step. Use optax.scale_by_learning_rate(rate), which '
    'accepts both and includes the minus sign '
    '(docs/extending.md#add-an-optimizer).'
  )


def clip_by_global_norm(maximum: float) -> optax.GradientTransformation:
  """Clips gradients to a global norm of at most `maximum`.

  The result is that of `optax.clip_by_global_norm`. It is computed with one
  factor instead of a division and a selection per element, which XLA would
  write to memory before use.

  Args:
    maximum: Maximum global norm of the gradients.
  """

  def update(updates, state, params=None):
    del params
    norm = optax.tree.norm(updates)
    factor = maximum / jnp.maximum(norm, maximum)
    return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def num_stacked_axes(name: str) -> int:
  """Returns the number of leading axes that stack languages or layers.

  Args:
    name: Name of a parameter, such as 'model/layers/mlp/wi/kernel'.
  """
  # The layers of heads are not stacked.
  unstacked_name = re.sub(r'\blayers/layer_\d+/', '', name)
  return len({'language_specific', 'layers'} & set(unstacked_name.split('/')))


def _matrix_axes(name: str, leaf) -> optax.contrib.MuonDimensionNumbers:
  """Returns the input and output axes of a matrix.

  The axes are [embed | heads, kv], or [heads, kv | embed] for the output of an
  attention layer.
  """
  first = num_stacked_axes(name)
  is_output = name.endswith('output/kernel')
  split = leaf.ndim - 1 if is_output else first + 1
  return optax.contrib.MuonDimensionNumbers(
    tuple(range(first, split)), tuple(range(split, leaf.ndim))
  )


def decay_mask(no_decay: Sequence[str] = NO_DECAY) -> Callable[[Any], Any]:
  """Returns a function that selects the parameters with weight decay by name.

  The function is the argument `mask` of transformations of Optax. The number of
  dimensions does not identify biases and normalization scales, because those of
  stacked layers have the shape [layers, features].

  Args:
    no_decay: Regular expressions that select the parameters without weight
      decay by their names.
  """
  return lambda tree: param_tree.map_named(
    lambda n, _: not param_tree.matches_pattern(no_decay, n), tree
  )


def state_shardings(state, params, shardings, replicated):
  """Returns the shardings for an optimizer's state.

  A leaf of the state has the sharding of its parameter if their shapes agree.

  Args:
    state: Abstract state of an optimizer or an objective. Each moment, or copy
      of parameters, is a subtree with the structure of `params` or of
      `params['model']`.
    params: Abstract parameters of the run.
    shardings: Shardings of the parameters, a tree like `params`.
    replicated: Sharding for all leaves whose shapes differ from those of the
      parameters, such as counts and factored moments.

  Returns:
    A tree of shardings like `state`.
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
