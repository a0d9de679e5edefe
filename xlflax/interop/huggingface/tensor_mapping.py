"""Mapping from tensors to parameters, checked without reading the values."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from flax import linen as nn

from xlflax.interop.huggingface.architectures import linear_head, tensor_rules
from xlflax.interop.huggingface.architectures.architecture_registry import (
  UNREAD_BIAS,
  Architecture,
  Config,
  Task,
  build_model,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Assignment,
  Rule,
  Transform,
)
from xlflax.interop.huggingface.config_json import Description
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.models import model_params
from xlflax.training import param_tree
from xlflax.utils import errors

# Patterns of names in old files, and their replacements.
_OLD_NAMES = (
  (r'LayerNorm\.gamma$', 'LayerNorm.weight'),
  (r'LayerNorm\.beta$', 'LayerNorm.bias'),
  (r'^new\.', 'gte.'),  # The custom code that mGTE was published with.
)
_NEXT_SENTENCE_CLASSES = 2

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Plan:
  """Mapping from a folder's tensors to model parameters.

  Attributes:
    shapes: Mapping from the name of each model parameter to its shape.
    assignments: Mapping from each tensor to its assignments to parameters. A
      tensor that concatenates several parameters has several assignments.
    copies: Mapping from each tied tensor to the tensor that it must equal.
    constants: Mapping from each constant tensor to the values that it must
      have.
    skipped: Mapping from the name of each tensor that is skipped to the reason
      why it is not imported.
    unread: Names of parameters that have no tensor in the folder and that the
      model does not use.
  """

  shapes: Shapes
  assignments: dict[tensor_files.Tensor, list[Assignment]]
  copies: dict[tensor_files.Tensor, tensor_files.Tensor]
  constants: dict[tensor_files.Tensor, np.ndarray]
  skipped: dict[str, str]
  unread: list[str]

  def tensor_assignments(
    self,
  ) -> Iterator[tuple[tensor_files.Tensor, Assignment]]:
    """Yields a pair (tensor, assignment) for each assignment of each tensor.

    A tensor that is assigned to several parameters occurs several times.
    """
    for tensor, assignments in self.assignments.items():
      for assignment in assignments:
        yield tensor, assignment


def collect_rules(
  architecture: Architecture,
  task: Task,
  config: Config,
  *,
  has: Collection[str],
) -> list[Rule]:
  """Returns the tensor-to-parameter rules for a model with its head.

  Args:
    architecture: Architecture of the model, with the rules that map tensors to
      parameters.
    task: Task for which the head was trained.
    config: Configuration of the model.
    has: Names of the existing tensors or parameters. A group of optional rules
      is included only if at least one of its tensors or parameters exists.
  """
  rules = [
    dataclasses.replace(rule, tensor=architecture.prefix + rule.tensor)
    for rule in (*architecture.body, *architecture.variants(config))
  ]
  if task.predicts_tokens:
    has_own_output = not config.tie_word_embeddings
    rules += _head_rules(architecture, own_output=has_own_output, has=has)
  absent_biases = tuple(
    suffix
    for suffix, is_present in architecture.head_biases(config).items()
    if not is_present
  )
  rules += [
    rule
    for rule in architecture.heads.get(task, ())
    if not rule.parameter.endswith(absent_biases)
  ]

  used_tensors = {rule.tensor for rule in rules}
  for group in architecture.optional:
    is_used = any(rule.tensor in used_tensors for rule in group)
    exists = any(rule.tensor in has or rule.parameter in has for rule in group)
    if exists and not is_used:
      rules += group
  return rules


def _head_rules(
  architecture: Architecture, *, own_output: bool, has: Collection[str]
) -> list[Rule]:
  """Returns the rules of the head that predicts tokens."""
  if not own_output:
    return list(architecture.head)
  weight, bias = architecture.output
  rules = [
    rule
    for rule in architecture.head
    if rule.parameter != 'model/output_bias' or bias is None
  ]
  rules.append(Rule(weight, architecture.output_parameter, Transform.ROWS))
  if bias is None:
    return rules
  rules.append(Rule(bias, 'model/output_bias', Transform.ROWS))
  if (
    architecture.bias
    and architecture.bias != bias
    and (architecture.bias in has or UNREAD_BIAS in has)
  ):
    # transformers stores the bias `architecture.bias`, but uses `bias`.
    rules.append(Rule(architecture.bias, UNREAD_BIAS))
  return rules


def parameter_shapes(config: Config) -> Shapes:
  """Maps the names `model/...` of a model's parameters to their shapes."""
  boxed = model_params.abstract_params(build_model(config))
  return param_tree.param_shapes({'model': nn.meta.unbox(boxed)})


def _head_shapes(rules: Sequence[Rule], description: Description) -> Shapes:
  """Returns the shapes of the parameters in `heads/...`."""
  config = description.config
  assert config.vocab_size is not None
  shapes: Shapes = {}
  for name in (rule.parameter for rule in rules):
    if not name.startswith('heads/'):
      continue
    width = config.hidden_dim
    if '/next_sentence/' in name:
      width = _NEXT_SENTENCE_CLASSES
    elif '/output/' in name:
      width = description.num_labels
    elif name == UNREAD_BIAS:
      width = config.vocab_size
    shapes[name] = (
      (config.hidden_dim, width) if name.endswith('kernel') else (width,)
    )
  return shapes


