"""What goes into a Hugging Face folder, and what stays behind.

Parts that only training needs are left out, each with its reason: VECO's
plug-in module, the masked LM's head of a fine-tuned model, and heads that no
published class has, such as momentum contrast's projection.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.interop.huggingface.architectures import (
  architecture_registry,
  linear_head,
)
from xlflax.interop.huggingface.architectures.architecture_registry import (
  UNREAD_BIAS,
  Architecture,
  Config,
  Task,
)
from xlflax.models import encoder_config as model_config
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.training import param_tree
from xlflax.utils import errors

Shapes = dict[str, tuple[int, ...]]

_PLUG_IN = re.compile(r'^model/layers(_\d+)?/cross_attention')
_TOKEN_HEAD = re.compile(r'^model/(head_dense|head_norm|output|output_bias)\b')
_POSITIONS = (
  'model/embeddings/position',
  'model/encoder/embeddings/position',
  'model/decoder/embeddings/position',
)
_BART_OFFSET = 2  # rows before the first position, whatever the padding's id
_TOKEN_TYPES = 'model/embeddings/token_type'
_KNOWN_HEADS = {
  *(task.value for task in architecture_registry.LABELLED),
  'pooler',
  'next_sentence',
  UNREAD_BIAS.split('/')[1],
}


@dataclasses.dataclass(frozen=True)
class Choice:
  """What a run becomes.

  Attributes:
    config: of the model that is left.
    architecture: its table.
    task: what its head does.
    shapes: the parameters that go along, with the zeros of `equivalent_configs`.
    left_out: parameter that does not -> why.
    linear_head: whether its head's transform is one that changes nothing.
  """

  config: Config
  architecture: Architecture
  task: Task
  shapes: Shapes
  left_out: dict[str, str]
  linear_head: bool = False


def choose_export(
  config: Config,
  shapes: Mapping[str, tuple[int, ...]],
  objectives: Mapping[str, Any],
  *,
  drop: Sequence[str],
  model_type: str | None,
  task: str | None,
  origin: Mapping[str, Any],
  tokenizer_type: str | None,
  pad_id: int,
) -> Choice:
  """Chooses architecture, task and parameters of a run.

  Args:
    config: the model's.
    shapes: of all parameters, by name.
    objectives: what the run trained, by name.
    drop: patterns of parameters that the user leaves out.
    model_type: the user's choice, or None.
    task: the user's choice, or None.
    origin: the record of the published model that the run starts from.
    tokenizer_type: `model_type` of its tokenizer's folder, or None.
    pad_id: of the vocabulary.

  Raises:
    ConfigError: no architecture can express the model, or has the task.
  """
  names = list(shapes)
  dropped = [name for name in names if param_tree.matches_pattern(drop, name)]
  left_out = dict.fromkeys(dropped, 'left out at your word')
  names = [name for name in names if name not in left_out]
  config, plug_in = plug_out(config, names)
  left_out |= dict.fromkeys(plug_in, "VECO's plug-in module: plugged out")
  origins = [tokenizer_type, origin.get('config', {}).get('model_type')]
  tied = config.mlm_head is model_config.MlmHead.TIED
  architecture, config = choose_architecture(
    config, model_type, origins, pad_id=pad_id
  )
  chosen = choose_task(
    config, architecture, wanted=task, origin=origin.get('task'), names=names
  )
  config, head = without_token_head(config, chosen, names)
  left_out |= dict.fromkeys(head, f'no part of a model for {chosen.value}')
  heads = training_heads(names, objectives)
  left_out |= dict.fromkeys(heads, 'a head that only training uses')
  exported_shapes = {
    n: tuple(s) for n, s in shapes.items() if n not in left_out
  }
  exported_shapes |= _widened_shapes(config, exported_shapes)
  linear = tied and config.mlm_head is model_config.MlmHead.TRANSFORM
  if linear:
    exported_shapes |= linear_head.head_shapes(config.hidden_dim)
  return Choice(config, architecture, chosen, exported_shapes, left_out, linear)


def equivalent_configs(
  config: Config, *, first: int, by_linear_head: bool = False
) -> list[Config]:
  """The configuration, and others of the same function.

  A model without token types is one whose only type adds nothing; positions
  that begin in another row of their table are the same positions.

  Args:
    config: of the model.
    first: row in which an architecture's positions begin.
    by_linear_head: whether the architecture's head can be one that changes
      nothing.
  """
  tied = model_config.MlmHead.TIED
  if by_linear_head and isinstance(config, model_config.EncoderConfig):
    transform, act = model_config.MlmHead.TRANSFORM, 'gelu'
    if config.mlm_head is tied:
      config = dataclasses.replace(
        config, mlm_head=transform, head_activation=act
      )
  configs: list[Config] = [config]
  if (
    isinstance(config, model_config.EncoderConfig)
    and config.type_vocab_size == 0
  ):
    configs.append(dataclasses.replace(config, type_vocab_size=1))
  learned = model_config.PositionEmbedding.LEARNED
  if (
    config.position_embedding is not learned or config.position_offset == first
  ):
    return configs
  if not isinstance(config, model_config.EncoderConfig) and config.is_t5:
    return configs
  return configs + [
    dataclasses.replace(equivalent, position_offset=first)
    for equivalent in configs
  ]


def _first_row(config: Config, found: Architecture, pad_id: int) -> int:
  """The row in which an architecture's positions begin."""
  if found.positions_after_padding:
    return pad_id + 1
  is_encoder = isinstance(config, model_config.EncoderConfig)
  return config.position_offset if is_encoder else _BART_OFFSET


