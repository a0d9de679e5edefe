"""Detection of user-defined optimizers whose updates are wrong.

The updates increase the loss or the parameters, do not depend on the learning
rate or apply it twice, treat vectors of stacked layers as matrices, or are clipped by their
global norm.
"""

import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from xlflax.training import param_tree
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import logs, user_modules

# The number of updates is a multiple of the periods of optimizers that do not
# update the parameters in each step, or that alternate between two directions.
_NUM_UPDATES = 6
_MAX_DIMENSION = 2
_LEARNING_RATE = 1e-3
# An optimizer that uses the learning rate only as an upper limit is limited by
# this learning rate.
_LOW_LEARNING_RATE = 1e-6
# The weight decay of this learning rate is above the rounding errors, also if
# its coefficient is 1e-4, the default of Optax.
_HIGH_LEARNING_RATE = 0.1
# Products of displacements and gradients above the rounding errors.
_MIN_PROJECTION = 1e-7
# Growth of parameters, relative to their values, above the rounding errors.
_MIN_GROWTH = 2e-6
_PARAM_VALUE = 0.01
# The sign differs from that of `_PARAM_VALUE`, so that updates that do not
# depend on the parameters increase only one of them. The magnitude exceeds the
# radius of spheres to which optimizers project parameters.
_LARGE_PARAM_VALUE = -100.0
# Number of learning rates and variants of the checks.
_NUM_CACHED_STEPS = 5
# Size of the last two axes of one enlarged parameter. The norm of an update of
# Adam is then at least 64 times the learning rate.
_ENLARGED_DIMENSION = 64


def warn_of_ascent(optimizer: optimizers.Optimizer, params: Any) -> None:
  """Logs a warning if a user-defined optimizer increases the loss.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  ascending = _run_check(find_ascending_parameters, optimizer, params)
  if ascending:
    name = type(optimizer).__name__
    logging.warning(
      'The updates of the optimizer %s point in the direction of the gradient '
      'and increase the loss, for example for %s. Updates must contain the '
      'minus sign: use optax.scale_by_learning_rate(rate) in `%s.make` in '
      'place of optax.scale_by_schedule(rate) or optax.scale(rate).',
      name,
      ascending[0],
      name,
      extra=logs.ONCE,
    )


def warn_of_growth(optimizer: optimizers.Optimizer, params: Any) -> None:
  """Logs a warning if a user-defined optimizer increases the parameters.

  Weight decay after the learning rate, without its minus sign, has this effect.
  Parameters for which `warn_of_ascent` logs a warning cause no second warning.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  growing = _run_check(find_growing_parameters, optimizer, params)
  if growing:
    ascending = _run_check(find_ascending_parameters, optimizer, params) or []
    growing = [name for name in growing if name not in ascending]
  if growing:
    name = type(optimizer).__name__
    logging.warning(
      'The updates of the optimizer %s contain a term that increases the '
      'parameters, for example %s. If it is weight decay, put '
      'optax.add_decayed_weights before optax.scale_by_learning_rate in '
      '`%s.make`.',
      name,
      growing[0],
      name,
      extra=logs.ONCE,
    )


def warn_of_normalized_decay(
  optimizer: optimizers.Optimizer, params: Any
) -> None:
  """Logs a warning if a user-defined optimizer normalizes its weight decay.

  Weight decay before `optax.scale_by_adam` is L2 regularization. It is divided
  by the root mean square of the gradients, in contrast to the weight decay of
  AdamW (Loshchilov and Hutter, 2019).

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  names = _run_check(find_normalized_decay, optimizer, params)
  if names:
    name = type(optimizer).__name__
    logging.warning(
      'The optimizer %s applies weight decay to the gradients before it '
      'normalizes them, for example for %s. The decay of a parameter then '
      'hardly depends on the coefficient. For the weight decay of AdamW, put '
      'optax.add_decayed_weights after the normalization in `%s.make`, for '
      'example after optax.scale_by_adam, and before '
      'optax.scale_by_learning_rate.',
      name,
      names[0],
      name,
      extra=logs.ONCE,
    )


def warn_of_ignored_decay(optimizer: optimizers.Optimizer, params: Any) -> None:
  """Logs a warning if the field `weight_decay` does not change the decay.

  For example, the second argument of `optax.adamw` is `b1`, not the weight
  decay.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax, and optimizers
      without a positive field `weight_decay`, are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  if _run_check(ignores_weight_decay, optimizer, params):
    name = type(optimizer).__name__
    logging.warning(
      'The field %s.weight_decay does not change the weight decay of the '
      'updates. Pass it by its name in `%s.make`, as in optax.adamw(rate, '
      'weight_decay=self.weight_decay).',
      name,
      name,
      extra=logs.ONCE,
    )


