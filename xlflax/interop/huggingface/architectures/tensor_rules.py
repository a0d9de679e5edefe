"""Rules that map checkpoint tensors to parameters and back.

A rule names a tensor and a parameter. In the tensor's name, `{layer}`
represents the index of a layer. The parameter of a layer is written as
`model/layers/...` for both scanned and unrolled layers. For encoder-decoders,
it is written as `model/decoder/layers/...`.
"""

import dataclasses
import enum
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

LAYER = '{layer}'
_LAYERS = 'layers/'


class Transform(enum.Enum):
  """Transformation between a checkpoint tensor and a model parameter."""

  # The shapes are equal.
  COPY = 'copy'
  # The first axis is the vocabulary. It is padded in the parameter.
  ROWS = 'rows'
  # The tensor has shape [n], and the parameter has any shape.
  VECTOR = 'vector'
  # The tensor has shape [1, vocab_size], and the parameter has shape
  # [padded_vocab_size].
  ROW = 'row'
  # The tensor has shape [outputs, inputs], and the parameter has shape
  # [inputs, *outputs].
  LINEAR = 'linear'
  # The tensor has shape [outputs, inputs], and the parameter has shape
  # [*inputs, outputs] with two axes of inputs.
  LINEAR_FROM_TWO = 'linear_from_two'


@dataclasses.dataclass(frozen=True)
class Rule:
  """Rule that maps one checkpoint tensor to one model parameter.

  Attributes:
    tensor: Name of the tensor in the checkpoint, such as
      `encoder.layer.{layer}.output.bias`.
    parameter: Name of the parameter, such as `model/layers/mlp/wo/bias`.
    transform: Transformation between the tensor and the parameter.
    part: Pair (i, n) if the tensor concatenates n parameters along its first
      axis, such as queries, keys and values. The rule's parameter is the i-th
      of them.
    first_layer: Index of the first layer that has the tensor. Earlier layers do
      not use the parameter, whose values are 1 in these layers.
  """

  tensor: str
  parameter: str
  transform: Transform = Transform.COPY
  part: tuple[int, int] = (0, 1)
  first_layer: int = 0


@dataclasses.dataclass(frozen=True)
class Assignment:
  """Assignment of a checkpoint tensor to a model parameter.

  Attributes:
    tensor: Name of the tensor in the checkpoint.
    tensor_shape: Shape of the tensor's rows that belong to the parameter.
    parameter: Name of the parameter.
    shape: Shape of the parameter, or of its slice for one layer.
    layer: Layer index along the parameter's first axis. If None, the tensor
      fills the complete parameter.
    transform: Transformation between the tensor and the parameter.
    part: Pair of the parameter's index within the tensor and the number of
      parameters in the tensor. See `Rule`.
  """

  tensor: str
  tensor_shape: tuple[int, ...]
  parameter: str
  shape: tuple[int, ...]
  layer: int | None
  transform: Transform
  part: tuple[int, int] = (0, 1)

  @property
  def whole_shape(self) -> tuple[int, ...]:
    """Shape of the complete tensor, which may combine several parameters.

    The rows of the parameters are concatenated.
    """
    if self.part[1] == 1:
      return self.tensor_shape
    return (self.tensor_shape[0] * self.part[1], *self.tensor_shape[1:])

  def read(self, tensor: np.ndarray, parameter: np.ndarray) -> None:
    """Writes the tensor into its slice of a parameter array, in place.

    Args:
      tensor: Complete tensor of shape [*whole_shape].
      parameter: Array of shape [num_layers, *shape], or [*shape] if `layer` is
        None. It is modified in place.
    """
    if self.layer is not None:
      parameter = parameter[self.layer]
    if self.part[1] > 1:
      rows = self.tensor_shape[0]
      tensor = tensor[self.part[0] * rows :][:rows]
    if self.transform is Transform.ROW:
      tensor = tensor[0]
    if self.transform in (Transform.ROWS, Transform.ROW):
      parameter[: len(tensor)] = tensor
      parameter[len(tensor) :] = 0
    elif self.transform in (Transform.LINEAR, Transform.LINEAR_FROM_TWO):
      # A slice of a contiguous array can be reshaped without a copy.
      parameter.reshape(self.tensor_shape[::-1])[...] = tensor.T
    else:
      parameter[...] = tensor.reshape(self.shape)

  def write(self, part: np.ndarray) -> np.ndarray:
    """Converts a slice of a parameter to the values of a checkpoint tensor.

    The slice has the shape [*shape], and the result has the shape
    [*tensor_shape].
    """
    if self.transform is Transform.ROWS:
      return part[: self.tensor_shape[0]]
    if self.transform is Transform.ROW:
      return part[None, : self.tensor_shape[1]]
    if self.transform in (Transform.LINEAR, Transform.LINEAR_FROM_TWO):
      return part.reshape(self.tensor_shape[::-1]).T
    return part.reshape(self.tensor_shape)


