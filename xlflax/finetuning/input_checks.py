"""Checks of fine-tuning files and languages before the first trial starts.

A mistake in a test file would otherwise be found only after training.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.data.supervised.featurizers.classification_featurizer import (
  ClassificationFeaturizer,
)
from xlflax.data.supervised.sources import (
  concatenated_source,
  example_source,
  identical_files,
)
from xlflax.data.supervised.supervised_dataset import LabeledDatasetConfig
from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import eval_task, gold_labels
from xlflax.evaluation.tasks import head_task
from xlflax.finetuning import grid_data
from xlflax.training import run_header, training_setup
from xlflax.utils import logs, name_suggestions

# Fields of labeled examples that contain their texts.
_TEXT_FIELDS = (
  'text',
  'paired_text',
  'question',
  'context',
  'words',
  'source_words',
  'target_words',
)
# Examples of another set are reported if there are at least this number and at
# least this fraction. Fewer short texts may be equal by chance.
_MIN_REUSED = 5
_MIN_REUSED_FRACTION = 0.05
# Tokens that a question should leave for the context and the special tokens.
_MIN_CONTEXT_TOKENS = 16
_TRAINING_HINT = 'Scores on training examples do not measure generalization.'
_DEVELOPMENT_HINT = (
  'The model is selected by its score on the development examples, so test '
  'scores on them are too high.'
)


def check_inputs(
  trainers: Sequence[Any], test_tasks: Sequence[eval_task.EvalTask]
) -> tuple[grid_data.TrainingData, ...]:
  """Reads and checks the labeled examples for all trials and test tasks.

  Examples that several trials have in common are read only once. A warning is
  logged for each language that the vocabulary does not contain, for development
  and test sets that contain training examples, for test sets that contain
  development examples, for languages of a source with identical files, and for
  the test data without gold labels.

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
  messages = set(_describe_reused_examples(trainers, test_tasks))
  messages.update(
    identical_files.describe_identical_files(
      _list_sources(trainers, test_tasks)
    )
  )
  for trainer in trainers:
    messages.update(_describe_unknown_languages(trainer, test_tasks))
    messages.update(_describe_long_questions(trainer))
  for message in sorted(messages):
    logging.warning('%s', message, extra=logs.ONCE)
  return listed


def _list_sources(
  trainers: Sequence[Any], test_tasks: Sequence[eval_task.EvalTask]
) -> list[Any]:
  """Returns the different sources of training, development and test data."""
  sources: list[Any] = []
  for trainer in trainers:
    for owner in (
      *trainer.datasets,
      *getattr(trainer.evaluation, 'tasks', ()),
      *test_tasks,
    ):
      source = getattr(owner, 'source', None)
      if source is not None and source not in sources:
        sources.append(source)
  return sources


def _describe_long_questions(trainer: Any) -> Iterator[str]:
  """Yields a sentence if questions can leave no space for their contexts."""
  for dataset in trainer.datasets:
    maker = getattr(dataset, 'featurizer', None)
    if (
      isinstance(maker, question_featurizer.QuestionAnsweringFeaturizer)
      and dataset.length < maker.max_question_length + _MIN_CONTEXT_TOKENS
    ):
      yield (
        f'Questions of up to {maker.max_question_length} tokens '
        '(MAX_QUESTION_LENGTH) may leave no space for the context in sequences '
        f'of {dataset.length} tokens (LENGTH). Languages with such questions '
        'cannot be evaluated. Increase LENGTH, or decrease MAX_QUESTION_LENGTH.'
      )


def _describe_reused_examples(
  trainers: Sequence[Any], test_tasks: Sequence[eval_task.EvalTask]
) -> Iterator[str]:
  """Yields a sentence for each evaluated file that must not be evaluated.

  Development and test sets must not contain training examples, and test sets
  must not contain the development examples by which the model is selected.
  Examples that several trials have in common are compared only once.
  """
  compared: list[Any] = []
  for trainer in trainers:
    training_parts = [
      (dataset.source, dataset.chosen_parts(), dataset.max_examples)
      for dataset in trainer.datasets
      if isinstance(dataset, LabeledDatasetConfig)
    ]
    dev_tasks = [
      task
      for task in getattr(trainer.evaluation, 'tasks', ())
      if not task.split.startswith('train')
    ]
    if (training_parts, dev_tasks) in compared:
      continue
    compared.append((training_parts, dev_tasks))
    training_data, dev_data = _Examples(), _Examples()
    for training_source, parts, max_examples in training_parts:
      training_data.add(training_source, parts, max_examples)
    for task in dev_tasks:
      source = getattr(task, 'source', None)
      name = eval_task.describe_training_split(task.split)
      yield from _describe_overlap(
        source, name, training_data, 'training', _TRAINING_HINT
      )
      if isinstance(source, example_source.ExampleSource):
        dev_data.add(source, source.languages())
    for task in test_tasks:
      source = getattr(task, 'source', None)
      for data, other_name, hint in (
        (training_data, 'training', _TRAINING_HINT),
        (dev_data, 'development', _DEVELOPMENT_HINT),
      ):
        yield from _describe_overlap(source, 'test set', data, other_name, hint)