def warn_of_inverted_decay(
  optimizer: optimizers.Optimizer, params: Any
) -> None:
  """Logs a warning if a user-defined optimizer decays only biases and scales.

  A mask of weight decay is True for the parameters that are decayed.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  names = _run_check(find_only_decayed_vectors, optimizer, params)
  if names:
    name = type(optimizer).__name__
    logging.warning(
      'The optimizer %s applies weight decay only to vectors such as %s, not to '
      'matrices. The mask must be True for the parameters with weight decay, '
      'as in optax.add_decayed_weights(..., mask=training.decay_mask()) in '
      '`%s.make`.',
      name,
      names[0],
      name,
      extra=logs.ONCE,
    )


def warn_of_misused_rate(optimizer: optimizers.Optimizer, params: Any) -> None:
  """Logs a warning if updates ignore the learning rate or apply it twice.

  Optimizers without a learning rate cause no warning if they keep the default
  value of the field `learning_rate`.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  cls = type(optimizer)
  if not user_modules.is_user_extension(cls):
    return
  [field] = [f for f in dataclasses.fields(cls) if f.name == 'learning_rate']
  if optimizer.learning_rate == field.default:
    return
  projections = _run_check(_project_at_two_rates, optimizer, params)
  if projections is None:
    return
  low, high = projections
  if low == high and any(low.values()):
    logging.warning(
      'The updates of the optimizer %s do not depend on the learning rate. Use '
      'the argument `rate` in `%s.make`, for example with '
      'optax.scale_by_learning_rate(rate). If the optimizer has no learning '
      'rate, declare a default value of the field `learning_rate` in %s, and '
      'do not set it.',
      cls.__name__,
      cls.__name__,
      cls.__name__,
      extra=logs.ONCE,
    )
  # An update that is proportional to the learning rate is far above this value.
  max_projection = max(map(abs, high.values()), default=0.0)
  if max(map(abs, low.values()), default=0.0) < (
    max_projection * (_LOW_LEARNING_RATE / _LEARNING_RATE) ** 1.5
  ):
    logging.warning(
      'The updates of the optimizer %s are multiplied by the learning rate '
      'several times, so they are much smaller than the learning rate. '
      'Optimizers such as optax.adamw(rate) already apply the learning rate: '
      'remove optax.scale_by_learning_rate or optax.scale_by_schedule from '
      '`%s.make`, or use a transformation without learning rate, such as '
      'optax.scale_by_adam().',
      cls.__name__,
      cls.__name__,
      extra=logs.ONCE,
    )


def warn_of_stacked_vectors(
  optimizer: optimizers.Optimizer, params: Any
) -> None:
  """Logs a warning if a user-defined optimizer treats vectors as matrices.

  The biases and normalization scales of stacked layers have two dimensions. An
  optimizer that selects matrices by their number of dimensions therefore
  includes these vectors, for example in its weight decay.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  decayed = _run_check(find_decayed_stacked_vectors, optimizer, params)
  names = decayed or _run_check(
    find_stacked_vectors_with_other_state, optimizer, params
  )
  if names:
    stacked, single = _select_examples(names, params)
    if decayed:
      problem = f'applies weight decay to {stacked}, but not to {single}'
      fix = (
        'Select the parameters with weight decay by name, for example with '
        'mask=training.decay_mask() in place of a mask that uses `ndim`'
      )
    else:
      problem = f'treats {stacked} as a matrix, but not {single}'
      fix = 'Select the matrices by name'
    logging.warning(
      'The optimizer %s %s. Layers are stacked, so the number of dimensions '
      'does not distinguish vectors from matrices. %s '
      '(docs/extending.md#add-an-optimizer).',
      type(optimizer).__name__,
      problem,
      fix,
      extra=logs.ONCE,
    )


def warn_of_clipped_updates(
  optimizer: optimizers.Optimizer, params: Any
) -> None:
  """Logs a warning if a user-defined optimizer clips the updates of Adam.

  The norm of these updates is about the square root of the number of
  parameters, so that `optax.clip_by_global_norm(1.0)` after
  `optax.scale_by_adam` leaves almost no learning.

  Args:
    optimizer: Optimizer of the run. Optimizers of xlflax are not checked.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  if _run_check(clips_adam_updates, optimizer, params):
    name = type(optimizer).__name__
    logging.warning(
      'The updates of the optimizer %s are limited by the global norm over all '
      'parameters, so they are much smaller than the learning rate in a model '
      'with many parameters. Clip the gradients, not the updates: in '
      '`%s.make`, put optax.clip_by_global_norm before optax.scale_by_adam, or '
      'remove it and set the field `clip_norm`.',
      name,
      name,
      extra=logs.ONCE,
    )


