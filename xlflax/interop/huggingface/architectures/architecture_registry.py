"""Registry of model architectures that can be imported and exported.

To add an architecture, write a module that defines an `Architecture` (see
`bert.py`), and add the module's name to `_MODULES`.
"""

import dataclasses
import enum
import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from xlflax.interop.huggingface.architectures import config_options
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  linear_rules,
)
from xlflax.models import (
  encoder,
  encoder_config,
  encoder_decoder,
  encoder_decoder_config,
)
from xlflax.utils import errors

Config = (
  encoder_config.EncoderConfig | encoder_decoder_config.EncoderDecoderConfig
)


class Task(enum.StrEnum):
  """Task that a checkpoint's head was trained for."""

  STATES = 'states'  # The base model without a head.
  MASKED_LM = 'masked_lm'
  PRETRAINING = 'pretraining'  # BERT: masked LM and next sentence prediction.
  SEQUENCE_CLASSIFICATION = 'sequence_classification'
  TOKEN_CLASSIFICATION = 'token_classification'
  QUESTION_ANSWERING = 'question_answering'
  SEQ2SEQ = 'seq2seq'  # Encoder-decoders: prediction of the target's tokens.

  @property
  def predicts_tokens(self) -> bool:
    """True if the head predicts tokens."""
    return self in (Task.MASKED_LM, Task.PRETRAINING, Task.SEQ2SEQ)


# Tasks whose head has one output per label.
LABELED_TASKS = (
  Task.SEQUENCE_CLASSIFICATION,
  Task.TOKEN_CLASSIFICATION,
  Task.QUESTION_ANSWERING,
)
_CLASSES = {
  Task.MASKED_LM: 'MaskedLM',
  Task.SEQUENCE_CLASSIFICATION: 'SequenceClassification',
  Task.TOKEN_CLASSIFICATION: 'TokenClassification',
  Task.QUESTION_ANSWERING: 'QuestionAnswering',
}
UNREAD_BIAS = 'heads/unread/masked_lm_bias'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
  """Tensor names, classes and options of one Hugging Face `model_type`.

  Attributes:
    model_type: Value of `model_type` in config.json.
    prefix: Prefix of the base model's tensors in a model with a head, such as
      'bert.'.
    classes: Mapping from each supported task to the name of its class in
      transformers.
    body: Rules that map tensors to the parameters of the model without its
      head. Tensor names have no prefix.
    head: Rules that map tensors to the parameters of the masked LM's head.
    heads: Mapping from each task other than masked language modeling to the
      rules that map tensors to the parameters of the task's head.
    variants: Function that returns additional rules for `body`, which depend on
      the configuration.
    head_biases: Function that returns which head biases exist, given the
      configuration. Its result maps the name suffix of a bias to False if the
      bias does not exist. All biases that are not in the mapping exist.
    head_style: Function that maps the configuration and the `config.json`
      options to the keyword arguments of
      `xlflax.models.heads.classification_heads`.
    optional: Groups of rules for optional modules, such as a pooler, that can
      exist in addition to the task's head. The rules of a group apply only
      together.
    output: Names of the weight and bias tensors of an output table that is
      separate from the token embeddings. The bias is None if `head` always
      contains a rule for this bias.
    output_parameter: Name of the parameter that stores the output table.
    copies: Mapping from the name of each optional duplicate of a tensor to the
      name of the tensor that it duplicates.
    buffers: Patterns for names of tensors that contain no weights, such as the
      positions 0, 1, 2, ....
    constants: Mapping from the name of each tensor that the configuration
      determines to a function that returns its values or None.
    aliases: Mapping from alternative names of `config.json` options to the
      names that the other fields use.
    positions_after_padding: Whether position 0 uses the row of the position
      table that follows the row of the padding id. The position offset then
      depends on the vocabulary.
    linear_head: Whether models without a head transform are exported with an
      identity transform. See the module `linear_head`.
    config_class: Class of the xlflax model configuration.
    read: Function that converts the options in `config.json` and the task to
      the arguments of `config_class`.
    write: Function that converts a model configuration to the options in
      `config.json`, and to a list of the settings that these options cannot
      express.
  """

  model_type: str
  prefix: str
  classes: Mapping[Task, str]
  body: tuple[Rule, ...]
  head: tuple[Rule, ...]
  heads: Mapping[Task, tuple[Rule, ...]]
  variants: Callable[[Any], tuple[Rule, ...]] = lambda config: ()
  head_biases: Callable[[Any], Mapping[str, bool]] = lambda config: {}
  head_style: Callable[[Any, Mapping[str, Any]], dict[str, Any]] = (
    lambda config, options: {}
  )
  optional: tuple[tuple[Rule, ...], ...] = ()
  output: tuple[str, str | None]
  output_parameter: str = 'model/output'
  copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
  buffers: tuple[str, ...] = ()
  constants: Mapping[str, Callable[[Any], Any]] = dataclasses.field(
    default_factory=dict
  )
  aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
  positions_after_padding: bool = False
  linear_head: bool = False
  config_class: type = encoder_config.EncoderConfig
  read: Callable[[config_options.Options, Task], dict[str, Any]]
  write: Callable[[Any], tuple[dict[str, Any], list[str]]]

  @property
  def embedding(self) -> str:
    """Name of the token embedding tensor."""
    return self.prefix + next(
      rule.tensor for rule in self.body if rule.parameter.endswith('/token')
    )

  @property
  def bias(self) -> str | None:
    """Name of the masked LM's output bias tensor, or None if there is no bias.

    This is the name in models with tied embeddings.
    """
    return next(
      (
        rule.tensor
        for rule in self.head
        if rule.parameter == 'model/output_bias'
      ),
      None,
    )

  def find_task(self, class_name: str) -> Task | None:
    """Returns the task of a transformers class, or None if unsupported."""
    for task, task_class_name in self.classes.items():
      if task_class_name == class_name:
        return task
    return None


