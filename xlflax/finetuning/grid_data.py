"""Description of the training data of a hyperparameter grid."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlflax.data.supervised.supervised_dataset import LabeledDatasetConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
  """Training examples in one language.

  Attributes:
    dataset: Name of the dataset in `Trainer.datasets`.
    language: Language or language pair of the examples, such as 'fr' or
      'es-en'. It is empty for datasets of unlabeled text.
    source: Files or SeqIO tasks from which the examples are read.
    num_examples: Number of examples that are read. None for datasets of
      unlabeled text, whose examples are not counted.
  """

  dataset: str
  language: str
  source: str
  num_examples: int | None = None


def read_training_data(trainers: Sequence[Any]) -> tuple[TrainingData, ...]:
  """Reads and counts the training examples of trials.

  Examples that several trials have in common are read only once.

  Args:
    trainers: Trainers of the trials.

  Returns:
    The training data by dataset and language.

  Raises:
    XlflaxError: If a source lacks a language, or if a file cannot be read.
  """
  listed: list[Any] = []
  training_data: list[TrainingData] = []
  for trainer in trainers:
    for dataset in trainer.datasets:
      if not isinstance(dataset, LabeledDatasetConfig):
        training_data.append(
          TrainingData(
            dataset=dataset.name, language='', source=dataset.mixture
          )
        )
        continue
      parts = dataset.chosen_parts()
      key = (dataset.name, dataset.source, parts, dataset.max_examples)
      if key in listed:
        continue
      listed.append(key)
      training_data += [
        TrainingData(
          dataset=dataset.name,
          language=part,
          source=dataset.source.describe(part),
          num_examples=_count_examples(dataset, part),
        )
        for part in parts
      ]
  return tuple(dict.fromkeys(training_data))


def _count_examples(dataset: LabeledDatasetConfig, part: str) -> int:
  """Returns the number of examples that training reads in one language."""
  num_examples = len(dataset.source.load(part))
  if dataset.max_examples is None:
    return num_examples
  return min(num_examples, dataset.max_examples)
