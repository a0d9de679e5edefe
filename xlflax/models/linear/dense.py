"""Linear layers, initializers and sharding constraints by logical axes."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  adapter_config,
  compile_targets,
  custom_vjp,
  dropout,
  encoder_config,
)
from xlflax.models.linear import collective_matmul, fp8

_Config = encoder_config.EncoderConfig


def constrain_sharding(states: jax.Array, *axes: str | None) -> jax.Array:
  """Constrains an array's sharding to logical axes such as 'batch'."""
  return nn.with_logical_constraint(states, axes)


def constrain_like_weights(
  states: jax.Array, width: tuple[str, ...], *axes: str
) -> jax.Array:
  """Shards an array's 'embed' axis over the same mesh axes as the weights.

  Mesh axes that shard the width do not shard the batch, in contrast to the
  sharding of activations.

  Args:
    states: Array of any shape to shard.
    width: Names of the mesh axes that shard the logical axis 'embed'.
    *axes: Logical axes of the array.
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
  """Constrains the sharding of an embedding table [V, H] or its gradient."""
  if jax.sharding.get_abstract_mesh().empty or not nn.get_logical_axis_rules():
    return table
  spec = _mesh_axes('vocab') or None, width_axes(table.shape[1]) or None
  return jax.lax.with_sharding_constraint(
    table, jax.sharding.PartitionSpec(*spec)
  )


def width_axes(width: int) -> tuple[str, ...]:
  """Returns the mesh axes that shard an embedding table's width.

  The result consists of the mesh axes of the logical axis 'columns'. If
  'columns' has no rule, or if its mesh axes do not divide the width, the mesh
  axes of 'embed' are used.

  Args:
    width: Width of the embedding table, which is its number of columns.
  """
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  axes = _mesh_axes('columns')
  is_divisible = axes and not width % math.prod(sizes[name] for name in axes)
  return axes if is_divisible else _mesh_axes('embed')


def _mesh_axes(axis: str) -> tuple[str, ...]:
  """Returns the mesh axes of a logical axis."""
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
  precision: encoder_config.MatmulPrecision = (
    encoder_config.MatmulPrecision.DEFAULT
  ),
) -> jax.Array:
  """Contracts the last axes of inputs with the first axes of weights.

  Computes [..., *contracted] x [*contracted, *features] -> [..., *features].

  Args:
    inputs: Array of inputs, whose first axis is the batch.
    weights: Array of weights, a parameter of the model.
    dtype: Data type to which both operands are converted. It is also the dtype
      of the result.
    axes: Names of the logical axes of the weights.
    contracted: Number of leading axes of the weights to contract with the last
      axes of the inputs.
    precision: Number format in which the matmul is computed.
  """
  inputs, weights = inputs.astype(dtype), weights.astype(dtype)
  if precision is encoder_config.MatmulPrecision.FP8:
    return fp8.fp8_matmul(inputs, weights, contracted)
  if collective_matmul.on_several_tpus():
    return collective_matmul.collective_matmul(
      inputs, weights, axes, contracted
    )
  if _is_on_single_cpu():
    return _matmul_2d(inputs, weights, contracted)
  return jnp.tensordot(inputs, weights, axes=contracted)


def _matmul_2d(
  inputs: jax.Array, weights: jax.Array, contracted: int
) -> jax.Array:
  """Multiplies inputs by weights as a product of two matrices.

  For other shapes, XLA:CPU transposes a factor of the gradient of the weights
  in memory and multiplies at half the rate (docs/measured/compiled_steps.md).
  """
  width = math.prod(weights.shape[:contracted])
  product = inputs.reshape(-1, width) @ weights.reshape(width, -1)
  rows = inputs.shape[: inputs.ndim - contracted]
  return product.reshape(*rows, *weights.shape[contracted:])


def _is_on_single_cpu() -> bool:
  """Returns whether the current program runs on one CPU device."""
  mesh = jax.sharding.get_abstract_mesh()
  is_single_device = mesh.empty or mesh.size == 1
  return is_single_device and compile_targets.current_target().platform == 'cpu'


def on_several_accelerators() -> bool:
  """Returns whether the current program runs on several GPUs or TPUs."""
  mesh = jax.sharding.get_abstract_mesh()
  is_multi_device = not mesh.empty and mesh.size > 1
  return is_multi_device and compile_targets.current_target().platform != 'cpu'


def gather_output_table(table: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """Gathers the complete rows of an output embedding table, in float32.

  Each device receives complete rows of the table. Accelerators exchange the
  table in the compute dtype, to which its values are rounded. On one device and
  on CPUs, the values are not rounded, because nothing is exchanged and chunks
  of the table are converted one by one. The gradient is float32 and sharded
  like the table, so that XLA can add the gradient of a lookup to it before both
  are summed over devices.

  Args:
    table: Output embeddings of shape [V, H].
    dtype: Compute dtype. On several accelerators, the values of the table are
      rounded to it before the devices exchange them.
  """
  return _gather_table(table, dtype if on_several_accelerators() else None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gather_table(table, dtype):
  """Gathers a table along its width, in `dtype` if it is not None."""
  if dtype is not None:
    table = constrain_table(table.astype(dtype))
  return constrain_sharding(table, 'vocab', None).astype(jnp.float32)


def _gather_table_forward(table, dtype):
  return _gather_table(table, dtype), None


def _gather_table_backward(dtype, residuals, gradient):
  del dtype, residuals
  return (constrain_table(gradient),)


_gather_table.defvjp(_gather_table_forward, _gather_table_backward)


@jax.custom_vjp
def order_gradients(
  states: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Delays the gradient of `states` until the gradient of `weights` is summed.

  Returns both arguments unchanged.

  The backward pass of `states` starts only after the devices have summed the
  gradient of `weights`. XLA:GPU would otherwise schedule a sum that is used
  late at the end of the program, where no computation overlaps with it.

  Args:
    states: Hidden states of any shape.
    weights: Parameter whose gradient is summed over the devices before the
      backward pass of `states`.
  """
  return states, weights


