"""Selection of the architecture, task and parameters for an export.

Parameters that are only used in training are not exported: VECO's plug-in
module, the masked LM's head of a fine-tuned model, and heads that no
transformers class contains, such as the projection head of momentum contrast.
The reason is recorded for each parameter that is not exported.
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
from xlflax.models import encoder_config
from xlflax.objectives.finetuning import finetuning_objective
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
# Number of rows before the first position. It does not depend on the id of
# padding.
_BART_OFFSET = 2
_TOKEN_TYPES = 'model/embeddings/token_type'
_PUBLISHED_HEADS = {
  *(task.value for task in architecture_registry.LABELED_TASKS),
  'pooler',
  'next_sentence',
  UNREAD_BIAS.split('/')[1],
}


@dataclasses.dataclass(frozen=True)
class Choice:
  """Architecture, task and parameters that were selected for an export.

  Attributes:
    config: Configuration of the exported model.
    architecture: Architecture of the model, with the rules that map tensors to
      parameters.
    task: Task for which the head was trained.
    shapes: Shapes of the exported parameters, including the zero parameters
      that `equivalent_configs` adds.
    left_out: Mapping from each parameter that is left out to the reason why it
      is not exported.
    linear_head: Whether the head's transform is exported as an identity.
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
  """Selects the architecture, task and parameters for an export.

  Args:
    config: Configuration of the model.
    shapes: Mapping from the names of all parameters to their shapes.
    objectives: Mapping from names to the run's objectives.
    drop: Regular expressions for the names of parameters that the user
      excludes from the export.
    model_type: Model type that the user chose, or None for a default.
    task: Task that the user chose, or None for a default.
    origin: Record of the published model from which the run was initialized.
    tokenizer_type: `model_type` of the folder from which the tokenizer was
      imported, or None.
    pad_id: Id of the padding token in the vocabulary.

  Raises:
    ConfigError: If no architecture can represent the model, or if the
      architecture does not support the task.
  """
  names = list(shapes)
  dropped = [name for name in names if param_tree.matches_pattern(drop, name)]
  left_out = dict.fromkeys(dropped, 'excluded by a pattern')
  names = [name for name in names if name not in left_out]
  config, plug_in = plug_out(config, names)
  left_out |= dict.fromkeys(plug_in, "part of VECO's plug-in module")

  origins = [tokenizer_type, origin.get('config', {}).get('model_type')]
  tied = config.mlm_head is encoder_config.MlmHead.TIED
  architecture, config = choose_architecture(
    config, model_type, origins, pad_id=pad_id
  )
  chosen_task = choose_task(
    config, architecture, task=task, origin=origin.get('task'), names=names
  )
  config, head = without_token_head(config, chosen_task, names)
  left_out |= dict.fromkeys(
    head,
    'part of the masked-LM head, which '
    f'{architecture.classes[chosen_task]} does not have',
  )
  heads = training_heads(names, objectives)
  left_out |= dict.fromkeys(heads, 'head that is used only in training')

  exported_shapes = {
    name: tuple(shape) for name, shape in shapes.items() if name not in left_out
  }
  exported_shapes |= _resized_shapes(config, exported_shapes)
  linear = tied and config.mlm_head is encoder_config.MlmHead.TRANSFORM
  if linear:
    exported_shapes |= linear_head.head_shapes(config.hidden_dim)
  return Choice(
    config, architecture, chosen_task, exported_shapes, left_out, linear
  )


