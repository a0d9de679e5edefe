"""Checks that a model configuration matches a checkpoint's tensor shapes.

The checks run before the model is created, because a corrupt configuration file
of a hundred bytes can request a billion layers.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

# Fields whose value is the length of an axis of some parameter.
_AXIS_FIELDS = (
  'hidden_dim',
  'mlp_dim',
  'num_heads',
  'num_kv_heads',
  'head_dim',
  'vocab_size',
  'type_vocab_size',
)
# Axis sizes up to this limit are accepted even if no tensor has them: they are
# harmless, and a user-defined model may have no tensor with such an axis.
_MAX_UNCHECKED_AXIS = 1 << 12
# Limit of all other sizes, such as the number of computed positions.
_MAX_OTHER_SIZE = 1 << 22


def find_shape_problems(
  config: Any, shapes: Collection[tuple[int, ...]]
) -> list[str]:
  """Finds configured sizes that are too large for a checkpoint's tensors.

  Each layer has its own tensors or an index in stacked tensors. Widths and
  vocabulary sizes are axes of some tensors.

  Args:
    config: Configuration of the model, a dataclass.
    shapes: Shapes of all tensors in a checkpoint, without their names.

  Returns:
    A description of each problem, or an empty list.
  """
  longest_axis = max((max(shape, default=1) for shape in shapes), default=1)
  problems = []
  for field in dataclasses.fields(config):
    size = getattr(config, field.name)
    if field.name.endswith('layers'):
      max_size = max(longest_axis, len(shapes))
      limit = 'the number of layers in the tensors'
    elif field.name in _AXIS_FIELDS:
      max_size = max(longest_axis, _MAX_UNCHECKED_AXIS)
      limit = 'the longest axis of a tensor'
    else:
      max_size = max(longest_axis, _MAX_OTHER_SIZE)
      limit = 'the maximum'
    if type(size) is int and size > max_size:
      problems.append(f'{field.name}={size} exceeds {limit}, {max_size}')
  return problems