def _widened_shapes(config: Config, shapes: Shapes) -> Shapes:
  """Shapes of the embeddings that have other rows than the run's."""
  rows = config.max_length + config.position_offset
  widened: Shapes = {
    name: (rows, shapes[name][1]) for name in _POSITIONS if name in shapes
  }
  is_encoder = isinstance(config, model_config.EncoderConfig)
  if is_encoder and config.type_vocab_size and _TOKEN_TYPES not in shapes:
    widened[_TOKEN_TYPES] = (config.type_vocab_size, config.hidden_dim)
  return widened


def plug_out(config: Config, names: Sequence[str]) -> tuple[Config, list[str]]:
  """The encoder without VECO's plug-in module, and the names of its parts."""
  if not isinstance(config, model_config.EncoderConfig) or (
    not config.cross_attention
  ):
    return config, []
  plain = dataclasses.replace(config, cross_attention=False)
  return plain, [name for name in names if _PLUG_IN.match(name)]


def without_token_head(
  config: Config, task: Task, names: Sequence[str]
) -> tuple[Config, list[str]]:
  """The model without the head that predicts tokens, where a task has none."""
  if task.predicts_tokens or config.mlm_head is model_config.MlmHead.NONE:
    return config, []
  plain = dataclasses.replace(
    config,
    mlm_head=model_config.MlmHead.NONE,
    output_embeddings=model_config.OutputEmbeddings.TIED,
  )
  return plain, [name for name in names if _TOKEN_HEAD.match(name)]


def training_heads(
  names: Sequence[str], objectives: Mapping[str, Any]
) -> list[str]:
  """Parameters of heads that no published class has.

  A fine-tuned head is what its run is for, so it does not count: one that has
  no class is the user's to leave out.
  """
  return [
    name
    for name in names
    if name.startswith('heads/')
    and name.split('/')[1] not in _KNOWN_HEADS
    and not name.startswith('heads/sentence_dense_')
    and not isinstance(
      objectives.get(name.split('/')[1]), finetuning.FineTuning
    )
  ]


def choose_architecture(
  config: Config,
  wanted: str | None,
  origins: Sequence[str | None],
  *,
  pad_id: int,
) -> tuple[Architecture, Config]:
  """The architecture that a model becomes, and the model as it knows it.

  Args:
    config: the model's.
    wanted: the user's choice of `model_type`, or None.
    origins: types to prefer: of the tokenizer, whose ids a model of another
      type would not get, and of the model that the run starts from.
    pad_id: of the vocabulary.

  Raises:
    ConfigError: none can express the model.
  """
  preferred = [wanted] if wanted else [*filter(None, origins)]
  names = preferred + ([] if wanted else [*architecture_registry.MODEL_TYPES])
  refused = []
  for name in dict.fromkeys(names):
    candidate = architecture_registry.find_architecture(name)
    if not isinstance(config, candidate.config_class):
      if name in preferred:
        refused.append(f'{name}: it is no {type(config).__name__}')
      continue
    problem_lists: list[list[str]] = []
    first = _first_row(config, candidate, pad_id)
    for equivalent in equivalent_configs(
      config, first=first, by_linear_head=candidate.linear_head
    ):
      _, problems = candidate.write(equivalent)
      if (
        candidate.positions_after_padding
        and equivalent.position_offset != first
      ):
        problems.append(
          f"position_offset is {equivalent.position_offset}, not the padding's id "
          f'+ 1, {first}'
        )
      if not problems:
        return candidate, equivalent
      problem_lists.append(list(problems))
    refused.append(f'{name}: ' + ', '.join(sorted(problem_lists, key=len)[0]))
  raise errors.ConfigError(
    'No Hugging Face architecture expresses the model',
    got='; '.join(refused),
    where=type(config).__name__,
  )


def choose_task(
  config: Config,
  found: Architecture,
  *,
  wanted: str | None,
  origin: str | None,
  names: Sequence[str],
) -> Task:
  """What the head of the folder does.

  Args:
    config: the model's.
    found: its architecture.
    wanted: the user's choice, or None.
    origin: the task that the model was imported with, or None.
    names: the parameters.

  Raises:
    ConfigError: the architecture has no such task, or there are several.
  """
  if wanted is not None:
    return _known(found, wanted)
  heads = {name.split('/')[1] for name in names if name.startswith('heads/')}
  labelled = [t for t in architecture_registry.LABELLED if t.value in heads]
  if len(labelled) > 1:
    raise errors.ConfigError(
      'The run has heads for several tasks',
      got=', '.join(t.value for t in labelled),
      where='heads/',
      fix='Choose one with --head, and leave the others out with '
      '--exclude=heads/NAME.',
    )
  if labelled:
    return labelled[0]
  if Task.SEQ2SEQ in found.classes:
    return Task.SEQ2SEQ
  if config.mlm_head is model_config.MlmHead.NONE:
    return Task.STATES
  if origin == Task.PRETRAINING and 'next_sentence' in heads:
    return Task.PRETRAINING
  return Task.MASKED_LM


def _known(found: Architecture, wanted: str) -> Task:
  task_names = [t.value for t in found.classes]
  if wanted not in task_names:
    raise errors.ConfigError(
      f'{found.model_type} has no such task',
      got=wanted,
      expected='one of ' + ', '.join(task_names),
      where='--head',
    )
  return Task(wanted)
