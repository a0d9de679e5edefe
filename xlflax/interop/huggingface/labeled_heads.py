"""Conversion between classification heads and fine-tuning objectives.

The directory of an imported model records the objective for which the model was
fine-tuned. Evaluation reads the head's labels and structure from this record.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data.dataset_config import SpecialTokenTemplate
from xlflax.data.supervised.featurizers import featurizer, question_featurizer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
)
from xlflax.models import activations
from xlflax.objectives.finetuning import (
  finetuning_objective,
  question_answering,
  sequence_classification,
  sequence_regression,
  token_classification,
)
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.utils import errors

_QUESTION_LENGTH = 384  # Value of `max_seq_length` in run_qa.py, transformers.


def head_objectives(
  task: Task,
  options: Mapping[str, Any],
  head: Mapping[str, Any],
  style: Mapping[str, Any],
) -> list[finetuning_objective.FineTuning]:
  """Returns the objective that a checkpoint was fine-tuned with, if any.

  Args:
    task: Task for which the head was trained.
    options: Options from the model's `config.json`.
    head: Parameters of the head, in the format of
      `xlflax.models.heads.classification_heads`.
    style: Options of the classification head, such as its activation and
      pooling, as keyword arguments of
      `xlflax.models.heads.classification_heads`.

  Returns:
    List of at most one objective. It is empty if the checkpoint has no head
    with labels.
  """
  head_kind = finetuning_objective.HeadKind.OUTPUT
  if 'dense' in head:
    head_kind = finetuning_objective.HeadKind.DENSE
    if 'norm' in head:
      head_kind = finetuning_objective.HeadKind.DENSE_NORM
  settings: dict[str, Any] = {
    'head_type': head_kind,
    'activation': style.get('activation', 'tanh'),
  }
  if task is Task.QUESTION_ANSWERING:
    return [question_answering.QuestionAnswering(**settings)]
  if task not in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION):
    return []
  labels = _labels(options, head['output']['kernel'].shape[-1])
  if len(labels) < 2:  # A cross-encoder or another regression head.
    if task is Task.TOKEN_CLASSIFICATION:
      return []
    return [
      sequence_regression.SequenceRegression(
        name=task.value, pooling=style.get('pooling', 'first'), **settings
      )
    ]
  if task is Task.TOKEN_CLASSIFICATION:
    return [token_classification.TokenClassification(labels=labels, **settings)]
  return [
    sequence_classification.SequenceClassification(
      labels=labels, pooling=style.get('pooling', 'first'), **settings
    )
  ]


def head_input_settings(
  objectives: Sequence[finetuning_objective.FineTuning],
  vocabulary: base_vocabulary.Vocabulary,
  *,
  max_length: int,
) -> dict[str, dict[str, Any]]:
  """Returns default input settings for evaluating imported heads.

  `config.json` does not record these settings. Text pairs use the special-token
  template of the tokenizer. If the tokenizer has no such template, `separator`
  is omitted and must be passed to the evaluation. Sequences have the maximum
  length of the model. For question answering, the settings follow `run_qa.py`
  in transformers and the defaults of `QuestionAnsweringFeaturizer`.

  Args:
    objectives: Fine-tuning objectives of the imported heads.
    vocabulary: Vocabulary of the imported model.
    max_length: Maximum number of tokens per sequence.

  Returns:
    Mapping from the name of each objective to its input settings.
  """
  separators = featurizer.find_tokenizer_templates(vocabulary) or []
  settings_by_objective: dict[str, dict[str, Any]] = {}
  for objective in objectives:
    question_rows = question_featurizer.QuestionAnsweringFeaturizer(
      separator=(*separators, *SpecialTokenTemplate)[0]
    )
    settings = {'length': max_length} | question_rows.input_settings()
    if isinstance(objective, question_answering.QuestionAnswering):
      settings['length'] = min(max_length, _QUESTION_LENGTH)
    if not separators:
      del settings['separator']
    settings_by_objective[objective.name] = settings
  return settings_by_objective


def label_options(objective: Any, num_labels: int) -> dict[str, Any]:
  """Returns the `config.json` options id2label and label2id.

  Args:
    objective: Objective that trained the head, or None if it was not recorded.
    num_labels: Number of outputs of the head.

  Returns:
    The options. They are empty if the objective does not name the labels.
  """
  labels = getattr(objective, 'labels', ())
  if len(labels) != num_labels or tuple(labels) == _numbered_labels(num_labels):
    return {}
  return {
    'id2label': {str(i): label for i, label in enumerate(labels)},
    'label2id': {label: i for i, label in enumerate(labels)},
  }


def _is_trained_scorer(run: saved_run.SavedRun, objective: Any) -> bool:
  """Returns whether a run trained a head that scores texts or text pairs.

  The head of an imported model that was not trained further is not included,
  because the options of such a model remain unchanged.

  Args:
    run: Run whose head is checked.
    objective: Objective that trained the head, or None if it was not recorded.
  """
  return isinstance(objective, sequence_regression.SequenceRegression) and bool(
    run_directory.read_trainer(run.directory)
  )


def cross_encoder_options(
  run: saved_run.SavedRun, objective: Any
) -> dict[str, Any]:
  """Returns `config.json` options for Sentence-Transformers' `CrossEncoder`.

  By default, `sentence_transformers.CrossEncoder` applies a sigmoid to the
  output of a head with one label. The exported model returns the score of the
  run instead.

  Args:
    run: Run whose model is exported.
    objective: Objective that trained the head, or None if it was not recorded.
  """
  if not _is_trained_scorer(run, objective):
    return {}
  return {
    'sentence_transformers': {
      'activation_fn': 'torch.nn.modules.linear.Identity'
    }
  }


def style_options(
  architecture: Architecture, config: Any, objective: Any, options: dict
) -> dict[str, Any]:
  """Returns the `config.json` options that describe a classification head.

  Args:
    architecture: Architecture of the exported model.
    config: Configuration of the model.
    objective: Fine-tuning objective that trained the head.
    options: Options of the exported `config.json`, without those that this
      function returns.

  Raises:
    ConfigError: If the architecture requires a different head.
  """
  pooling = getattr(objective.pooling, 'value', 'first')
  head_options: dict[str, Any] = {}
  if architecture.model_type == 'deberta-v2':
    name = activations.to_huggingface(objective.activation)
    head_options = {'pooler_hidden_act': name}
  elif architecture.model_type == 'eurobert':
    classifier_pooling = 'bos' if pooling == 'first' else pooling
    head_options = {'classifier_pooling': classifier_pooling}
  else:
    return {}  # `verification.model_checks` compares the logits.
  style = architecture.head_style(config, options | head_options)
  expected_activation = style.get('activation', 'tanh')
  expected_pooling = style.get('pooling', 'first')
  if (objective.activation, pooling) != (expected_activation, expected_pooling):
    raise errors.ConfigError(
      f'The head of the objective {objective.name!r} has the activation '
      f'{objective.activation} and the pooling method {pooling}, but the heads '
      f'of {architecture.model_type} models have the activation '
      f'{expected_activation} and the pooling method {expected_pooling}'
    )
  return head_options


def _labels(options: Mapping[str, Any], count: int) -> tuple[str, ...]:
  """Returns the labels in `config.json`, in the order of their ids.

  Raises:
    ConfigError: If the labels do not match the head's outputs.
  """
  id2label = options.get('id2label')
  if not id2label:
    return _numbered_labels(count)
  try:
    labels = {int(index): str(label) for index, label in id2label.items()}
  except (ValueError, AttributeError):
    labels = {}
  names = tuple(labels.get(i, '') for i in range(count))
  if len(labels) != count or len(set(names)) != count or '' in names:
    raise errors.ConfigError(
      f'The number of outputs of the head is {count}, so `id2label` in '
      f'config.json must map each number from 0 to {count - 1} to a different '
      'name',
      got=id2label,
    )
  return names


def _numbered_labels(count: int) -> tuple[str, ...]:
  return tuple(f'LABEL_{i}' for i in range(count))
