"""Configuration of datasets: tasks, layout and order of the examples."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys, task_names
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import class_registry, errors, validation


class ExampleLayout(enum.Enum):
  """Arrangement of examples in sequences of `DatasetConfig.length` tokens.

  T is the sequence length. <s> and </s> stand for the vocabulary's bos and eos
  tokens. The examples show the lines `a b` and `c d e f` of a monolingual task,
  or the pair (`a b`, `c d`) of a parallel task:

  * BLOCKS (T = 6): Lines are joined with </s> between them and cut into blocks
    of T - 2 tokens: `<s> a b </s> c </s>`, `<s> d e f </s> <pad>`.
  * SENTENCES (T = 6): Each line is one sequence, truncated to T - 2 tokens:
    `<s> a b </s> <pad> <pad>`, `<s> c d e f </s>`.
  * PAIRS (T = 8): Source and target are in one sequence: `<s> a b </s> </s> c d
    </s>`.
  * DUAL (T = 4): Source and target are in two sequences, `<s> a b </s>` under
    `token_ids` and `<s> c d </s>` under `paired_token_ids`.
  * INTERLEAVED (T = 4): Each pair consists of two adjacent segments of a
    document. The lines of a document are joined as in BLOCKS and cut into
    windows of 2 (T - 2) tokens, and the two halves of a window form a pair. The
    last, shorter window of a document is also divided into halves (VECO,
    section 4).
  """

  BLOCKS = 'blocks'
  SENTENCES = 'sentences'
  PAIRS = 'pairs'
  DUAL = 'dual'
  INTERLEAVED = 'interleaved'


class LanguageBatching(enum.Enum):
  """Number of tasks in a batch: one (ECS and XLM) or several (XLM-R)."""

  ONE_LANGUAGE = 'one_language'
  MIXED = 'mixed'


class Sizes(enum.Enum):
  """Unit of the task sizes N_i that determine the sampling rates."""

  EXAMPLES = 'examples'
  TOKENS = 'tokens'


class Packing(enum.Enum):
  """Packing of several examples into one sequence, separated by segment ids.

  NEXT_FIT keeps the order of the examples. An example that does not fit into
  the current sequence starts the next sequence.
  """

  NONE = 'none'
  NEXT_FIT = 'next_fit'


class SpecialTokenTemplate(enum.Enum):
  """Special tokens around two texts in one sequence (`ExampleLayout.PAIRS`).

  For the texts x and y, the templates are: BERT: `<s> x </s> y </s>`. XLMR:
  `<s> x </s> </s> y </s>` (also RoBERTa). XLM: `<s> x </s> <s> y </s>` (XLM
  itself writes </s> in place of <s>).
  """

  BERT = 'bert'
  XLMR = 'xlmr'
  XLM = 'xlm'

  @property
  def num_special(self) -> int:
    """Number of special tokens in a sequence that contains one text pair."""
    return 3 if self is SpecialTokenTemplate.BERT else 4


class PositionIds(enum.Enum):
  """Position ids of the second text in a pair.

  CONTINUOUS continues the positions of the first text (PPA). RESET restarts at
  0 (XLM).
  """

  CONTINUOUS = 'continuous'
  RESET = 'reset'


class PairOrder(enum.Enum):
  """Order of source and target in a pair.

  UNCHANGED keeps the order of the corpus, REVERSED swaps source and target in
  every pair, and RANDOM swaps them with probability 1/2 (PPA).
  """

  UNCHANGED = 'unchanged'
  REVERSED = 'reversed'
  RANDOM = 'random'


@class_registry.register('pair_options')
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairOptions:
  """Options for filtering and combining the two texts of a pair.

  Attributes:
    separator: Special tokens around the two texts of a sequence (only for
      `ExampleLayout.PAIRS`).
    positions: Numbering of the second text's position ids (only for
      `ExampleLayout.PAIRS`).
    order: Order in which the source and target of each pair are arranged.
    min_tokens: Minimum number of tokens in each text. Pairs with a shorter text
      are dropped (PPA: 10).
    max_tokens: Maximum total number of tokens in both texts, excluding special
      tokens. Longer pairs are dropped (PPA: 128). If None, there is no maximum.
  """

  separator: SpecialTokenTemplate = SpecialTokenTemplate.XLMR
  positions: PositionIds = PositionIds.CONTINUOUS
  order: PairOrder = PairOrder.UNCHANGED
  min_tokens: validation.PositiveInt = 1
  max_tokens: validation.PositiveInt | None = None

  def __post_init__(self):
    if self.max_tokens is not None and self.max_tokens < 2 * self.min_tokens:
      raise errors.ConfigError(
        '`PairOptions.max_tokens` must be at least twice '
        '`PairOptions.min_tokens`. Otherwise, the length filters drop every '
        'text pair',
        got=self,
      )


@class_registry.register('replay_options')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayOptions:
  """Options for sampling old languages when new languages are added to a model.

  The tasks of a mixture are divided into two groups: tasks with text in a new
  language, which includes pairs of a new and an old language, and all other
  tasks. Within each group, tasks are sampled in proportion to their usual
  rates. Replay of old data limits forgetting in continued pretraining (Ibrahim
  et al. 2024, section 4).

  Attributes:
    new_languages: Codes of the languages to add. The mixture must have text in
      each of them.
    fraction: Fraction of the sequences that are drawn from tasks whose text is
      not in a new language. If it is 0, these tasks are not read.
  """

  new_languages: tuple[str, ...]
  fraction: validation.FractionBelowOne = 0.25

  def __post_init__(self):
    if not self.new_languages:
      raise errors.ConfigError(
        '`ReplayOptions.new_languages` must not be empty. It must contain the '
        "codes of the added languages, such as ('sl',)"
      )


@class_registry.register('locality')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Locality:
  """Settings for block-wise shuffling, which reads nearby sequences together.

  Use this order for caches on network file systems and in buckets. The
  sequences of a task are divided into blocks of consecutive sequences. The
  blocks are shuffled and grouped into windows, and the sequences of each window
  are shuffled. Each block is read only once per epoch. Without `Locality`, the
  sequences are shuffled over the entire task, for which only local disks are
  fast enough.

  Attributes:
    block_rows: Number of consecutive sequences that are read together.
    window_blocks: Number of blocks whose sequences are shuffled together.
  """

  block_rows: validation.PositiveInt = 1024
  window_blocks: validation.PositiveInt = 64


@class_registry.register('dataset_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetConfig:
  """Dataset configuration: a mixture of tasks and its conversion to batches.

  Attributes:
    name: Name by which objectives refer to the dataset.
    mixture: Name of a SeqIO mixture or task, such as 'corpus.mono'.
    layout: Arrangement of examples in sequences.
    length: Sequence length T in tokens, including special tokens.
    batch_size: Number of sequences B in each global batch.
    split: Split to read from each task, such as 'train'.
    languages: Languages to read. A task is read only if all of its languages
      are in the list. If None, all tasks of the mixture are read. For example,
      languages that are added in a later training phase are omitted in the
      first phase (mmBERT).
    alpha: Sampling exponent. Task i is sampled with a probability p_i
      proportional to N_i ** alpha, where N_i is its number of examples. If the
      length filters of `pairs` drop examples, N_i is the number of the others
      (`length_filter.counts_kept_pairs`). A function of the dataset's step
      defines a schedule, which is evaluated once per
      `mixing_schedule.BLOCK_STEPS` steps. If None, the mixture's SeqIO rates
      are used.
    sizes: Unit of the task sizes N_i from which sampling rates are computed:
      examples or tokens. TOKENS requires a token cache.
    max_rate: Maximum sampling rate of a task. The excess is distributed to the
      other tasks in proportion to their rates. If None, there is no maximum.
    replay: Settings for adding languages to a model: the new languages, and the
      fraction of the sequences that are drawn from other languages. If None,
      all tasks are sampled at their usual rates.
    max_epochs: Maximum number of epochs of a task. After these epochs, the task
      is no longer sampled, and its rate is distributed to the other tasks in
      proportion to their rates. If no task has sequences left for a batch, an
      error is raised. This requires a token cache, in which the number of
      sequences is known. If None, there is no maximum.
    batching: Whether a batch contains sequences of a single task or of several
      tasks.
    shuffle: Whether to shuffle the sequences in each epoch. If False, the
      sequences are read in the order of the corpus.
    shuffle_window: Number of sequences in the shuffle buffer if tasks are read
      without a token cache. With a cache, sequences are shuffled over the
      entire task.
    locality: Settings for block-wise shuffling, which reads nearby sequences
      together, for caches that are read over a network. If None, sequences are
      shuffled over the entire task.
    max_examples: Maximum number of examples to use from each task. Only the
      first `max_examples` examples that pass the filters are used, and N_i is
      at most this number. This requires one example per sequence: SENTENCES,
      PAIRS or DUAL without packing (PPA: 250k, 600k and 2M pairs).
    packing: Method for packing several examples into one sequence (SENTENCES
      and PAIRS only).
    pairs: Options for text pairs (only for layouts with source and target).
    seed_offset: Number that is added to the run's random seed, so that two
      datasets with the same mixture are sampled independently.
  """

  name: str
  mixture: task_names.MixtureName
  layout: ExampleLayout
  length: validation.PositiveInt
  batch_size: validation.PositiveInt
  split: str = 'train'
  languages: tuple[str, ...] | None = None
  alpha: validation.SamplingExponent | Callable[[int], Any] | None = None
  sizes: Sizes = Sizes.EXAMPLES
  max_rate: validation.PositiveFraction | None = None
  replay: ReplayOptions | None = None
  max_epochs: validation.PositiveFloat | None = None
  batching: LanguageBatching = LanguageBatching.MIXED
  shuffle: bool = True
  shuffle_window: validation.PositiveInt = 4096
  locality: Locality | None = None
  max_examples: validation.PositiveInt | None = None
  packing: Packing = Packing.NONE
  pairs: PairOptions = PairOptions()
  seed_offset: validation.NonNegativeInt = 0

  def __post_init__(self):
    _check_sizes(self)
    _check_options(self)

  @property
  def parallel(self) -> bool:
    """True if the dataset reads sentence pairs, and not monolingual text."""
    return self.layout in (ExampleLayout.PAIRS, ExampleLayout.DUAL)

  @property
  def capacity(self) -> int:
    """Maximum number of tokens in an example, without special tokens.

    For PAIRS, this is the total number of tokens in both texts.
    """
    if self.layout is ExampleLayout.PAIRS:
      return self.length - self.pairs.separator.num_special
    return self.length - 2

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shape and type of each array in a global batch, by key.

    Args:
      spec: Specification of the vocabulary. It is ignored, because the shapes
        of the arrays do not depend on it.

    Returns:
      int32 [B, T] for each key.
    """
    del spec
    shape = (self.batch_size, self.length)
    return {key: jax.ShapeDtypeStruct(shape, jnp.int32) for key in self._keys()}

  def _keys(self) -> tuple[str, ...]:
    keys = (
      batch_keys.TOKEN_IDS,
      batch_keys.SEGMENT_IDS,
      batch_keys.POSITIONS,
      batch_keys.LANGUAGE_IDS,
    )
    if self.layout is ExampleLayout.PAIRS:
      return (*keys, batch_keys.SIDE_IDS)
    if self.layout in (ExampleLayout.DUAL, ExampleLayout.INTERLEAVED):
      return keys + tuple(batch_keys.PAIRED + key for key in keys)
    return keys


