"""Tests of the classification task with a head of fixed predictions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.errors import assert_mentions
from tests.evaluation import one_hot_model
from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, head_predictions
from xlflax.evaluation.tasks import classification_task
from xlflax.objectives.finetuning import (
  question_answering,
  sequence_classification,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_LABELS = ('no', 'yes', 'unclear')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths(sequence_classification.SequenceClassification):
  """Predicts the class with the index of the number of tokens modulo three."""

  def predict(self, model, params, batch, vocabulary):
    count = jnp.sum(batch[batch_keys.SEGMENT_IDS] > 0, axis=1)
    return jax.nn.one_hot(count % 3, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples(example_source.ExampleSource):
  """Examples by part; a part without examples raises an error."""

  parts: dict

  def languages(self):
    return tuple(self.parts)

  def load(self, part):
    if self.parts[part] is None:
      raise errors.CorpusError('The file is broken', where=part)
    return self.parts[part]


def make_examples(sentences, language, labels, paired=True):
  texts = sentences(language, 2 * len(labels))
  return [
    labeled_examples.ClassifiedText(
      id=str(i),
      language=language,
      text=texts[2 * i],
      paired_text=texts[2 * i + 1] if paired else None,
      label=label,
    )
    for i, label in enumerate(labels)
  ]


def _with_head(eval_model, objective):
  head = nn.meta.unbox(
    objective.init_heads(eval_model.model, jax.random.key(4))
  )
  return dataclasses.replace(
    eval_model,
    objectives={objective.name: objective},
    inputs={objective.name: one_hot_model.INPUTS},
    params=eval_model.params | {'heads': {objective.name: head}},
  )


@pytest.fixture(scope='module')
def fixed(eval_model):
  return _with_head(eval_model, Lengths(labels=_LABELS))


def _expected(eval_model, examples, length=32):
  encode = eval_model.vocabulary.encode
  return [
    _LABELS[
      min(length, sum(len(encode(t)) + 2 for t in (e.text, e.paired_text) if t))
      % 3
    ]
    for e in examples
  ]


def test_truncated_rows_are_reported(fixed, sentences):
  """The notes count the rows that may be truncated, like training warnings."""
  examples = make_examples(sentences, 'en', ['yes'] * 4)
  long = classification_task.Classification(
    source=Examples(parts={'en': examples}), length=None
  )
  assert_mentions(long.evaluate(fixed).notes[0], 'en', '2 of 4', 32)
  result = dataclasses.replace(long, length=6).evaluate(fixed)
  _, note = result.notes
  assert_mentions(note, 'en', '4 of 4', 6)


def test_scores_of_known_predictions(fixed, sentences):
  blank = make_examples(sentences, 'en', [None] * 20)
  right = _expected(fixed, blank)
  gold = ['yes' if i < 5 else label for i, label in enumerate(right)]
  labeled = [
    dataclasses.replace(e, label=label)
    for e, label in zip(blank, gold, strict=True)
  ]
  single = [
    dataclasses.replace(e, paired_text=None, language='de') for e in labeled
  ]
  result = classification_task.Classification(
    source=Examples(
      parts={'en': labeled, 'de': single, 'ja': blank, 'xx': None}
    )
  ).evaluate(fixed)
  share = np.mean([a == b for a, b in zip(gold, right, strict=True)])
  assert 0 < share < 1
  assert result.metrics['accuracy/en'] == pytest.approx(share)
  other = np.mean(
    [a == b for a, b in zip(gold, _expected(fixed, single), strict=True)]
  )
  assert result.metrics['accuracy/de'] == pytest.approx(other)
  assert result.metrics['accuracy/mean'] == pytest.approx((share + other) / 2)
  assert (
    result.metrics['majority/en']
    == max(gold.count(label) for label in _LABELS) / 20
  )
  assert result.files['en.tsv'].splitlines() == right
  counted = {
    (r['gold'], r['predicted']): r['examples']
    for r in result.tables['confusion']
    if r['part'] == 'en'
  }
  assert counted['yes', 'yes'] == sum(
    a == b == 'yes' for a, b in zip(gold, right, strict=True)
  )
  assert sum(counted.values()) == 20
  # A blind part has only predictions, and an invalid part is a failure.
  assert 'accuracy/ja' not in result.metrics
  assert result.files['ja.tsv'].splitlines() == right
  assert any(
    'ja: 20 of 20 examples have no gold labels' in n for n in result.notes
  )
  assert [f.part for f in result.failures] == ['xx']
  assert 'The file is broken' in result.failures[0].message


def test_majority_mean_covers_only_scored_parts(fixed, sentences):
  labels = {
    'en': ['yes', 'yes', 'yes', 'no'],  # majority class: 3 of 4
    'de': ['yes', 'no', 'no', 'no', 'no'],  # majority class: 4 of 5
    'ja': [None] * 4,
  }
  parts = {
    part: make_examples(sentences, part, values)
    for part, values in labels.items()
  }
  result = classification_task.Classification(
    source=Examples(parts=parts | {'xx': None})
  ).evaluate(fixed)
  assert 'accuracy/mean' in result.metrics
  assert result.metrics['majority/mean'] == pytest.approx((3 / 4 + 4 / 5) / 2)


def test_examples_without_labels_are_skipped(fixed, sentences):
  mixed = make_examples(sentences, 'en', ['yes', None, 'no', 'yes'])
  labeled = [example for example in mixed if example.label is not None]
  task = classification_task.Classification(
    source=Examples(parts={'en': mixed})
  )
  result = task.evaluate(fixed)
  alone = dataclasses.replace(
    task, source=Examples(parts={'en': labeled})
  ).evaluate(fixed)
  assert result.metrics == alone.metrics
  assert len(result.files['en.tsv'].splitlines()) == 4
  assert 'en: 1 of 4 examples have no gold labels and are not scored' in (
    result.notes
  )


def test_unseen_labels_are_rejected_or_count_as_wrong(fixed, sentences):
  source = Examples(
    parts={'en': make_examples(sentences, 'en', ['yes', 'perhaps'])}
  )
  strict = classification_task.Classification(source=source, unseen='error')
  result = strict.evaluate(fixed)
  assert not result.metrics
  message = result.failures[0].message
  assert_mentions(message, "'1'", "'en'", 'Got: perhaps')
  other = Examples(parts={'en': make_examples(sentences, 'en', ['0', '1'])})
  result = classification_task.Classification(source=other).evaluate(fixed)
  # All labels are unknown.
  assert_mentions(result.failures[0].message, "'en'", 'Got: 0')
  result = classification_task.Classification(source=source).evaluate(fixed)
  assert result.metrics['accuracy/en'] <= 0.5
  assert not result.failures
  assert any('perhaps (1)' in note for note in result.notes)


def test_examples_of_another_kind_are_rejected(fixed):
  source = Examples(
    parts={
      'en': [],
      'de': [
        labeled_examples.TaggedSentence(id='0', language='de', words=('a',))
      ],
    }
  )
  result = classification_task.Classification(source=source).evaluate(fixed)
  assert [
    'no example' in f.message or 'tagging examples' in f.message
    for f in result.failures
  ] == [True, True]


def test_run_without_the_head_is_rejected(eval_model, fixed):
  task = classification_task.Classification(source=Examples(parts={}))
  for other, error in (
    (eval_model, errors.ConfigError),
    (
      _with_head(
        eval_model,
        question_answering.QuestionAnswering(name='sequence_classification'),
      ),
      errors.ConfigError,
    ),
    (
      dataclasses.replace(fixed, params=eval_model.params),
      errors.CheckpointError,
    ),
  ):
    with pytest.raises(error):
      task.evaluate(other)


@pytest.fixture(scope='module')
def trained(eval_model):
  return _with_head(
    eval_model, sequence_classification.SequenceClassification(labels=_LABELS)
  )


def test_predictions_do_not_depend_on_devices_and_batch_size(
  trained, sentences
):
  examples = make_examples(sentences, 'en', ['yes'] * 13)
  task = classification_task.Classification(
    source=Examples(parts={'en': examples})
  )
  single_device_result = task.evaluate(trained)
  assert len(set(single_device_result.files['en.tsv'].split())) > 1
  eight = task.evaluate(
    dataclasses.replace(trained, partitioner=partitioning.Partitioner())
  )
  small = task.evaluate(dataclasses.replace(trained, batch_size=3))
  assert single_device_result.files == eight.files == small.files
  assert single_device_result.metrics == eight.metrics == small.metrics


def test_logits_are_in_the_order_of_rows(trained, sentences):
  objective = trained.objectives['sequence_classification']
  task = classification_task.Classification(source=Examples(parts={}))
  maker = (
    classification_task.classification_featurizer.ClassificationFeaturizer(
      labels=_LABELS
    )
  )
  examples = make_examples(sentences, 'de', [None] * 7)
  rows = maker.text_rows(examples, trained.vocabulary, length=32)
  logits_by_row = dict(
    head_predictions.predict_rows(
      trained, objective, rows, maker, max_length=32
    )
  )
  assert sorted(logits_by_row) == list(range(7))
  for index in (0, 6):
    ((_, alone),) = head_predictions.predict_rows(
      trained, objective, [rows[index]], maker, max_length=32
    )
    np.testing.assert_allclose(logits_by_row[index], alone, atol=1e-5)
  assert task.primary_metric == 'accuracy'
  assert (
    list(
      head_predictions.predict_rows(
        trained, objective, [], maker, max_length=32
      )
    )
    == []
  )


def test_settings_are_part_of_the_identity(sentences):
  source = Examples(parts={'en': make_examples(sentences, 'en', ['yes'])})
  task = classification_task.Classification(source=source, separator='bert')
  settings = eval_task.task_settings(task)
  assert settings['separator'] == 'bert'
  assert 'fingerprint' in settings['source']


def test_positive_class_adds_glue_metrics(fixed, sentences):
  examples = make_examples(sentences, 'en', ['yes', 'no', 'yes', 'yes'])
  result = classification_task.Classification(
    source=Examples(parts={'en': examples}), positive='yes', length=32
  ).evaluate(fixed)
  predicted_positive = [
    prediction == 'yes' for prediction in _expected(fixed, examples)
  ]
  right = predicted_positive[0] + predicted_positive[2] + predicted_positive[3]
  assert result.metrics['f1/en'] == pytest.approx(
    2 * right / (sum(predicted_positive) + 3)
  )
  assert 'matthews/mean' in result.metrics
  plain = classification_task.Classification(
    source=Examples(parts={'en': examples})
  )
  assert 'f1/en' not in plain.evaluate(fixed).metrics


def test_unknown_positive_class_adds_no_metrics(fixed, sentences):
  examples = make_examples(sentences, 'en', ['yes', 'no'])
  result = classification_task.Classification(
    source=Examples(parts={'en': examples}), positive='1', length=32
  ).evaluate(fixed)
  assert 'f1/en' not in result.metrics
