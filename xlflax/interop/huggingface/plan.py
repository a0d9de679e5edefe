"""Which tensor goes where, after every check that needs no values."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

import jax
import numpy as np
from flax import linen as nn

from xlflax import errors
from xlflax.interop.huggingface import rules as rules_lib
from xlflax.interop.huggingface import tensor_files
from xlflax.interop.huggingface.architectures import (
    UNREAD_BIAS,
    Architecture,
    Task,
)
from xlflax.interop.huggingface.model_files import Description
from xlflax.interop.huggingface.rules import Assignment, Rule, Transform
from xlflax.models import api as models_api
from xlflax.models import config as model_config
from xlflax.models import encoder
from xlflax.training import params as params_lib

_OLD_NAMES = ((r'LayerNorm\.gamma$', 'LayerNorm.weight'),
              (r'LayerNorm\.beta$', 'LayerNorm.bias'))
_NEXT_SENTENCE_CLASSES = 2

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Plan:
  """What an import does with each tensor of a folder.

  Attributes:
    shapes: every parameter's shape, by name.
    assignments: tensor -> what it becomes.
    copies: tensor -> the one whose values it must repeat.
    constants: tensor -> the values that it must have.
    skipped: tensor -> why it is left out.
  """

  shapes: Shapes
  assignments: dict[tensor_files.Tensor, Assignment]
  copies: dict[tensor_files.Tensor, tensor_files.Tensor]
  constants: dict[tensor_files.Tensor, np.ndarray]
  skipped: dict[str, str]


def rules_for(architecture: Architecture, task: Task, *, own_output: bool,
              has: Collection[str]) -> list[Rule]:
  """The rules of a model with a head, tensors named in full.

  Args:
    architecture: the table.
    task: what the head does.
    own_output: whether the output table is not the token embeddings.
    has: names of tensors, or of parameters, that are there; groups of rules
      that are optional are taken if one of theirs is.
  """
  found = [dataclasses.replace(rule, tensor=architecture.prefix + rule.tensor)
           for rule in architecture.body]
  if task.predicts_tokens:
    found += _head(architecture, own_output=own_output, has=has)
  found += architecture.heads.get(task, ())
  taken = {rule.tensor for rule in found}
  for group in architecture.optional:
    if not taken & {rule.tensor for rule in group} and any(
        rule.tensor in has or rule.parameter in has for rule in group):
      found += group
  return found


def _head(architecture: Architecture, *, own_output: bool,
          has: Collection[str]) -> list[Rule]:
  if not own_output:
    return list(architecture.head)
  weight, bias = architecture.output
  rules = [rule for rule in architecture.head
           if rule.parameter != 'model/output_bias']
  rules += [Rule(weight, 'model/output', Transform.ROWS),
            Rule(bias, 'model/output_bias', Transform.ROWS)]
  if architecture.bias != bias and (
      architecture.bias in has or UNREAD_BIAS in has):
    # transformers saves this bias, but computes with the other.
    rules.append(Rule(architecture.bias, UNREAD_BIAS))
  return rules


def shapes_of(config: model_config.EncoderConfig) -> Shapes:
  """Shapes of the model's parameters, named `model/...`."""
  boxed = jax.eval_shape(lambda: models_api.init_params(
      encoder.Encoder(config), jax.random.key(0)))
  return {name: tuple(leaf.shape) for name, leaf in params_lib.names(
      {'model': nn.meta.unbox(boxed)}).items()}


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
    shapes[name] = ((config.hidden_dim, width) if name.endswith('kernel')
                    else (width,))
  return shapes


def make(description: Description,
         tensors: Mapping[str, tensor_files.Tensor], *,
         drop: Sequence[str] = ()) -> Plan:
  """Matches a folder's tensors and the model's parameters.

  Args:
    description: the model.
    tensors: what the folder holds, by name.
    drop: patterns of tensors to leave out, at the user's word.

  Raises:
    CheckpointError: missing or surplus tensors, or wrong shapes; all listed.
  """
  architecture, config = description.architecture, description.config
  skipped = {name: 'left out at your word' for name in tensors
             if any(re.search(pattern, name) for pattern in drop)}
  skipped |= {name: 'a buffer without weights' for name in tensors
              if any(re.search(p, name) for p in architecture.buffers)}
  present = _canonical(
      {n: t for n, t in tensors.items() if n not in skipped}, architecture)
  own = config.output_embeddings == 'own'
  copies = _resolve_copies(present, architecture, tied=not own)
  constants = _take_constants(present, description)
  rules = rules_for(architecture, description.task, own_output=own,
                    has=present)
  shapes = shapes_of(config) | _head_shapes(rules, description)
  assert config.vocab_size is not None
  wanted = {a.tensor: a for a in rules_lib.assign(
      rules, shapes, num_layers=config.num_layers,
      vocab_size=config.vocab_size)}
  _check(wanted, present, shapes, where=next(iter(tensors.values())).file)
  skipped |= {t.name: f'the same as {of.name}' for t, of in copies.items()}
  skipped |= {t.name: 'follows from the configuration' for t in constants}
  return Plan(shapes, {present[n]: a for n, a in wanted.items()},
              copies, constants, skipped)


def _canonical(tensors, architecture) -> dict[str, tensor_files.Tensor]:
  """Tensors by the names that a model with a head has today."""
  bare = not any(name.startswith(architecture.prefix) for name in tensors)
  found = {}
  for name, tensor in tensors.items():
    for pattern, replacement in _OLD_NAMES:
      name = re.sub(pattern, replacement, name)
    found[architecture.prefix + name if bare else name] = tensor
  return found


def _resolve_copies(present, architecture, *, tied: bool):
  """Takes tied tensors out of `present`: each -> the one it repeats."""
  weight, bias = architecture.output
  pairs = ([(weight, architecture.embedding), (bias, architecture.bias)]
           if tied else [(architecture.bias, bias)])
  copies = {}
  for copy, original in pairs:
    if copy == original or copy not in present:
      continue
    if original not in present:  # Files keep either name of the two.
      present[original] = present.pop(copy)
    elif tied:
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


def _check(wanted: dict[str, Assignment], present, shapes: Shapes, *,
           where) -> None:
  filled = {a.parameter for a in wanted.values()}
  assert filled == set(shapes), filled ^ set(shapes)
  problems = [f'{name} {list(a.tensor_shape)} is missing'
              for name, a in wanted.items() if name not in present]
  problems += [f'{t.name} {list(t.shape)} has no place in the model'
               for name, t in present.items() if name not in wanted]
  problems += [
      f'{present[name].name} is {list(present[name].shape)}, not '
      f'{list(a.tensor_shape)}' for name, a in wanted.items()
      if name in present and present[name].shape != a.tensor_shape]
  if problems:
    raise errors.CheckpointError(
        'The tensors do not fit the model that config.json describes',
        got='; '.join(problems), where=str(where.parent),
        fix='correct config.json, or leave surplus tensors out by '
        '--drop=PATTERN')