def _check_sizes(dataset: DatasetConfig) -> None:
  min_capacity = 2 if dataset.layout is ExampleLayout.PAIRS else 1
  if dataset.capacity < min_capacity:
    raise errors.ConfigError(
      f'`DatasetConfig.length` of the dataset {dataset.name!r} must be at '
      f'least {dataset.length - dataset.capacity + min_capacity}, because the '
      'sequences must have space for text in addition to the special tokens',
      got=dataset.length,
      where='DatasetConfig.length',
    )
  _check_alpha(dataset)
  if dataset.replay is not None and dataset.max_rate is not None:
    raise errors.ConfigError(
      '`DatasetConfig.max_rate` and `DatasetConfig.replay` cannot be '
      f'combined in the dataset {dataset.name!r}, because '
      '`DatasetConfig.replay` determines the sampling rates',
      got=dataset.max_rate,
      where='DatasetConfig.max_rate',
      fix='Remove the value of DatasetConfig.max_rate or DatasetConfig.replay.',
    )


def _check_alpha(dataset: DatasetConfig) -> None:
  if dataset.sizes is Sizes.TOKENS and dataset.alpha is None:
    raise errors.ConfigError(
      '`DatasetConfig.sizes` requires `DatasetConfig.alpha`, which is None '
      f'in the dataset {dataset.name!r}',
      where='DatasetConfig.sizes',
      fix='Set DatasetConfig.alpha, or remove the value of '
      'DatasetConfig.sizes.',
    )


