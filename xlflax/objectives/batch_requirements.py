"""Checks that a dataset provides the batches that an objective requires."""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data import batch_keys
from xlflax.data.dataset_config import ExampleLayout
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors

_PAIRED_TOKEN_IDS = batch_keys.PAIRED + batch_keys.TOKEN_IDS
_SHAPES = {1: '[B]', 2: '[B, T]'}
# The keys of a batch do not depend on the sizes of the vocabulary.
_DUMMY_VOCABULARY = vocabulary_spec.make_dummy_spec(128)


class Rows(enum.Enum):
  """Arrangement of texts or text pairs in the input sequences.

  Attributes:
    ANY: Single texts or text pairs. Each text of a pair is read as a separate
      sequence.
    SINGLE: One sequence per example. The second text of a pair would be
      ignored.
    PAIR: Both texts of a pair, joined in one sequence.
    DUAL: The two texts of a pair, in two separate sequences.
    TRANSLATIONS: A text and its translation, in two separate sequences.
  """

  ANY = 'any'
  SINGLE = 'single'
  PAIR = 'pair'
  DUAL = 'dual'
  TRANSLATIONS = 'translations'


# Error message and hint for each requirement.
_ERRORS: Mapping[Rows, tuple[str, str]] = {
  Rows.SINGLE: (
    'Objective {objective} reads single texts and would ignore the second text '
    'of each pair. Dataset {dataset} must provide one sequence per example',
    'Use a dataset with ExampleLayout.BLOCKS, SENTENCES or PAIRS.',
  ),
  Rows.PAIR: (
    'Objective {objective} requires that both texts of a pair are joined in '
    'one sequence. Dataset {dataset} must provide sequences such as <s> text '
    '</s> </s> translation </s>',
    'Use a dataset over a parallel mixture with ExampleLayout.PAIRS, or train '
    'MaskedLM on monolingual text.',
  ),
  Rows.DUAL: (
    'Objective {objective} requires the two texts of a pair as separate '
    'sequences. The batches of dataset {dataset} must contain '
    f'{_PAIRED_TOKEN_IDS}',
    'Use a dataset with ExampleLayout.DUAL or ExampleLayout.INTERLEAVED, or a '
    'TranslationPairFeaturizer of labeled examples.',
  ),
  Rows.TRANSLATIONS: (
    'Objective {objective} requires a text and its translation as separate '
    'sequences. The batches of dataset {dataset} must contain '
    f'{_PAIRED_TOKEN_IDS} in a different language',
    'Use a dataset over a parallel mixture with ExampleLayout.DUAL.',
  ),
}


def check_batches(
  dataset: Any, rows: Rows, labels: Mapping[str, int], *, objective: str
) -> None:
  """Checks that a dataset's batches contain the arrays an objective reads.

  Args:
    dataset: Configuration of the dataset, an element of `Trainer.datasets`.
    rows: Required arrangement of texts in the input sequences.
    labels: Mapping from the key of each required gold label to the rank of its
      array, which is 1 for shape [B] and 2 for shape [B, T].
    objective: Name of the objective, for error messages.

  Raises:
    ConfigError: If the dataset's sequences have a different arrangement, or if
      a required label is missing.
  """
  ranks = {
    key: len(array_spec.shape)
    for key, array_spec in dataset.batch_spec(_DUMMY_VOCABULARY).items()
  }

  if not _provides_rows(dataset, ranks, rows):
    requirement, fix = _ERRORS[rows]
    raise errors.ConfigError(
      requirement.format(objective=repr(objective), dataset=repr(dataset.name)),
      got=_describe_dataset(dataset),
      fix=fix,
    )

  missing = [key for key, rank in labels.items() if ranks.get(key) != rank]
  if missing:
    required_arrays = ', '.join(
      f'{key} {_SHAPES[rank]}' for key, rank in labels.items()
    )
    raise errors.ConfigError(
      f'Objective {objective!r} requires labels that the batches of dataset '
      f'{dataset.name!r} do not contain. The batches must contain '
      f'{required_arrays}',
      got=_describe_dataset(dataset),
      fix='Use a LabeledDatasetConfig with the featurizer of this task family.',
    )


def check_class_names(
  dataset: Any, field: str, class_names: Sequence[str], *, objective: str
) -> None:
  """Checks that a dataset and an objective use the same class names.

  Datasets that do not define class names are not checked.

  Args:
    dataset: Configuration of the dataset, an element of `Trainer.datasets`.
    field: Field of the dataset's `rows` that holds the class names.
    class_names: Class names of the objective, in the order of their indices.
    objective: Name of the objective, for error messages.

  Raises:
    ConfigError: If the dataset's class names or their order differ from those
      of the objective.
  """
  featurizer = getattr(dataset, 'featurizer', None)
  # `TranslationPairFeaturizer` wraps the featurizer that has the class names.
  featurizer = getattr(featurizer, 'featurizer', featurizer)
  dataset_names = getattr(featurizer, field, None)
  if dataset_names is not None and tuple(dataset_names) != tuple(class_names):
    raise errors.ConfigError(
      f'Objective {objective!r} and dataset {dataset.name!r} must have the '
      f'same names in `{field}`, in the same order. The objective has '
      f'{", ".join(class_names)}, but the dataset has {", ".join(dataset_names)}',
      fix=(
        f'Pass the same tuple as `{field}` to the objective and to the dataset.'
      ),
    )


def _provides_rows(dataset: Any, ranks: Mapping[str, int], rows: Rows) -> bool:
  """Returns whether a dataset arranges its sequences as required."""
  layout = getattr(dataset, 'layout', None)
  has_two_sides = _PAIRED_TOKEN_IDS in ranks
  if rows is Rows.ANY:
    return True
  if rows is Rows.SINGLE:
    return not has_two_sides
  if rows is Rows.PAIR:
    return layout is ExampleLayout.PAIRS
  if rows is Rows.TRANSLATIONS:
    return has_two_sides and layout is not ExampleLayout.INTERLEAVED
  return has_two_sides


def _describe_dataset(dataset: Any) -> str:
  """Describes the sequences of a dataset for an error message."""
  layout = getattr(dataset, 'layout', None)
  if isinstance(layout, ExampleLayout):
    return f'ExampleLayout.{layout.name} of {dataset.mixture!r}'
  featurizer = getattr(dataset, 'featurizer', dataset)
  return f'labeled examples ({type(featurizer).__name__})'
