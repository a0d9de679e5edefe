"""Replica groups of a collective: the devices that exchange data."""

import math
import re

import numpy as np

_EMPTY = re.compile(r'replica_groups=\{\}')
_LISTED = re.compile(r'replica_groups=\{(\{[\d,{} ]*\})\}')
_IOTA = re.compile(
  r'replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
_MESH = re.compile(
  r'replica_groups=mesh\[([^\]]*)\]'
  r'(?:, ?device_ids=\((.*?)\))? \{([^}]*)\}'
)
_TILES = re.compile(r'\[([\d,]+)\]T\(([\d,]+)\)')
_PAIRS = re.compile(r'source_target_pairs=\{(\{[\d,{} ]*\})\}')
_AXIS = re.compile(r"'([^']+)'(?:=(\d+)|:\((\d+)\)(\d+))?")


def parse_replica_groups(attributes: str, devices: int) -> np.ndarray:
  """Parses the replica groups of a collective instruction.

  Args:
    attributes: Attributes of an HLO instruction, such as
      `replica_groups={{0,1},{2,3}}`. The formats `[2,4]<=[4,2]T(1,0)` and
      `mesh['a'=2,'b'=4] {'b'}` are also supported. `device_ids=([4,2]T(1,0))`
      may precede the braces of the latter. If the instruction has
      `source_target_pairs`, each pair is a group of two devices.
    devices: Number of devices. They form one group if the instruction has no
      replica groups.

  Returns:
    Device ids of shape [num_groups, group_size].

  Raises:
    ValueError: If the replica groups have an unknown format.
  """
  if match := (_LISTED.search(attributes) or _PAIRS.search(attributes)):
    return np.array(
      [
        [int(n) for n in group.split(',')]
        for group in re.findall(r'\{([\d, ]+)\}', match.group(1))
      ]
    )
  if match := _IOTA.search(attributes):
    shape, dims, order = (_numbers(g) for g in match.groups())
    ids = np.arange(math.prod(dims)).reshape(dims)
    return (ids.transpose(order) if order else ids).reshape(shape)
  if match := _MESH.search(attributes):
    return _of_mesh(*match.groups())
  if 'replica_groups=' in attributes and not _EMPTY.search(attributes):
    raise ValueError(
      'The format of the replica groups is not supported: '
      + attributes[attributes.index('replica_groups=') :][:120]
    )
  return np.arange(devices)[None]


def _of_mesh(axes: str, ids: str | None, chosen: str) -> np.ndarray:
  """Returns groups along mesh axes, or along subaxes such as `'a':(2)4`."""
  sizes = {m.group(1): int(m.group(2)) for m in _AXIS.finditer(axes)}
  order = np.arange(math.prod(sizes.values()))
  if ids and (tiles := _TILES.fullmatch(ids)):
    order = (
      order.reshape(_numbers(tiles.group(1)))
      .transpose(_numbers(tiles.group(2)))
      .reshape(-1)
    )
  elif ids:
    order = np.array(_numbers(','.join(re.findall(r'\d+', ids))))
  subaxes: dict[str, list[tuple[int, int]]] = {name: [] for name in sizes}
  for match in _AXIS.finditer(chosen):
    before, size = match.group(3), match.group(4)
    subaxes[match.group(1)].append(
      (int(before), int(size)) if size else (1, sizes[match.group(1)])
    )
  dims, group_dims = [], []
  for name, size in sizes.items():
    outer_size = 1
    for before, part in sorted(subaxes[name]):
      dims += [before // outer_size, part]
      group_dims.append(len(dims) - 1)
      outer_size = before * part
    dims.append(size // outer_size)
  ids_by_axis = order.reshape(dims)
  other_axes = [i for i in range(len(dims)) if i not in group_dims]
  return ids_by_axis.transpose(other_axes + group_dims).reshape(
    -1, math.prod(dims[i] for i in group_dims)
  )


def _numbers(text: str | None) -> tuple[int, ...]:
  """Returns integers that are separated by commas."""
  return tuple(int(n) for n in text.split(',') if n) if text else ()