_MODULES = {
  'bert': 'bert',
  'roberta': 'roberta',
  'xlm-roberta': 'roberta',
  'xlm-roberta-xl': 'roberta',
  'roberta-prelayernorm': 'roberta',
  'xlm': 'xlm',
  'distilbert': 'distilbert',
  'deberta-v2': 'deberta_v2',
  't5': 't5',
  'mt5': 't5',
  'umt5': 't5',
  'mbart': 'mbart',
  'bart': 'bart',
  'm2m_100': 'm2m_100',
  'modernbert': 'modernbert',
  'eurobert': 'eurobert',
  'esm': 'esm',
  'gte': 'gte',
  'jina_embeddings_v3': 'gte',
  'nomic_bert': 'gte',
}
MODEL_TYPES = tuple(_MODULES)
# Unsupported model types and options of config.json, with the unsupported
# feature and a supported alternative.
_UNSUPPORTED = {
  't5gemma': (
    'blocks with a layer norm on both sides, and attention with capped logits '
    'or normalized queries',
    'Use mmBERT or EuroBERT for hidden states, or umT5 or mT5 for text '
    'generation.',
  ),
  'lora_adaptations': (
    'custom code with a LoRA adapter for each task',
    'Use jinaai/jina-embeddings-v3-hf, which has the format of transformers. '
    'Merge an adapter into its matrices first.',
  ),
  'moe_every_n_layers': (
    'mixture-of-experts layers',
    'Use nomic-embed-text-v1.5, or gte-multilingual-base for many languages.',
  ),
}


def reject_unsupported(options: Mapping[str, Any], path: pathlib.Path) -> None:
  """Raises ConfigError for models with features that xlflax does not support.

  Args:
    options: Options from the model's `config.json`.
    path: Path of config.json, for the error message.

  Raises:
    ConfigError: If the model has an unsupported feature.
  """
  model_type = str(options.get('model_type'))
  # t5gemma2 is rejected for the same reasons as t5gemma.
  settings = {**options, model_type.rstrip('2'): model_type}
  for name, (feature, hint) in _UNSUPPORTED.items():
    if settings.get(name):
      option = name if name in options else 'model_type'
      raise errors.ConfigError(
        f'xlflax does not support {feature}. The option {option!r} in '
        f'{path.name} requires this feature',
        got=settings[name],
        where=str(path),
        fix=hint,
      )


def find_architecture(model_type) -> Architecture:
  """Returns the architecture for a `model_type`.

  Raises:
    ConfigError: If the architecture is not supported.
  """
  if model_type not in _MODULES:
    raise errors.ConfigError(
      'The `model_type` of the Hugging Face model is not supported',
      got=model_type,
      expected='one of ' + ', '.join(MODEL_TYPES),
    )
  module = importlib.import_module(f'{__package__}.{_MODULES[model_type]}')
  return module.ARCHITECTURES[model_type]


def build_model(config: Config):
  """Builds the Flax module for a configuration."""
  if isinstance(config, encoder_decoder_config.EncoderDecoderConfig):
    return encoder_decoder.EncoderDecoder(config)
  return encoder.Encoder(config)


def pooler_rules(tensor: str) -> tuple[Rule, ...]:
  """Returns the rules that map a pooler's tensors to parameters."""
  return linear_rules(tensor, 'heads/pooler/dense')


def model_classes(name: str, *, questions: bool = True) -> dict[Task, str]:
  """Returns the names of an encoder's classes in transformers, by task.

  Args:
    name: Prefix that all class names share, such as 'Bert'.
    questions: Whether to include the question answering task.
  """
  classes = {task: f'{name}For{suffix}' for task, suffix in _CLASSES.items()}
  if not questions:
    del classes[Task.QUESTION_ANSWERING]
  return {Task.STATES: f'{name}Model'} | classes


def classifier_rules(
  *, dense: str | None = None, output: str = 'classifier', questions=True
) -> dict[Task, tuple[Rule, ...]]:
  """Returns the tensor-to-parameter rules for the heads of `LABELED_TASKS`.

  Args:
    dense: Name of the dense layer for sequence classification. If None, the
      head has no dense layer.
    output: Name of the output layer for sequence classification.
    questions: Whether to include the question answering task.
  """
  names = {
    Task.SEQUENCE_CLASSIFICATION: output,
    Task.TOKEN_CLASSIFICATION: 'classifier',
    Task.QUESTION_ANSWERING: 'qa_outputs',
  }
  if not questions:
    del names[Task.QUESTION_ANSWERING]
  rules: dict[Task, tuple[Rule, ...]] = {
    task: linear_rules(tensor, f'heads/{task}/output')
    for task, tensor in names.items()
  }
  if dense:
    task = Task.SEQUENCE_CLASSIFICATION
    rules[task] = linear_rules(dense, f'heads/{task}/dense') + rules[task]
  return rules
