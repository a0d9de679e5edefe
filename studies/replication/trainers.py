"""Trainers for the training configurations of the replication study."""

import pathlib
from typing import Any

from studies.replication.conditions import Condition, Initialization, Loss, Size
from studies.replication.papers import negative_controls, translation
from studies.replication.study_data import FIRST_LANGUAGE, StudyData
from xlflax.data import dataset_config
from xlflax.data.dataset_config import ExampleLayout
from xlflax.models import encoder
from xlflax.models.encoder_config import (
  EncoderConfig,
  MlmHead,
  PositionEmbedding,
)
from xlflax.objectives import objective_mixture
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

# Maximum number of keys of momentum contrast. The queue holds a multiple of the
# number of pairs per step.
_MAX_KEYS = 512
# All seeds have the same teacher, since they share a compiled program.
_TEACHER_SEED = 0


def run_directory(work: pathlib.Path, name: str, seed: int) -> str:
  """Returns the run directory for a training configuration and a seed."""
  return str(work / 'runs' / name / str(seed))


def build_trainer(
  condition: Condition, data: StudyData, size: Size, *, seed: int
) -> Trainer:
  """Builds the trainer of a run, and writes its vocabulary and token cache.

  Args:
    condition: Training configuration (condition) of the run.
    data: Data and vocabularies of the study's languages.
    size: Sizes of the model and the batches.
    seed: Random seed for the run.
  """
  entries, datasets = _build_entries(condition, data, size)
  optimizer_class = optimizers.Muon if size.recipe else optimizers.AdamW
  return Trainer(
    model_dir=run_directory(data.work, condition.name, seed),
    model=_build_model(condition, size),
    objectives=objective_mixture.ObjectiveMixture(entries=entries),
    datasets=datasets,
    vocabulary=str(
      data.with_same_domain().prepare_vocabulary(condition.anchors)
    ),
    optimizer=optimizer_class(
      learning_rate=schedules.Linear(
        peak_value=condition.learning_rate or size.learning_rate,
        warmup_steps=min(size.warmup, condition.steps // 4),
      ),
      frozen=condition.frozen,
    ),
    num_train_steps=condition.steps,
    cache_dir=str(data.prepare_cache(condition.anchors)),
    verify_cache=False,
    init_from=_init_from(condition, data, seed),
    seed=seed,
  )


def _build_model(condition: Condition, size: Size):
  if condition.decoder_layers:
    return translation.build_model(condition, size)
  position_embedding = PositionEmbedding.LEARNED
  if size.recipe and not condition.learned_positions:
    position_embedding = PositionEmbedding.ROTARY
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
      position_embedding=position_embedding,
      mlm_head=MlmHead.TIED if size.recipe else MlmHead.TRANSFORM,
    )
  )


def _build_entries(
  condition: Condition, data: StudyData, size: Size
) -> tuple[tuple, tuple]:
  """Returns the objective mixture's entries and their datasets."""
  entries, datasets = [], {}
  for loss in condition.losses:
    dataset = build_dataset(loss, condition, size)
    datasets[dataset.name] = dataset
    entries.append(
      objective_mixture.WeightedObjective(
        dataset=dataset.name,
        objective=build_objective(loss, condition, data, size),
      )
    )
  return tuple(entries), tuple(datasets.values())


_MIXTURES = {
  Loss.CODE_SWITCHED_MLM: 'corpus.code_switched',
  Loss.FIRST_LANGUAGE_MLM: 'corpus.mono.en',
}
# Losses that read the two sides of a pair as two sequences.
_SIDES_LOSSES = (
  Loss.PAIR_MLM,
  Loss.MOCO,
  Loss.ZERO_QUEUE,
  Loss.CA_MLM_PAIRS,
  Loss.FLOWING_CA_MLM_PAIRS,
)
_ADJACENT_LOSSES = (Loss.ADJACENT_MLM, Loss.CA_MLM)


def build_dataset(
  loss: Loss, condition: Condition, size: Size
) -> dataset_config.DatasetConfig:
  """Builds the dataset configuration for a training loss.

  Pairs are sampled identically in all sequence layouts, so that all losses in a
  step read the same pairs.

  Args:
    loss: Loss that is computed on the dataset. It must be one of the
      condition's losses.
    condition: Training configuration (condition) of the run.
    size: Sizes and training settings of the study, which include the sequence
      length and the batch size.
  """
  if loss is Loss.TRANSLATION:
    return translation.build_dataset(size)

  options: dict[str, Any] = dict(
    mixture='corpus.parallel',
    max_examples=condition.max_pairs,
    pairs=condition.pairs,
  )
  if loss in _SIDES_LOSSES:
    layout, length = ExampleLayout.DUAL, size.length
    options['pairs'] = dataset_config.PairOptions(order=condition.pairs.order)
  elif loss is Loss.TLM:
    layout, length = ExampleLayout.PAIRS, 2 * size.length
  elif loss in _ADJACENT_LOSSES:
    layout, length = ExampleLayout.INTERLEAVED, size.length
    options = dict(mixture='corpus.mono', batching='one_language')
  else:
    layout, length = ExampleLayout.SENTENCES, size.length
    options = dict(
      mixture=_MIXTURES.get(loss, 'corpus.mono'), batching='one_language'
    )

  is_monolingual = layout is ExampleLayout.SENTENCES
  if is_monolingual and size.recipe:
    # Blocks are twice as long, hence half as many.
    layout, length = ExampleLayout.BLOCKS, 2 * size.length
  batch_size = size.batch
  if layout is not ExampleLayout.SENTENCES:
    batch_size //= 2
  return dataset_config.DatasetConfig(
    name='mono' if is_monolingual else layout.value,
    layout=layout,
    length=length,
    batch_size=batch_size,
    **options,
  )


