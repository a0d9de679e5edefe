"""Heads of imported classifiers as objectives, and their labels both ways.

An imported model records what it was fine-tuned for, so that evaluation knows
its labels and how its head reads states.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data.dataset_config import Separator
from xlflax.data.supervised.featurizers import featurizer, question_featurizer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
)
from xlflax.models import activations
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.objectives.finetuning import (
  question_answering,
  sequence_classification,
  token_classification,
)
from xlflax.utils import errors

_QUESTION_LENGTH = 384  # `max_seq_length` of run_qa.py in transformers


def head_objectives(
  task: Task,
  options: Mapping[str, Any],
  head: Mapping[str, Any],
  style: Mapping[str, Any],
) -> list[finetuning.FineTuning]:
  """What a checkpoint was trained for; [] if it has no head with labels.

  Args:
    task: what its head does.
    options: config.json.
    head: the head's parameters, as `xlflax.models.heads.classification_heads` has them.
    style: keyword arguments of `xlflax.models.heads.classification_heads`.
  """
  kinds = {
    ('dense', 'norm'): finetuning.HeadKind.DENSE_NORM,
    ('dense',): finetuning.HeadKind.DENSE,
  }
  settings: dict[str, Any] = {
    'head': kinds.get(
      tuple(sorted({'dense', 'norm'} & set(head))), finetuning.HeadKind.OUTPUT
    ),
    'activation': style.get('activation', 'tanh'),
  }
  if task is Task.QUESTION_ANSWERING:
    return [question_answering.QuestionAnswering(**settings)]
  if task not in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION):
    return []
  labels = _labels(options, head['output']['kernel'].shape[-1])
  if len(labels) < 2:  # a regression
    return []
  if task is Task.TOKEN_CLASSIFICATION:
    return [token_classification.TokenClassification(labels=labels, **settings)]
  return [
    sequence_classification.SequenceClassification(
      labels=labels, pooling=style.get('pooling', 'first'), **settings
    )
  ]


def inputs(
  objectives: Sequence[finetuning.FineTuning],
  vocabulary: base_vocabulary.Vocabulary,
  *,
  max_length: int,
) -> dict[str, dict[str, Any]]:
  """Returns the input settings of imported heads, for evaluation.

  config.json does not record them. Text pairs get the template of the
  tokenizer; without one, `separator` is left out, and evaluation requires it.
  Sequences are as long as the model reads; for questions, the settings are
  those of `run_qa.py` of transformers, and the defaults of `QuestionRows`.

  Args:
    objectives: The objectives of the imported heads.
    vocabulary: The vocabulary of the imported model.
    max_length: Maximum number of tokens that the model reads.
  """
  template = vocabulary.encode_empty_pair()
  separators = [
    one
    for one in Separator
    if template == featurizer.pair_frame(vocabulary.spec, one)
  ]
  found: dict[str, dict[str, Any]] = {}
  for objective in objectives:
    maker = question_featurizer.QuestionRows(
      separator=(*separators, *Separator)[0]
    )
    settings = {'length': max_length} | maker.input_settings()
    if isinstance(objective, question_answering.QuestionAnswering):
      settings['length'] = min(max_length, _QUESTION_LENGTH)
    if not separators:
      del settings['separator']
    found[objective.name] = settings
  return found


def label_options(objective: Any, count: int) -> dict[str, Any]:
  """id2label and label2id of config.json; {} where there are no names.

  Args:
    objective: what the head was trained for; None if that is not known.
    count: outputs of the head.
  """
  labels = getattr(objective, 'labels', ())
  if len(labels) != count or tuple(labels) == _numbered(count):
    return {}
  return {
    'id2label': {str(i): label for i, label in enumerate(labels)},
    'label2id': {label: i for i, label in enumerate(labels)},
  }


def style_options(
  architecture: Architecture, config: Any, objective: Any, options: dict
) -> dict[str, Any]:
  """How a classifier's head reads states, where config.json can say it.

  Raises:
    ConfigError: the architecture's head reads them otherwise.
  """
  pooling = getattr(objective.pooling, 'value', 'first')
  head_options: dict[str, Any] = {}
  if architecture.model_type == 'deberta-v2':
    name = activations.to_huggingface(objective.activation)
    head_options = {'pooler_hidden_act': name}
  elif architecture.model_type == 'eurobert':
    head_options = {
      'classifier_pooling': {'first': 'bos'}.get(pooling, pooling)
    }
  else:
    return {}  # `verification.model_checks` compares the logits
  style = architecture.head_style(config, options | head_options)
  exported_style = (
    style.get('activation', 'tanh'),
    style.get('pooling', 'first'),
  )
  if exported_style != (objective.activation, pooling):
    raise errors.ConfigError(
      f'The head of {architecture.model_type} is another one',
      got=f'activation {objective.activation}, pooling {pooling}',
      expected=f'activation {exported_style[0]}, pooling {exported_style[1]}',
      where=f'objective {objective.name!r}',
    )
  return head_options


def _labels(options: Mapping[str, Any], count: int) -> tuple[str, ...]:
  """The names of config.json, in the order of their numbers.

  Raises:
    ConfigError: they are not those of the head's outputs.
  """
  named = options.get('id2label')
  if not named:
    return _numbered(count)
  try:
    labels = {int(number): str(label) for number, label in named.items()}
  except (ValueError, AttributeError):
    labels = {}
  names = tuple(labels.get(i, '') for i in range(count))
  if len(labels) != count or len(set(names)) != count or '' in names:
    raise errors.ConfigError(
      "config.json does not name the head's labels",
      got=f'id2label {named}',
      expected=f'{count} different names, numbered from 0',
    )
  return names


def _numbered(count: int) -> tuple[str, ...]:
  return tuple(f'LABEL_{i}' for i in range(count))