def equivalent_configs(
  config: Config, *, first: int, by_linear_head: bool = False
) -> list[Config]:
  """Returns a model's configuration and other, equivalent configurations.

  A model without token types is equivalent to a model with one type whose
  embedding is zero. Likewise, the row of the first position in the position
  table does not affect the outputs.

  Args:
    config: Configuration of the model. The first element of the result equals
      it, except that `by_linear_head` replaces a tied head.
    first: Index of the row for the first position in the architecture's
      position table.
    by_linear_head: Whether the architecture represents a tied head by a head
      with an identity transform.
  """
  if (
    by_linear_head
    and isinstance(config, encoder_config.EncoderConfig)
    and config.mlm_head is encoder_config.MlmHead.TIED
  ):
    config = dataclasses.replace(
      config, mlm_head=encoder_config.MlmHead.TRANSFORM, head_activation='gelu'
    )
  configs: list[Config] = [config]
  if (
    isinstance(config, encoder_config.EncoderConfig)
    and config.type_vocab_size == 0
  ):
    configs.append(dataclasses.replace(config, type_vocab_size=1))
  learned = encoder_config.PositionEmbedding.LEARNED
  if (
    config.position_embedding is not learned or config.position_offset == first
  ):
    return configs
  if not isinstance(config, encoder_config.EncoderConfig) and config.is_t5:
    return configs
  return configs + [
    dataclasses.replace(equivalent, position_offset=first)
    for equivalent in configs
  ]


def _first_row(config: Config, architecture: Architecture, pad_id: int) -> int:
  """Returns the first position's row in an architecture's position table."""
  if architecture.positions_after_padding:
    return pad_id + 1
  is_encoder = isinstance(config, encoder_config.EncoderConfig)
  return config.position_offset if is_encoder else _BART_OFFSET


def _resized_shapes(config: Config, shapes: Shapes) -> Shapes:
  """Returns the shapes of embeddings that are resized for the export."""
  rows = config.max_position_embeddings + config.position_offset
  resized: Shapes = {
    name: (rows, shapes[name][1]) for name in _POSITIONS if name in shapes
  }
  is_encoder = isinstance(config, encoder_config.EncoderConfig)
  if is_encoder and config.type_vocab_size and _TOKEN_TYPES not in shapes:
    resized[_TOKEN_TYPES] = (config.type_vocab_size, config.hidden_dim)
  return resized


def plug_out(config: Config, names: Sequence[str]) -> tuple[Config, list[str]]:
  """Returns a configuration without VECO's plug-in module.

  Args:
    config: Configuration of the model.
    names: Names of the run's parameters.

  Returns:
    The configuration without the module, and the names of its parameters.
  """
  if not isinstance(config, encoder_config.EncoderConfig) or (
    not config.cross_attention
  ):
    return config, []
  plain = dataclasses.replace(config, cross_attention=False)
  return plain, [name for name in names if _PLUG_IN.match(name)]


def without_token_head(
  config: Config, task: Task, names: Sequence[str]
) -> tuple[Config, list[str]]:
  """Removes the token prediction head if the task does not use it.

  Args:
    config: Configuration of the model.
    task: Task of the exported head.
    names: Names of the run's parameters.

  Returns:
    The configuration without the head, and the names of its parameters.
  """
  if task.predicts_tokens or config.mlm_head is encoder_config.MlmHead.NONE:
    return config, []
  plain = dataclasses.replace(
    config, mlm_head=encoder_config.MlmHead.NONE, tie_word_embeddings=True
  )
  return plain, [name for name in names if _TOKEN_HEAD.match(name)]


def training_heads(
  names: Sequence[str], objectives: Mapping[str, Any]
) -> list[str]:
  """Returns the names of head parameters that transformers cannot represent.

  The heads of fine-tuning objectives are not included, because they are the
  purpose of the run. If no transformers class contains such a head, the user
  must exclude it.

  Args:
    names: Names of the run's parameters.
    objectives: Mapping from names to the run's training objectives.
  """
  return [
    name
    for name in names
    if name.startswith('heads/')
    and name.split('/')[1] not in _PUBLISHED_HEADS
    and not name.startswith('heads/sentence_dense_')
    and not isinstance(
      objectives.get(name.split('/')[1]), finetuning_objective.FineTuning
    )
  ]