def build_objective(
  loss: Loss, condition: Condition, data: StudyData, size: Size
):
  """Builds the training objective that implements a loss.

  Args:
    loss: Loss that the objective computes. It must be one of the condition's
      losses.
    condition: Training configuration (condition) of the run.
    data: Data and vocabularies of the study's languages.
    size: Settings of the study. Only the batch size and the mask ratio are
      used.
  """
  if loss is Loss.TRANSLATION:
    return translation.OBJECTIVE
  if loss in (Loss.MOCO, Loss.ZERO_QUEUE):
    return _build_momentum_contrast(loss, size)

  masking: dict[str, Any] = dict(mask_ratio=size.mask_ratio)
  if condition.sharing is not None and condition.sharing.embeddings:
    masking['random_words'] = RandomWords.LANGUAGE
  if loss is Loss.UNMASKED:
    masking |= dict(mask_probability=0.0, random_probability=0.0)
  if loss is Loss.TLM:
    return masked_lm.TranslationLM(**masking)
  if loss is Loss.DISTILLATION:
    return _build_distillation(condition, data, masking)
  if loss is Loss.FLOWING_CA_MLM_PAIRS:
    return negative_controls.FlowingMemory(name=loss.value, **masking)
  if loss in (Loss.CA_MLM, Loss.CA_MLM_PAIRS):
    return cross_attention_mlm.CrossAttentionMLM(name=loss.value, **masking)
  return masked_lm.MaskedLM(**masking)


def _build_momentum_contrast(
  loss: Loss, size: Size
) -> sentence_alignment.SentenceAlignment:
  """Builds PPA's momentum contrast, or its control without negatives."""
  pairs = size.batch // 2
  objective_class = sentence_alignment.SentenceAlignment
  if loss is Loss.ZERO_QUEUE:
    objective_class = negative_controls.ZeroQueue
  return objective_class(
    queue=MoCoQueue(size=_MAX_KEYS // pairs * pairs, momentum=0.95),
    pooling=Pooling.FIRST,
    projection_dim=32,
    normalize=sentence_alignment.Normalize.STATES,
    temperature=0.05,
    direction=sentence_alignment.Direction.FORWARD,
    duplicates=sentence_alignment.Duplicates.NEGATIVE,
    name='moco',
  )


def _build_distillation(
  condition: Condition, data: StudyData, masking: dict[str, Any]
) -> distillation.Distillation:
  """Builds MetaXLM's XLM+KD, whose teacher is the initial run."""
  teacher = run_directory(data.work, condition.begins_from or '', _TEACHER_SEED)
  return distillation.Distillation(
    teacher=Teacher(model_dir=teacher),
    language=FIRST_LANGUAGE,
    mlm_weight=1.0,
    **masking,
  )


def _init_from(
  condition: Condition, data: StudyData, seed: int
) -> InitFromCheckpoint | None:
  """Returns the source of a run's initial parameters, if any."""
  if condition.begins_from is None or condition.taken is Initialization.TEACHER:
    return None
  directory = run_directory(data.work, condition.begins_from, seed)
  embeddings = ('embeddings/token$', 'output_bias')
  if condition.decoder:
    return InitFromCheckpoint(model_dir=directory, decoder=condition.decoder)
  if condition.taken is Initialization.ALL:
    return InitFromCheckpoint(model_dir=directory, include=('model/',))
  if condition.taken is Initialization.BODY:
    return InitFromCheckpoint(
      model_dir=directory, include=('model/',), exclude=embeddings
    )
  dictionaries: tuple[str, ...] = ()
  if condition.taken is Initialization.WITH_DICTIONARY:
    dictionaries = (str(data.dictionary()),)
  if condition.taken is Initialization.SHUFFLED_DICTIONARY:
    dictionaries = (str(data.shuffled_dictionary()),)
  include = 'model/'
  if condition.taken is Initialization.EMBEDDINGS:
    include = embeddings[0]
  return InitFromCheckpoint(
    model_dir=directory,
    include=(include,),
    allow_missing=condition.cross_attention,
    vocabulary_matching=EmbeddingTransfer(
      dictionaries=dictionaries,
      norms=condition.norms,
      text=data.corpus if condition.interpolated else None,
      mixing=condition.mixing,
    ),
  )
