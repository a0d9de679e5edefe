"""Tests of user-defined tasks on sentence vectors."""

import dataclasses
import logging

import numpy as np
import pytest

from tests.errors import assert_mentions
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.tasks import sentence_task

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OwnRetrieval(sentence_task.SentenceTask):
  """Retrieval between pairs of sides, each given as a list of texts."""

  METRICS = (metric.ACCURACY,)
  name: str = 'own_retrieval_of_the_tests'
  sides: tuple = ()

  def evaluate(self, eval_model):
    notes, metrics = [], {}
    for i, (first, second) in enumerate(self.sides):
      x, y = (
        self.vectors(eval_model, texts, ['de'] * len(texts), notes)
        for texts in (first, second)
      )
      ranks = np.argmax(-np.square(x[:, None] - y).sum(-1), axis=1)
      metrics[f'accuracy/{i}'] = float(np.mean(ranks == np.arange(len(x))))
    return eval_task.EvalResult(metrics=metrics, notes=tuple(notes))


def _evaluate(eval_model, caplog, *sides):
  caplog.set_level(logging.WARNING)
  result = eval_task.evaluate_task(_OwnRetrieval(sides=sides), eval_model)
  assert not result.failures
  warnings = [text for text in caplog.messages if 'self.vectors' in text]
  return result, warnings


def test_encoding_the_same_side_twice_causes_a_warning(
  eval_model, sentences, caplog
):
  first, second = sentences('de', 9), sentences('de', 8)
  sides = (first, list(first)), (second, list(second))
  result, (warning,) = _evaluate(eval_model, caplog, *sides)
  assert result.metrics['accuracy/mean'] == 1
  assert_mentions(warning, '_OwnRetrieval.evaluate', 'accuracy')
  assert 'accuracy' in result.notes[-1]


@pytest.mark.parametrize('is_perfect', [True, False])
def test_different_sides_cause_no_warning(
  eval_model, sentences, caplog, is_perfect
):
  """Sides that are encoded for two pairs do not cause a warning either."""
  first, second = sentences('de', 9), sentences('en', 9)
  sides = (first, second), (second, first)
  if is_perfect:
    moved = [*first[:-1], f'{first[-1]} {first[-1]}']
    sides = (first, moved), (moved, first)
  result, warnings = _evaluate(eval_model, caplog, *sides)
  assert not warnings
  assert (result.metrics['accuracy/mean'] == 1) == is_perfect
  assert any('best possible' in note for note in result.notes) == is_perfect


@pytest.mark.parametrize(
  ('spread', 'count', 'expected'),
  [(1e-7, 5, True), (1e-3, 5, False), (1e-7, 1, False)],
)
def test_almost_equal_vectors_are_detected(spread, count, expected):
  noise = np.random.default_rng(0).normal(size=(count, 8))
  vectors = (np.ones((1, 8)) + spread * noise).astype(np.float32)
  assert sentence_task.are_collapsed(vectors) == expected
