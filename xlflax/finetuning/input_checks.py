"""Checks of fine-tuning files and languages before the first trial starts.

A mistake in a test file would otherwise be found only after training.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.data.supervised.sources import concatenated_source, example_source
from xlflax.data.supervised.supervised_dataset import LabeledDatasetConfig
from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import eval_task, gold_labels
from xlflax.evaluation.tasks import head_task
from xlflax.finetuning import grid_data
from xlflax.training import run_header, training_setup
from xlflax.utils import logs


def check_inputs(
  trainers: Sequence[Any], test_tasks: Sequence[eval_task.EvalTask]
) -> tuple[grid_data.TrainingData, ...]:
  """Reads and checks the labeled examples for all trials and test tasks.

  Examples that several trials have in common are read only once. A warning is
  logged for each language that the vocabulary does not contain, for each
  training file that is also a development or test file, and for the test data
  without gold labels.

  Args:
    trainers: Trainers of the trials.
    test_tasks: Evaluation tasks for the test sets.

  Returns:
    The training data of the trials, with the numbers of examples.

  Raises:
    XlflaxError: If a file cannot be read, if its examples or labels do not
      fit a task or a head, if a development file has no gold labels, or if the
      sequences are too long for the model.
  """
  for trainer in trainers:
    training_setup.check_lengths(
      trainer.model, trainer.datasets, trainer.objectives
    )
  listed = grid_data.read_training_data(trainers)
  _check_training_labels(trainers)
  checked: list[Any] = []
  for trainer in trainers:
    objectives = {
      objective.name: objective for objective in trainer.objectives.objectives
    }
    evaluation_tasks = getattr(trainer.evaluation, 'tasks', ())
    for task in (*evaluation_tasks, *test_tasks):
      if (task, objectives) not in checked:
        checked.append((task, objectives))
        task.check_inputs(objectives)
        if task in evaluation_tasks and isinstance(task, head_task.HeadTask):
          task.check_gold_labels()
  unlabeled = gold_labels.describe_unlabeled(
    {
      task.name: gold_labels.read_test_data(
        [task], eval_task.Failures(task.name)
      )
      for task in test_tasks
    }
  )
  if unlabeled:
    logging.warning('%s', unlabeled, extra=logs.ONCE)
  for message in sorted(
    {
      message
      for trainer in trainers
      for message in (
        *_describe_training_files(trainer, test_tasks),
        *_describe_unknown_languages(trainer, test_tasks),
      )
    }
  ):
    logging.warning('%s', message, extra=logs.ONCE)
  return listed


def _describe_training_files(
  trainer: Any, test_tasks: Sequence[eval_task.EvalTask]
) -> Iterable[str]:
  """Yields a sentence for each evaluated file that is also a training file."""
  training_files = {
    os.path.abspath(path)
    for dataset in trainer.datasets
    if isinstance(dataset, LabeledDatasetConfig)
    for path in _list_files(dataset.source)
  }
  descriptions = [
    (eval_task.describe_training_split(task.split), task)
    for task in getattr(trainer.evaluation, 'tasks', ())
    if not task.split.startswith('train')
  ] + [('test set', task) for task in test_tasks]
  for name, task in descriptions:
    for path in _list_files(getattr(task, 'source', None)):
      if os.path.abspath(path) in training_files:
        yield (
          f'{path} of the {name} is also a training file. Scores on training '
          'examples do not measure generalization.'
        )


def _list_files(source: Any) -> list[str]:
  """Returns the paths of the files from which a source reads examples."""
  if isinstance(source, concatenated_source.ConcatDataset):
    return [path for part in source.sources for path in _list_files(part)]
  if not isinstance(source, example_source.FileDataset):
    return []
  return [
    path
    for paths in source.files.values()
    for path in ((paths,) if isinstance(paths, str) else paths)
  ]


def _check_training_labels(trainers: Sequence[Any]) -> None:
  """Raises CorpusError if a label of the training data is not configured."""
  checked: list[Any] = []
  for trainer in trainers:
    for dataset in trainer.datasets:
      if not isinstance(dataset, LabeledDatasetConfig) or dataset in checked:
        continue
      checked.append(dataset)
      for part in dataset.chosen_parts():
        dataset.featurizer.check_labels(
          dataset.source.load(part)[: dataset.max_examples],
          dataset.source.describe(part),
        )


def _describe_unknown_languages(
  trainer: Any, test_tasks: Sequence[eval_task.EvalTask]
) -> Iterable[str]:
  """Yields a sentence for each language that the vocabulary does not contain."""
  known_languages = _vocabulary_languages(trainer.vocabulary)
  sources: dict[str, list[Any]] = {
    'The training set': [
      dataset.source
      for dataset in trainer.datasets
      if isinstance(dataset, LabeledDatasetConfig)
    ],
    'The test set': [getattr(task, 'source', None) for task in test_tasks],
  }
  for task in getattr(trainer.evaluation, 'tasks', ()):
    name = f'The {eval_task.describe_training_split(task.split)}'
    sources.setdefault(name, []).append(getattr(task, 'source', None))
  for name, sources_of_name in sources.items():
    languages = [
      language
      for source in sources_of_name
      if hasattr(source, 'languages')
      for language in source.languages()
    ]
    yield from run_header.describe_unknown_languages(
      name, languages, known_languages
    )


def _vocabulary_languages(vocabulary: Any) -> tuple[str, ...]:
  """Returns the languages of a vocabulary object or vocabulary directory."""
  if isinstance(vocabulary, str):
    vocabulary = base_vocabulary.Vocabulary.load(vocabulary).spec
  return tuple(vocabulary.languages)
