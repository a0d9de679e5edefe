import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from xlflax.analysis import sentence_study
from xlflax.evaluation.metrics import retrieval_metrics
from xlflax.utils import errors


@pytest.fixture
def states():
  """Two layers of sentence pairs: a rotation in layer 0, noise in layer 1."""
  rng = np.random.default_rng(0)
  first = rng.normal(size=(2, 80, 6))
  rotation = scipy.stats.ortho_group.rvs(6, random_state=0)
  return sentence_study.SentenceSides(
    first, np.array([first[0] @ rotation, rng.normal(size=(80, 6))])
  )


def _part(sides, rows):
  return sentence_study.SentenceSides(*(side[:, rows] for side in sides))


def test_procrustes_recovers_a_rotation_per_layer(states):
  train, test = _part(states, slice(0, 40)), _part(states, slice(40, 80))
  scores = sentence_study.score_mapped_layers(train, test)
  assert scores.forward[0] == scores.backward[0] == 1
  assert scores.mean[1] < 0.2
  assert retrieval_metrics.score_layers(*test).mean[0] < 0.5


def test_sides_of_different_shapes_are_rejected(states):
  with raises_error(errors.AnalysisError, mentions=(2, 1)):
    sentence_study.score_mapped_layers(
      states, sentence_study.SentenceSides(states.first[:1], states.second)
    )
  with raises_error(errors.AnalysisError, mentions=(80, 70)):
    sentence_study.score_mapped_layers(
      sentence_study.SentenceSides(states.first, states.second[:, :70]), states
    )
