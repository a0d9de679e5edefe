"""Exact match of intents and slots in utterances (MASSIVE)."""

import dataclasses
from typing import Any

import numpy as np

from xlflax.evaluation import eval_task, head_predictions
from xlflax.evaluation.metrics.example_statistics import Statistics
from xlflax.evaluation.metrics.metric import EXACT_MATCH, Better, Metric, Unit
from xlflax.evaluation.tasks import classification_task, tagging_task
from xlflax.utils import errors, validation

_JOINT_METRICS = (
  EXACT_MATCH,
  Metric(
    'intent_accuracy',
    Better.HIGHER,
    unit=Unit.FRACTION,
    description='Fraction of utterances with the correct intent.',
  ),
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class IntentsAndSlots(tagging_task.Tagging):
  """Fraction of utterances whose intent and slots are all correct.

  Source: FitzGerald et al. (2023), MASSIVE, section 5, and `eval_preds` of its
  code. In addition to the metrics of `Tagging` for the slots, the task reports
  `exact_match/<part>`, the fraction of utterances with the correct intent and
  the correct tag of every word, and `intent_accuracy/<part>`. It also writes
  the file `<part>.intents.tsv`. `exact_match` leaves out utterances without an
  intent or without tags.

  No mixture contains both intents and slots. The task is therefore defined in
  gin files and not available through `--tasks`.

  Attributes:
    intents: Task that classifies the intents of the same utterances in the same
      order.
  """

  METRICS = (*_JOINT_METRICS, *tagging_task.Tagging.METRICS)
  scheme: tagging_task.Scheme | None = tagging_task.Scheme.ENTITIES
  predicted: tagging_task.Predicted = tagging_task.Predicted.MERGED_TYPES
  intents: classification_task.Classification

  def check_inputs(self, objectives):
    super().check_inputs(objectives)
    self.intents.check_inputs(objectives)
    for part in self.source.languages():
      _check_same_utterances(
        self.intents.load_part(part), self.load_part(part), part
      )

  def inherit_inputs(self, eval_model):
    task = super().inherit_inputs(eval_model)
    intents = self.intents.inherit_inputs(eval_model)
    return dataclasses.replace(task, intents=intents)

  def describe_inputs(self):
    intents = self.intents.describe_inputs()
    return super().describe_inputs() | {
      f'intents.{name}': value for name, value in intents.items()
    }

  def changed_inputs(self, eval_model):
    intents = self.intents.changed_inputs(eval_model)
    return super().changed_inputs(eval_model) + [
      f'intents: {note}' for note in intents
    ]

  primary_metric = eval_task.EvalTask.primary_metric
  score_metrics = eval_task.EvalTask.score_metrics

  def score_part(self, eval_model, objective, part, examples, result, notes):
    """Adds predictions and scores for a language or file to the result."""
    intent_task = self.intents
    intent_result = eval_task.EvalResult(metrics={})
    texts: list[Any] = intent_task.source.load(part)
    _check_same_utterances(texts, examples, part)
    super().score_part(eval_model, objective, part, examples, result, notes)
    intent_objective = head_predictions.objective_of(
      eval_model, intent_task.objective, intent_task.HEAD
    )
    intent_task.score_part(
      eval_model, intent_objective, part, texts, intent_result, notes
    )

    intent_file = intent_result.files[intent_task.file_name(part)]
    result.files[f'{part}.intents.tsv'] = intent_file
    predicted_intents = intent_file.split('\n')
    predicted_tags = self.EXAMPLE.read_predictions(
      examples, result.files[self.file_name(part)]
    )
    is_correct = [
      text.label == intent and list(sentence.tags) == tags
      for text, sentence, tags, intent in zip(
        texts, examples, predicted_tags, predicted_intents, strict=False
      )
      if not (text.is_blind or sentence.is_blind)
    ]
    if is_correct:
      statistics = Statistics(np.array(is_correct))
      result.files.update(
        eval_task.statistics_files(
          part, {'exact_match': statistics}, result.files
        )
      )
      result.metrics[f'exact_match/{part}'] = statistics.value
      result.metrics[f'intent_accuracy/{part}'] = intent_result.metrics[
        f'accuracy/{part}'
      ]


def _check_same_utterances(texts, sentences, part: str) -> None:
  """Checks that intents and slots are labels of the same utterances.

  Raises:
    CorpusError: If the numbers of utterances differ, or if fewer than half of
      the utterances have the same text.
  """
  num_equal = sum(
    ''.join(text.text.split()) == ''.join(sentence.words)
    for text, sentence in zip(texts, sentences, strict=False)
  )
  # Some of MASSIVE's annotated utterances are spelled differently.
  if len(texts) != len(sentences) or 2 * num_equal < len(texts):
    raise errors.CorpusError(
      f'The intents and the slots of {part!r} must belong to the same '
      f'utterances in the same order, but found {len(texts)} and '
      f'{len(sentences)} utterances. The number of equal utterances is '
      f'{num_equal}',
      fix='Create both files with `xlflax tasks convert massive`.',
    )
