"""What becomes what, as text for `--dry_run`."""

import math

from xlflax.interop.huggingface import huggingface_export, huggingface_import
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Assignment,
  Transform,
)

_TRANSPOSED = (Transform.LINEAR, Transform.LINEAR_FROM_TWO)


def of_import(checked: huggingface_import.Import) -> str:
  """A line for each tensor: where it goes, or why it does not."""
  plan = checked.plan
  lines = [
    _line(tensor.name, assignment, '->') for tensor, assignment in plan.each()
  ]
  lines += [
    f'{name} not kept: {reason}' for name, reason in plan.skipped.items()
  ]
  described = checked.description
  spec = checked.vocabulary.spec
  vocabulary = (
    f'vocabulary: {checked.vocabulary.kind}, {spec.size:,} '
    f'entries, {len(spec.languages)} languages'
  )
  return '\n'.join([_head(described, plan), vocabulary, *lines])


def _head(described, plan) -> str:
  """The architecture, and how much is imported."""
  values = sum(map(math.prod, plan.shapes.values()))
  return (
    f'{described.architecture.classes[described.task]} '
    f'({described.architecture.model_type}, '
    f'{described.task.value}): {len(plan.assignments)} tensors, '
    f'{len(plan.shapes)} parameters of {values:,} values'
  )


def of_export(checked: huggingface_export.Export) -> str:
  """A line for each tensor: what it is made of."""
  lines = [_line(a.tensor, a, '<-') for a in checked.assignments]
  lines += [
    f'{name} {list(table.shape)} <- configuration'
    for name, table in checked.constants.items()
  ]
  lines += [
    f'{name} not kept: {reason}' for name, reason in checked.left_out.items()
  ]
  head = (
    f'{checked.options["architectures"][0]} '
    f'({checked.architecture.model_type}, {checked.task.value}), '
    f'step {checked.step}: {len(checked.assignments)} tensors'
  )
  return '\n'.join([head, *lines])


def _line(tensor: str, assignment: Assignment, arrow: str) -> str:
  how = 'transposed' if assignment.transform in _TRANSPOSED else ''
  layer = '' if assignment.layer is None else f'[{assignment.layer}]'
  number, count = assignment.part
  if count > 1:
    how = ', '.join(filter(None, [f'part {number + 1} of {count}', how]))
  return (
    f'{tensor} {list(assignment.whole_shape)} {arrow} '
    f'{assignment.parameter}{layer} {list(assignment.shape)}'
    + (f' ({how})' if how else '')
  )