def choose_architecture(
  config: Config,
  model_type: str | None,
  origins: Sequence[str | None],
  *,
  pad_id: int,
) -> tuple[Architecture, Config]:
  """Selects an architecture that can represent a model.

  If necessary, the configuration is replaced by an equivalent one.

  Args:
    config: Configuration of the model.
    model_type: Model type that the user chose, or None for a default.
    origins: Preferred model types: that of the tokenizer, and that of the model
      from which the run was initialized. The tokenizer's type is preferred
      because different types can expect different token ids.
    pad_id: Id of the padding token in the vocabulary.

  Returns:
    The architecture, and a configuration that is equivalent to `config`.

  Raises:
    ConfigError: If no architecture can represent the model.
  """
  if model_type:
    preferred = [model_type]
    names = preferred
  else:
    preferred = [origin for origin in origins if origin]
    names = [*preferred, *architecture_registry.MODEL_TYPES]

  rejections = []
  for name in dict.fromkeys(names):
    candidate = architecture_registry.find_architecture(name)
    if not isinstance(config, candidate.config_class):
      if name in preferred:
        rejections.append(f'{name}: not a {type(config).__name__}')
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
          f'position_offset is {equivalent.position_offset}, not the id of '
          f'padding + 1, which is {first}'
        )
      if not problems:
        return candidate, equivalent
      problem_lists.append(list(problems))
    fewest_problems = min(problem_lists, key=len)
    rejections.append(f'{name}: ' + ', '.join(fewest_problems))
  raise errors.ConfigError(
    'No Hugging Face architecture can represent the model',
    got='; '.join(rejections),
    where=type(config).__name__,
  )


def find_export_type(config: Config, *, pad_id: int) -> str:
  """Returns the first model type that can represent a model.

  Args:
    config: Configuration of the model. VECO's plug-in module is ignored.
    pad_id: Id of the padding token in the vocabulary.

  Returns:
    The `model_type`, such as 'bert', or 'nothing: ' and the reasons.
  """
  plain, _ = plug_out(config, ())
  try:
    architecture, _ = choose_architecture(plain, None, (), pad_id=pad_id)
  except errors.ConfigError as error:
    return f'nothing: {error.got}'
  return architecture.model_type


def choose_task(
  config: Config,
  architecture: Architecture,
  *,
  task: str | None,
  origin: str | None,
  names: Sequence[str],
) -> Task:
  """Selects the task of an exported model with a head.

  Args:
    config: Configuration of the model.
    architecture: Architecture of the exported model.
    task: Task that the user chose, or None for a default.
    origin: Task of the Hugging Face model from which the run was initialized.
      None if it is not known.
    names: Names of the run's parameters.

  Raises:
    ConfigError: If the architecture does not support the task, or if the run
      has heads for several tasks.
  """
  if task is not None:
    return _validate_task(architecture, task)
  heads = {name.split('/')[1] for name in names if name.startswith('heads/')}
  labeled_tasks = [
    labeled_task
    for labeled_task in architecture_registry.LABELED_TASKS
    if labeled_task.value in heads
  ]
  if len(labeled_tasks) > 1:
    raise errors.ConfigError(
      'Only one head can be exported, but the run has heads for several tasks',
      got=', '.join(labeled_task.value for labeled_task in labeled_tasks),
      fix='Choose one head with --head, and exclude the other heads with '
      '--exclude=heads/NAME.',
    )
  if labeled_tasks:
    return labeled_tasks[0]
  if Task.SEQ2SEQ in architecture.classes:
    return Task.SEQ2SEQ
  if config.mlm_head is encoder_config.MlmHead.NONE:
    return Task.STATES
  if origin == Task.PRETRAINING and 'next_sentence' in heads:
    return Task.PRETRAINING
  return Task.MASKED_LM


def _validate_task(architecture: Architecture, task: str) -> Task:
  """Checks that the architecture supports the task, and returns the task.

  Raises:
    ConfigError: If the architecture does not support the task.
  """
  task_names = [supported.value for supported in architecture.classes]
  if task not in task_names:
    raise errors.ConfigError(
      f'The architecture {architecture.model_type} does not support the task '
      'that is specified with --head',
      got=task,
      expected='one of ' + ', '.join(task_names),
    )
  return Task(task)
