"""Linear maps, initialisers and constraints that carry logical axes."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, custom_vjp
from xlflax.models import encoder_config as model_config
from xlflax.models.linear import collective_matmul, fp8

_Config = model_config.EncoderConfig


def constrain_sharding(states: jax.Array, *axes: str | None) -> jax.Array:
  """Constrains an array [...] to logical axes, such as 'batch', 'length'."""
  return nn.with_logical_constraint(states, axes)


def constrain_beside_width(
  states: jax.Array, width: tuple[str, ...], *axes: str
) -> jax.Array:
  """Constrains an array like weights: 'embed' gets its mesh axes first.

  Mesh axes that split the width then do not split the batch, as they do in
  activations.

  Args:
    states: of any shape.
    width: the mesh axes of 'embed'.
    *axes: logical axes.
  """
  spec = [
    width
    if axis == 'embed'
    else tuple(name for name in _mesh_axes(axis) if name not in width)
    for axis in axes
  ]
  return jax.lax.with_sharding_constraint(
    states, jax.sharding.PartitionSpec(*(entry or None for entry in spec))
  )


def constrain_table(table: jax.Array) -> jax.Array:
  """Splits a table of tokens [V, H], or its gradient, like its parameter."""
  if jax.sharding.get_abstract_mesh().empty or not nn.get_logical_axis_rules():
    return table
  spec = _mesh_axes('vocab') or None, width_axes(table.shape[1]) or None
  return jax.lax.with_sharding_constraint(
    table, jax.sharding.PartitionSpec(*spec)
  )


def width_axes(width: int) -> tuple[str, ...]:
  """Mesh axes that split the width of a table of tokens.

  Where those of the logical axis 'columns' do not divide it, or it has no rule,
  they are those of 'embed'.
  """
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  axes = _mesh_axes('columns')
  divides = axes and not width % math.prod(sizes[name] for name in axes)
  return axes if divides else _mesh_axes('embed')


def _mesh_axes(axis: str) -> tuple[str, ...]:
  """The mesh axes of a logical axis by itself."""
  (entry,) = nn.logical_to_mesh_axes((axis,)) or (None,)
  if entry is None:
    return ()
  return (entry,) if isinstance(entry, str) else tuple(entry)


def sharded_matmul(
  inputs: jax.Array,
  weights: jax.Array,
  dtype: jnp.dtype,
  axes: tuple[str, ...],
  contracted: int,
  products: model_config.Products = model_config.Products.PLAIN,
) -> jax.Array:
  """[..., *contracted] x [*contracted, *features] -> [..., *features].

  Args:
    inputs: [batch, ..., *contracted].
    weights: a parameter.
    dtype: of the product.
    axes: logical axes of the weights.
    contracted: how many of them are summed over.
    products: how they are multiplied.
  """
  inputs, weights = inputs.astype(dtype), weights.astype(dtype)
  if products is model_config.Products.EIGHT_BITS:
    return fp8.fp8_matmul(inputs, weights, contracted)
  if collective_matmul.is_split():
    return collective_matmul.collective_matmul(
      inputs, weights, axes, contracted
    )
  if _on_one_cpu():
    return _multiply_rows(inputs, weights, contracted)
  return jnp.tensordot(inputs, weights, axes=contracted)


def _multiply_rows(
  inputs: jax.Array, weights: jax.Array, contracted: int
) -> jax.Array:
  """The same as a product of two matrices.

  XLA:CPU turns one side of the gradient of weights round in memory otherwise,
  and multiplies at half the rate (docs/performance.md).
  """
  width = math.prod(weights.shape[:contracted])
  product = inputs.reshape(-1, width) @ weights.reshape(width, -1)
  rows = inputs.shape[: inputs.ndim - contracted]
  return product.reshape(*rows, *weights.shape[contracted:])


def _on_one_cpu() -> bool:
  mesh = jax.sharding.get_abstract_mesh()
  single = mesh.empty or mesh.size == 1
  return single and compile_targets.current_target().platform == 'cpu'


def on_several_accelerators() -> bool:
  """Returns whether the step is for several devices, other than CPUs."""
  mesh = jax.sharding.get_abstract_mesh()
  is_multi_device = not mesh.empty and mesh.size > 1
  return is_multi_device and compile_targets.current_target().platform != 'cpu'


def for_head(table: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """Returns an output table [V, H] with its width gathered, in float32.

  Between accelerators it travels in the compute dtype, to which its values
  are rounded. On one device and on CPUs they are not: nothing travels, and
  chunks of it are converted one by one. The gradient is float32 and split
  like the table, so that XLA can add that of a lookup to it before both are
  summed over devices.
  """
  return _for_head(table, dtype if on_several_accelerators() else None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _for_head(table, dtype):
  if dtype is not None:
    table = constrain_table(table.astype(dtype))
  return constrain_sharding(table, 'vocab', None).astype(jnp.float32)


def _for_head_forward(table, dtype):
  return _for_head(table, dtype), None


def _for_head_backward(dtype, saved, gradient):
  del dtype, saved
  return (constrain_table(gradient),)


_for_head.defvjp(_for_head_forward, _for_head_backward)


@jax.custom_vjp
def gradients_in_turn(
  states: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns both; of their gradients, that of the weights is finished first.

  The backward pass of what made the states begins when devices have summed the
  weights' gradient. XLA:GPU otherwise puts a sum that is read late at the end
  of the program, where nothing computes beside it.
  """
  return states, weights


