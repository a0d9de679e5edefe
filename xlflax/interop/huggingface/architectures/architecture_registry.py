"""What an architecture is to the converter: one table and its options.

Add one by writing a module with an `Architecture` (see `bert.py`) and naming
it in `_MODULES`.
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
from xlflax.models import encoder, encoder_decoder, encoder_decoder_config
from xlflax.models import encoder_config as model_config
from xlflax.utils import errors

Config = (
  model_config.EncoderConfig | encoder_decoder_config.EncoderDecoderConfig
)


class Task(enum.StrEnum):
  """What the head of a checkpoint does."""

  STATES = 'states'  # no head: the base model
  MASKED_LM = 'masked_lm'
  PRETRAINING = 'pretraining'  # BERT: masked LM and next sentence
  SEQUENCE_CLASSIFICATION = 'sequence_classification'
  TOKEN_CLASSIFICATION = 'token_classification'
  QUESTION_ANSWERING = 'question_answering'
  SEQ2SEQ = 'seq2seq'  # encoder-decoders: the target's tokens

  @property
  def predicts_tokens(self) -> bool:
    return self in (Task.MASKED_LM, Task.PRETRAINING, Task.SEQ2SEQ)


# The heads of a task whose output has one column for each label.
LABELLED = (
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
  """Names, classes and options of one `model_type`.

  Attributes:
    model_type: as config.json tells it.
    prefix: of the base model's tensors in a model with a head: 'bert.'.
    classes: the class of each task that the architecture has.
    body: rules of the model without any head; tensors without prefix.
    head: rules of the masked LM's head.
    heads: rules of the other tasks' heads.
    variants: rules of the body that depend on the configuration.
    head_biases: from the configuration to which biases of a task's head there
      are, by the end of their names; others are there.
    head_style: from the configuration and config.json to the keyword
      arguments of `xlflax.models.heads.classification_heads`.
    optional: rules of heads that may be there whatever the task, each group
      as a whole: a pooler.
    output: names of (weight, bias) of the output table, where it is not the
      token embeddings; None for a bias that is in `head` in either case.
    output_parameter: the parameter that such a table becomes.
    copies: tensors that repeat another, if they are there: name -> its name.
    buffers: patterns of tensors that hold no weights (positions 0, 1, 2, ...).
    constants: tensors that follow from the configuration: name -> from the
      encoder's configuration to their values, or None.
    aliases: other name -> name of an option of config.json.
    positions_after_padding: whether positions are counted from the row after
      the padding's id, so that they depend on the vocabulary.
    linear_head: whether a model without the head's transform becomes one
      whose transform changes nothing (`linear_head`).
    config_class: of the model's configuration.
    read: from options to the arguments of `config_class`.
    write: from a configuration to (options, what they cannot express).
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
  config_class: type = model_config.EncoderConfig
  read: Callable[[config_options.Options, Task], dict[str, Any]]
  write: Callable[[Any], tuple[dict[str, Any], list[str]]]

  @property
  def embedding(self) -> str:
    """The tensor of token embeddings."""
    return self.prefix + next(
      rule.tensor for rule in self.body if rule.parameter.endswith('/token')
    )

  @property
  def bias(self) -> str | None:
    """The tensor of the masked LM's bias, where embeddings are tied."""
    return next(
      (
        rule.tensor
        for rule in self.head
        if rule.parameter == 'model/output_bias'
      ),
      None,
    )

  def task_of(self, class_name: str) -> Task | None:
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
  'xlm': 'xlm_architecture',
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
# An option of config.json, or a type, that tells of what has no place here:
# why, and what to take instead.
_REFUSED = {
  't5gemma': (
    'blocks between two norms each, and attention with capped logits or '
    'normalised queries, which no layer here has',
    'mmBERT or EuroBERT for states, umT5 or mT5 for text to text',
  ),
  'lora_adaptations': (
    'code of its own, whose matrices carry an adapter for each task',
    'jinaai/jina-embeddings-v3-hf, which is in the form that transformers '
    'knows; an adapter must be merged into its matrices first',
  ),
  'moe_every_n_layers': (
    'layers of several experts, of which each token takes some',
    'nomic-embed-text-v1.5, or gte-multilingual-base for many languages',
  ),
}


def reject_unsupported(options: Mapping[str, Any], path: pathlib.Path) -> None:
  """Raises ConfigError for a model that is known to have no place here."""
  kind = str(options.get('model_type'))
  settings = {**options, kind.rstrip('2'): kind}
  for name, (why, instead) in _REFUSED.items():
    if settings.get(name):
      raise errors.ConfigError(
        f'This model cannot be imported: it has {why}',
        got=f'{name}: {settings[name]}',
        where=str(path),
        fix=f'take {instead}',
      )


def find_architecture(model_type) -> Architecture:
  """The architecture of a `model_type`.

  Raises:
    ConfigError: there is none.
  """
  if model_type not in _MODULES:
    raise errors.ConfigError(
      'A model of an architecture that is not known',
      got=model_type,
      expected='one of ' + ', '.join(MODEL_TYPES),
      where='model_type',
    )
  module = importlib.import_module(f'{__package__}.{_MODULES[model_type]}')
  return module.ARCHITECTURES[model_type]


def model_of(config: Config):
  """The model of a configuration."""
  if isinstance(config, encoder_decoder_config.EncoderDecoderConfig):
    return encoder_decoder.EncoderDecoder(config)
  return encoder.Encoder(config)


def pooler_rules(tensor: str) -> tuple[Rule, ...]:
  return linear_rules(tensor, 'heads/pooler/dense')


def model_classes(name: str, *, questions: bool = True) -> dict[Task, str]:
  """The class of each task that an encoder's name begins."""
  classes = {task: f'{name}For{end}' for task, end in _CLASSES.items()}
  if not questions:
    del classes[Task.QUESTION_ANSWERING]
  return {Task.STATES: f'{name}Model'} | classes


def classifier_rules(
  *, dense: str | None = None, output: str = 'classifier', questions=True
) -> dict[Task, tuple[Rule, ...]]:
  """Rules of the labelled tasks' heads: `dense` and `output` of sequences'."""
  names = {
    Task.SEQUENCE_CLASSIFICATION: output,
    Task.TOKEN_CLASSIFICATION: 'classifier',
    Task.QUESTION_ANSWERING: 'qa_outputs',
  }
  if not questions:
    del names[Task.QUESTION_ANSWERING]
  rules: dict[Task, tuple[Rule, ...]] = {
    t: linear_rules(tensor, f'heads/{t}/output') for t, tensor in names.items()
  }
  if dense:
    first = Task.SEQUENCE_CLASSIFICATION
    rules[first] = linear_rules(dense, f'heads/{first}/dense') + rules[first]
  return rules
