"""The trainers that conditions are."""

import pathlib
from typing import Any

from studies.replication.conditions import Condition, Loss, Size, Taken
from studies.replication.papers import broken, translating
from studies.replication.worlds import FIRST, World
from xlflax.data import dataset_config
from xlflax.data.dataset_config import ExampleLayout
from xlflax.models import encoder
from xlflax.models.encoder_config import (
  EncoderConfig,
  MlmHead,
  PositionEmbedding,
)
from xlflax.objectives import objective_mixture as mixture_lib
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  distillation,
  masked_lm,
  sentence_alignment,
)
from xlflax.objectives.pretraining.momentum_contrast import MoCoQueue
from xlflax.trainer import Trainer
from xlflax.training.initialization.init_from import InitFromCheckpoint
from xlflax.training.initialization.teachers import Teacher
from xlflax.training.initialization.vocabulary_matching import EmbeddingTransfer
from xlflax.training.optimization import optimizers, schedules

_POSITIONS = (PositionEmbedding.LEARNED, PositionEmbedding.ROTARY)
_KEYS = 512  # of momentum contrast, at most: whole batches of pairs
_TEACHER_SEED = 0  # one teacher for all seeds, which share a program


def run_directory(work: pathlib.Path, name: str, seed: int) -> str:
  """Where the run of a condition is saved."""
  return str(work / 'runs' / name / str(seed))