def _in_turn_forward(states, weights):
  return (states, weights), None


def _in_turn_backward(saved, gradients):
  del saved
  return jax.lax.optimization_barrier(gradients)


gradients_in_turn.defvjp(_in_turn_forward, _in_turn_backward)


def weights_init(config: _Config, *axes: str):
  """Normal initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(
    nn.initializers.normal(config.initializer_range), axes
  )


def table_init(stddev: float, vocab_size: int):
  """Returns an initializer of embedding tables [R, H] with padded rows.

  The values of the rows of the vocabulary do not depend on the number of
  padded rows, which are zero.

  Args:
    stddev: Standard deviation of the rows of the vocabulary.
    vocab_size: Number of rows of the vocabulary.
  """

  def initialize(key, shape, dtype=jnp.float32) -> jax.Array:
    rows, width = shape
    table = nn.initializers.normal(stddev)(key, (vocab_size, width), dtype)
    if rows == vocab_size:
      return table
    return jnp.pad(table, ((0, rows - vocab_size), (0, 0)))

  return nn.with_logical_partitioning(initialize, ('vocab', 'columns'))


def zeros_init(*axes: str):
  """Zero initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


class Linear(nn.Module):
  """Linear map over the last axes.

  Attributes:
    config: dtype and initialiser.
    features: shape of the output's last axes.
    axes: logical axes of the kernel, [*contracted, *features].
    use_bias: whether a bias is added.
  """

  config: _Config
  features: tuple[int, ...]
  axes: tuple[str, ...]
  use_bias: bool = True

  @nn.compact
  def __call__(
    self,
    inputs: jax.Array,
    activation: Callable[[jax.Array], jax.Array] | None = None,
  ) -> jax.Array:
    """[..., *contracted] -> [..., *features] in the compute dtype.

    Args:
      inputs: [..., *contracted].
      activation: of the outputs. The backward pass computes it again, and
        the sum with the bias, from the product.
    """
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
      'kernel',
      weights_init(self.config, *self.axes),
      (*inputs.shape[-contracted:], *self.features),
      jnp.float32,
    )
    outputs = sharded_matmul(
      inputs, kernel, dtype, self.axes, contracted, self.config.products
    )
    if not self.use_bias:
      return activation(outputs) if activation else outputs
    axes = (
      'norm' if axis == 'embed' else axis for axis in self.axes[contracted:]
    )
    bias = self.param('bias', zeros_init(*axes), self.features, jnp.float32)
    rows = tuple(range(inputs.ndim - contracted))
    bias = jnp.expand_dims(bias.astype(dtype), rows)
    if activation is None:
      return outputs + bias
    return custom_vjp.recompute_with_bias(activation)(outputs, bias)


def compute_logits(
  states: jax.Array, table: jax.Array, bias: jax.Array
) -> jax.Array:
  """float32 logits [..., R] of states [..., H], a table [R, H] and bias [R]."""
  products = jnp.einsum(
    '...h,vh->...v',
    states,
    table.astype(states.dtype),
    preferred_element_type=jnp.float32,
  )
  return products + jnp.expand_dims(bias, tuple(range(products.ndim - 1)))
