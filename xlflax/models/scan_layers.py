"""Layers run as functions of their parameters, scanned over or in turn.

Unlike a lifted `nn.scan`, this takes parameters from anywhere: a decoder that
is tied to an encoder runs on the encoder's parameters.
"""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, custom_vjp
from xlflax.models import encoder_config as model_config

LAYERS = 'layers'
# (carry, parameters of a layer, its index, its dropout key) -> (carry, output)
Body = Callable[[Any, Any, jax.Array | int, jax.Array | None], tuple[Any, Any]]


def is_unrolled(config: model_config.TransformerConfig) -> bool:
  """Returns whether the program has a copy of each layer.

  On GPUs and TPUs a loop costs a tenth of the step at base size: it writes what
  the backward pass reads into stacks, and reads it from there
  (docs/performance.md). On CPUs it costs up to a seventh at 384 wide, and saves
  memory and compilation.
  """
  if not config.scan_layers:
    return True
  if config.layer_loop is model_config.LayerLoop.AUTO:
    return compile_targets.current_target().platform != 'cpu'
  return config.layer_loop is model_config.LayerLoop.UNROLL


def make_layers(make: Callable[[], nn.Module], count: int, *, scan: bool):
  """Returns a module's layers: one that is scanned over, or a list."""
  return make() if scan else [make() for _ in range(count)]


def init_layers(layers, count: int, method: str, *inputs, **keywords) -> None:
  """Makes the parameters of `make_layers`' layers, by calling a method of each.

  Stacked parameters get the logical axis 'layers' in front.
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
  """Returns the parameters of layers: stacked [L, ...], or L trees."""
  params = nn.meta.unbox(module.variables['params'])
  if scan:
    return params[LAYERS]
  return [params[f'{LAYERS}_{i}'] for i in range(count)]


def select_layers(params, start: int, stop: int):
  """Returns layers start .. stop - 1 of `layer_parameters`."""
  if isinstance(params, list):
    return params[start:stop]
  return jax.tree.map(lambda leaf: leaf[start:stop], params)


def merge_layers(params, others):
  """Returns, for each layer, the union of two trees of sub-blocks."""
  if isinstance(params, list):
    return [a | b for a, b in zip(params, others, strict=True)]
  return params | others


def run_layers(
  body: Body,
  carry,
  params,
  *,
  count: int,
  dropout_key=None,
  remat: model_config.Remat = model_config.Remat.NONE,
  unroll: bool = False,
):
  """Applies `body` for each layer.

  Args:
    body: see `Body`.
    carry: what goes from layer to layer.
    params: from `layer_parameters`.
    count: L, the number of layers.
    dropout_key: is split into one key a layer; None gives each None.
    remat: what the backward pass recomputes.
    unroll: whether stacked layers get a copy each in the program.

  Returns:
    (the last carry, the outputs stacked [L, ...]).
  """
  keys = None if dropout_key is None else jax.random.split(dropout_key, count)
  scan = not isinstance(params, list)
  if remat is not model_config.Remat.NONE:
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


def remat_policy(remat: model_config.Remat):
  """Returns the policy of `jax.checkpoint`: which values are kept.

  A scan's body is compiled by itself. Where layers are unrolled, `prevent_cse`
  keeps XLA from merging the second computation with the first.
  """
  policies = jax.checkpoint_policies
  if remat is model_config.Remat.FULL:
    return policies.nothing_saveable
  products = policies.checkpoint_dots_with_no_batch_dims
  if remat is model_config.Remat.NARROW:
    products = _narrow
  return policies.save_from_both_policies(
    products, policies.save_only_these_names(*custom_vjp.KEPT)
  )


def _narrow(primitive, *avals, **params) -> bool:
  """Whether to keep a product: not the inner states of a feed-forward block."""
  policies = jax.checkpoint_policies
  if not policies.checkpoint_dots_with_no_batch_dims(
    primitive, *avals, **params
  ):
    return False
  (_, contracted), _ = params['dimension_numbers']
  weights = avals[1].shape
  depth = math.prod(weights[axis] for axis in contracted)
  return math.prod(weights) <= depth * depth
