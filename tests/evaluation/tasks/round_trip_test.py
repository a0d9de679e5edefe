"""Tests of round-trip accuracy with chains of links and a loop over cosines."""

import dataclasses

import numpy as np
import pytest
from scipy.spatial import distance

from tests.errors import assert_mentions
from xlflax.evaluation import eval_task, hidden_states, text_sources
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.evaluation.tasks import round_trip

pytest_plugins = ['tests.evaluation.fixtures']


def _links(rows, columns, *pairs):
  matrix = np.zeros((rows, columns), bool)
  for pair in pairs:
    matrix[pair] = True
  return matrix


def test_round_trip_words_computed_by_hand():
  # 0 -> 1 -> 0 returns, 1 -> 0 -> 2 does not, 2 has no link, 3 -> 2 -> 3 or 1.
  links = _links(4, 3, (0, 1), (1, 0), (3, 2))
  back = _links(3, 4, (1, 0), (0, 2), (2, 3), (2, 1))
  assert alignment_error_rate.round_trip_words([links, back]).tolist() == [
    True,
    False,
    False,
    True,
  ]
  assert alignment_error_rate.round_trip_words(
    [links, back], max_words=1
  ).tolist() == [True, False, False, False]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemoryText(text_sources.TextSource):
  """Lines in memory."""

  text: dict

  def languages_found(self):
    return tuple(self.text)

  def load(self, language):
    return self.text[language]


def _token_states(eval_model, text, language, layer):
  """Returns states [T, H] of one sentence without special tokens."""
  ids = eval_model.vocabulary.encode(text, language=language)
  number = eval_model.vocabulary.language_id(language)
  length = 32
  batch = hidden_states.token_rows(
    [ids], np.array([number]), 1, length, eval_model.vocabulary.spec
  )
  layer_states = hidden_states.layer_states(
    eval_model.model, eval_model.params['model'], batch
  )
  return np.asarray(layer_states)[layer, 0, 1 : len(ids) + 1]


def _count_returning_tokens(eval_model, texts, layer):
  """Returns (returning tokens, tokens) of a sentence in each language."""
  sides = [
    _token_states(eval_model, text, code, layer) for code, text in texts.items()
  ]
  returned = 0
  for start in range(len(sides[0])):
    position = start
    for side, following in zip(sides, sides[1:] + sides[:1], strict=True):
      cosine = 1 - distance.cdist(side, following, 'cosine')
      target = int(cosine[position].argmax())
      if int(cosine[:, target].argmax()) != position:
        position = None
        break
      position = target
    returned += position == start
  return returned, len(sides[0])


@pytest.mark.slow
def test_accuracy_equals_a_loop(eval_model, sentences):
  text = {code: sentences(code, 6) for code in ('de', 'en', 'ja')}
  task = round_trip.RoundTrip(source=InMemoryText(text=text), layer=1)
  result = eval_task.evaluate_task(task, eval_model)
  assert not result.failures
  assert result.layers == (1,)
  chains = [('de', 'en', 'ja'), ('en', 'ja', 'de'), ('ja', 'de', 'en')]
  accuracies = []
  for chain in chains:
    round_trip_accuracies = np.array(
      [
        _count_returning_tokens(
          eval_model, {code: text[code][i] for code in chain}, 1
        )
        for i in range(6)
      ]
    )
    name = '-'.join(chain)
    accuracies.append(
      round_trip_accuracies[:, 0].sum() / round_trip_accuracies[:, 1].sum()
    )
    assert result.metrics[f'accuracy/{name}'] == pytest.approx(accuracies[-1])
    assert result.metrics[f'tokens/{name}'] == round_trip_accuracies[:, 1].sum()
  assert result.metrics['accuracy/mean'] == pytest.approx(np.mean(accuracies))
  assert 0 < result.metrics['accuracy/mean'] < 1
  assert 'tokens/mean' not in result.metrics


def test_truncated_sentences_are_counted(eval_model):
  long = 'der Hund ' * 30
  task = round_trip.RoundTrip(
    source=InMemoryText(
      text={'de': ['der Hund', long], 'en': ['the dog', 'dog']}
    ),
    max_length=16,
  )
  notes = task.evaluate(eval_model).notes
  assert [n for n in notes if 'truncated' in n] == [
    '1 sentence of de was truncated'
  ]


def test_identical_sentences_return_completely(eval_model):
  # Equal tokens in a sentence would differ only in their positions.
  task = round_trip.RoundTrip(
    source=InMemoryText(text={'de': ['der Hund', '']}),
    language_cycles=('de-de',),
  )
  assert task.evaluate(eval_model).metrics['accuracy/de-de'] == 1.0


def test_invalid_cycles_are_reported(eval_model):
  text = {'de': ['der Hund', 'die Katze'], 'en': ['the dog'], 'ja': ['', '']}
  task = round_trip.RoundTrip(
    source=InMemoryText(text=text),
    language_cycles=('de-en', 'de', 'de-ja', 'ja-de'),
  )
  result = task.evaluate(eval_model)
  messages = {failure.part: failure.message for failure in result.failures}
  assert_mentions(messages['de-en'], 2, 1, 'de-en')
  assert_mentions(messages['de'], 2, 'de')
  assert 'ja-de' in messages
  assert result.metrics['accuracy/de-ja'] == 0.0
