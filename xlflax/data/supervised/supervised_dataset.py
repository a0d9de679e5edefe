"""A stream of labelled examples: what fine-tuning reads."""

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


@class_registry.register('labelled_stream')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledStream:
  """Labelled examples with everything that turns them into batches.

  It stands beside `xlflax.data.dataset_config.Stream` in `Trainer.streams`.

  Attributes:
    name: what objectives call it.
    source: the examples.
    rows: how an example becomes rows.
    length: T, tokens a row, special tokens included.
    batch_size: B, rows in a global batch.
    parts: languages of the source to read; None: all.
    alpha: parts are drawn with p_i proportional to N_i ** alpha, N_i the
      number of rows of part i, or a function of the step; None: 1, as many
      rows of each part as it has.
    max_share: no part is drawn more often than this; what is over goes to the
      others in proportion. None: there is no limit.
    batching: one part for a batch, or one for each row.
    shuffle: rows in a new random order each epoch, or as the source has them.
    max_examples: only the first so many of each part; None: all.
    seed_offset: added to the run's seed.
    group_size: so many examples that follow each other have their rows in one
      batch (`code_switched`). Of those that have fewer rows than the others
      of their group some come again; a group of whose examples one has no
      row is left out.
  """

  name: str
  source: example_source.ExampleSource
  rows: featurizer.RowMaker
  length: validation.PositiveInt
  batch_size: validation.PositiveInt
  parts: tuple[str, ...] | None = None
  alpha: validation.SamplingExponent | Callable[[int], Any] | None = None
  max_share: validation.PositiveFraction | None = None
  batching: LanguageBatching = LanguageBatching.MIXED
  shuffle: bool = True
  max_examples: validation.PositiveInt | None = None
  seed_offset: validation.NonNegativeInt = 0
  group_size: validation.PositiveInt = 1

  def __post_init__(self):
    if self.parts is not None:
      object.__setattr__(self, 'parts', tuple(self.parts))
    if self.batch_size % self.group_size:
      raise errors.ConfigError(
        'Groups of examples do not fill a batch',
        got=f'batch_size={self.batch_size}, group_size={self.group_size}',
        expected='a multiple',
        where=f'stream {self.name!r}',
      )

  def input_settings(self) -> dict[str, int | str]:
    """Returns the length and the settings of `rows` that decide on tokens."""
    return {'length': self.length} | self.rows.input_settings()

  def chosen_parts(self) -> tuple[str, ...]:
    """The parts to read.

    Raises:
      CorpusError: the source lacks one of `parts`.
    """
    available = self.source.languages()
    missing = [part for part in self.parts or () if part not in available]
    if missing or not available:
      raise errors.CorpusError(
        'Labelled examples of a language are missing',
        got=', '.join(missing) or 'no language at all',
        expected='some of ' + ', '.join(available),
        where=f'stream {self.name!r}',
        fix=name_suggestions.suggest_languages(missing, available),
      )
    return available if self.parts is None else self.parts

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of a global batch, by key."""
    return {
      key: jax.ShapeDtypeStruct((self.batch_size, *shape), jnp.int32)
      for key, (shape, _) in self.rows.fields(self.length, spec).items()
    }
