"""Tests of retrieval predictions for texts that equal their translations."""

import dataclasses

import pytest

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation.tasks import retrieval_predictions

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True)
class Held(example_source.BitextMiningSource):
  gold: frozenset | None

  def languages(self):
    return ('de-en',)

  def load(self, part):
    texts = ['der Hund', 'die kleine Katze', 'und', 'warme Milch']
    return labeled_examples.BitextSentences(
      languages=('de', 'de'),
      gold=self.gold,
      first={str(i): text for i, text in enumerate(texts)},
      second={f'en{i}': texts[i] for i in (2, 0, 1)},
    )


def test_predictions_and_accuracy(eval_model):
  task = retrieval_predictions.RetrievalPredictions(
    source=Held(frozenset({('0', 'en0'), ('1', 'en1'), ('3', 'en2')}))
  )
  result = task.evaluate(eval_model)
  # One line per target sentence with the line number of its source.
  assert result.files['de-en.tsv'] == '2\n0\n1\n'
  assert list(result.files) == ['de-en.tsv', 'de-en.examples']
  assert result.metrics == {
    'accuracy/de-en': pytest.approx(2 / 3),
    'accuracy/mean': pytest.approx(2 / 3),
  }


def test_blind_test_set_has_only_predictions(eval_model):
  result = retrieval_predictions.RetrievalPredictions(
    source=Held(None)
  ).evaluate(eval_model)
  assert result.metrics == {} and list(result.files) == ['de-en.tsv']
  assert any('no gold pairs' in note for note in result.notes)