def _run_check(
  check: Callable[[optimizers.Optimizer, Any], Any],
  optimizer: optimizers.Optimizer,
  params: Any,
) -> Any:
  """Returns the result of a check, or None if an optimizer is not checked.

  Optimizers of xlflax, and optimizers that do not support the small parameters
  of the check, are not checked.

  Args:
    check: Function of the optimizer and the parameters.
    optimizer: Optimizer of the run.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs.
  """
  if not user_modules.is_user_extension(type(optimizer)):
    return None
  try:
    return check(optimizer, params)
  except Exception:  # noqa: BLE001, the optimizer may require other parameters.
    return None


def _project_at_two_rates(
  optimizer: optimizers.Optimizer, params: Any
) -> tuple[dict[str, float], dict[str, float]]:
  """Returns the updates at a low and a high rate, projected on the gradients.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  low, high = (
    _project_updates(optimizer, params, rate=rate)
    for rate in (_LOW_LEARNING_RATE, _LEARNING_RATE)
  )
  return low, high


def clips_adam_updates(optimizer: optimizers.Optimizer, params: Any) -> bool:
  """Returns whether an optimizer clips updates like those of Adam.

  The optimizer updates small parameters (see `find_ascending_parameters`), and
  once more with one enlarged parameter. If the updates are clipped, the updates
  of all other parameters are then much smaller. Only optimizers are considered
  whose updates have the same size for all elements of a parameter, although the
  gradients differ. Normalized gradient descent is therefore not reported.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  small_params = _small_params(params, _PARAM_VALUE)
  leaves = param_tree.flatten_params(small_params)
  enlarged = max(leaves, key=lambda name: leaves[name].size)
  shape = leaves[enlarged].shape
  leaves[enlarged] = np.full(
    [*shape[:-2], *(_ENLARGED_DIMENSION for _ in shape[-2:])],
    _PARAM_VALUE,
    np.float32,
  )
  small, large = (
    param_tree.flatten_params(
      jax.tree.map(
        np.abs, _move(optimizer, _LEARNING_RATE, tree, _vary_gradients(tree))
      )
    )
    for tree in (small_params, param_tree.unflatten_params(leaves))
  )
  others = [name for name in small if name != enlarged and np.any(small[name])]
  return bool(others) and all(
    np.max(small[name]) < 1.1 * np.min(small[name])
    and np.max(large[name]) < 0.5 * np.min(small[name])
    for name in others
  )


