"""Classifiers of sentence pairs trained on translations.

| measure | is the accuracy in the second language of a classifier trained on |
| --- | --- |
| `nli/translated` | the translations alone (PPA's "- CS") |
| `nli/switched` | pairs of which one side is translated (PPA, section 2.3) |
| `nli/plug_out` | originals and translations (VECO's translate-train-all) |
| `nli/plug_in` | the same, each beside its counterpart (VECO, section 3.1) |

All see as many rows. The first two are measured of models without a plug-in
module, the others of those with one.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from studies.replication import measures, running
from studies.replication.conditions import Size
from studies.replication.worlds import FIRST, SECOND, World
from xlflax.data.supervised import label_sets, supervised_dataset
from xlflax.data.supervised.featurizers import (
  classification_featurizer,
  translation_featurizer,
)
from xlflax.data.supervised.featurizers import featurizer as rows_lib
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
)
from xlflax.data.supervised.sources import example_source as source_lib
from xlflax.evaluation.tasks import classification_task
from xlflax.objectives import objective_mixture as mixture_lib
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.finetuning.head_settings import Features
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

RATE = 2e-3


class Way(NamedTuple):
  """One way to train on translations.

  Attributes:
    name: of the measure.
    train: the examples.
    rows: of the examples.
    features: what the head reads.
    counterparts: of the test examples.
    group_size: rows that stay in one batch.
  """

  name: str
  train: source_lib.ExampleSource
  rows: rows_lib.Featurizer
  features: Features = Features.PLUG_OUT
  counterparts: source_lib.ExampleSource | None = None
  group_size: int = 1


def measure(
  programs: running.Programs,
  trainer: Trainer,
  params,
  world: World,
  size: Size,
  *,
  steps: int,
) -> dict[str, float]:
  """Trains the classifiers and tests them in the second language.

  Args:
    programs: compiled programs.
    trainer: the pretraining run.
    params: of its model.
    world: the languages.
    size: of batches.
    steps: of each classifier.
  """
  found = {}
  if trainer.model.config.cross_attention:
    ways = _plug_in(world)
  else:
    ways = _switching(world)
  for way in ways:
    tuned = _tuned(trainer, way, size, steps)
    trained = programs.run(tuned, model_params=params)
    found[f'nli/{way.name}'] = _test(trained, way, world)
  return found


def _switching(world: World) -> Iterator[Way]:
  """Without and with code-switching."""
  translations = world.inference('train', SECOND)
  switched = code_switched_source.CodeSwitched(
    english=world.inference('train', FIRST),
    translations=translations,
    include_english=False,
  )
  yield Way('translated', translations, _rows(world))
  yield Way('switched', switched, _rows(world), group_size=2)


def _plug_in(world: World) -> Iterator[Way]:
  """Without and with the other language's text beside a row."""
  both = concatenated_source.ConcatDataset(
    sources=(world.inference('train', FIRST), world.inference('train', SECOND))
  )
  rows = _rows(world)
  yield Way('plug_out', both, rows)
  beside = translation_featurizer.TranslationPairFeaturizer(
    featurizer=rows, translations=_counterparts(world, 'train')
  )
  tested = _counterparts(world, 'test')
  yield Way('plug_in', both, beside, Features.PLUG_IN, tested)


def _rows(world: World) -> classification_featurizer.ClassificationFeaturizer:
  return classification_featurizer.ClassificationFeaturizer(
    labels=label_sets.labels_of(world.inference('train', FIRST))
  )


def _counterparts(
  world: World, split: str
) -> translation_featurizer.TranslationPairs:
  return translation_featurizer.TranslationPairs(
    english=world.inference(split, FIRST),
    translations=world.inference(split, SECOND),
  )


def _tuned(trainer: Trainer, way: Way, size: Size, steps: int) -> Trainer:
  """The fine-tuning run."""
  rows = way.rows
  if isinstance(rows, translation_featurizer.TranslationPairFeaturizer):
    rows = rows.featurizer
  assert isinstance(rows, classification_featurizer.ClassificationFeaturizer)
  objective = sequence_classification.SequenceClassification(
    labels=rows.labels, features=way.features, head_dropout=0.0
  )
  return dataclasses.replace(
    trainer,
    model_dir=f'{trainer.model_dir}/{way.name}',
    datasets=(
      supervised_dataset.LabeledDatasetConfig(
        name='pairs',
        source=way.train,
        featurizer=way.rows,
        length=2 * size.length,
        batch_size=size.batch,
        group_size=way.group_size,
      ),
    ),
    objectives=mixture_lib.ObjectiveMixture(
      entries=(
        mixture_lib.WeightedObjective(dataset='pairs', objective=objective),
      )
    ),
    optimizer=optimizers.AdamW(
      learning_rate=schedules.Linear(peak_value=RATE, warmup_steps=steps // 10)
    ),
    num_train_steps=steps,
    cache_dir=None,
    init_from=None,
  )


def _test(trained: running.Trained, way: Way, world: World) -> float:
  """Accuracy in the second language."""
  task = classification_task.Classification(
    source=world.inference('test', SECOND),
    length=trained.setup.model.config.max_position_embeddings,
    translations=way.counterparts,
  )
  subject = measures.subject_of(
    trained.setup,
    trained.state.params,
    trained.setup.settings.objectives.objectives,
  )
  result = task.evaluate(subject)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return result.metrics[f'accuracy/{SECOND}']
