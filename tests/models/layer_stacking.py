"""Converts the parameters of unrolled layers to scanned ones, and back.

A scanned encoder stores its layers in 'layers', with a leading axis of length
L. An unrolled encoder stores them in 'layers_0' to 'layers_{L-1}'. With a sharing
plan (`xlflax.models.variants.parameter_sharing`), the first k layers are
language-specific, and the axis of languages precedes that of layers.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models.variants import parameter_sharing

_STACKED = 'layers'
_AXIS = {nn.PARTITION_NAME: _STACKED}
_OWN = parameter_sharing.LANGUAGE_SPECIFIC


def stack_layers(params: dict) -> dict:
  """Converts unrolled parameters to those of `scan_layers=True`."""
  if _OWN in params:
    params = {**params, _OWN: _stack_layers(params[_OWN], axis=1)}
  return _stack_layers(params, axis=0)


def unstack_layers(params: dict) -> dict:
  """Converts scanned parameters to those of `scan_layers=False`."""
  first = 0
  if _STACKED in params.get(_OWN, {}):
    own_layers = _unstack_layers(params[_OWN], axis=1)
    first = sum(name.startswith(f'{_STACKED}_') for name in own_layers)
    params = {**params, _OWN: own_layers}
  return _unstack_layers(params, axis=0, first=first)


def _stack_layers(params: dict, *, axis: int) -> dict:
  names = [name for name in params if name.startswith(f'{_STACKED}_')]
  names.sort(key=lambda name: int(name.rpartition('_')[2]))
  if not names:
    return params
  other_params = {
    name: leaf for name, leaf in params.items() if name not in names
  }
  stacked = jax.tree.map(
    lambda *leaves: _stack(leaves, axis),
    *(params[name] for name in names),
    is_leaf=_is_box,
  )
  return {**other_params, _STACKED: stacked}


def _unstack_layers(params: dict, *, axis: int, first: int = 0) -> dict:
  if _STACKED not in params:
    return params
  other_params = {
    name: leaf for name, leaf in params.items() if name != _STACKED
  }
  stacked = params[_STACKED]
  count = jax.tree.leaves(stacked)[0].shape[axis]
  for i in range(count):
    other_params[f'{_STACKED}_{first + i}'] = jax.tree.map(
      lambda leaf, i=i: _slice(leaf, i, axis), stacked, is_leaf=_is_box
    )
  return other_params


def _is_box(leaf) -> bool:
  return isinstance(leaf, nn.meta.AxisMetadata)


def _stack(leaves, axis: int):
  if not _is_box(leaves[0]):
    return jnp.stack(leaves, axis)
  value = jnp.stack([leaf.value for leaf in leaves], axis)
  return leaves[0].replace_boxed(value).add_axis(axis, _AXIS)


def _slice(leaf, i: int, axis: int):
  if not _is_box(leaf):
    return leaf[(slice(None),) * axis + (i,)]
  value = leaf.value[(slice(None),) * axis + (i,)]
  return leaf.replace_boxed(value).remove_axis(axis, _AXIS)
