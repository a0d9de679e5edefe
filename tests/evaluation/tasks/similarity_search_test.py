"""Compares xsim and xsim++ with a plain loop."""

import dataclasses

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.evaluation import eval_task, hidden_states, text_sources
from xlflax.evaluation.tasks import similarity_search
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


def _expected_errors(first, second, texts, k=4):
  """Returns the errors of LASER's ratio margin, computed pair by pair."""
  first, second = (
    x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)
  )
  cosines = first @ second.T
  ahead = -np.sort(-cosines, 1)[:, :k].mean(1)
  behind = -np.sort(-cosines, 0)[:k].mean(0)
  wrong = 0
  for i, row in enumerate(cosines):
    near = np.argsort(-row)[:k]
    best = max(near, key=lambda j, i=i: cosines[i, j] / (ahead[i] + behind[j]))
    wrong += texts[best] != texts[i]
  return wrong / len(first)


@pytest.mark.parametrize('extra', [0, 30])
def test_error_rate_equals_a_plain_loop(extra):
  random = np.random.default_rng(extra)
  first = random.normal(size=(40, 6)) + 2
  second = np.concatenate(
    [first + random.normal(size=(40, 6)), random.normal(size=(extra, 6)) + 2]
  )
  texts = [str(i) for i in range(40 + extra)]
  error_rate = similarity_search.search_errors(first, second, texts).value
  assert 0 < error_rate < 1
  assert error_rate == pytest.approx(_expected_errors(first, second, texts))


def test_altered_sentences_increase_the_error_rate(eval_model, tmp_path):
  lines = ['der Hund', 'die kleine Katze', 'und', 'warme Milch', 'Hund und']
  (tmp_path / 'de').write_text(''.join(f'{line}\n' for line in lines))
  (tmp_path / 'altered').write_text('der Hund und\nwarme\n')
  source = text_sources.ParallelFiles(
    files={'en-de': (str(tmp_path / 'de'), str(tmp_path / 'de'))}
  )
  task = similarity_search.SimilaritySearch(
    source=source, altered={'de': str(tmp_path / 'altered')}, margin='absolute'
  )
  metrics = task.evaluate(eval_model).metrics
  assert set(metrics) == {
    f'{name}/{part}' for name in ('xsim', 'xsim++') for part in ('de', 'mean')
  }
  assert metrics['xsim/de'] <= metrics['xsim++/de']
  before = eval_task.task_settings(task)
  (tmp_path / 'altered').write_text('der Hund und\nkalte\n')
  assert eval_task.task_settings(task) != before
  strange = dataclasses.replace(
    task, altered={'deu': str(tmp_path / 'altered')}
  )
  with raises_error(errors.ConfigError, got='deu'):
    strange.evaluate(eval_model)


def test_altered_sentences_are_centered_with_the_translations(
  eval_model, sentences, tmp_path
):
  text = sentences('de', 50), sentences('en', 50)
  altered = sentences('en', 80)[50:]
  for name, lines in zip('abc', (*text, altered), strict=True):
    (tmp_path / name).write_text(''.join(f'{line}\n' for line in lines))
  task = similarity_search.SimilaritySearch(
    source=text_sources.ParallelFiles(
      files={'de-en': (str(tmp_path / 'a'), str(tmp_path / 'b'))}
    ),
    altered={'en': str(tmp_path / 'c')},
  )
  result = task.evaluate(eval_model)
  first = hidden_states.sentence_states(eval_model, text[0], [0] * 50).states[
    -1
  ]
  second = hidden_states.sentence_states(
    eval_model, [*text[1], *altered], [1] * 80
  ).states[-1]
  first, second = first - first.mean(0), second - second[:50].mean(0)
  for name, count in (('xsim', 50), ('xsim++', 80)):
    expected = _expected_errors(first, second[:count], [*text[1], *altered])
    assert result.metrics[f'{name}/de'] == pytest.approx(expected)
  assert 'the mean of its language is subtracted from each vector' in (
    result.notes
  )
