"""Configuration of a labeled dataset for fine-tuning."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.data.dataset_config import LanguageBatching
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.supervised.sources import example_source
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import class_registry, errors, name_suggestions, validation


@class_registry.register('labeled_dataset_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledDatasetConfig:
  """Configuration of a labeled dataset and of the batches drawn from it.

  Pass the configuration in `Trainer.datasets`, like an
  `xlflax.data.dataset_config.DatasetConfig`.

  Attributes:
    name: Name by which objectives refer to the dataset.
    source: Source of the examples.
    featurizer: Featurizer that converts examples to sequences.
    length: Number of tokens T in each sequence, including special tokens.
    batch_size: Number of sequences B in each global batch.
    splits: Names of the source's language splits to read. If None, all are
      read.
    alpha: Sampling exponent, or a function that maps a step to the exponent.
      Language split i with N_i sequences is sampled with a probability
      proportional to N_i ** alpha. If None, the exponent is 1.
    max_rate: Maximum sampling probability of a language split. The excess is
      distributed proportionally among the other splits. If None, there is no
      maximum.
    batching: Whether to sample a language split for each batch or for each
      sequence.
    shuffle: Whether to shuffle the sequences in each epoch. If False, the
      sequences keep the source's order.
    max_examples: Maximum number of examples to read from each language split.
      If None, all examples are read.
    seed_offset: Number that is added to the run's random seed, so that datasets
      are sampled independently.
    group_size: Number of consecutive examples that form a group. The sequences
      of a group are always in the same batch, as required for code-switched
      pairs. If an example has fewer sequences than the others in its group, its
      sequences are repeated. A group is skipped if one of its examples has no
      sequence.
  """

  name: str
  source: example_source.ExampleSource
  featurizer: featurizer.Featurizer
  length: validation.PositiveInt
  batch_size: validation.PositiveInt
  splits: tuple[str, ...] | None = None
  alpha: validation.SamplingExponent | Callable[[int], Any] | None = None
  max_rate: validation.PositiveFraction | None = None
  batching: LanguageBatching = LanguageBatching.MIXED
  shuffle: bool = True
  max_examples: validation.PositiveInt | None = None
  seed_offset: validation.NonNegativeInt = 0
  group_size: validation.PositiveInt = 1

  def __post_init__(self):
    if self.splits is not None:
      object.__setattr__(self, 'splits', tuple(self.splits))
    if self.batch_size % self.group_size:
      raise errors.ConfigError(
        f'The batch_size of the dataset {self.name!r} must be a multiple of '
        f'its group_size, but batch_size is {self.batch_size} and group_size '
        f'is {self.group_size}'
      )

  def input_settings(self) -> dict[str, int | str]:
    """Returns the settings that affect the model inputs, such as `length`."""
    return {'length': self.length} | self.featurizer.input_settings()

  def chosen_parts(self) -> tuple[str, ...]:
    """Returns the names of the language splits to read.

    Raises:
      CorpusError: If the source lacks a language split.
    """
    available = self.source.languages()
    missing = [part for part in self.splits or () if part not in available]
    if missing or not available:
      raise errors.CorpusError(
        f'The source of the dataset {self.name!r} has no labeled examples for '
        'some of the requested language splits'
        if missing
        else f'The source of the dataset {self.name!r} has no labeled examples',
        got=', '.join(missing) or None,
        expected='some of ' + ', '.join(available),
        fix=name_suggestions.suggest_languages(missing, available),
      )
    return available if self.splits is None else self.splits

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shape and type of each array in a global batch, by key."""
    return {
      key: jax.ShapeDtypeStruct((self.batch_size, *shape), jnp.int32)
      for key, (shape, _) in self.featurizer.fields(self.length, spec).items()
    }
