"""Parameters of scanned layers from those of unrolled ones, and back.

Scanned, an encoder keeps its layers under 'layers', with a leading axis of
length L; unrolled under 'layers_0' .. 'layers_{L-1}'.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

_STACKED = 'layers'
_AXIS = {nn.PARTITION_NAME: _STACKED}


def stack_layers(params: dict) -> dict:
  """Unrolled parameters as those of `scan_layers=True`; boxed or not."""
  names = [name for name in params if name.startswith(f'{_STACKED}_')]
  names.sort(key=lambda name: int(name.rpartition('_')[2]))
  if not names:
    return params
  rest = {name: leaf for name, leaf in params.items() if name not in names}
  stacked = jax.tree.map(_stack, *(params[name] for name in names),
                         is_leaf=_is_box)
  return {**rest, _STACKED: stacked}


def unstack_layers(params: dict) -> dict:
  """Scanned parameters as those of `scan_layers=False`; boxed or not."""
  if _STACKED not in params:
    return params
  rest = {name: leaf for name, leaf in params.items() if name != _STACKED}
  stacked = params[_STACKED]
  count = jax.tree.leaves(stacked)[0].shape[0]
  for i in range(count):
    rest[f'{_STACKED}_{i}'] = jax.tree.map(
        lambda leaf, i=i: _slice(leaf, i), stacked, is_leaf=_is_box)
  return rest


def _is_box(leaf) -> bool:
  return isinstance(leaf, nn.meta.AxisMetadata)


def _stack(*leaves):
  if not _is_box(leaves[0]):
    return jnp.stack(leaves)
  value = jnp.stack([leaf.value for leaf in leaves])
  return leaves[0].replace_boxed(value).add_axis(0, _AXIS)


def _slice(leaf, i: int):
  if not _is_box(leaf):
    return leaf[i]
  return leaf.replace_boxed(leaf.value[i]).remove_axis(0, _AXIS)