def _order_gradients_forward(states, weights):
  return (states, weights), None


def _order_gradients_backward(residuals, gradients):
  del residuals
  return jax.lax.optimization_barrier(gradients)


order_gradients.defvjp(_order_gradients_forward, _order_gradients_backward)


def weights_init(config: _Config, *axes: str):
  """Returns a normal initializer for a parameter with logical axes.

  Args:
    config: Configuration of the model, which specifies the standard deviation
      of initial weights.
    *axes: Logical axes of the parameter.
  """
  return nn.with_logical_partitioning(
    nn.initializers.normal(config.initializer_range), axes
  )


def table_init(stddev: float, vocab_size: int):
  """Returns an initializer for embedding tables [R, H] with padded rows.

  The values of the vocabulary's rows do not depend on the number of padded
  rows. Padded rows are zero.

  Args:
    stddev: Standard deviation of the initial values in the vocabulary's rows.
    vocab_size: Number of rows that belong to the vocabulary.
  """

  def initialize(key, shape, dtype=jnp.float32) -> jax.Array:
    rows, width = shape
    table = nn.initializers.normal(stddev)(key, (vocab_size, width), dtype)
    if rows == vocab_size:
      return table
    return jnp.pad(table, ((0, rows - vocab_size), (0, 0)))

  return nn.with_logical_partitioning(initialize, ('vocab', 'columns'))


