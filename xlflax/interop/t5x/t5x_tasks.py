"""SeqIO tasks for T5X: with a vocabulary, and each text's language.

Called by gin files: T5X finds a task by its name, so `register_mixture` registers what
it is asked for and returns the name. Needs TensorFlow.
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
  """What `t5x.eval` measures of a task."""

  LOG_LIKELIHOOD = 'log_likelihood'  # mean score of a row, in nats
  EXACT_MATCH = 'exact_match'  # percent of predictions that are the target


def load_seqio_vocabulary(
  *, directory: str
) -> seqio_vocabulary.SeqioVocabulary:
  """The vocabulary of a directory made by `xlflax vocab`, for T5X."""
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
  """Registers a task or mixture for T5X; again replaces it.

  Its tasks have the run's vocabulary, examples without text left out, and
  the features `targets_language` (and `inputs_language`).

  Args:
    name: of a task or mixture with languages, such as 'corpus.mono'.
    vocabulary: that of the run.
    corpus: directory whose tasks are registered first.
    task_modules: modules that register tasks, imported first.
    pairs: length filters of tasks with two sides.
    metrics: what `t5x.eval` measures.

  Returns:
    `name` with a suffix.

  Raises:
    CorpusError: there is no such task, or its languages are not known.
    VocabularyError: a language is not one of the vocabulary's.
  """
  task_registration.register_tasks(corpus, task_modules)
  rates = task_registry.expand_mixture(name)
  chosen = [
    validation.validate(metric, Metric, name='metrics') for metric in metrics
  ]
  names = {
    task: _add_task(task, vocabulary.vocabulary, pairs, chosen)
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
  name: str, found: base_vocabulary.Vocabulary, pairs, metrics
) -> str:
  languages = task_registry.task_languages(name)
  task = seqio_vocabulary.resolve_deferred(
    task_registry.get_task(name), found, languages=languages
  )
  sides = ('targets',) if len(languages) == 1 else ('inputs', 'targets')
  ids = {
    side + feature_converters.LANGUAGE_SUFFIX: found.language_id(code)
    for side, code in zip(sides, languages, strict=True)
  }
  functions = {
    Metric.LOG_LIKELIHOOD: log_likelihood,
    Metric.EXACT_MATCH: exact_match,
  }
  number = seqio.Feature(
    seqio.PassThroughVocabulary(len(found)), add_eos=False, dtype=tf.int32
  )
  kept = {side: task.output_features[side] for side in sides}
  steps = [*task.preprocessors, _Keep(sides, pairs), _AddLanguages(ids)]
  replaced = task.replace(
    name=name + SUFFIX,
    preprocessors=steps,
    metric_fns=[functions[metric] for metric in metrics],
    output_features=kept | dict.fromkeys(ids, number),
  )
  seqio.TaskRegistry.remove(name + SUFFIX)
  seqio.TaskRegistry.add_provider(name + SUFFIX, replaced)
  return name + SUFFIX


class _Keep:
  """Leaves out what streams leave out: empty texts, pairs by length."""

  def __init__(self, sides: Sequence[str], pairs: dataset_config.PairOptions):
    self._sides, self._pairs = sides, pairs

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def keep(example):
      sizes = [tf.size(example[side]) for side in self._sides]
      if len(sizes) == 1:
        return sizes[0] > 0
      kept = tf.reduce_min(sizes) >= self._pairs.min_tokens
      if self._pairs.max_tokens is not None:
        kept &= tf.reduce_sum(sizes) <= self._pairs.max_tokens
      return kept

    return dataset.filter(keep)


class _AddLanguages:
  """Before: `{'targets': [7]}`; after: also `'targets_language': [1]`."""

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
  """The mean score of a row, in nats."""
  del targets
  return {'log_likelihood': float(np.mean(scores))}


def exact_match(targets, predictions) -> dict[str, float]:
  """Percent of the predictions that are the target."""
  if not targets:
    raise errors.CorpusError(
      'There is no prediction to compare', got='no example'
    )
  hits = [
    str(t).strip() == str(p).strip()
    for t, p in zip(targets, predictions, strict=True)
  ]
  return {'exact_match': 100.0 * float(np.mean(hits))}
