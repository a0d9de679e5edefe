"""The conditions of the experiments, and the trainers that they are."""

import dataclasses
import enum
import pathlib
from typing import Any

from xlflax.data import stream as stream_lib
from xlflax.data.stream import Layout
from xlflax.data.vocabularies.settings import Anchors
from xlflax.models import encoder
from xlflax.models.config import EncoderConfig, NormPosition
from xlflax.models.sharing import SharingPlan
from xlflax.objectives import contrastive, cross_attention_mlm, masked_lm
from xlflax.objectives import mixture as mixture_lib
from xlflax.objectives.inputs import Pooling
from xlflax.objectives.momentum_contrast import MomentumQueue
from xlflax.objectives.random_words import RandomWords
from xlflax.replication import broken
from xlflax.replication.worlds import Text, World
from xlflax.trainer import Trainer
from xlflax.training import optimizers, schedules
from xlflax.training.initialization.init_from import InitFrom
from xlflax.training.initialization.vocabulary_matching import (
  VocabularyMatching,
)


class Loss(enum.Enum):
  """What a step trains on, and on which stream."""

  MLM = 'mlm'
  CODE_SWITCHED_MLM = 'code_switched_mlm'
  FIRST_LANGUAGE_MLM = 'first_language_mlm'
  UNMASKED = 'unmasked'  # broken on purpose: chosen tokens are all shown
  PAIR_MLM = 'pair_mlm'  # of each side by itself
  TLM = 'tlm'
  MOCO = 'moco'
  ZERO_QUEUE = 'zero_queue'  # broken on purpose: MoCo without negatives
  CA_MLM = 'ca_mlm'  # of adjacent segments
  CA_MLM_PAIRS = 'ca_mlm_pairs'


class Taken(enum.Enum):
  """What a run begins with of another one (MetaXLM, table 5)."""

  ALL = 'all'  # of a run with the same vocabulary
  BOTH = 'both'  # the body, and rows by vocabulary matching
  BODY = 'body'
  EMBEDDINGS = 'embeddings'
  WITH_DICTIONARY = 'with_dictionary'  # both, and rows of translations
  SHUFFLED_DICTIONARY = 'shuffled_dictionary'  # broken on purpose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
  """The size of models and batches.

  Attributes:
    layers: of the encoder.
    hidden: their width.
    length: tokens a row; a row of both sides of a pair has twice as many.
    batch: rows a step of monolingual text; pairs are half as many.
    learning_rate: the peak; then straight down to 0.
    warmup: steps.
  """

  layers: int = 4
  hidden: int = 32
  length: int = 16
  batch: int = 32
  learning_rate: float = 5e-3
  warmup: int = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
  """One row of the experiments.

  Attributes:
    name: unique, `paper/row`.
    title: the paper's name of it.
    steps: optimizer steps.
    losses: what every step trains, losses added.
    anchors: the vocabulary; None: of the first language alone.
    text: domains.
    sharing: language-specific parts.
    begins_from: another condition, whose run of the same seed is taken.
    taken: what is taken of it.
    frozen: patterns of parameters that do not train.
    max_pairs: the first so many pairs; None: all.
    cross_attention: whether the model has VECO's plug-in module.
    untrained: no step is made.
    learning_rate: None: the size's.
    saved: whether others begin from it.
    layers: None: the size's.
    hidden: None: the size's.
    curve_every: steps between the points of its curve; 0: none.
    measured: False for one that is only begun from.
    against_random: whether the first language's states are also compared with
      a random encoder's of the second.
  """

  name: str
  title: str
  steps: int
  losses: tuple[Loss, ...] = (Loss.MLM,)
  anchors: Anchors | None = Anchors.JOINT
  text: Text = Text.SAME_DOMAIN
  sharing: SharingPlan | None = None
  begins_from: str | None = None
  taken: Taken = Taken.ALL
  frozen: tuple[str, ...] = ()
  max_pairs: int | None = None
  cross_attention: bool = False
  untrained: bool = False
  learning_rate: float | None = None
  saved: bool = False
  layers: int | None = None
  hidden: int | None = None
  curve_every: int = 0
  measured: bool = True
  against_random: bool = False


def run_directory(work: pathlib.Path, name: str, seed: int) -> str:
  """Where the run of a condition is saved."""
  return str(work / 'runs' / name / str(seed))


