"""Intents and slots of the same utterances: MASSIVE's exact match."""

import dataclasses
from typing import Any

import numpy as np

from xlflax.evaluation import eval_task, head_predictions
from xlflax.evaluation.metrics.corpus_statistics import Statistics
from xlflax.evaluation.metrics.metric import Metric
from xlflax.evaluation.tasks import classification_task, tagging_task
from xlflax.utils import errors, validation

_ADDED = (Metric('exact_match'), Metric('intent_accuracy'))


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class IntentsAndSlots(tagging_task.Tagging):
  """How many utterances have the right intent and all slots right.

  Source: FitzGerald et al. (2023), MASSIVE, section 5, and `eval_preds` of its
  code. Beside what `Tagging` reports of the slots: `exact_match/<part>`, the
  share of utterances with the right intent and the right tag of every word,
  `intent_accuracy/<part>`, and the file `<part>.intents.tsv`. `exact_match`
  leaves out utterances that lack an intent or tags.

  No mixture holds both, so that gin files give the task its name, and no
  `--tasks`.

  Attributes:
    intents: the same utterances in the same order, with intents.
  """

  METRICS = (*_ADDED, *tagging_task.Tagging.METRICS)
  scheme: tagging_task.Scheme | None = tagging_task.Scheme.ENTITIES
  predicted: tagging_task.Predicted = tagging_task.Predicted.TYPES
  intents: classification_task.Classification

  def inherit_inputs(self, subject):
    task = super().inherit_inputs(subject)
    intents = self.intents.inherit_inputs(subject)
    return dataclasses.replace(task, intents=intents)

  def describe_inputs(self):
    intents = self.intents.describe_inputs()
    return super().describe_inputs() | {
      f'intents.{name}': value for name, value in intents.items()
    }

  def changed_inputs(self, subject):
    intents = self.intents.changed_inputs(subject)
    return super().changed_inputs(subject) + [f'intents: {x}' for x in intents]

  primary_metric = eval_task.EvalTask.primary_metric
  score_metrics = eval_task.EvalTask.score_metrics

  def score_part(self, subject, objective, part, examples, result, notes):
    """Adds a part's predictions and scores to the result."""
    task, other = self.intents, eval_task.EvalResult(metrics={})
    texts: list[Any] = task.source.load(part)
    _check_same(texts, examples, part)
    super().score_part(subject, objective, part, examples, result, notes)
    head = head_predictions.objective_of(subject, task.objective, task.HEAD)
    task.score_part(subject, head, part, texts, other, notes)
    intents = other.files[task.file_name(part)]
    tags = result.files[self.file_name(part)]
    result.files[f'{part}.intents.tsv'] = intents
    sides = self.EXAMPLE.read_predictions(examples, tags), intents.split('\n')
    right = [
      text.label == intent and list(sentence.tags) == predicted_tags
      for text, sentence, predicted_tags, intent in zip(
        texts, examples, *sides, strict=False
      )
      if not (text.is_blind or sentence.is_blind)
    ]
    if right:
      predicted_tags = {'exact_match': Statistics(np.array(right))}
      result.files.update(
        eval_task.statistics_files(part, predicted_tags, result.files)
      )
      result.metrics[f'exact_match/{part}'] = predicted_tags[
        'exact_match'
      ].value
      accuracy = other.metrics[f'accuracy/{part}']
      result.metrics[f'intent_accuracy/{part}'] = accuracy


def _check_same(texts, sentences, part: str) -> None:
  """Raises a CorpusError unless two files are of the same utterances."""
  same = sum(
    ''.join(text.text.split()) == ''.join(sentence.words)
    for text, sentence in zip(texts, sentences, strict=False)
  )
  # Some of MASSIVE's annotated utterances are spelled in another way.
  if len(texts) != len(sentences) or 2 * same < len(texts):
    raise errors.CorpusError(
      'Intents and slots are of different utterances',
      got=f'{len(texts)} and {len(sentences)} utterances; {same} agree',
      expected='the same utterances in the same order',
      where=f'part {part}',
      fix='make both files by `xlflax tasks convert massive`',
    )