def _check_options(dataset: DatasetConfig) -> None:
  """Raises a ConfigError if an option is set that the layout ignores."""
  layout = dataset.layout
  pairs = dataset.pairs
  default = PairOptions()
  two_sided = dataset.parallel or layout is ExampleLayout.INTERLEAVED
  is_ignored = {
    'max_examples': (
      dataset.max_examples is not None
      and (
        layout in (ExampleLayout.BLOCKS, ExampleLayout.INTERLEAVED)
        or dataset.packing is not Packing.NONE
      )
    ),
    'packing': (
      layout not in (ExampleLayout.SENTENCES, ExampleLayout.PAIRS)
      and dataset.packing is not Packing.NONE
    ),
    'pairs': not two_sided and pairs != default,
    'pairs.separator': (
      layout is not ExampleLayout.PAIRS
      and two_sided
      and pairs.separator is not default.separator
    ),
    'pairs.positions': (
      layout is not ExampleLayout.PAIRS
      and two_sided
      and pairs.positions is not default.positions
    ),
    'pairs.max_tokens': (
      layout is ExampleLayout.INTERLEAVED and pairs.max_tokens is not None
    ),
  }
  for name, ignored in is_ignored.items():
    if ignored:
      suffix = ' with packing' if name == 'max_examples' else ''
      raise errors.ConfigError(
        f'`DatasetConfig.{name}` has no effect in the dataset '
        f'{dataset.name!r}, because its layout is '
        f'ExampleLayout.{layout.name}{suffix}',
        where=f'DatasetConfig.{name}',
        fix=f'Remove the value of DatasetConfig.{name}.',
      )
