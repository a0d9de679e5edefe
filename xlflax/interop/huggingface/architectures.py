"""What an architecture is to the converter: one table and its options.

Add one by writing a module with an `Architecture` (see `bert.py`) and naming
it in `_MODULES`.
"""

import dataclasses
import enum
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from xlflax import errors
from xlflax.interop.huggingface import config_options
from xlflax.interop.huggingface.rules import Rule, linear
from xlflax.models import config as model_config


class Task(enum.StrEnum):
  """What the head of a checkpoint does."""

  STATES = 'states'  # no head: the base model
  MASKED_LM = 'masked_lm'
  PRETRAINING = 'pretraining'  # BERT: masked LM and next sentence
  SEQUENCE_CLASSIFICATION = 'sequence_classification'
  TOKEN_CLASSIFICATION = 'token_classification'
  QUESTION_ANSWERING = 'question_answering'

  @property
  def predicts_tokens(self) -> bool:
    return self in (Task.MASKED_LM, Task.PRETRAINING)


# The heads of a task whose output has one column for each label.
LABELLED = (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION,
            Task.QUESTION_ANSWERING)
UNREAD_BIAS = 'heads/unread/masked_lm_bias'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
  """Names, classes and options of one `model_type`.

  Attributes:
    model_type: as config.json tells it.
    prefix: of the base model's tensors in a model with a head: 'bert.'.
    classes: the class of each task that the architecture has.
    body: rules of the model without any head; tensors without prefix.
    head: rules of the masked LM's head.
    heads: rules of the other tasks' heads.
    optional: rules of heads that may be there whatever the task, each group
      as a whole: a pooler.
    output: names of the masked LM's (weight, bias) of the output table; the
      bias is in `head` under another name.
    buffers: patterns of tensors that hold no weights (positions 0, 1, 2, ...).
    constants: tensors that follow from the configuration: name -> from the
      encoder's configuration to their values, or None.
    aliases: other name -> name of an option of config.json.
    read: from options to `EncoderConfig`'s arguments.
    write: from an `EncoderConfig` to (options, what they can't express).
  """

  model_type: str
  prefix: str
  classes: Mapping[Task, str]
  body: tuple[Rule, ...]
  head: tuple[Rule, ...]
  heads: Mapping[Task, tuple[Rule, ...]]
  optional: tuple[tuple[Rule, ...], ...] = ()
  output: tuple[str, str]
  buffers: tuple[str, ...] = ()
  constants: Mapping[str, Callable[[model_config.EncoderConfig], Any]] = (
      dataclasses.field(default_factory=dict))
  aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
  read: Callable[[config_options.Options, Task], dict[str, Any]]
  write: Callable[[model_config.EncoderConfig],
                  tuple[dict[str, Any], list[str]]]

  @property
  def embedding(self) -> str:
    """The tensor of token embeddings."""
    return self.prefix + next(
        rule.tensor for rule in self.body
        if rule.parameter == 'model/embeddings/token')

  @property
  def bias(self) -> str:
    """The tensor of the masked LM's bias, where embeddings are tied."""
    return next(rule.tensor for rule in self.head
                if rule.parameter == 'model/output_bias')

  def task_of(self, class_name: str) -> Task | None:
    for task, known in self.classes.items():
      if known == class_name:
        return task
    return None


_MODULES = {
    'bert': 'bert', 'roberta': 'roberta', 'xlm-roberta': 'roberta',
    'xlm-roberta-xl': 'roberta', 'xlm': 'xlm',
}
MODEL_TYPES = tuple(_MODULES)


def find(model_type) -> Architecture:
  """The architecture of a `model_type`.

  Raises:
    ConfigError: there is none.
  """
  if model_type not in _MODULES:
    raise errors.ConfigError(
        'A model of an architecture that is not known', got=model_type,
        expected='one of ' + ', '.join(MODEL_TYPES), where='model_type')
  module = importlib.import_module(
      f'xlflax.interop.huggingface.{_MODULES[model_type]}')
  return module.ARCHITECTURES[model_type]


def pooler(tensor: str) -> tuple[Rule, ...]:
  return linear(tensor, 'heads/pooler/dense')


def classifier(task: Task, *, output: str, dense: str | None = None
               ) -> tuple[Rule, ...]:
  """Rules of a task's head."""
  inner = linear(dense, f'heads/{task.value}/dense') if dense else ()
  return (*inner, *linear(output, f'heads/{task.value}/output'))