def linear_rules(
  tensor: str, parameter: str, transform: Transform = Transform.LINEAR, **kwargs
) -> tuple[Rule, Rule]:
  """Returns the tensor-to-parameter rules for a linear layer."""
  return (
    Rule(f'{tensor}.weight', f'{parameter}/kernel', transform, **kwargs),
    Rule(f'{tensor}.bias', f'{parameter}/bias', Transform.VECTOR, **kwargs),
  )


def norm_rules(tensor: str, parameter: str, **kwargs) -> tuple[Rule, Rule]:
  """Returns the tensor-to-parameter rules for a layer norm."""
  return (
    Rule(f'{tensor}.weight', f'{parameter}/scale', **kwargs),
    Rule(f'{tensor}.bias', f'{parameter}/bias', **kwargs),
  )


def layer_rules(
  names: Mapping[str, str | Sequence[str]],
  tensor_prefix: str = '',
  parameter_prefix: str = 'model/layers',
) -> tuple[Rule, ...]:
  """Returns the tensor-to-parameter rules for linear maps and norms.

  Args:
    names: Mapping from the name of a tensor to the name of its parameter, both
      without the last component, such as `{'self.query': 'attention/query'}`.
      A sequence of parameters represents a tensor that concatenates them.
    tensor_prefix: Prefix of the tensor names.
    parameter_prefix: Prefix of the parameter names.
  """
  rules: list[Rule] = []
  for tensor_name, parameter_names in names.items():
    tensor = f'{tensor_prefix}{tensor_name}'
    if isinstance(parameter_names, str):
      parameter_names = (parameter_names,)
    for i, parameter_name in enumerate(parameter_names):
      parameter = f'{parameter_prefix}/{parameter_name}'
      if parameter_name.endswith('norm'):
        rules += norm_rules(tensor, parameter)
        continue
      transform = Transform.LINEAR
      if parameter_name.endswith('attention/output'):
        transform = Transform.LINEAR_FROM_TWO
      part = (i, len(parameter_names))
      rules += linear_rules(tensor, parameter, transform, part=part)
  return tuple(rules)


def assign_tensors(
  rules: Iterable[Rule], shapes: dict[str, tuple[int, ...]], *, vocab_size: int
) -> list[Assignment]:
  """Returns the assignments of checkpoint tensors to a model's parameters.

  Args:
    rules: Rules of an architecture. Rules for parameters that the model does
      not have are skipped.
    shapes: Mapping from the name of each parameter to its shape. The parameters
      of the layers may be stacked.
    vocab_size: Number of rows of the vocabulary tables in the checkpoint.
  """
  assignments = []
  for rule in rules:
    if LAYER not in rule.tensor:
      if rule.parameter in shapes:
        assignments.append(
          _assignment(
            rule,
            rule.tensor,
            rule.parameter,
            shapes[rule.parameter],
            None,
            vocab_size,
          )
        )
      continue
    for parameter, layer in _layer_parameters(rule, shapes):
      shape = shapes[parameter]
      stacked = parameter == rule.parameter
      if layer >= rule.first_layer:
        assignments.append(
          _assignment(
            rule,
            rule.tensor.replace(LAYER, str(layer)),
            parameter,
            shape[1:] if stacked else shape,
            layer if stacked else None,
            vocab_size,
          )
        )
  return assignments


def unused_layer_parameters(
  rules: Iterable[Rule], shapes: dict[str, tuple[int, ...]]
) -> list[str]:
  """Returns the per-layer parameters that no tensor is assigned to.

  These parameters belong to the layers before `Rule.first_layer`.
  """
  unused = []
  for rule in rules:
    if rule.first_layer:
      parameters = _layer_parameters(rule, shapes)
      used = {name for name, layer in parameters if layer >= rule.first_layer}
      unused += [name for name in dict(parameters) if name not in used]
  return unused


def _layer_parameters(rule: Rule, shapes) -> list[tuple[str, int]]:
  """Returns the parameter name and the index of each layer, stacked or not."""
  if rule.parameter in shapes:
    return [(rule.parameter, i) for i in range(shapes[rule.parameter][0])]
  outer, _, inner = rule.parameter.partition(_LAYERS)
  pattern = re.compile(re.escape(outer) + r'layers_(\d+)/' + re.escape(inner))
  parameters = [
    (name, int(match.group(1)))
    for name in shapes
    if (match := pattern.fullmatch(name))
  ]
  return sorted(parameters, key=lambda parameter: parameter[1])


def _assignment(rule, tensor, parameter, shape, layer, vocab_size):
  return Assignment(
    tensor,
    _tensor_shape(rule.transform, shape, vocab_size),
    parameter,
    shape,
    layer,
    rule.transform,
    rule.part,
  )


def _tensor_shape(
  transform: Transform, shape: tuple[int, ...], vocab_size: int
) -> tuple[int, ...]:
  """Returns the shape of a tensor from the shape of its parameter."""
  if transform is Transform.COPY:
    return shape
  if transform is Transform.ROWS:
    return (vocab_size, *shape[1:])
  if transform is Transform.ROW:
    return (1, vocab_size)
  if transform is Transform.VECTOR:
    return (math.prod(shape),)
  inputs = 2 if transform is Transform.LINEAR_FROM_TWO else 1
  return (math.prod(shape[inputs:]), math.prod(shape[:inputs]))
