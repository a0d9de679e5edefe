"""Layers run as functions of their parameters, scanned over or in turn.

Unlike a lifted `nn.scan`, this takes parameters from anywhere: a decoder that
is tied to an encoder runs on the encoder's parameters.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import config as model_config

LAYERS = 'layers'
# (carry, parameters of a layer, its index, its dropout key) -> (carry, output)
Body = Callable[[Any, Any, jax.Array | int, jax.Array | None], tuple[Any, Any]]


def modules(make: Callable[[], nn.Module], count: int, *, scan: bool):
  """Returns a module's layers: one that is scanned over, or a list."""
  return make() if scan else [make() for _ in range(count)]


def create(layers, count: int, method: str, *inputs, **keywords) -> None:
  """Makes the parameters of `modules`' layers, by calling a method of each.

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


def parameters(module: nn.Module, count: int, *, scan: bool):
  """Returns the parameters of layers: stacked [L, ...], or L trees."""
  params = nn.meta.unbox(module.variables['params'])
  if scan:
    return params[LAYERS]
  return [params[f'{LAYERS}_{i}'] for i in range(count)]


def select(params, start: int, stop: int):
  """Returns layers start .. stop - 1 of `parameters`."""
  if isinstance(params, list):
    return params[start:stop]
  return jax.tree.map(lambda leaf: leaf[start:stop], params)


def merge(params, others):
  """Returns, for each layer, the union of two trees of sub-blocks."""
  if isinstance(params, list):
    return [a | b for a, b in zip(params, others, strict=True)]
  return params | others


def run(
  body: Body,
  carry,
  params,
  *,
  count: int,
  dropout_key=None,
  remat: model_config.Remat = model_config.Remat.NONE,
):
  """Applies `body` for each layer.

  Args:
    body: see `Body`.
    carry: what goes from layer to layer.
    params: from `parameters`.
    count: L, the number of layers.
    dropout_key: is split into one key a layer; None gives each None.
    remat: what the backward pass recomputes.

  Returns:
    (the last carry, the outputs stacked [L, ...]).
  """
  keys = None if dropout_key is None else jax.random.split(dropout_key, count)
  scan = not isinstance(params, list)
  body = _remat(body, remat, scan=scan)
  if scan:
    return jax.lax.scan(
      lambda carry, xs: body(carry, *xs),
      carry,
      (params, jnp.arange(count), keys),
    )
  outputs = []
  for i in range(count):
    carry, output = body(carry, params[i], i, None if keys is None else keys[i])
    outputs.append(output)
  return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)


def _remat(body: Body, remat: model_config.Remat, *, scan: bool) -> Body:
  if remat is model_config.Remat.NONE:
    return body
  policies = jax.checkpoint_policies
  policy = (
    policies.nothing_saveable
    if remat is model_config.Remat.FULL
    else policies.checkpoint_dots_with_no_batch_dims
  )
  # A scan's body is compiled by itself: nothing to protect from CSE.
  return jax.checkpoint(body, policy=policy, prevent_cse=not scan)
