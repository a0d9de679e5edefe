"""Text tables that map tensors to parameters, for `--dry_run`."""

import math

from xlflax.interop.huggingface import huggingface_export, huggingface_import
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Assignment,
  Transform,
)

_TRANSPOSED = (Transform.LINEAR, Transform.LINEAR_FROM_TWO)


def format_import_table(checked_import: huggingface_import.Import) -> str:
  """Returns a text table of the imported tensors with their parameters."""
  plan = checked_import.plan
  lines = [
    _line(tensor.name, assignment, '->')
    for tensor, assignment in plan.tensor_assignments()
  ]
  lines += [
    f'{name} not converted: {reason}' for name, reason in plan.skipped.items()
  ]
  spec = checked_import.vocabulary.spec
  vocabulary = (
    f'vocabulary: {checked_import.vocabulary.kind}, {spec.size:,} '
    f'tokens, {len(spec.languages)} languages'
  )
  return '\n'.join([_import_summary(checked_import), vocabulary, *lines])


def _import_summary(checked_import: huggingface_import.Import) -> str:
  """Returns the architecture and the numbers of tensors and parameters."""
  plan, description = checked_import.plan, checked_import.description
  num_values = sum(map(math.prod, plan.shapes.values()))
  return (
    f'{description.architecture.classes[description.task]} '
    f'({description.architecture.model_type}, '
    f'{description.task.value}): {len(plan.assignments)} tensors, '
    f'{len(plan.shapes)} parameters of {num_values:,} values'
  )


def format_export_table(export: huggingface_export.Export) -> str:
  """Returns a text table of the exported tensors with their parameters."""
  lines = [
    _line(assignment.tensor, assignment, '<-')
    for assignment in export.assignments
  ]
  lines += [
    f'{name} {list(table.shape)} <- configuration'
    for name, table in export.constants.items()
  ]
  lines += [
    f'{name} not converted: {reason}'
    for name, reason in export.left_out.items()
  ]
  summary = (
    f'{export.options["architectures"][0]} '
    f'({export.architecture.model_type}, {export.task.value}), '
    f'step {export.step}: {len(export.assignments)} tensors'
  )
  return '\n'.join([summary, *lines])


def _line(tensor: str, assignment: Assignment, arrow: str) -> str:
  """Returns the line of a table that describes one tensor."""
  layer = '' if assignment.layer is None else f'[{assignment.layer}]'
  remarks = []
  index, count = assignment.part
  if count > 1:
    remarks.append(f'part {index + 1} of {count}')
  if assignment.transform in _TRANSPOSED:
    remarks.append('transposed')
  line = (
    f'{tensor} {list(assignment.whole_shape)} {arrow} '
    f'{assignment.parameter}{layer} {list(assignment.shape)}'
  )
  return f'{line} ({", ".join(remarks)})' if remarks else line
