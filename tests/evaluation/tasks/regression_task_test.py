"""Tests of regression with a head that predicts the number of tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import stats

from tests.evaluation import one_hot_model
from tests.evaluation.tasks.classification_task_test import Examples
from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.evaluation.tasks import regression_task
from xlflax.objectives.finetuning import sequence_regression

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths(sequence_regression.SequenceRegression):
  """Predicts the number of tokens."""

  def predict(self, model, params, batch, vocabulary):
    return jnp.sum(batch[batch_keys.SEGMENT_IDS] > 0, axis=1, keepdims=True)


@pytest.fixture(scope='module')
def fixed(eval_model):
  objective = Lengths()
  head = nn.meta.unbox(
    objective.init_heads(eval_model.model, jax.random.key(4))
  )
  return dataclasses.replace(
    eval_model,
    objectives={objective.name: objective},
    inputs={objective.name: one_hot_model.INPUTS},
    params=eval_model.params | {'heads': {objective.name: head}},
  )


def _examples(sentences, scores):
  texts = sentences('en', 2 * len(scores))
  return [
    labeled_examples.RatedPair(
      id=str(i),
      language='en',
      text=texts[2 * i],
      paired_text=texts[2 * i + 1],
      score=score,
    )
    for i, score in enumerate(scores)
  ]


def test_correlations_equal_scipy(fixed, sentences, tmp_path):
  scores = [0.0, 3.2, 5.0, 1.25, None, 4.0]
  examples = _examples(sentences, scores)
  task = regression_task.Regression(source=Examples(parts={'en': examples}))
  result = task.evaluate(fixed)
  lines = result.files['en.tsv'].splitlines()
  encode = fixed.vocabulary.encode
  lengths = [
    len(encode(example.text)) + len(encode(example.paired_text)) + 4
    for example in examples
  ]
  max_length = fixed.model.config.max_position_embeddings
  assert [float(line) for line in lines] == [
    min(length, max_length) for length in lengths
  ]
  rated_indices = [i for i, score in enumerate(scores) if score is not None]
  sides = (
    [scores[i] for i in rated_indices],
    [float(lines[i]) for i in rated_indices],
  )
  for name in ('pearson', 'spearman'):
    expected = getattr(stats, f'{name}r')(*sides).statistic
    assert result.metrics[f'{name}/en'] == pytest.approx(expected)
  assert task.score_metrics == ('pearson', 'spearman')
  (tmp_path / 'en.examples').write_text(result.files['en.examples'])
  assert task.statistics('en', tmp_path)['pearson'].value == pytest.approx(
    result.metrics['pearson/en']
  )


def test_binary_ratings_have_roc_auc(fixed, sentences):
  scores = [0.0, 1.0, 1.0, 0.0, 1.0]
  task = regression_task.Regression(
    source=Examples(
      parts={
        'en': _examples(sentences, scores),
        'de': _examples(sentences, [0.0, 0.5, 1.0]),
      }
    )
  )
  result = task.evaluate(fixed)
  numbers = [float(line) for line in result.files['en.tsv'].splitlines()]
  pairs = [
    (numbers[i] > numbers[j]) + 0.5 * (numbers[i] == numbers[j])
    for i in (1, 2, 4)
    for j in (0, 3)
  ]
  assert result.metrics['roc_auc/en'] == pytest.approx(np.mean(pairs))
  assert 'roc_auc/de' not in result.metrics


def test_labels_store_the_exact_scores(fixed, sentences):
  """`labels` contain the bits of 3.2 and 0.25; unrated pairs have no row."""
  maker = classification_featurizer.RegressionFeaturizer()
  examples = _examples(sentences, [3.2, None, 0.25])
  batch = maker.make(examples, fixed.vocabulary, length=32)
  assert [len(rows) for rows in batch] == [1, 0, 1]
  bits = np.array([batch[i][0][batch_keys.LABELS] for i in (0, 2)], np.int32)
  assert bits.view(np.float32).tolist() == [np.float32(3.2), 0.25]
