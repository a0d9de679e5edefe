"""A stream: which tasks are read, how examples become rows, in which order."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import class_registry, errors, validation


class Layout(enum.Enum):
  """How examples become rows of T = `Stream.length` tokens.

  With <s> and </s> for the vocabulary's bos and eos, and lines `a b` and
  `c d e f` of a monolingual task or the pair (`a b`, `c d`) of a parallel one:

  * BLOCKS (T = 6): lines joined end to end with </s> between, cut into
    blocks of T - 2: `<s> a b </s> c </s>`, `<s> d e f </s> <pad>`.
  * SENTENCES (T = 6): one line a row, cut off at T - 2 tokens:
    `<s> a b </s> <pad> <pad>`, `<s> c d e f </s>`.
  * PAIRS (T = 8): both sides in one row: `<s> a b </s> </s> c d </s>`.
  * SIDES (T = 4): the sides in two rows, `<s> a b </s>` under `token_ids`
    and `<s> c d </s>` under `paired_token_ids`.
  * ADJACENT (T = 4): neighbouring segments of one document as sides. A
    document's lines are joined as in BLOCKS and cut into windows of
    2 (T - 2) tokens; the halves of a window are the two sides. The last,
    shorter window of a document is halved too (VECO, section 4).
  """

  BLOCKS = 'blocks'
  SENTENCES = 'sentences'
  PAIRS = 'pairs'
  SIDES = 'sides'
  ADJACENT = 'adjacent'


class LanguageBatching(enum.Enum):
  """Whether a batch is of one task (ECS, XLM) or mixes them (XLM-R)."""

  ONE_LANGUAGE = 'one_language'
  MIXED = 'mixed'


class Sizes(enum.Enum):
  """What N_i of the sampling rates counts; TOKENS needs a token cache."""

  EXAMPLES = 'examples'
  TOKENS = 'tokens'


class Packing(enum.Enum):
  """Whether several examples share a row, told apart by segment ids.

  NEXT_FIT keeps the order of examples: an example that does not fit in the
  open row closes it.
  """

  NONE = 'none'
  NEXT_FIT = 'next_fit'


class Separator(enum.Enum):
  """Special tokens around the pair x, y in one row (Layout.PAIRS).

  BERT: `<s> x </s> y </s>`; XLMR: `<s> x </s> </s> y </s>` (also RoBERTa);
  XLM: `<s> x </s> <s> y </s>` (XLM itself writes </s> for each <s>).
  """

  BERT = 'bert'
  XLMR = 'xlmr'
  XLM = 'xlm'

  @property
  def num_special(self) -> int:
    """Special tokens in a row of one pair."""
    return 3 if self is Separator.BERT else 4


class Positions(enum.Enum):
  """Positions of the second side: RUNNING on (PPA), or RESET to 0 (XLM)."""

  RUNNING = 'running'
  RESET = 'reset'


class SideOrder(enum.Enum):
  """AS_IS, REVERSED, or RANDOM: exchanged with probability 1/2 (PPA)."""

  AS_IS = 'as_is'
  REVERSED = 'reversed'  # the second language first, of every pair
  RANDOM = 'random'


@class_registry.register('pair_options')
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairOptions:
  """How the two sides of an example are filtered and put together.

  Attributes:
    separator: special tokens between the sides (PAIRS only).
    positions: positions of the second side (PAIRS only).
    order: whether the sides are exchanged.
    min_tokens: a pair with a shorter side is dropped (PPA: 10).
    max_tokens: a pair with more tokens on both sides together is dropped
      (PPA: 128); None: none is. Special tokens do not count.
  """

  separator: Separator = Separator.XLMR
  positions: Positions = Positions.RUNNING
  order: SideOrder = SideOrder.AS_IS
  min_tokens: validation.PositiveInt = 1
  max_tokens: validation.PositiveInt | None = None

  def __post_init__(self):
    if self.max_tokens is not None and self.max_tokens < 2 * self.min_tokens:
      raise errors.ConfigError(
        'No pair can pass the length filters',
        got=self,
        expected='max_tokens of at least 2 * min_tokens',
      )


@class_registry.register('locality')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Locality:
  """An order of a cache's rows that reads few places at a time.

  For caches on network disks and in buckets: a task's rows are cut into blocks
  of neighbours, the blocks are shuffled and taken in windows, and the rows of
  a window are shuffled. An epoch reads each block once. Without it rows are
  shuffled over the whole task, for which local disks are fast enough.

  Attributes:
    block_rows: neighbouring rows that are read together.
    window_blocks: blocks whose rows are mixed.
  """

  block_rows: validation.PositiveInt = 1024
  window_blocks: validation.PositiveInt = 64


@class_registry.register('stream')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
  """A mixture with everything that turns it into batches.

  Attributes:
    name: what objectives call it.
    mixture: a SeqIO mixture or task, such as 'corpus.mono'.
    layout: how examples become rows.
    length: T, tokens in a row, special tokens included.
    batch_size: B, rows in a global batch.
    split: of the tasks.
    languages: only tasks all of whose languages are among these are read;
      None: all of the mixture. Languages that join in a later phase of
      training are left out in the first (mmBERT).
    alpha: tasks are drawn with p_i proportional to N_i ** alpha, N_i the
      number of examples of task i. A function of the stream's step makes a
      schedule (evaluated once in `mixing_schedule.BLOCK_STEPS` steps); None takes
      the mixture's own SeqIO rates.
    sizes: what N_i counts.
    max_share: no task is drawn more often than this; what is over goes to the
      others in proportion. None: there is no limit.
    max_epochs: once all rows of a task have been read so often, it is drawn no
      more, and what is over goes to the others in proportion; a batch that
      none has rows for is an error. Needs a token cache, which knows how many
      rows there are. None: there is no limit.
    batching: one task for a batch, or one for each row.
    shuffle: rows in a new random order each epoch, or in the corpus's.
    shuffle_window: rows within which the live loader shuffles; a cache
      shuffles over the whole task.
    locality: a shuffled order with locality, for caches that are read over a
      network; None: rows are shuffled over the whole task.
    max_examples: only the first so many examples of each task that the
      filters keep are used, and N_i is at most that (one example a row only:
      SENTENCES, PAIRS, SIDES without packing; PPA's 250k, 600k and 2M pairs).
    packing: see `Packing` (SENTENCES and PAIRS only).
    pairs: see `PairOptions` (layouts with two sides only).
    seed_offset: added to the run's seed, so that two streams of one mixture
      draw independently.
  """

  name: str
  mixture: str
  layout: Layout
  length: validation.PositiveInt
  batch_size: validation.PositiveInt
  split: str = 'train'
  languages: tuple[str, ...] | None = None
  alpha: validation.SamplingExponent | Callable[[int], Any] | None = None
  sizes: Sizes = Sizes.EXAMPLES
  max_share: validation.PositiveFraction | None = None
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
    """Whether its tasks must have two sides."""
    return self.layout in (Layout.PAIRS, Layout.SIDES)

  @property
  def capacity(self) -> int:
    """Text tokens that fit in a row of one example (PAIRS: of both sides)."""
    if self.layout is Layout.PAIRS:
      return self.length - self.pairs.separator.num_special
    return self.length - 2

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of a global batch, by key; [B, T] int32 each.

    Args:
      spec: of the vocabulary, on which nothing depends here.
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
    if self.layout is Layout.PAIRS:
      return (*keys, batch_keys.SIDE_IDS)
    if self.layout in (Layout.SIDES, Layout.ADJACENT):
      return keys + tuple(batch_keys.PAIRED + key for key in keys)
    return keys


def _check_sizes(stream: Stream) -> None:
  where = f'stream {stream.name!r}'
  needed = 2 if stream.layout is Layout.PAIRS else 1
  if stream.capacity < needed:
    raise errors.ConfigError(
      'Stream.length leaves no room for text',
      got=stream.length,
      expected=f'at least {stream.length - stream.capacity + needed}',
      where=where,
    )
  _check_alpha(stream, where)


def _check_alpha(stream: Stream, where: str) -> None:
  if stream.sizes is Sizes.TOKENS and stream.alpha is None:
    raise errors.ConfigError(
      "Stream.sizes has no meaning for the mixture's own rates",
      where=where,
      fix='set Stream.alpha, or leave sizes at its default',
    )


def _check_options(stream: Stream) -> None:
  """Refuses options that the layout would ignore."""
  layout, pairs, default = stream.layout, stream.pairs, PairOptions()
  two_sided = stream.parallel or layout is Layout.ADJACENT
  ignored = {
    'max_examples': (
      stream.max_examples is not None
      and (
        layout in (Layout.BLOCKS, Layout.ADJACENT)
        or stream.packing is not Packing.NONE
      )
    ),
    'packing': (
      layout not in (Layout.SENTENCES, Layout.PAIRS)
      and stream.packing is not Packing.NONE
    ),
    'pairs': not two_sided and pairs != default,
    'pairs.separator': (
      layout is not Layout.PAIRS
      and two_sided
      and pairs.separator is not default.separator
    ),
    'pairs.positions': (
      layout is not Layout.PAIRS
      and two_sided
      and pairs.positions is not default.positions
    ),
    'pairs.max_tokens': (
      layout is Layout.ADJACENT and pairs.max_tokens is not None
    ),
  }
  for name, wrong in ignored.items():
    if wrong:
      raise errors.ConfigError(
        f'Stream.{name} has no meaning for Layout.{layout.name}'
        + (' with packing' if name == 'max_examples' else ''),
        where=f'stream {stream.name!r}',
        fix='Leave it at its default',
      )
