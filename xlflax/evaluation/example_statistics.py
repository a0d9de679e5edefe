"""What single examples contribute to a score, from predictions on disk.

A result on disk has numbers and predictions; two models are compared on the
examples themselves.
"""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlflax.data.labelled import source as source_lib
from xlflax.evaluation import base
from xlflax.evaluation.metrics import aggregates
from xlflax.evaluation.metrics import classification as class_metrics
from xlflax.evaluation.metrics import parsing as tree_metrics
from xlflax.evaluation.metrics import questions as question_metrics
from xlflax.evaluation.metrics import tagging as tag_metrics
from xlflax.evaluation.tasks import (
  classification,
  parsing,
  question_answering,
  tagging,
)

Found = dict[str, aggregates.Statistics]  # by metric


def read(task: base.EvalTask, part: str, folder: pathlib.Path) -> Found:
  """Metric -> statistics of a part's examples, in the order of its source.

  Args:
    task: the evaluation task.
    part: of its source.
    folder: of the files of the task's result, such as predictions.

  Returns:
    {} for kinds of tasks without predictions of single examples (retrieval,
    mining, alignment), and for blind test sets.
  """
  reader = _READERS.get(type(task))
  return {} if reader is None else reader(task, part, folder)


def mean(several: Sequence[aggregates.Statistics]) -> aggregates.Statistics:
  """The mean over runs, such as seeds, of what each example contributes.

  The score of the mean is the mean of scores where it is an average; for
  ratios and F1 it is that of all runs' counts together.
  """
  return aggregates.Statistics(
    np.mean([one.rows for one in several], axis=0), several[0].aggregate
  )


def _classes(task: classification.Classification, part, folder) -> Found:
  examples: list[Any] = task.source.load(part)
  gold = [example.label for example in examples]
  predicted = _lines(folder / f'{part}.tsv')
  if None in gold:
    return {}
  return {'accuracy': class_metrics.evaluate(gold, predicted).correct}


def _tags(task: tagging.Tagging, part, folder) -> Found:
  examples: list[Any] = task.source.load(part)
  gold = [example.tags for example in examples]
  if None in gold:
    return {}
  lines = iter(_lines(folder / f'{part}.tsv'))
  predicted = []
  for tags in gold:
    predicted.append([next(lines) for _ in tags])
    next(lines, None)  # the empty line between sentences
  spans = (
    tag_metrics.entity_scores
    if task.scheme is tagging.Scheme.ENTITIES
    else tag_metrics.run_scores
  )
  return {
    'accuracy': tag_metrics.token_accuracy(gold, predicted),
    'f1': spans(gold, predicted).statistics,
  }


def _trees(task: parsing.Parsing, part, folder) -> Found:
  gold: list[Any] = task.source.load(part)
  if any(example.heads is None for example in gold):
    return {}
  predicted: list[Any] = source_lib.FileExamples(
    format=source_lib.Format.CONLLU,
    files={part: str(folder / f'{part}.conllu')},
  ).load(part)
  found = tree_metrics.evaluate(gold, predicted, punctuation=task.punctuation)
  return {'las': found.las, 'uas': found.uas}


def _answers(task: question_answering.ExtractiveQA, part, folder) -> Found:
  examples: list[Any] = task.source.load(part)
  if not all(example.answers for example in examples):
    return {}
  found = question_metrics.evaluate(
    {e.id: [answer.text for answer in e.answers] for e in examples},
    json.loads((folder / f'{part}.json').read_text(encoding='utf-8')),
    rules=task.rules,
    language=examples[0].language,
  )
  return {'f1': found.f1, 'exact_match': found.exact_match}


def _lines(file: pathlib.Path) -> list[str]:
  return file.read_text(encoding='utf-8').removesuffix('\n').split('\n')


_READERS: dict[type, Callable[..., Found]] = {
  classification.Classification: _classes,
  tagging.Tagging: _tags,
  parsing.Parsing: _trees,
  question_answering.ExtractiveQA: _answers,
}
