"""Whether a configuration's sizes are those of the tensors that are there.

Asked before a model is made: a file of a hundred bytes can say that a model
has a thousand million layers.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

# Fields whose value is the length of some parameter's axis.
_AXES = [
  'hidden_dim',
  'mlp_dim',
  'num_heads',
  'num_kv_heads',
  'head_dim',
  'vocab_size',
  'type_vocab_size',
]
_SMALL = 1 << 12  # does no harm, and a model of a user's own may be without
_MOST = 1 << 22  # of other sizes, such as positions that are computed


def find_shape_problems(
  config: Any, shapes: Collection[tuple[int, ...]]
) -> list[str]:
  """Returns the sizes that no model with these parameters has, a line each.

  Every layer has tensors of its own, or a place in stacked ones; widths and
  vocabularies are axes of some.

  Args:
    config: of a model.
    shapes: of all tensors that a checkpoint has.
  """
  longest = max((max(shape, default=1) for shape in shapes), default=1)
  problems = []
  for field in dataclasses.fields(config):
    size = getattr(config, field.name)
    if field.name.endswith('layers'):
      max_size, of = max(longest, len(shapes)), 'places for layers'
    elif field.name in _AXES:
      max_size, of = max(longest, _SMALL), 'the longest axis of a tensor'
    else:
      max_size, of = max(longest, _MOST), 'the most that a model has'
    if type(size) is int and size > max_size:
      problems.append(f'{field.name} is {size}; {of}: {max_size}')
  return problems