def trainer(
  condition: Condition, world: World, size: Size, *, seed: int
) -> Trainer:
  """The run of a condition under a seed."""
  entries, datasets = _entries(condition, world, size)
  return Trainer(
    model_dir=run_directory(world.work, condition.name, seed),
    model=_model(condition, size),
    objectives=mixture_lib.ObjectiveMixture(entries=entries),
    datasets=datasets,
    vocabulary=str(world.plain().vocabulary(condition.anchors)),
    optimizer=(optimizers.Muon if size.recipe else optimizers.AdamW)(
      learning_rate=schedules.Linear(
        peak_value=condition.learning_rate or size.learning_rate,
        warmup_steps=min(size.warmup, condition.steps // 4),
      ),
      frozen=condition.frozen,
    ),
    num_train_steps=condition.steps,
    cache_dir=str(world.cache(condition.anchors)),
    verify_cache=False,
    init_from=_init_from(condition, world, seed),
    seed=seed,
  )


def _model(condition: Condition, size: Size):
  if condition.decoder_layers:
    return translating.model(condition, size)
  rotary = size.recipe and not condition.learned_positions
  return encoder.Encoder(
    EncoderConfig(
      num_layers=size.layers,
      hidden_dim=size.hidden,
      mlp_dim=4 * size.hidden,
      num_heads=size.heads,
      max_position_embeddings=2 * size.length,
      norm_position=condition.norm,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
      sharing=condition.sharing,
      cross_attention=condition.cross_attention,
      position_embedding=_POSITIONS[rotary],
      mlm_head=MlmHead.TIED if size.recipe else MlmHead.TRANSFORM,
    )
  )


def _entries(
  condition: Condition, world: World, size: Size
) -> tuple[tuple, tuple]:
  """The mixture's entries and their datasets."""
  entries, datasets = [], {}
  for loss in condition.losses:
    read = dataset(loss, condition, size)
    datasets[read.name] = read
    entries.append(
      mixture_lib.WeightedObjective(
        dataset=read.name, objective=objective(loss, condition, world, size)
      )
    )
  return tuple(entries), tuple(datasets.values())


_MIXTURES = {
  Loss.CODE_SWITCHED_MLM: 'corpus.code_switched',
  Loss.FIRST_LANGUAGE_MLM: 'corpus.mono.en',
}
_SIDES = (
  Loss.PAIR_MLM,
  Loss.MOCO,
  Loss.ZERO_QUEUE,
  Loss.CA_MLM_PAIRS,
  Loss.FLOWING_CA_MLM_PAIRS,
)
_ADJACENT = (Loss.ADJACENT_MLM, Loss.CA_MLM)


def dataset(
  loss: Loss, condition: Condition, size: Size
) -> dataset_config.DatasetConfig:
  """What a loss of a condition reads.

  Sides and rows of pairs are drawn alike, so that losses of one step read the
  same pairs.
  """
  if loss is Loss.TRANSLATION:
    return translating.dataset(size)
  settings: dict[str, Any] = dict(
    mixture='corpus.parallel',
    max_examples=condition.max_pairs,
    pairs=condition.pairs,
  )
  if loss in _SIDES:
    layout, length = ExampleLayout.SIDES, size.length
    settings['pairs'] = dataset_config.PairOptions(order=condition.pairs.order)
  elif loss is Loss.TLM:
    layout, length = ExampleLayout.PAIRS, 2 * size.length
  elif loss in _ADJACENT:
    layout, length = ExampleLayout.ADJACENT, size.length
    settings = dict(mixture='corpus.mono', batching='one_language')
  else:
    layout, length = ExampleLayout.SENTENCES, size.length
    settings = dict(
      mixture=_MIXTURES.get(loss, 'corpus.mono'), batching='one_language'
    )
  mono = layout is ExampleLayout.SENTENCES
  if mono and size.recipe:
    layout, length = ExampleLayout.BLOCKS, 2 * size.length
  return dataset_config.DatasetConfig(
    name='mono' if mono else layout.value,
    layout=layout,
    length=length,
    batch_size=size.batch
    if layout is ExampleLayout.SENTENCES
    else size.batch // 2,
    **settings,
  )


def objective(loss: Loss, condition: Condition, world: World, size: Size):
  """The objective of a loss."""
  if loss is Loss.TRANSLATION:
    return translating.OBJECTIVE
  if loss in (Loss.MOCO, Loss.ZERO_QUEUE):
    return _contrast(loss, size)
  masking: dict[str, Any] = dict(mask_ratio=size.mask_ratio)
  own = condition.sharing is not None and condition.sharing.embeddings
  if own:
    masking['random_words'] = RandomWords.LANGUAGE
  if loss is Loss.UNMASKED:
    masking |= dict(mask_probability=0.0, random_probability=0.0)
  if loss is Loss.TLM:
    return masked_lm.TranslationLM(**masking)
  if loss is Loss.DISTILLATION:
    return _distilled(condition, world, masking)
  if loss is Loss.FLOWING_CA_MLM_PAIRS:
    return broken.FlowingMemory(name=loss.value, **masking)
  if loss in (Loss.CA_MLM, Loss.CA_MLM_PAIRS):
    return cross_attention_mlm.CrossAttentionMLM(name=loss.value, **masking)
  return masked_lm.MaskedLM(**masking)


def _contrast(loss: Loss, size: Size) -> sentence_alignment.SentenceAlignment:
  """PPA's momentum contrast, or the control without negatives."""
  pairs = size.batch // 2
  kind = sentence_alignment.SentenceAlignment
  if loss is Loss.ZERO_QUEUE:
    kind = broken.ZeroQueue
  return kind(
    queue=MoCoQueue(size=_KEYS // pairs * pairs, momentum=0.95),
    pooling=Pooling.FIRST,
    projection_dim=32,
    normalize=sentence_alignment.Normalize.STATES,
    temperature=0.05,
    direction=sentence_alignment.Direction.FORWARD,
    duplicates=sentence_alignment.Duplicates.NEGATIVE,
    name='moco',
  )


def _distilled(
  condition: Condition, world: World, masking: dict[str, Any]
) -> distillation.Distillation:
  """MetaXLM's XLM+KD: the run that a condition begins from teaches."""
  teacher = run_directory(
    world.work, condition.begins_from or '', _TEACHER_SEED
  )
  return distillation.Distillation(
    teacher=Teacher(model_dir=teacher),
    language=FIRST,
    mlm_weight=1.0,
    **masking,
  )


def _init_from(
  condition: Condition, world: World, seed: int
) -> InitFromCheckpoint | None:
  """The parameters that a run begins with."""
  if condition.begins_from is None or condition.taken is Taken.TEACHER:
    return None
  directory = run_directory(world.work, condition.begins_from, seed)
  table = ('embeddings/token$', 'output_bias')
  if condition.decoder:
    return InitFromCheckpoint(model_dir=directory, decoder=condition.decoder)
  if condition.taken is Taken.ALL:
    return InitFromCheckpoint(model_dir=directory, include=('model/',))
  if condition.taken is Taken.BODY:
    return InitFromCheckpoint(
      model_dir=directory, include=('model/',), exclude=table
    )
  dictionaries: tuple[str, ...] = ()
  if condition.taken is Taken.WITH_DICTIONARY:
    dictionaries = (str(world.dictionary()),)
  if condition.taken is Taken.SHUFFLED_DICTIONARY:
    dictionaries = (str(world.shuffled_dictionary()),)
  return InitFromCheckpoint(
    model_dir=directory,
    include=(table[0] if condition.taken is Taken.EMBEDDINGS else 'model/',),
    allow_missing=condition.cross_attention,
    vocabulary_matching=EmbeddingTransfer(
      dictionaries=dictionaries,
      norms=condition.norms,
      text=world.corpus if condition.interpolated else None,
      mixing=condition.mixing,
    ),
  )
