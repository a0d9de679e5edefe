"""SeqIO tasks for T5X that use an xlflax vocabulary and add language ids.

Gin files call functions of this module. T5X finds a task by its name, so
`register_mixture` registers the requested task and returns its name. Requires
TensorFlow.
"""

import enum
from collections.abc import Sequence

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import dataset_config
from xlflax.data.seqio_tasks import (
  seqio_vocabulary,
  task_registration,
  task_registry,
)
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.t5x import feature_converters
from xlflax.utils import errors, validation

SUFFIX = '.t5x'


class Metric(enum.Enum):
  """Metric to compute for a task in `t5x.eval`."""

  LOG_LIKELIHOOD = 'log_likelihood'  # Mean score of a sequence, in nats.
  EXACT_MATCH = (
    'exact_match'  # Percentage of predictions that equal the target.
  )


def load_seqio_vocabulary(
  *, directory: str
) -> seqio_vocabulary.SeqioVocabulary:
  """Loads a vocabulary directory, written by `xlflax vocab`, for T5X."""
  return seqio_vocabulary.SeqioVocabulary(
    base_vocabulary.Vocabulary.load(directory)
  )


def register_mixture(
  *,
  name: str,
  vocabulary: seqio_vocabulary.SeqioVocabulary,
  corpus: str | None = None,
  task_modules: Sequence[str] = (),
  pairs: dataset_config.PairOptions = dataset_config.PairOptions(),  # noqa: B008
  metrics: Sequence[Metric | str] = (Metric.LOG_LIKELIHOOD,),
) -> str:
  """Registers a task or mixture for T5X. An existing registration is replaced.

  The tasks use the vocabulary of the run. They skip examples without text and
  add the features `targets_language` and, for pairs, `inputs_language`.

  Args:
    name: Name of a registered task or mixture whose languages are known, such
      as 'corpus.mono'.
    vocabulary: Vocabulary of the run.
    corpus: Corpus directory, whose tasks are registered first.
    task_modules: Names of Python modules that register tasks. These modules are
      imported first.
    pairs: Length filters for tasks with text pairs.
    metrics: Metrics to compute in `t5x.eval`: LOG_LIKELIHOOD or EXACT_MATCH.

  Returns:
    Name of the registered task or mixture, which is `name` with a suffix.

  Raises:
    CorpusError: If the task does not exist, or if its languages are unknown.
    VocabularyError: If the vocabulary does not contain a language.
  """
  task_registration.register_tasks(corpus, task_modules)
  rates = task_registry.expand_mixture(name)
  metric_types = [
    validation.validate(metric, Metric, name='metrics') for metric in metrics
  ]
  names = {
    task: _add_task(task, vocabulary.vocabulary, pairs, metric_types)
    for task in rates
  }
  if name in names:
    return names[name]
  seqio.MixtureRegistry.remove(name + SUFFIX)
  seqio.MixtureRegistry.add(
    name + SUFFIX, [(names[task], rate) for task, rate in rates.items()]
  )
  return name + SUFFIX


def _add_task(
  name: str, vocabulary: base_vocabulary.Vocabulary, pairs, metrics
) -> str:
  """Registers a task for T5X and returns its name."""
  languages = task_registry.task_languages(name)
  task = seqio_vocabulary.resolve_deferred(
    task_registry.get_task(name), vocabulary, languages=languages
  )
  features = ('targets',) if len(languages) == 1 else ('inputs', 'targets')
  language_ids = {
    feature + feature_converters.LANGUAGE_SUFFIX: vocabulary.language_id(code)
    for feature, code in zip(features, languages, strict=True)
  }
  metric_functions = {
    Metric.LOG_LIKELIHOOD: log_likelihood,
    Metric.EXACT_MATCH: exact_match,
  }
  language_feature = seqio.Feature(
    seqio.PassThroughVocabulary(len(vocabulary)), add_eos=False, dtype=tf.int32
  )
  output_features = {
    feature: task.output_features[feature] for feature in features
  }
  output_features |= dict.fromkeys(language_ids, language_feature)
  t5x_task = task.replace(
    name=name + SUFFIX,
    preprocessors=[
      *task.preprocessors,
      _LengthFilter(features, pairs),
      _AddLanguages(language_ids),
    ],
    metric_fns=[metric_functions[metric] for metric in metrics],
    output_features=output_features,
  )
  seqio.TaskRegistry.remove(name + SUFFIX)
  seqio.TaskRegistry.add_provider(name + SUFFIX, t5x_task)
  return name + SUFFIX


class _LengthFilter:
  """Preprocessor that skips empty texts and filters pairs by their lengths.

  The rules are the same as for xlflax datasets.
  """

  def __init__(
    self, features: Sequence[str], pairs: dataset_config.PairOptions
  ):
    self._features = features
    self._pairs = pairs

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def is_valid(example):
      lengths = [tf.size(example[feature]) for feature in self._features]
      if len(lengths) == 1:
        return lengths[0] > 0
      valid = tf.reduce_min(lengths) >= self._pairs.min_tokens
      if self._pairs.max_tokens is not None:
        valid &= tf.reduce_sum(lengths) <= self._pairs.max_tokens
      return valid

    return dataset.filter(is_valid)


class _AddLanguages:
  """Preprocessor that adds the language ids of the texts.

  For example, it adds `'targets_language': [1]` to `{'targets': [7]}`.
  """

  def __init__(self, ids: dict[str, int]):
    self._ids = ids

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def add(example):
      return {
        **example,
        **{
          name: tf.constant([index], tf.int32)
          for name, index in self._ids.items()
        },
      }

    return dataset.map(add, num_parallel_calls=tf.data.AUTOTUNE)


def log_likelihood(targets, scores) -> dict[str, float]:
  """Computes the mean log-likelihood per sequence, in nats."""
  del targets
  return {'log_likelihood': float(np.mean(scores))}


def exact_match(targets, predictions) -> dict[str, float]:
  """Computes the percentage of predictions that equal their target.

  Raises:
    CorpusError: If there are no predictions.
  """
  if not targets:
    raise errors.CorpusError(
      'The metric exact_match requires at least one prediction'
    )
  matches = [
    str(target).strip() == str(prediction).strip()
    for target, prediction in zip(targets, predictions, strict=True)
  ]
  return {'exact_match': 100.0 * float(np.mean(matches))}