def make_tensor_mapping(
  description: Description,
  tensors: Mapping[str, tensor_files.Tensor],
  *,
  drop: Sequence[str] = (),
) -> Plan:
  """Maps a folder's tensors to the parameters of a model.

  Args:
    description: Architecture, task and configuration of the model in the
      folder.
    tensors: Mapping from the name of each tensor in the folder to its location
      and shape.
    drop: Regular expressions for the names of tensors that the user excludes.

  Raises:
    CheckpointError: If tensors are missing, are not part of the model, or have
      wrong shapes. The message lists all problems.
  """
  architecture, config = description.architecture, description.config
  skipped = {
    name: 'excluded by a pattern'
    for name in tensors
    if any(re.search(pattern, name) for pattern in drop)
  }
  skipped |= {
    name: 'buffer that the model does not use'
    for name in tensors
    if any(re.search(pattern, name) for pattern in architecture.buffers)
  }
  head = linear_head.head_tensors(architecture, config)
  skipped |= dict.fromkeys(head & tensors.keys(), 'identity transform')

  present = _rename_tensors(
    {name: tensor for name, tensor in tensors.items() if name not in skipped},
    architecture,
  )
  has_own_output = not config.tie_word_embeddings
  copies = _resolve_copies(present, architecture, tied=not has_own_output)
  constants = _pop_constants(present, description)
  rules = collect_rules(architecture, description.task, config, has=present)
  shapes = parameter_shapes(config) | _head_shapes(rules, description)
  assert config.vocab_size is not None
  assignments_by_tensor: dict[str, list[Assignment]] = {}
  for assignment in tensor_rules.assign_tensors(
    rules, shapes, vocab_size=config.vocab_size
  ):
    assignments_by_tensor.setdefault(assignment.tensor, []).append(assignment)
  unread = tensor_rules.unused_layer_parameters(rules, shapes)
  _check(
    assignments_by_tensor,
    present,
    set(shapes) - set(unread),
    where=next(iter(tensors.values())).file,
  )
  skipped |= {
    copy.name: f'duplicate of {original.name}'
    for copy, original in copies.items()
  }
  skipped |= {
    tensor.name: 'derived from the configuration' for tensor in constants
  }
  return Plan(
    shapes,
    {
      present[name]: assignments
      for name, assignments in assignments_by_tensor.items()
    },
    copies,
    constants,
    skipped,
    unread,
  )


def _rename_tensors(tensors, architecture) -> dict[str, tensor_files.Tensor]:
  """Renames tensors to their current names in a model with a head."""
  renamed = {}
  for name, tensor in tensors.items():
    for pattern, replacement in _OLD_NAMES:
      name = re.sub(pattern, replacement, name)
    renamed[name] = tensor
  if any(name.startswith(architecture.prefix) for name in renamed):
    return renamed
  return {
    architecture.prefix + name: tensor for name, tensor in renamed.items()
  }


def _resolve_copies(present, architecture, *, tied: bool):
  """Removes tied tensors from the mapping `present`.

  Returns:
    Mapping from each removed tensor to the tensor that it repeats.
  """
  weight, bias = architecture.output
  pairs = [
    (copy, original, True) for copy, original in architecture.copies.items()
  ]
  if tied:
    pairs += [
      (weight, architecture.embedding, True),
      (bias, architecture.bias, True),
    ]
  else:
    pairs.append((architecture.bias, bias, False))
  copies = {}
  for copy, original, is_tied in pairs:
    if None in (copy, original) or copy == original or copy not in present:
      continue
    if original not in present:  # Some files contain only the copy.
      present[original] = present.pop(copy)
    elif is_tied:
      copies[present.pop(copy)] = present[original]
  return copies


def _pop_constants(present, description):
  """Removes constants from the mapping `present` and returns their values."""
  constants = {}
  for name, compute_table in description.architecture.constants.items():
    name = description.architecture.prefix + name
    expected = compute_table(description.config)
    if expected is not None and name in present:
      constants[present.pop(name)] = expected
  return constants


def _check(
  assignments_by_tensor: dict[str, list[Assignment]],
  present,
  parameters: set[str],
  *,
  where,
) -> None:
  """Checks that the folder contains exactly the tensors of the model.

  Raises:
    CheckpointError: If tensors are missing, are not part of the model, or have
      wrong shapes.
  """
  filled = {
    assignment.parameter
    for assignments in assignments_by_tensor.values()
    for assignment in assignments
  }
  assert filled == parameters, filled ^ parameters
  shapes = {
    name: assignments[0].whole_shape
    for name, assignments in assignments_by_tensor.items()
  }
  problems = [
    f'{name} {list(shape)} is missing'
    for name, shape in shapes.items()
    if name not in present
  ]
  problems += [
    f'{tensor.name} {list(tensor.shape)} is not part of the model'
    for name, tensor in present.items()
    if name not in shapes
  ]
  problems += [
    f'{present[name].name} is {list(present[name].shape)}, not {list(shape)}'
    for name, shape in shapes.items()
    if name in present and present[name].shape != shape
  ]
  if problems:
    raise errors.CheckpointError(
      'The tensors do not match the model described by config.json',
      got='; '.join(problems),
      where=str(where.parent),
      fix='Correct config.json, or exclude tensors with --exclude=PATTERN.',
    )