class _Examples:
  """Files and hashes of the texts in a training or development set.

  Attributes:
    files: Absolute paths of the files.
    hashes: Hash of the texts of each example.
  """

  def __init__(self):
    self.files: set[str] = set()
    self.hashes: set[int] = set()

  def add(
    self,
    source: example_source.ExampleSource,
    parts: Sequence[str],
    max_examples: int | None = None,
  ) -> None:
    """Adds the files and the hashed examples of a source to the collection.

    Only the first `max_examples` examples of each language or file are hashed.
    """
    self.files.update(map(os.path.abspath, _list_files(source)))
    for part in parts:
      self.hashes.update(map(_hash_texts, source.load(part)[:max_examples]))


def _hash_texts(example: Any) -> int:
  """Returns a hash of the texts of an example, without its labels."""
  return hash(tuple(getattr(example, name, None) for name in _TEXT_FIELDS))


def _describe_overlap(
  source: Any, name: str, other: _Examples, other_name: str, hint: str
) -> Iterator[str]:
  """Yields a sentence for each file with examples of another set.

  Args:
    source: Source of the evaluated examples.
    name: Name of the evaluated set in the sentence, such as 'test set'.
    other: Training or development examples with which the evaluated examples
      are compared.
    other_name: Type of the examples in `other`: 'training' or 'development'.
    hint: Sentence to append, which explains the consequence of the overlap.
  """
  if not isinstance(source, example_source.ExampleSource):
    return
  for part in source.languages():
    files = [
      path
      for path in _list_files(source, [part])
      if os.path.abspath(path) in other.files
    ]
    for path in files:
      yield f'{path} of the {name} is also a {other_name} file. {hint}'
    if files:
      continue
    examples = source.load(part)
    count = sum(_hash_texts(example) in other.hashes for example in examples)
    if count >= max(_MIN_REUSED, _MIN_REUSED_FRACTION * len(examples)):
      yield (
        f'{count:,} of {len(examples):,} examples of the {name} in '
        f'{source.describe(part)} have the same text as {other_name} examples. '
        f'{hint}'
      )


def _list_files(source: Any, parts: Sequence[str] | None = None) -> list[str]:
  """Returns the paths of the files from which a source reads examples.

  Args:
    source: Source of examples.
    parts: Names of the language splits whose files are returned. If None, the
      files of all language splits are returned.
  """
  if isinstance(source, concatenated_source.ConcatDataset):
    return [
      path for inner in source.sources for path in _list_files(inner, parts)
    ]
  if not isinstance(source, example_source.FileDataset):
    return []
  return [
    path
    for part, paths in source.files.items()
    if parts is None or part in parts
    for path in ((paths,) if isinstance(paths, str) else paths)
  ]


def _check_training_labels(trainers: Sequence[Any]) -> None:
  """Checks the labels of the training data against the configured labels.

  A warning is logged for classes without training examples. The configured
  labels of a dataset with `max_examples` may contain such classes.

  Raises:
    CorpusError: If a label of the training data is not configured.
  """
  checked: list[Any] = []
  for trainer in trainers:
    for dataset in trainer.datasets:
      if not isinstance(dataset, LabeledDatasetConfig) or dataset in checked:
        continue
      checked.append(dataset)
      has_classes = type(dataset.featurizer) is ClassificationFeaturizer
      labels: set[str] = set()
      for part in dataset.chosen_parts():
        examples = dataset.source.load(part)[: dataset.max_examples]
        dataset.featurizer.check_labels(examples, dataset.source.describe(part))
        if has_classes:
          labels.update(*(example.labels or () for example in examples))
      if has_classes and dataset.max_examples is None:
        _warn_of_untrained_classes(dataset, labels)


def _warn_of_untrained_classes(dataset: Any, labels: Collection[str]) -> None:
  """Logs a warning if configured classes have no training examples."""
  classes = dataset.featurizer.labels
  missing = [name for name in classes if name not in labels]
  if missing:
    logging.warning(
      'Dataset %s: The training files contain no examples of %d of the %d '
      'configured classes: %s. The model cannot learn to predict them. Check '
      'the training files, or remove the classes from LABELS.',
      dataset.name,
      len(missing),
      len(classes),
      name_suggestions.format_names(missing),
      extra=logs.ONCE,
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
