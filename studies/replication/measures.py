"""Measurements of a trained model, such as transfer and retrieval accuracy.

None of them uses labels in the second language.

Measures of the similarity between hidden states of held-out translations:

* `retrieval`: Retrieval accuracy@1 for translations that share no word,
  averaged over both directions and all Transformer layers. The mean of each
  language's hidden states is subtracted.
* `retrieval/l`: The same for layer l, where layer 0 is the embeddings.
* `plain_retrieval`: The same without subtracting the mean.
* `mapped_retrieval`: The same after an orthogonal map that is fitted on
  different translations.
* `shuffled_retrieval`: The same as `retrieval`, for sentences with shuffled
  tokens.
* `cka`, `cka/l`: Linear CKA, averaged over all layers or for layer l.
* `random_cka`: Linear CKA between the first language's hidden states and those
  of a random encoder.
* `offset`: Fraction of the variance that is due to the difference between the
  two languages' means, averaged over all Transformer layers.

Other measures:

* `partner_gain`: Loss on masked tokens if the model also reads a wrong
  translation of similar length, minus the loss with the correct translation, in
  nats. The model reads both sentences in one sequence or through VECO's
  cross-attention.
* `norm/SCRIPT`: Median embedding norm of a script's tokens.
  `first_norm/SCRIPT` is the value before the first step.
* `loss`: Mean loss of the last ten steps.
* `aer/l`: Alignment error rate of layer l, by mutual optimal transport, with
  the words of the second language in random order. Lower is better.
* `transfer`: Accuracy in the second language of a tagger that was trained on
  the first language. Only words that do not occur in the first language's test
  sentences are scored.
* `source`: Accuracy of the tagger in the first language.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from studies.replication import probes, runner
from studies.replication.conditions import Size
from studies.replication.study_data import FIRST_LANGUAGE, StudyData
from xlflax.data.dataset_config import LanguageBatching
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import tagging_featurizer
from xlflax.data.tokenizers import token_normalization
from xlflax.evaluation import eval_task, hidden_states
from xlflax.evaluation.metrics import retrieval_metrics
from xlflax.evaluation.tasks import tagging_task, word_alignment_task
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.finetuning import token_classification
from xlflax.similarity import cka, procrustes
from xlflax.similarity.word_links import Method
from xlflax.trainer import Trainer
from xlflax.training import training_setup
from xlflax.training.checkpointing import objective_config
from xlflax.training.initialization import vocabulary_matching
from xlflax.training.optimization import optimizers, schedules

_BATCH_SIZE = 100
_TAGGER_BATCH_SIZE = 32
_LANGUAGE_SPECIFIC = 'model/language_specific'


def create_eval_model(
  setup: training_setup.Setup,
  params,
  objectives: Sequence[objective_base.Objective] = (),
) -> eval_task.EvalModel:
  """Wraps a trained model in an `EvalModel` for evaluation tasks.

  Args:
    setup: Model, vocabulary and settings of the training run.
    params: Parameters to evaluate.
    objectives: Training objectives of the run. They define the labels that the
      model's heads predict.
  """
  return eval_task.EvalModel(
    model=setup.model,
    params=params,
    vocabulary=setup.vocabulary,
    batch_size=_BATCH_SIZE,
    objectives={objective.name: objective for objective in objectives},
    inputs=objective_config.collect_inputs(setup.settings),
  )


def sentence_states(
  model: eval_task.EvalModel,
  data: StudyData,
  second: str,
  language: str,
  *,
  shuffled: bool = False,
) -> np.ndarray:
  """Returns mean-pooled hidden states of held-out sentences in one language.

  Args:
    model: Model to evaluate.
    data: Data and vocabularies of the study's languages.
    second: Second language of the translation pairs from which sentences are
      taken.
    language: Language of the sentences to encode: either `second` or the
      study's first language.
    shuffled: Whether to shuffle the tokens of each sentence.

  Returns:
    Hidden states of shape [L + 1, N, H].
  """
  token_ids = probes.encode_translations(model, data, second, language)
  if shuffled:
    rng = np.random.default_rng(0)
    token_ids = [rng.permutation(ids).tolist() for ids in token_ids]
  return hidden_states.token_states(
    model,
    token_ids,
    [model.vocabulary.language_id(language)] * len(token_ids),
    max_length=data.MAX_LENGTH,
  ).states


def compare_states(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
  """Computes retrieval accuracy and CKA from the hidden states of translations.

  The orthogonal map is fitted on the first half of the sentences. The measures
  are computed on the second half.

  Args:
    first: Hidden states of the first language, of shape [L + 1, N, H].
    second: Hidden states of the second language, with the same shape as
      `first`.
  """
  half = first.shape[1] // 2
  tested = first[:, half:], second[:, half:]
  centered_accuracy = _layer_accuracy(*map(_center, tested))
  mapped_accuracy = [
    _mapped_accuracy(x[:half], y[:half], x[half:], y[half:])
    for x, y in zip(first, second, strict=True)
  ]
  cka_values = [cka.linear_cka(x, y) for x, y in zip(*tested, strict=True)]
  measures = {
    'retrieval': float(centered_accuracy[1:].mean()),
    'plain_retrieval': float(_layer_accuracy(*tested)[1:].mean()),
    'mapped_retrieval': float(np.mean(mapped_accuracy[1:])),
    'cka': float(np.mean(cka_values)),
    'offset': float(offset_fraction(*tested)[1:].mean()),
  }
  for layer, accuracy in enumerate(centered_accuracy):
    measures[f'retrieval/{layer}'] = float(accuracy)
    measures[f'mapped_retrieval/{layer}'] = float(mapped_accuracy[layer])
    measures[f'cka/{layer}'] = float(cka_values[layer])
  return measures


def _layer_accuracy(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns accuracy@1 at each layer [L + 1], averaged over both directions."""
  return retrieval_metrics.score_layers(first, second).mean


