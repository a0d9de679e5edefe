"""How one tensor becomes a parameter, and back.

A rule names a tensor and a parameter; `{layer}` in the tensor's name stands
for the index of a layer, whose parameter is written `model/layers/...` for
scanned and unrolled layers alike.
"""

import dataclasses
import enum
import math
from collections.abc import Iterable

import numpy as np

LAYER = '{layer}'
_LAYERS = 'model/layers/'


class Transform(enum.Enum):
  """What a tensor is to its parameter."""

  COPY = 'copy'      # the same
  ROWS = 'rows'      # the same; rows of the vocabulary, rounded up here
  VECTOR = 'vector'  # [n] there, of any shape here
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
  """

  tensor: str
  parameter: str
  transform: Transform = Transform.COPY


@dataclasses.dataclass(frozen=True)
class Assignment:
  """A rule applied to a tensor of a model.

  Attributes:
    tensor: name in the checkpoint.
    tensor_shape: its shape.
    parameter: name here.
    shape: shape of the parameter, or of a layer's part of it.
    layer: index in the parameter's first axis; None if the tensor is all of
      the parameter.
    transform: what is done to the array.
  """

  tensor: str
  tensor_shape: tuple[int, ...]
  parameter: str
  shape: tuple[int, ...]
  layer: int | None
  transform: Transform

  def read(self, tensor: np.ndarray, parameter: np.ndarray) -> None:
    """Writes the tensor into its place in the parameter, without a copy."""
    if self.layer is not None:
      parameter = parameter[self.layer]
    if self.transform is Transform.ROWS:
      parameter[:len(tensor)] = tensor
      parameter[len(tensor):] = 0
    elif self.transform in (Transform.LINEAR, Transform.LINEAR_FROM_TWO):
      # A view with two axes, as a part of a contiguous array has one.
      parameter.reshape(self.tensor_shape[::-1])[...] = tensor.T
    else:
      parameter[...] = tensor.reshape(self.shape)

  def write(self, part: np.ndarray) -> np.ndarray:
    """The tensor, of `tensor_shape`, from the parameter's part."""
    if self.transform is Transform.ROWS:
      return part[:self.tensor_shape[0]]
    if self.transform in (Transform.LINEAR, Transform.LINEAR_FROM_TWO):
      return part.reshape(self.tensor_shape[::-1]).T
    return part.reshape(self.tensor_shape)


def linear(tensor: str, parameter: str,
           transform: Transform = Transform.LINEAR) -> tuple[Rule, Rule]:
  """Rules of a linear map's weight and bias."""
  return (Rule(f'{tensor}.weight', f'{parameter}/kernel', transform),
          Rule(f'{tensor}.bias', f'{parameter}/bias', Transform.VECTOR))


def norm(tensor: str, parameter: str) -> tuple[Rule, Rule]:
  """Rules of a layer norm's weight and bias."""
  return (Rule(f'{tensor}.weight', f'{parameter}/scale'),
          Rule(f'{tensor}.bias', f'{parameter}/bias'))


def assign(rules: Iterable[Rule], shapes: dict[str, tuple[int, ...]], *,
           num_layers: int, vocab_size: int) -> list[Assignment]:
  """The tensors that fill the parameters that a model has.

  Args:
    rules: of an architecture; those whose parameter the model lacks are left
      out.
    shapes: name -> shape of every parameter, stacked or not.
    num_layers: L.
    vocab_size: rows of the vocabulary's tables in the checkpoint.
  """
  found = []
  for rule in rules:
    if LAYER not in rule.tensor:
      if rule.parameter in shapes:
        found.append(_assignment(rule, rule.tensor, rule.parameter,
                                 shapes[rule.parameter], None, vocab_size))
      continue
    inner = rule.parameter.removeprefix(_LAYERS)
    for layer in range(num_layers):
      tensor = rule.tensor.replace(LAYER, str(layer))
      unrolled = f'model/layers_{layer}/{inner}'
      if rule.parameter in shapes:
        found.append(_assignment(
            rule, tensor, rule.parameter, shapes[rule.parameter][1:], layer,
            vocab_size))
      elif unrolled in shapes:
        found.append(_assignment(rule, tensor, unrolled, shapes[unrolled],
                                 None, vocab_size))
  return found


def _assignment(rule, tensor, parameter, shape, layer, vocab_size):
  return Assignment(
      tensor, _tensor_shape(rule.transform, shape, vocab_size), parameter,
      shape, layer, rule.transform)


def _tensor_shape(transform: Transform, shape: tuple[int, ...],
                  vocab_size: int) -> tuple[int, ...]:
  if transform is Transform.COPY:
    return shape
  if transform is Transform.ROWS:
    return (vocab_size, *shape[1:])
  if transform is Transform.VECTOR:
    return (math.prod(shape),)
  inputs = 2 if transform is Transform.LINEAR_FROM_TWO else 1
  return (math.prod(shape[inputs:]), math.prod(shape[:inputs]))
