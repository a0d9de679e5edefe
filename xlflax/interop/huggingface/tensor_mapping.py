"""Which tensor goes where, after every check that needs no values."""

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
  model_of,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Assignment,
  Rule,
  Transform,
)
from xlflax.interop.huggingface.config_json import Description
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.models import model_params as models_api
from xlflax.training import param_tree
from xlflax.utils import errors

_OLD_NAMES = (
  (r'LayerNorm\.gamma$', 'LayerNorm.weight'),
  (r'LayerNorm\.beta$', 'LayerNorm.bias'),
  (r'^new\.', 'gte.'),  # mGTE, by the code that it was published with
)
_NEXT_SENTENCE_CLASSES = 2

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Plan:
  """What an import does with each tensor of a folder.

  Attributes:
    shapes: every parameter's shape, by name.
    assignments: tensor -> what it becomes, or what its parts do.
    copies: tensor -> the one whose values it must repeat.
    constants: tensor -> the values that it must have.
    skipped: tensor -> why it is left out.
    unread: parameters without a tensor, which the model does not read either.
  """

  shapes: Shapes
  assignments: dict[tensor_files.Tensor, list[Assignment]]
  copies: dict[tensor_files.Tensor, tensor_files.Tensor]
  constants: dict[tensor_files.Tensor, np.ndarray]
  skipped: dict[str, str]
  unread: list[str]

  def each(self) -> Iterator[tuple[tensor_files.Tensor, Assignment]]:
    """Every tensor with each parameter that has something of it."""
    for tensor, assignments in self.assignments.items():
      for assignment in assignments:
        yield tensor, assignment


def rules_for(
  architecture: Architecture,
  task: Task,
  config: Config,
  *,
  has: Collection[str],
) -> list[Rule]:
  """The rules of a model with a head, tensors named in full.

  Args:
    architecture: the table.
    task: what the head does.
    config: the model's configuration.
    has: names of tensors, or of parameters, that are there; groups of rules
      that are optional are taken if one of theirs is.
  """
  rules = [
    dataclasses.replace(rule, tensor=architecture.prefix + rule.tensor)
    for rule in (*architecture.body, *architecture.variants(config))
  ]
  if task.predicts_tokens:
    has_own_output = config.output_embeddings == 'own'
    rules += _head(architecture, own_output=has_own_output, has=has)
  absent = tuple(
    end
    for end, is_present in architecture.head_biases(config).items()
    if not is_present
  )
  rules += [
    rule
    for rule in architecture.heads.get(task, ())
    if not rule.parameter.endswith(absent)
  ]
  used_tensors = {rule.tensor for rule in rules}
  for group in architecture.optional:
    if not used_tensors & {rule.tensor for rule in group} and any(
      rule.tensor in has or rule.parameter in has for rule in group
    ):
      rules += group
  return rules


def _head(
  architecture: Architecture, *, own_output: bool, has: Collection[str]
) -> list[Rule]:
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
    # transformers saves this bias, but computes with the other.
    rules.append(Rule(architecture.bias, UNREAD_BIAS))
  return rules


def shapes_of(config: Config) -> Shapes:
  """Shapes of the model's parameters, named `model/...`."""
  boxed = models_api.abstract_params(model_of(config))
  return param_tree.param_shapes({'model': nn.meta.unbox(boxed)})


def _head_shapes(rules: Sequence[Rule], description: Description) -> Shapes:
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
  """Matches a folder's tensors and the model's parameters.

  Args:
    description: the model.
    tensors: what the folder holds, by name.
    drop: patterns of tensors to leave out, at the user's word.

  Raises:
    CheckpointError: missing or surplus tensors, or wrong shapes; all listed.
  """
  architecture, config = description.architecture, description.config
  skipped = {
    name: 'left out at your word'
    for name in tensors
    if any(re.search(pattern, name) for pattern in drop)
  }
  skipped |= {
    name: 'a buffer that the model does not read'
    for name in tensors
    if any(re.search(p, name) for p in architecture.buffers)
  }
  head = linear_head.head_tensors(architecture, config)
  skipped |= dict.fromkeys(head & tensors.keys(), 'changes nothing')
  present = _canonical(
    {n: t for n, t in tensors.items() if n not in skipped}, architecture
  )
  has_own_output = config.output_embeddings == 'own'
  copies = _resolve_copies(present, architecture, tied=not has_own_output)
  constants = _take_constants(present, description)
  rules = rules_for(architecture, description.task, config, has=present)
  shapes = shapes_of(config) | _head_shapes(rules, description)
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
  skipped |= {t.name: f'the same as {of.name}' for t, of in copies.items()}
  skipped |= {t.name: 'follows from the configuration' for t in constants}
  return Plan(
    shapes,
    {present[n]: a for n, a in assignments_by_tensor.items()},
    copies,
    constants,
    skipped,
    unread,
  )


def _canonical(tensors, architecture) -> dict[str, tensor_files.Tensor]:
  """Tensors by the names that a model with a head has today."""
  canonical = {}
  for name, tensor in tensors.items():
    for pattern, replacement in _OLD_NAMES:
      name = re.sub(pattern, replacement, name)
    canonical[name] = tensor
  if any(name.startswith(architecture.prefix) for name in canonical):
    return canonical
  return {
    architecture.prefix + name: tensor_info
    for name, tensor_info in canonical.items()
  }


def _resolve_copies(present, architecture, *, tied: bool):
  """Takes tied tensors out of `present`: each -> the one it repeats."""
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
  for copy, original, same in pairs:
    if None in (copy, original) or copy == original or copy not in present:
      continue
    if original not in present:  # Files keep either name of the two.
      present[original] = present.pop(copy)
    elif same:
      copies[present.pop(copy)] = present[original]
  return copies


def _take_constants(present, description):
  constants = {}
  for name, values in description.architecture.constants.items():
    name = description.architecture.prefix + name
    expected = values(description.config)
    if expected is not None and name in present:
      constants[present.pop(name)] = expected
  return constants


def _check(
  wanted: dict[str, list[Assignment]], present, parameters: set[str], *, where
) -> None:
  filled = {a.parameter for parts in wanted.values() for a in parts}
  assert filled == parameters, filled ^ parameters
  sizes = {name: parts[0].whole_shape for name, parts in wanted.items()}
  problems = [
    f'{name} {list(size)} is missing'
    for name, size in sizes.items()
    if name not in present
  ]
  problems += [
    f'{t.name} {list(t.shape)} has no place in the model'
    for name, t in present.items()
    if name not in wanted
  ]
  problems += [
    f'{present[name].name} is {list(present[name].shape)}, not {list(size)}'
    for name, size in sizes.items()
    if name in present and present[name].shape != size
  ]
  if problems:
    raise errors.CheckpointError(
      'The tensors do not fit the model that config.json describes',
      got='; '.join(problems),
      where=str(where.parent),
      fix='correct config.json, or leave surplus tensors out by --exclude=PATTERN',
    )