def find_ascending_parameters(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of parameters that an optimizer moves up the gradient.

  The optimizer updates small parameters with a constant gradient, and once more
  with the opposite gradient. A parameter moves uphill if both displacements
  have the direction of their gradient. Displacements that do not depend on the
  sign of the gradient, such as those of weight decay or of a projection, are
  therefore not reported.

  Args:
    optimizer: Optimizer to check, with its own learning rate replaced by a
      constant.
    params: Parameters of the run, as a tree of arrays or ShapeDtypeStructs. The
      test runs on small copies with a single layer, whose dimensions are at
      most 2.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  uphill = [
    _project_updates(optimizer, params, rate=_LEARNING_RATE, sign=sign)
    for sign in (1, -1)
  ]
  return [
    name
    for name, projection in uphill[0].items()
    if min(projection, uphill[1][name]) > _MIN_PROJECTION
  ]


def find_growing_parameters(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of parameters that grow if their gradients are 0.

  The optimizer updates small parameters (see `find_ascending_parameters`) with
  gradients of 0, once from a low value and once from a large value of the
  opposite sign. A parameter grows if both displacements have the direction of
  the parameter. Noise and projections to a sphere are therefore not reported.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  growths = _compute_growths(optimizer, params, value=_PARAM_VALUE)
  growing = [name for name, growth in growths.items() if growth > _MIN_GROWTH]
  if not growing:
    return []
  growths = _compute_growths(optimizer, params, value=_LARGE_PARAM_VALUE)
  return [name for name in growing if growths[name] > _MIN_GROWTH]


def find_normalized_decay(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of parameters whose decay does not depend on their size.

  The optimizer updates small parameters (see `find_ascending_parameters`) with
  gradients of 0, once from a low value and once from a large value. Decoupled
  weight decay is proportional to the value. If the decay is normalized, as in
  Adam, the displacements are almost equal.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  low = _compute_growths(optimizer, params, value=_PARAM_VALUE)
  decayed = [name for name, growth in low.items() if growth < -_MIN_GROWTH]
  if not decayed:
    return []
  high = _compute_growths(optimizer, params, value=_LARGE_PARAM_VALUE)
  scale = abs(_LARGE_PARAM_VALUE / _PARAM_VALUE)
  return [
    name
    for name in decayed
    if 2 * low[name] < scale * high[name] < 0.5 * low[name]
  ]


def ignores_weight_decay(optimizer: optimizers.Optimizer, params: Any) -> bool:
  """Returns whether the field `weight_decay` has no effect on parameters.

  The optimizer updates small parameters (see `find_ascending_parameters`) with
  gradients of 0, and once more with a weight decay of 0.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  if not getattr(optimizer, 'weight_decay', 0):
    return False
  decaying: Any = optimizer
  growths, other_growths = (
    _compute_growths(
      other, params, value=_PARAM_VALUE, rate=_HIGH_LEARNING_RATE
    )
    for other in (decaying, dataclasses.replace(decaying, weight_decay=0.0))
  )
  return growths == other_growths


def find_only_decayed_vectors(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of decayed biases and scales if nothing else is decayed.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  growths = _compute_growths(
    optimizer, params, value=_PARAM_VALUE, rate=_HIGH_LEARNING_RATE
  )
  decayed = {name for name, growth in growths.items() if growth < -_MIN_GROWTH}
  is_matrix = param_tree.flatten_params(optimizers.decay_mask()(params))
  if not any(is_matrix.values()) or any(is_matrix[name] for name in decayed):
    return []
  return sorted(decayed)


def find_decayed_stacked_vectors(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of vectors that are decayed only if layers are stacked.

  The optimizer updates small parameters (see `find_ascending_parameters`) with
  gradients of 0, and once more without the stacked axes of vectors. An
  optimizer that selects parameters by name decays the same vectors both times.

  Args:
    optimizer: Optimizer to check, with its own learning rate replaced by a
      constant.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  vectors = _find_stacked_vectors(params)
  if not vectors:
    return []
  growths, single_growths = (
    _compute_growths(
      optimizer, tree, value=_PARAM_VALUE, rate=_HIGH_LEARNING_RATE
    )
    for tree in (params, _unstack(params, vectors))
  )
  return [
    name
    for name in vectors
    if growths.get(name, 0.0) < -_MIN_GROWTH
    and single_growths[name] > growths[name] / 2
  ]


def find_stacked_vectors_with_other_state(
  optimizer: optimizers.Optimizer, params: Any
) -> list[str]:
  """Returns the names of vectors whose state differs if layers are stacked.

  For example, Muon has one moment of each matrix, and Adam has two moments of
  each vector.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.

  Raises:
    Exception: If the optimizer does not support the small parameters.
  """
  vectors = _find_stacked_vectors(params)
  if not vectors:
    return []
  state_names, single_state_names = (
    list(
      param_tree.flatten_params(
        _make_transform(optimizer, _LEARNING_RATE).init(
          _small_params(tree, _PARAM_VALUE)
        )
      )
    )
    for tree in (params, _unstack(params, vectors))
  )
  return [
    name
    for name in vectors
    if [n for n in state_names if n.endswith(f'/{name}')]
    != [n for n in single_state_names if n.endswith(f'/{name}')]
  ]


def _find_stacked_vectors(params: Any) -> list[str]:
  """Returns the names of the biases and scales of stacked layers."""
  return [
    name
    for name, leaf in param_tree.flatten_params(params).items()
    if 0 < optimizers.num_stacked_axes(name) == leaf.ndim - 1
  ]


def _unstack(params: Any, names: Sequence[str]) -> Any:
  """Removes the stacked axes of the vectors with the given names."""
  return param_tree.map_named(
    lambda name, leaf: (
      jax.ShapeDtypeStruct(leaf.shape[-1:], leaf.dtype)
      if name in names
      else leaf
    ),
    params,
  )


def _select_examples(names: Sequence[str], params: Any) -> tuple[str, str]:
  """Describes a stacked vector, and a vector with the same last name.

  Args:
    names: Names of stacked vectors.
    params: Parameters of the run.
  """
  leaves = param_tree.flatten_params(params)
  pairs = [
    (name, other)
    for name in names
    for other, leaf in leaves.items()
    if leaf.ndim == 1 and other.split('/')[-1] == name.split('/')[-1]
  ]
  name, other = pairs[0] if pairs else (names[0], None)
  return (
    f'{name} of shape {list(leaves[name].shape)}',
    f'{other} of shape {list(leaves[other].shape)}'
    if other
    else 'vectors of single layers',
  )


def _compute_growths(
  optimizer: optimizers.Optimizer,
  params: Any,
  *,
  value: float,
  rate: float = _LEARNING_RATE,
) -> dict[str, float]:
  """Returns the relative growth of small parameters without a gradient.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.
    value: Value of all small parameters.
    rate: Learning rate, which replaces that of the optimizer.
  """
  small_params = _small_params(params, value)
  gradients = jax.tree.map(np.zeros_like, small_params)
  displacements = _move(optimizer, rate, small_params, gradients)
  return {
    name: float(np.mean(displacement)) / value
    for name, displacement in param_tree.flatten_params(displacements).items()
  }


def _project_updates(
  optimizer: optimizers.Optimizer, params: Any, *, rate: float, sign: int = 1
) -> dict[str, float]:
  """Returns the scalar product of displacement and gradient by parameter.

  Args:
    optimizer: Optimizer to check.
    params: See `find_ascending_parameters`.
    rate: Learning rate, which replaces that of the optimizer.
    sign: Sign of the gradient.
  """
  small_params = _small_params(params, _PARAM_VALUE)
  gradients = _vary_gradients(small_params, sign=sign)
  displacements = _move(optimizer, rate, small_params, gradients)
  return {
    name: float(np.sum(product))
    for name, product in param_tree.flatten_params(
      jax.tree.map(np.multiply, displacements, gradients)
    ).items()
  }


def _vary_gradients(params: Any, *, sign: int = 1) -> Any:
  """Returns gradients with different values in each parameter."""
  return jax.tree.map(
    lambda x: (
      sign * np.linspace(0.5, 1.5, x.size, dtype=np.float32).reshape(x.shape)
    ),
    params,
  )


def _make_transform(
  optimizer: optimizers.Optimizer, rate: float
) -> optax.GradientTransformation:
  """Creates an optimizer's transformation with another learning rate."""
  is_schedule = callable(optimizer.learning_rate)
  return optimizer.make(
    schedules.Constant(peak_value=rate) if is_schedule else rate
  )


def _small_params(params: Any, value: float) -> dict[str, Any]:
  """Returns parameters of small sizes, with one of several similar layers."""
  named = {
    re.sub(r'\d+', '', name): (name, leaf)
    for name, leaf in reversed(param_tree.flatten_params(params).items())
  }
  return param_tree.unflatten_params(
    {
      name: np.full(
        [min(n, _MAX_DIMENSION) for n in leaf.shape], value, np.float32
      )
      for name, leaf in named.values()
    }
  )


def _move(
  optimizer: optimizers.Optimizer, rate: float, params: Any, gradients: Any
) -> Any:
  """Returns the displacements of parameters after a few updates.

  Args:
    optimizer: Optimizer to check.
    rate: Learning rate, which replaces that of the optimizer.
    params: Parameters before the updates.
    gradients: Gradients of all updates.
  """
  transform, step = _compile_step(_ById(optimizer), rate)
  state, moved = transform.init(params), params
  for _ in range(_NUM_UPDATES):
    state, moved = step(gradients, state, moved)
  return jax.tree.map(np.subtract, moved, params)


class _ById:
  """Hashable reference to an object that may not be hashable."""

  def __init__(self, value: Any):
    self.value = value

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _ById) and self.value is other.value

  def __hash__(self) -> int:
    return id(self.value)


@functools.lru_cache(maxsize=_NUM_CACHED_STEPS)
def _compile_step(
  optimizer: _ById, rate: float
) -> tuple[optax.GradientTransformation, Callable[..., Any]]:
  """Returns an optimizer's transformation, and its update as a function.

  The checks share the compiled function, because compilation takes most of
  their time.

  Args:
    optimizer: Reference to the optimizer.
    rate: Learning rate, which replaces that of the optimizer.
  """
  transform = _make_transform(optimizer.value, rate)

  @jax.jit
  def step(gradients, state, params):
    updates, state = transform.update(gradients, state, params)
    return state, optax.apply_updates(params, updates)

  return transform, step
