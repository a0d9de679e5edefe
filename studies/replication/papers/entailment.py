"""Sentence-pair classifiers that are trained on translated examples.

Each measure is a classifier's accuracy in the second language. The classifiers
differ in their training data:

* `nli/translated`: Only the translations (PPA's "- CS").
* `nli/switched`: Pairs in which one of the two sentences is translated (PPA,
  section 2.3).
* `nli/plug_out`: Original examples and their translations (VECO's
  translate-train-all).
* `nli/plug_in`: The same examples, each together with its counterpart in the
  other language (VECO, section 3.1).

All classifiers are trained on the same number of sequences. The first two are
measured for models without a plug-in module, and the other two for models with
a plug-in module.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from studies.replication import measures, runner
from studies.replication.conditions import Size
from studies.replication.study_data import (
  FIRST_LANGUAGE,
  SECOND_LANGUAGE,
  StudyData,
)
from xlflax.data.supervised import label_sets, supervised_dataset
from xlflax.data.supervised.featurizers.classification_featurizer import (
  ClassificationFeaturizer,
)
from xlflax.data.supervised.featurizers.featurizer import Featurizer
from xlflax.data.supervised.featurizers.translation_featurizer import (
  TranslationPairFeaturizer,
  TranslationPairs,
)
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
)
from xlflax.data.supervised.sources.example_source import ExampleSource
from xlflax.evaluation.tasks import classification_task
from xlflax.objectives import objective_mixture
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.finetuning.head_settings import Features
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

LEARNING_RATE = 2e-3


class TrainingMethod(NamedTuple):
  """A method of training a sentence-pair classifier on translations.

  Attributes:
    name: Name of the measure under which the classifier's accuracy is reported.
    source: Source of the training examples.
    featurizer: Featurizer that turns training examples into model inputs.
    features: Type of the encoder features that the classification head reads.
    test_counterparts: Translations of the test examples into the first
      language, which the classifier reads in addition to the test examples. If
      None, it reads only the test examples.
    group_size: Number of consecutive examples that must be in the same batch.
  """

  name: str
  source: ExampleSource
  featurizer: Featurizer
  features: Features = Features.PLUG_OUT
  test_counterparts: ExampleSource | None = None
  group_size: int = 1


def measure_entailment(
  step_runner: runner.Runner,
  trainer: Trainer,
  params,
  data: StudyData,
  size: Size,
  *,
  steps: int,
) -> dict[str, float]:
  """Trains a classifier with each method and tests it in the second language.

  Args:
    step_runner: Runner that executes the training steps of the classifiers.
    trainer: Trainer with which the model was pretrained.
    params: Parameters of the pretrained model.
    data: Data and vocabularies of the study's languages.
    size: Sizes and training settings of the study, which include the sequence
      length and the batch size.
    steps: Number of training steps for each classifier.

  Returns:
    The accuracy of each classifier, by the name of its measure.
  """
  if trainer.model.config.cross_attention:
    methods = _plug_in_methods(data)
  else:
    methods = _code_switching_methods(data)
  accuracies = {}
  for method in methods:
    classifier = _build_classifier(trainer, method, size, steps)
    run = step_runner.train(classifier, model_params=params)
    accuracies[f'nli/{method.name}'] = _test_classifier(run, method, data)
  return accuracies


def _code_switching_methods(data: StudyData) -> Iterator[TrainingMethod]:
  """Yields the training methods without and with code-switching."""
  translations = data.inference_examples('train', SECOND_LANGUAGE)
  code_switched = code_switched_source.CodeSwitched(
    english=data.inference_examples('train', FIRST_LANGUAGE),
    translations=translations,
    include_english=False,
  )
  featurizer = _build_featurizer(data)
  yield TrainingMethod('translated', translations, featurizer)
  yield TrainingMethod('switched', code_switched, featurizer, group_size=2)


def _plug_in_methods(data: StudyData) -> Iterator[TrainingMethod]:
  """Yields the methods that read each example alone or with its translation."""
  examples = concatenated_source.ConcatDataset(
    sources=(
      data.inference_examples('train', FIRST_LANGUAGE),
      data.inference_examples('train', SECOND_LANGUAGE),
    )
  )
  featurizer = _build_featurizer(data)
  yield TrainingMethod('plug_out', examples, featurizer)
  pair_featurizer = TranslationPairFeaturizer(
    featurizer=featurizer, translations=_counterparts(data, 'train')
  )
  yield TrainingMethod(
    'plug_in',
    examples,
    pair_featurizer,
    features=Features.PLUG_IN,
    test_counterparts=_counterparts(data, 'test'),
  )


def _build_featurizer(data: StudyData) -> ClassificationFeaturizer:
  examples = data.inference_examples('train', FIRST_LANGUAGE)
  return ClassificationFeaturizer(labels=label_sets.labels_of(examples))


def _counterparts(data: StudyData, split: str) -> TranslationPairs:
  """Returns a split's examples in both languages."""
  return TranslationPairs(
    english=data.inference_examples(split, FIRST_LANGUAGE),
    translations=data.inference_examples(split, SECOND_LANGUAGE),
  )


def _build_classifier(
  trainer: Trainer, method: TrainingMethod, size: Size, steps: int
) -> Trainer:
  """Returns the trainer for a classifier."""
  featurizer = method.featurizer
  if isinstance(featurizer, TranslationPairFeaturizer):
    featurizer = featurizer.featurizer
  assert isinstance(featurizer, ClassificationFeaturizer)
  objective = sequence_classification.SequenceClassification(
    labels=featurizer.labels, features=method.features, head_dropout=0.0
  )
  return dataclasses.replace(
    trainer,
    model_dir=f'{trainer.model_dir}/{method.name}',
    datasets=(
      supervised_dataset.LabeledDatasetConfig(
        name='pairs',
        source=method.source,
        featurizer=method.featurizer,
        length=2 * size.length,
        batch_size=size.batch,
        group_size=method.group_size,
      ),
    ),
    objectives=objective_mixture.ObjectiveMixture(
      entries=(
        objective_mixture.WeightedObjective(
          dataset='pairs', objective=objective
        ),
      )
    ),
    optimizer=optimizers.AdamW(
      learning_rate=schedules.Linear(
        peak_value=LEARNING_RATE, warmup_steps=steps // 10
      )
    ),
    num_train_steps=steps,
    cache_dir=None,
    init_from=None,
  )


def _test_classifier(
  run: runner.TrainedRun, method: TrainingMethod, data: StudyData
) -> float:
  """Returns a classifier's accuracy in the second language."""
  task = classification_task.Classification(
    source=data.inference_examples('test', SECOND_LANGUAGE),
    length=run.setup.model.config.max_position_embeddings,
    translations=method.test_counterparts,
  )
  model = measures.create_eval_model(
    run.setup, run.state.params, run.setup.settings.objectives.objectives
  )
  result = task.evaluate(model)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return result.metrics[f'accuracy/{SECOND_LANGUAGE}']
