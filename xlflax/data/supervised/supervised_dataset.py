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
  """A labeled dataset: examples, their featurizer and the batch settings.

  It is used in `Trainer.datasets`, like
  `xlflax.data.dataset_config.DatasetConfig`.

  Attributes:
    name: Name that objectives use for the dataset.
    source: Source of the examples.
    featurizer: Featurizer that converts examples to sequences.
    length: Number of tokens T of a sequence, including special tokens.
    batch_size: Number of sequences B of a global batch.
    splits: Parts of the source to read, such as languages. If None, all parts
      are read.
    alpha: Sampling exponent, or a function that returns it for a step. Part i
      with N_i sequences is sampled with a probability proportional to N_i **
      alpha. If None, the exponent is 1.
    max_rate: Maximum sampling probability of a part. The excess is distributed
      to the other parts in proportion. If None, there is no maximum.
    batching: Whether to sample one part for each batch or for each sequence.
    shuffle: Whether to shuffle the sequences in each epoch. Otherwise, they
      have the order of the source.
    max_examples: Maximum number of examples to read from each part. If None,
      all examples are read.
    seed_offset: Offset that is added to the random seed of the run.
    group_size: Number of consecutive examples whose sequences are in one batch
      (`code_switched`). If an example has fewer sequences than others in its
      group, its sequences are repeated. A group is skipped if one of its
      examples has no sequence.
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
        '`batch_size` must be a multiple of `group_size`.',
        got=f'batch_size={self.batch_size}, group_size={self.group_size}',
        where=f'dataset {self.name!r}',
      )

  def input_settings(self) -> dict[str, int | str]:
    """Returns the length and the settings of `rows` that affect the tokens."""
    return {'length': self.length} | self.featurizer.input_settings()

  def chosen_parts(self) -> tuple[str, ...]:
    """Returns the parts to read.

    Raises:
      CorpusError: If the source lacks a part.
    """
    available = self.source.languages()
    missing = [part for part in self.splits or () if part not in available]
    if missing or not available:
      raise errors.CorpusError(
        'The source has no labeled examples of a language.',
        got=', '.join(missing) or 'a source without languages',
        expected='some of ' + ', '.join(available),
        where=f'dataset {self.name!r}',
        fix=name_suggestions.suggest_languages(missing, available),
      )
    return available if self.splits is None else self.splits

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes and types of a global batch, by key."""
    return {
      key: jax.ShapeDtypeStruct((self.batch_size, *shape), jnp.int32)
      for key, (shape, _) in self.featurizer.fields(self.length, spec).items()
    }
