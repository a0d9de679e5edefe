"""Reader for the parameter values of an imported Hugging Face model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlflax.interop.huggingface import tensor_mapping
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Assignment,
  Transform,
)
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.training import param_tree
from xlflax.utils import errors

_TOLERANCE = (
  1e-5  # Absolute tolerance of constants. Libraries round differently.
)

Place = Callable[[str, np.ndarray], Any]


def parameter_readers(
  plan: tensor_mapping.Plan,
) -> dict[str, Callable[[], np.ndarray]]:
  """Returns, for each parameter, a function that reads its values.

  Args:
    plan: Assignment of the folder's tensors to the model's parameters.

  Returns:
    Mapping from the name of each parameter to a function that returns its
    values as float32. One tensor is held in memory in addition to the
    parameter. The function raises a CheckpointError if a file is damaged.

  Raises:
    CheckpointError: If tied tensors differ, or if constant tensors have
      different values.
  """
  _check_copies(plan)
  assignments_by_parameter: dict[
    str, dict[tensor_files.Tensor, list[Assignment]]
  ] = {}
  for tensor, assignment in plan.tensor_assignments():
    assignments = assignments_by_parameter.setdefault(assignment.parameter, {})
    assignments.setdefault(tensor, []).append(assignment)

  def read(name: str) -> np.ndarray:
    assignments = assignments_by_parameter.get(name, {})
    if _is_unchanged_tensor(plan, assignments):
      _, value = next(tensor_files.read_tensors(assignments))
      return value.astype(np.float32, copy=False)
    values = _initial_values(plan, name)
    for tensor, value in tensor_files.read_tensors(assignments):
      for assignment in assignments[tensor]:
        assignment.read(value, values)
    return values

  names = [*assignments_by_parameter, *plan.unread]
  return {name: functools.partial(read, name) for name in names}


def load_parameters(
  plan: tensor_mapping.Plan, *, place: Place | None = None
) -> dict[str, Any]:
  """Loads all parameters of an import as a tree.

  Args:
    plan: Assignment of the folder's tensors to the model's parameters.
    place: Function that receives a parameter's name and its float32 values, and
      returns the value to store in the tree. It is called as soon as a
      parameter is complete, so that parameters that are transferred to devices
      do not use host memory.

  Raises:
    CheckpointError: If tied tensors differ, or if constant tensors have
      different values.
  """
  return param_tree.unflatten_params(
    {
      name: place(name, read()) if place else read()
      for name, read in parameter_readers(plan).items()
    }
  )


def _is_unchanged_tensor(
  plan: tensor_mapping.Plan,
  assignments: Mapping[tensor_files.Tensor, Sequence[Assignment]],
) -> bool:
  """Returns True if a parameter equals one tensor and needs no copy."""
  if len(assignments) != 1:
    return False
  ((tensor, tensor_assignments),) = assignments.items()
  if len(tensor_assignments) != 1:
    return False
  assignment = tensor_assignments[0]
  return (
    assignment.layer is None
    and assignment.part[1] == 1
    and assignment.transform in (Transform.COPY, Transform.ROWS)
    and tensor.shape == plan.shapes[assignment.parameter]
  )


def _initial_values(plan: tensor_mapping.Plan, name: str) -> np.ndarray:
  """Returns a parameter's values before tensors are read: ones or zeros."""
  create = np.ones if name.endswith('/scale') else np.zeros
  return create(plan.shapes[name], np.float32)


def _check_copies(plan: tensor_mapping.Plan) -> None:
  """Checks the values of tied tensors and constants.

  Raises:
    CheckpointError: If the values of a tied or constant tensor are wrong.
  """
  problems = []
  for copy, original in plan.copies.items():
    values = dict(tensor_files.read_tensors([copy, original]))
    if not np.array_equal(values[copy], values[original]):
      problems.append(f'{copy.name} differs from {original.name}')
  for tensor, expected in plan.constants.items():
    value = dict(tensor_files.read_tensors([tensor]))[tensor]
    if value.shape != expected.shape or not np.allclose(
      value, expected, rtol=0, atol=_TOLERANCE
    ):
      problems.append(f'{tensor.name} differs from the constant table')
  if problems:
    raise errors.CheckpointError(
      'The values of the tensors do not match the options in config.json',
      got='; '.join(problems),
      where=str(next(iter(plan.assignments)).file.parent),
      fix='Set tie_word_embeddings or sinusoidal_embeddings to false in '
      'config.json if the model was trained without these options.',
    )
