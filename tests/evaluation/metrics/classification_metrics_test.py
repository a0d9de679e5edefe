import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from tests.errors import raises_error
from xlflax.evaluation.metrics import classification_metrics
from xlflax.utils import errors


def test_scores_computed_by_hand():
  scores = classification_metrics.classification_scores(
    list('aabb'), list('abbb')
  )
  assert scores.accuracy == 0.75
  assert scores.macro_f1 == pytest.approx((2 / 3 + 4 / 5) / 2)
  assert scores.labels == ('a', 'b')
  assert scores.confusion.tolist() == [[1, 1], [0, 2]]
  assert scores.correct.rows[:, 0].tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize('seed', range(5))
def test_scores_equal_scikit_learn(seed):
  random = np.random.default_rng(seed)
  gold, predicted = (random.choice(list('abcd'), 60).tolist() for _ in range(2))
  scores = classification_metrics.classification_scores(gold, predicted)
  assert scores.accuracy == pytest.approx(
    sklearn_metrics.accuracy_score(gold, predicted)
  )
  assert scores.macro_f1 == pytest.approx(
    sklearn_metrics.f1_score(gold, predicted, average='macro')
  )
  np.testing.assert_array_equal(
    scores.confusion, sklearn_metrics.confusion_matrix(gold, predicted)
  )


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
@pytest.mark.parametrize('seed', range(20))
def test_positive_class_scores_equal_scikit_learn(seed):
  """Compares GLUE's F1 and Matthews correlation, also for degenerate classes."""
  random = np.random.default_rng(seed)
  positive_rates = random.choice([0.0, 0.05, 0.5, 1.0], 2)
  gold, predicted = (
    (random.random(40) < p).astype(int) for p in positive_rates
  )
  scores = classification_metrics.of_positive(
    list(map(str, gold)), list(map(str, predicted)), '1'
  )
  assert scores['f1'].value == pytest.approx(
    sklearn_metrics.f1_score(gold, predicted, zero_division=0)
  )
  assert scores['matthews'].value == pytest.approx(
    sklearn_metrics.matthews_corrcoef(gold, predicted)
  )


def test_absent_classes_do_not_count():
  scores = classification_metrics.classification_scores(
    ['a'], ['a'], labels=['a', 'b']
  )
  assert scores.macro_f1 == 1
  assert scores.confusion.shape == (2, 2)


@pytest.mark.parametrize(
  'gold, predicted, labels, values',
  [
    ([], [], None, 0),
    (['a'], ['a', 'b'], None, (2, 1)),
    (['a'], ['z'], ['a', 'b'], 'z'),
  ],
)
def test_invalid_input_raises(gold, predicted, labels, values):
  with raises_error(errors.CorpusError, mentions=values):
    classification_metrics.classification_scores(gold, predicted, labels=labels)