def offset_fraction(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Computes the fraction of hidden-state variance explained by language.

  The fraction is 0 if the means are equal, and 1 if the hidden states depend
  only on the language.

  Args:
    first: Hidden states of the first language, of shape [L, N, H].
    second: Hidden states of the second language, with the same shape as
      `first`.

  Returns:
    The fraction at each layer, of shape [L].
  """
  states = np.concatenate([first, second], axis=1)
  mean_difference = first.mean(axis=1) - second.mean(axis=1)
  return (mean_difference**2).sum(-1) / 4 / states.var(axis=1).sum(-1)


def embedding_norms(setup: training_setup.Setup, params) -> dict[str, float]:
  """Returns the median norm of the token embeddings in each script.

  The result is empty for a model in which each language has its own embeddings.
  """
  table = params['model'].get('embeddings', {}).get('token')
  if table is None:
    return {}
  norms = np.linalg.norm(np.asarray(table), axis=1)
  tokens = token_normalization.plain_tokens(
    vocabulary_matching.comparable_tokens(setup.vocabulary)
  )
  scripts = np.array(
    [token_normalization.script_of_token(token.text) for token in tokens]
  )
  norms = norms[: len(scripts)]
  return {
    f'norm/{script.lower()}': float(np.median(norms[scripts == script]))
    for script in sorted({*scripts} - {'NONE'})
  }


def _mapped_accuracy(first, second, first_tested, second_tested) -> float:
  """Returns retrieval accuracy with a map fitted on `first` and `second`."""
  alignment = procrustes.fit_alignment(first, second)
  accuracy = _layer_accuracy(
    alignment.map_source(first_tested)[None],
    alignment.map_target(second_tested)[None],
  )
  return float(accuracy[0])


def _center(vectors: np.ndarray) -> np.ndarray:
  return vectors - vectors.mean(axis=1, keepdims=True)


def measure_similarity(
  setup: training_setup.Setup,
  params,
  data: StudyData,
  *,
  against_random: bool = False,
) -> dict[str, float]:
  """Measures retrieval accuracy, CKA and embedding norms of a trained model.

  Args:
    setup: Model, vocabulary and settings of the training run.
    params: Parameters of the model after training.
    data: Data and vocabularies of the study's languages.
    against_random: Whether to also compare the model's hidden states in the
      first language with those of a random encoder in the second language.
  """
  model = create_eval_model(setup, params)
  initial_params = setup.initial_state().params
  random_model = create_eval_model(setup, initial_params)
  measures = {}
  for second in data.other_languages:
    languages = (FIRST_LANGUAGE, second)
    states = [
      sentence_states(model, data, second, language) for language in languages
    ]
    measures[second] = compare_states(*states)
    shuffled_states = [
      sentence_states(model, data, second, language, shuffled=True)
      for language in languages
    ]
    measures[second]['shuffled_retrieval'] = compare_states(*shuffled_states)[
      'retrieval'
    ]
    if against_random:
      random_states = sentence_states(random_model, data, second, second)
      measures[second]['random_cka'] = compare_states(states[0], random_states)[
        'cka'
      ]
  first_norms = embedding_norms(setup, initial_params)
  return (
    average_languages(measures)
    | embedding_norms(setup, params)
    | {f'first_{name}': norm for name, norm in first_norms.items()}
  )


def average_languages(
  measures: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
  """Computes the mean of each metric over all languages.

  If there are several languages, the result also contains each language's value
  under a name such as `retrieval:fr`, except for measures of single layers.

  Args:
    measures: Nested map from language to measure to value.
  """
  names = next(iter(measures.values()))
  averages = {
    name: float(np.mean([values[name] for values in measures.values()]))
    for name in names
  }
  if len(measures) > 1:
    averages |= {
      f'{name}:{language}': values[name]
      for language, values in measures.items()
      for name in names
      if '/' not in name
    }
  return averages


def measure_word_alignment(
  setup: training_setup.Setup, params, data: StudyData
) -> dict[str, float]:
  """Measures the word alignment error rate at each layer of a model."""
  task = word_alignment_task.WordAlignment(
    source=data.aligned_sentences, methods=(Method.MUTUAL_TRANSPORT,)
  )
  result = task.evaluate(create_eval_model(setup, params))
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return {
    f'aer/{row["layer"]}': float(row['aer']) for row in result.tables['layers']
  }


def measure_transfer(
  step_runner: runner.Runner,
  trainer: Trainer,
  params,
  data: StudyData,
  size: Size,
) -> dict[str, float]:
  """Measures transfer: trains a tagger on one language and tests it on all.

  Args:
    step_runner: Runner that executes the training steps of the tagger.
    trainer: Trainer with which the model was pretrained.
    params: Parameters of the pretrained model.
    data: Data and vocabularies of the study's languages.
    size: Sizes of the model and batches, and the tagger's steps and learning
      rate.
  """
  labels = data.tags
  tagger = dataclasses.replace(
    trainer,
    model_dir=f'{trainer.model_dir}/tagger',
    datasets=(_tagging_dataset(data, labels),),
    objectives=_tagging_objective(labels),
    optimizer=_tagging_optimizer(trainer, size),
    num_train_steps=size.tagger_steps,
    cache_dir=None,
    init_from=None,
  )
  run = step_runner.train(tagger, model_params=params)
  return _test_tagger(run, data)


def _tagging_dataset(
  data: StudyData, labels: tuple[str, ...]
) -> supervised_dataset.LabeledDatasetConfig:
  return supervised_dataset.LabeledDatasetConfig(
    name='tagged',
    source=data.tagged_sentences('train', FIRST_LANGUAGE),
    featurizer=tagging_featurizer.TaggingFeaturizer(labels=labels),
    length=data.MAX_LENGTH,
    batch_size=_TAGGER_BATCH_SIZE,
    batching=LanguageBatching.ONE_LANGUAGE,
  )


def _tagging_objective(
  labels: tuple[str, ...],
) -> objective_mixture.ObjectiveMixture:
  objective = token_classification.TokenClassification(
    labels=labels, head_dropout=0.0
  )
  return objective_mixture.ObjectiveMixture(
    entries=(
      objective_mixture.WeightedObjective(
        dataset='tagged', objective=objective
      ),
    )
  )


def _tagging_optimizer(trainer: Trainer, size: Size) -> optimizers.Optimizer:
  """Returns the optimizer for fine-tuning.

  Language-specific components are frozen, as in ECS (section 4.3).
  """
  is_language_specific = trainer.model.config.sharing is not None
  return optimizers.AdamW(
    learning_rate=schedules.Linear(
      peak_value=size.tagger_rate, warmup_steps=size.tagger_steps // 10
    ),
    frozen=(_LANGUAGE_SPECIFIC,) if is_language_specific else (),
  )


def _test_tagger(run: runner.TrainedRun, data: StudyData) -> dict[str, float]:
  """Returns a tagger's accuracy in all languages."""
  task = tagging_task.Tagging(
    source=data.tagged_sentences('test', FIRST_LANGUAGE, *data.other_languages),
    length=run.setup.model.config.max_position_embeddings,
  )
  model = create_eval_model(
    run.setup, run.state.params, run.setup.settings.objectives.objectives
  )
  result = task.evaluate(model)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))

  measures = {}
  for second in data.other_languages:
    shared_words = data.shared_words(second)
    examples = data.tagged_test_sentences[second]
    predictions = task.EXAMPLE.read_predictions(
      examples, result.files[f'{second}.tsv']
    )
    is_correct = [
      predicted_tag == gold_tag
      for example, predicted_tags in zip(examples, predictions, strict=True)
      for word, gold_tag, predicted_tag in zip(
        example.words, example.tags or (), predicted_tags, strict=True
      )
      if word not in shared_words
    ]
    measures[second] = {'transfer': float(np.mean(is_correct))}
  source_accuracy = result.metrics[f'accuracy/{FIRST_LANGUAGE}']
  return average_languages(measures) | {'source': source_accuracy}
