"""How one tensor becomes a parameter, and back.

A rule names a tensor and a parameter; `{layer}` in the tensor's name stands
for the index of a layer, whose parameter is written `model/layers/...` for
scanned and unrolled layers alike (of encoder-decoders:
`model/decoder/layers/...`).
"""

import dataclasses
import enum
import math
import re
from collections.abc import Iterable

import numpy as np

LAYER = '{layer}'
_LAYERS = 'layers/'


class Transform(enum.Enum):
  """What a tensor is to its parameter."""

  COPY = 'copy'  # the same
  ROWS = 'rows'  # the same; rows of the vocabulary, rounded up here
  VECTOR = 'vector'  # [n] there, of any shape here
  ROW = 'row'  # [1, rows of the vocabulary] there, [rows] here
  # A matrix [outputs, inputs] there; here [inputs, *outputs], or with two
  # axes of inputs: [*inputs, outputs].
  LINEAR = 'linear'
  LINEAR_FROM_TWO = 'linear_from_two'


@dataclasses.dataclass(frozen=True)
class Rule:
  """One line of an architecture's table.

  Attributes:
    tensor: name in the checkpoint, as `encoder.layer.{layer}.output.bias`.
    parameter: name here, as `model/layers/mlp/wo/bias`.
    transform: what is done to the array.
    part: (i, n) where the tensor's rows are n parameters' in turn, of which
      this is the i-th: queries, keys and values in one matrix.
    first_layer: layers before this one have no such tensor, and do not read
      the parameter, which is 1 there.
  """

  tensor: str
  parameter: str
  transform: Transform = Transform.COPY
  part: tuple[int, int] = (0, 1)
  first_layer: int = 0


@dataclasses.dataclass(frozen=True)
class Assignment:
  """A rule applied to a tensor of a model.

  Attributes:
    tensor: name in the checkpoint.
    tensor_shape: shape of its rows that the parameter has.
    parameter: name here.
    shape: shape of the parameter, or of a layer's part of it.
    layer: index in the parameter's first axis; None if the tensor is all of
      the parameter.
    transform: what is done to the array.
    part: as of a `Rule`.
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
    """Shape of the tensor, with the rows of all parts."""
    if self.part[1] == 1:
      return self.tensor_shape
    return (self.tensor_shape[0] * self.part[1], *self.tensor_shape[1:])

  def read(self, tensor: np.ndarray, parameter: np.ndarray) -> None:
    """Writes the tensor into its place in the parameter, without a copy.

    Args:
      tensor: [*whole_shape], all parts of it.
      parameter: [layers, *shape], or [*shape] where the rule names no layer.
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
      # A view with two axes, as a part of a contiguous array has one.
      parameter.reshape(self.tensor_shape[::-1])[...] = tensor.T
    else:
      parameter[...] = tensor.reshape(self.shape)

  def write(self, part: np.ndarray) -> np.ndarray:
    """Returns the tensor [*tensor_shape] of a parameter's part [*shape]."""
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
  """Rules of a linear map's weight and bias."""
  return (
    Rule(f'{tensor}.weight', f'{parameter}/kernel', transform, **kwargs),
    Rule(f'{tensor}.bias', f'{parameter}/bias', Transform.VECTOR, **kwargs),
  )


def norm_rules(tensor: str, parameter: str, **kwargs) -> tuple[Rule, Rule]:
  """Rules of a layer norm's weight and bias."""
  return (
    Rule(f'{tensor}.weight', f'{parameter}/scale', **kwargs),
    Rule(f'{tensor}.bias', f'{parameter}/bias', **kwargs),
  )


def of_layers(
  text: str, prefix: str = '', ours: str = 'model/layers'
) -> tuple[Rule, ...]:
  """Rules of the linear maps and norms of layers.

  Args:
    text: words such as `self.query=attention/query`: a tensor's name without
      its last part, and the parameter's; several, with commas, whose rows are
      one tensor.
    prefix: of the tensors' names.
    ours: of the parameters'.
  """
  rules: list[Rule] = []
  for word in text.split():
    tensor, _, here = word.partition('=')
    parts = here.split(',')
    for i, name in enumerate(parts):
      names = f'{prefix}{tensor}', f'{ours}/{name}'
      two = name.endswith('attention/output')
      kind = Transform.LINEAR_FROM_TWO if two else Transform.LINEAR
      if name.endswith('norm'):
        rules += norm_rules(*names)
      else:
        rules += linear_rules(*names, kind, part=(i, len(parts)))
  return tuple(rules)


def assign_tensors(
  rules: Iterable[Rule], shapes: dict[str, tuple[int, ...]], *, vocab_size: int
) -> list[Assignment]:
  """The tensors that fill the parameters that a model has.

  Args:
    rules: of an architecture; those whose parameter the model lacks are left
      out.
    shapes: name -> shape of every parameter, stacked or not.
    vocab_size: rows of the vocabulary's tables in the checkpoint.
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
    for parameter, layer in _places(rule, shapes):
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
  """Parameters of single layers that no tensor fills, nor the model reads."""
  unused = []
  for rule in rules:
    if rule.first_layer:
      places = _places(rule, shapes)
      read = {name for name, layer in places if layer >= rule.first_layer}
      unused += [name for name in dict(places) if name not in read]
  return unused


def _places(rule: Rule, shapes) -> list[tuple[str, int]]:
  """(the parameter, the index) of each layer, stacked or not."""
  if rule.parameter in shapes:
    return [(rule.parameter, i) for i in range(shapes[rule.parameter][0])]
  outer, _, inner = rule.parameter.partition(_LAYERS)
  pattern = re.compile(re.escape(outer) + r'layers_(\d+)/' + re.escape(inner))
  return sorted(
    (
      (name, int(match.group(1)))
      for name in shapes
      if (match := pattern.fullmatch(name))
    ),
    key=lambda place: place[1],
  )


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