def trainer(
  condition: Condition, world: World, size: Size, *, seed: int
) -> Trainer:
  """The run of a condition under a seed."""
  entries, streams = _entries(condition, size)
  return Trainer(
    model_dir=run_directory(world.work, condition.name, seed),
    model=_model(condition, size),
    objectives=mixture_lib.ObjectiveMixture(entries=entries),
    streams=streams,
    vocabulary=str(world.plain().vocabulary(condition.anchors)),
    optimizer=optimizers.AdamW(
      learning_rate=schedules.Linear(
        peak=condition.learning_rate or size.learning_rate,
        warmup_steps=min(size.warmup, condition.steps // 4),
      ),
      frozen=condition.frozen,
    ),
    total_steps=condition.steps,
    cache_dir=str(world.cache(condition.anchors)),
    check_cache=False,
    init_from=_init_from(condition, world, seed),
    seed=seed,
  )


def _model(condition: Condition, size: Size) -> encoder.Encoder:
  hidden = condition.hidden or size.hidden
  return encoder.Encoder(
    EncoderConfig(
      num_layers=condition.layers or size.layers,
      hidden_dim=hidden,
      mlp_dim=4 * hidden,
      num_heads=2,
      max_length=2 * size.length,
      norm_position=NormPosition.PRE,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
      sharing=condition.sharing,
      cross_attention=condition.cross_attention,
    )
  )


def _entries(condition: Condition, size: Size) -> tuple[tuple, tuple]:
  """The mixture's entries and their streams."""
  entries, streams = [], {}
  for loss in condition.losses:
    stream = _stream(loss, condition, size)
    streams[stream.name] = stream
    entries.append(
      mixture_lib.Entry(
        stream=stream.name, objective=_objective(loss, condition)
      )
    )
  return tuple(entries), tuple(streams.values())


_MIXTURES = {
  Loss.CODE_SWITCHED_MLM: 'corpus.code_switched',
  Loss.FIRST_LANGUAGE_MLM: 'corpus.mono.en',
}
_SIDES = (Loss.PAIR_MLM, Loss.MOCO, Loss.ZERO_QUEUE, Loss.CA_MLM_PAIRS)


def _stream(loss: Loss, condition: Condition, size: Size) -> stream_lib.Stream:
  """What a loss reads.

  Sides and rows of pairs are drawn alike, so that losses of one step read the
  same pairs.
  """
  settings: dict[str, Any] = dict(
    mixture='corpus.parallel', max_examples=condition.max_pairs
  )
  if loss in _SIDES:
    layout, length = Layout.SIDES, size.length
  elif loss is Loss.TLM:
    layout, length = Layout.PAIRS, 2 * size.length
  elif loss is Loss.CA_MLM:
    layout, length = Layout.ADJACENT, size.length
    settings = dict(mixture='corpus.mono', batching='one_language')
  else:
    layout, length = Layout.SENTENCES, size.length
    settings = dict(
      mixture=_MIXTURES.get(loss, 'corpus.mono'), batching='one_language'
    )
  mono = layout is Layout.SENTENCES
  return stream_lib.Stream(
    name='mono' if mono else layout.value,
    layout=layout,
    length=length,
    batch_size=size.batch if mono else size.batch // 2,
    **settings,
  )


def _objective(loss: Loss, condition: Condition):
  """The objective of a loss."""
  if loss in (Loss.MOCO, Loss.ZERO_QUEUE):
    kind = (
      broken.ZeroQueue
      if loss is Loss.ZERO_QUEUE
      else contrastive.SentenceAlignment
    )
    return kind(
      queue=MomentumQueue(size=512, momentum=0.95),
      pooling=Pooling.FIRST,
      projection_dim=32,
      normalize=contrastive.Normalize.STATES,
      temperature=0.05,
      direction=contrastive.Direction.FORWARD,
      duplicates=contrastive.Duplicates.NEGATIVE,
      name='moco',
    )
  masking: dict[str, Any] = dict(mask_ratio=0.25)
  own = condition.sharing is not None and condition.sharing.embeddings
  if own:
    masking['random_words'] = RandomWords.LANGUAGE
  if loss is Loss.UNMASKED:
    masking |= dict(mask_probability=0.0, random_probability=0.0)
  if loss is Loss.TLM:
    return masked_lm.TranslationLM(**masking)
  if loss in (Loss.CA_MLM, Loss.CA_MLM_PAIRS):
    return cross_attention_mlm.CrossAttentionMLM(name=loss.value, **masking)
  return masked_lm.MaskedLM(**masking)


def _init_from(
  condition: Condition, world: World, seed: int
) -> InitFrom | None:
  """The parameters that a run begins with."""
  if condition.begins_from is None:
    return None
  directory = run_directory(world.work, condition.begins_from, seed)
  table = ('embeddings/token$', 'output_bias')
  if condition.taken is Taken.ALL:
    return InitFrom(model_dir=directory, include=('model/',))
  if condition.taken is Taken.BODY:
    return InitFrom(model_dir=directory, include=('model/',), exclude=table)
  dictionaries: tuple[str, ...] = ()
  if condition.taken is Taken.WITH_DICTIONARY:
    dictionaries = (str(world.dictionary()),)
  if condition.taken is Taken.SHUFFLED_DICTIONARY:
    dictionaries = (str(world.shuffled_dictionary()),)
  return InitFrom(
    model_dir=directory,
    include=(table[0] if condition.taken is Taken.EMBEDDINGS else 'model/',),
    allow_missing=condition.cross_attention,
    vocabulary_matching=VocabularyMatching(dictionaries=dictionaries),
  )
