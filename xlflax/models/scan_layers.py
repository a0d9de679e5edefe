"""Application of a stack of layers, either scanned or unrolled.

Unlike a lifted `nn.scan`, `run_layers` accepts parameters of any module. A
decoder that is tied to an encoder runs with the parameters of the encoder.
"""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, custom_vjp, encoder_config

LAYERS = 'layers'
# (carry, parameters of a layer, its index, its dropout key) -> (carry, output)
Body = Callable[[Any, Any, jax.Array | int, jax.Array | None], tuple[Any, Any]]


def is_unrolled(config: encoder_config.TransformerConfig) -> bool:
  """Returns whether the layers are unrolled in the compiled program.

  On GPUs and TPUs, a loop adds a tenth to the step time of a model of base
  size, because it writes the values for the backward pass to stacked arrays and
  reads them back (docs/measured/compiled_steps.md). On CPUs, a loop adds up to
  a seventh to the step time of a model of width 384, but it reduces memory and
  compilation time.

  Args:
    config: Configuration of the model.
  """
  if not config.scan_layers:
    return True
  if config.unroll_layers is None:
    return compile_targets.current_target().platform != 'cpu'
  return config.unroll_layers


def make_layers(make: Callable[[], nn.Module], count: int, *, scan: bool):
  """Returns one module to scan over, or a list with one module per layer.

  Args:
    make: Function that creates the module of one layer.
    count: Number of layers.
    scan: Whether to create one module with stacked parameters for a scan over
      the layers, instead of one module per layer.
  """
  return make() if scan else [make() for _ in range(count)]


def init_layers(layers, count: int, method: str, *inputs, **keywords) -> None:
  """Initializes the parameters of all layers by calling a method on each layer.

  Stacked parameters get 'layers' as their first logical axis.

  Args:
    layers: Module or list of modules, as returned by `make_layers`.
    count: Number of layers.
    method: Name of the layers' method to call.
    *inputs: Positional arguments of the method.
    **keywords: Keyword arguments of the method.
  """

  def call(layer, carry):
    getattr(layer, method)(*inputs, **keywords)
    return carry, None

  if isinstance(layers, nn.Module):
    nn.scan(
      call,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      length=count,
      metadata_params={nn.PARTITION_NAME: LAYERS},
    )(layers, ())
  else:
    for layer in layers:
      call(layer, ())


def layer_parameters(module: nn.Module, count: int, *, scan: bool):
  """Returns all layers' parameters, stacked [L, ...] or as a list of trees.

  Args:
    module: Module whose attribute `layers` was created by `make_layers`.
    count: Number of layers, L.
    scan: Whether the layers' parameters are stacked in one tree.
  """
  params = nn.meta.unbox(module.variables['params'])
  if scan:
    return params[LAYERS]
  return [params[f'{LAYERS}_{i}'] for i in range(count)]


def select_layers(params, start: int, stop: int):
  """Returns the parameters of layers `start` to `stop` - 1."""
  if isinstance(params, list):
    return params[start:stop]
  return jax.tree.map(lambda leaf: leaf[start:stop], params)


def merge_layers(params, others):
  """Merges parameter trees that contain different sub-blocks of each layer."""
  if isinstance(params, list):
    return [
      layer | other_layer
      for layer, other_layer in zip(params, others, strict=True)
    ]
  return params | others


def run_layers(
  body: Body,
  carry,
  params,
  *,
  count: int,
  dropout_key=None,
  remat: encoder_config.Remat = encoder_config.Remat.NONE,
  unroll: bool = False,
):
  """Applies the function `body` to each layer in order.

  Args:
    body: Function that applies one layer (see `Body`).
    carry: Initial value that the first layer receives. Each layer passes its
      result to the next.
    params: Parameters of the layers, as returned by `layer_parameters`.
    count: Number of layers, L.
    dropout_key: Random key that is split into one key per layer. If None, each
      layer receives None.
    remat: Values that are not stored, but recomputed in the backward pass.
    unroll: Whether to unroll the scan over stacked layers. It has no effect on
      a list of layers.

  Returns:
    The last carry, and the outputs stacked as [L, ...].
  """
  keys = None if dropout_key is None else jax.random.split(dropout_key, count)
  scan = not isinstance(params, list)
  if remat is not encoder_config.Remat.NONE:
    body = jax.checkpoint(
      body, policy=remat_policy(remat), prevent_cse=unroll or not scan
    )
  if scan:
    return jax.lax.scan(
      lambda carry, xs: body(carry, *xs),
      carry,
      (params, jnp.arange(count), keys),
      unroll=count if unroll else 1,
    )
  outputs = []
  for i in range(count):
    carry, output = body(carry, params[i], i, None if keys is None else keys[i])
    outputs.append(output)
  return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)


def remat_policy(remat: encoder_config.Remat):
  """Returns the `jax.checkpoint` policy for a rematerialization setting.

  The body of a scan is compiled separately. If layers are unrolled,
  `prevent_cse` keeps XLA from merging the recomputation with the forward pass.

  Args:
    remat: Values that are not stored, but recomputed in the backward pass.
  """
  policies = jax.checkpoint_policies
  if remat is encoder_config.Remat.FULL:
    return policies.nothing_saveable
  matmul_policy = policies.checkpoint_dots_with_no_batch_dims
  if remat is encoder_config.Remat.SAVE_HIDDEN:
    matmul_policy = _is_narrow_matmul
  return policies.save_from_both_policies(
    matmul_policy, policies.save_only_these_names(*custom_vjp.SAVED_NAMES)
  )


def _is_narrow_matmul(primitive, *avals, **params) -> bool:
  """Returns whether a matmul's output is not wider than its input.

  The inner states of a feed-forward block are wider, and are not saved.
  """
  policies = jax.checkpoint_policies
  if not policies.checkpoint_dots_with_no_batch_dims(
    primitive, *avals, **params
  ):
    return False
  (_, contracted), _ = params['dimension_numbers']
  weights = avals[1].shape
  input_width = math.prod(weights[axis] for axis in contracted)
  return math.prod(weights) <= input_width * input_width