def zeros_init(*axes: str | None):
  """Returns a zero initializer for a parameter with logical axes."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


class LoRAUpdate(nn.Module):
  """Low-rank update of a linear map: scale * x A B (Hu et al. 2021).

  A is initialized as in PEFT, uniformly in [-1/sqrt(n), 1/sqrt(n)] for n
  inputs. B is zero at initialization.

  Attributes:
    config: Configuration of the LoRA adapter.
    dtype: Data type of the computation.
    features: Sizes of the last axes of the output, which replace the contracted
      axes of the inputs.
    axes: Logical axes of the kernel, [*contracted, *features].
  """

  config: adapter_config.LoRA
  dtype: jnp.dtype
  features: tuple[int, ...]
  axes: tuple[str, ...]

  @nn.compact
  def __call__(self, inputs: jax.Array, *, deterministic: bool) -> jax.Array:
    """Computes the update.

    Args:
      inputs: Inputs of shape [..., *contracted].
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [..., *features] and the compute dtype.
    """
    contracted = len(self.axes) - len(self.features)
    sizes = inputs.shape[-contracted:]
    lora_a = self.param(
      adapter_config.LORA_A,
      _uniform_init(math.prod(sizes), *self.axes[:contracted], None),
      (*sizes, self.config.rank),
      jnp.float32,
    )
    lora_b = self.param(
      adapter_config.LORA_B,
      zeros_init(None, *self.axes[contracted:]),
      (self.config.rank, *self.features),
      jnp.float32,
    )
    inputs = dropout.Dropout(self.config.dropout_rate)(
      inputs.astype(self.dtype), deterministic=deterministic
    )
    multiply = _matmul_2d if _is_on_single_cpu() else jnp.tensordot
    projected = multiply(inputs, lora_a.astype(self.dtype), contracted)
    return multiply(projected, lora_b.astype(self.dtype), 1) * self.config.scale


def _uniform_init(num_inputs: int, *axes: str | None):
  """Returns a uniform initializer in [-1/sqrt(n), 1/sqrt(n)] for n inputs."""

  def initialize(key, shape, dtype=jnp.float32) -> jax.Array:
    bound = num_inputs**-0.5
    return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)

  return nn.with_logical_partitioning(initialize, axes)


class Linear(nn.Module):
  """Linear map over the last axes of the inputs, with optional LoRA.

  Attributes:
    config: Configuration of the model, which specifies the compute dtype, the
      initial weights and the adapters.
    features: Sizes of the last axes of the output, which replace the contracted
      axes of the inputs.
    axes: Logical axes of the kernel, [*contracted, *features].
    use_bias: Whether to add a bias.
    zero_init: Whether the kernel is initialized with zeros.
  """

  config: _Config
  features: tuple[int, ...]
  axes: tuple[str, ...]
  use_bias: bool = True
  zero_init: bool = False

  @nn.compact
  def __call__(
    self,
    inputs: jax.Array,
    activation: Callable[[jax.Array], jax.Array] | None = None,
    *,
    deterministic: bool = True,
  ) -> jax.Array:
    """Applies the map and an optional activation.

    Args:
      inputs: Inputs of shape [..., *contracted].
      activation: Function applied to the outputs. The backward pass recomputes
        it and the sum with the bias from the result of the matmul. If None, no
        function is applied.
      deterministic: Whether to disable the dropout of LoRA.

    Returns:
      An array of shape [..., *features] and the compute dtype.
    """
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
      'kernel',
      zeros_init(*self.axes)
      if self.zero_init
      else weights_init(self.config, *self.axes),
      (*inputs.shape[-contracted:], *self.features),
      jnp.float32,
    )
    outputs = sharded_matmul(
      inputs, kernel, dtype, self.axes, contracted, self.config.matmul_precision
    )
    for lora in adapter_config.lora_of(self.config, self.name):
      name = f'{adapter_config.PREFIX}{lora.name}'
      outputs += LoRAUpdate(lora, dtype, self.features, self.axes, name=name)(
        inputs, deterministic=deterministic
      )
    if not self.use_bias:
      return activation(outputs) if activation else outputs
    axes = (
      'norm' if axis == 'embed' else axis for axis in self.axes[contracted:]
    )
    bias = self.param('bias', zeros_init(*axes), self.features, jnp.float32)
    rows = tuple(range(inputs.ndim - contracted))
    if activation is None:
      return _add_bias(outputs, bias.astype(dtype))
    bias = jnp.expand_dims(bias.astype(dtype), rows)
    return custom_vjp.recompute_with_bias(activation)(outputs, bias)


def _add_bias(outputs: jax.Array, bias: jax.Array) -> jax.Array:
  """Adds a bias of shape [*features] to outputs of shape [..., *features].

  cuBLASLt adds a bias to the result of a matmul only if the bias is a vector.
  On GPUs, several axes of features are therefore flattened.
  """
  rows = outputs.shape[: outputs.ndim - bias.ndim]
  shape = outputs.shape
  if compile_targets.current_target().platform == 'gpu':
    outputs, bias = outputs.reshape(*rows, bias.size), bias.reshape(-1)
  outputs += jnp.expand_dims(bias, tuple(range(len(rows))))
  return outputs.reshape(shape)


def compute_logits(
  states: jax.Array, table: jax.Array, bias: jax.Array
) -> jax.Array:
  """Computes the logits of hidden states over an output embedding table.

  Args:
    states: Hidden states of shape [..., H].
    table: Output embeddings of shape [R, H].
    bias: Output bias of shape [R].

  Returns:
    A float32 array of shape [..., R].
  """
  logits = jnp.einsum(
    '...h,vh->...v',
    states,
    table.astype(states.dtype),
    preferred_element_type=jnp.float32,
  )
  return logits + jnp.expand_dims(bias, tuple(range(logits.ndim - 1)))
