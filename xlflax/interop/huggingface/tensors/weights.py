"""The values of an import: read parameter by parameter."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from xlflax.interop.huggingface import tensor_mapping
from xlflax.interop.huggingface.architectures.tensor_rules import Transform
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.training import param_tree
from xlflax.utils import errors

_TOLERANCE = 1e-5  # of constants, which other programs round otherwise

Place = Callable[[str, np.ndarray], Any]


def parameter_readers(
  plan: tensor_mapping.Plan,
) -> dict[str, Callable[[], np.ndarray]]:
  """Name -> what reads the parameter, float32; one tensor is held besides.

  Raises:
    CheckpointError: tied tensors differ, or constants have other values; when
      a parameter is read: a file is damaged.
  """
  _check_copies(plan)
  parts: dict[str, dict[tensor_files.Tensor, list[Any]]] = {}
  for tensor, assignment in plan.each():
    of_one = parts.setdefault(assignment.parameter, {})
    of_one.setdefault(tensor, []).append(assignment)

  def read(name: str) -> np.ndarray:
    of_one = parts.get(name, {})
    is_single_tensor = len(of_one) == 1 and _is_whole(plan, *of_one.items())
    values = None if is_single_tensor else _new(plan, name)
    for tensor, value in tensor_files.read_tensors(of_one):
      if values is None:
        return value.astype(np.float32, copy=False)
      for assignment in parts[name][tensor]:
        assignment.read(value, values)
    assert values is not None
    return values

  names = [*parts, *plan.unread]
  return {name: functools.partial(read, name) for name in names}


def load_parameters(
  plan: tensor_mapping.Plan, *, place: Place | None = None
) -> dict[str, Any]:
  """The parameters, as a tree.

  `place` gets each as soon as it is complete, so that what is placed on
  devices leaves the host's memory.

  Args:
    plan: what goes where.
    place: (name, float32 array) -> what stands for it in the tree.

  Raises:
    CheckpointError: as `parameter_readers`.
  """
  return param_tree.unflatten_params(
    {
      name: place(name, read()) if place else read()
      for name, read in parameter_readers(plan).items()
    }
  )


def _is_whole(
  plan: tensor_mapping.Plan, part: tuple[tensor_files.Tensor, list[Any]]
) -> bool:
  """Whether a parameter is a tensor as it is, which needs no copy."""
  tensor, (assignment, *other_assignments) = part
  return (
    not other_assignments
    and assignment.layer is None
    and assignment.part[1] == 1
    and assignment.transform in (Transform.COPY, Transform.ROWS)
    and tensor.shape == plan.shapes[assignment.parameter]
  )


def _new(plan: tensor_mapping.Plan, name: str) -> np.ndarray:
  """An array to fill; what the model does not read stays as it starts."""
  make = np.ones if name.endswith('/scale') else np.zeros
  return make(plan.shapes[name], np.float32)


def _check_copies(plan: tensor_mapping.Plan) -> None:
  problems = []
  for copy, original in plan.copies.items():
    values = dict(tensor_files.read_tensors([copy, original]))
    if not np.array_equal(values[copy], values[original]):
      problems.append(f'{copy.name} is not the same as {original.name}')
  for tensor, expected in plan.constants.items():
    value = dict(tensor_files.read_tensors([tensor]))[tensor]
    if value.shape != expected.shape or not np.allclose(
      value, expected, rtol=0, atol=_TOLERANCE
    ):
      problems.append(f'{tensor.name} is not the constant table')
  if problems:
    raise errors.CheckpointError(
      'The tensors do not fit the configuration',
      got='; '.join(problems),
      where=str(next(iter(plan.assignments)).file.parent),
      fix='set tie_word_embeddings or sinusoidal_embeddings to false in '
      'config.json if the model was trained like that',
    )
