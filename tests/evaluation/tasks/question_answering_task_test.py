"""Tests of extractive question answering: decoding, parts and devices."""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.data.supervised.featurizers.question_featurizer_test import Letters
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.evaluation.tasks.classification_task_test import Examples
from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.evaluation import qa_decoding
from xlflax.evaluation.tasks import question_answering_task
from xlflax.objectives.finetuning import question_answering as objectives
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


def _question(context, answer, answer_start=None, number=0, **more):
  answers = (
    ()
    if answer is None
    else (
      labeled_examples.Answer(
        answer, context.index(answer) if answer_start is None else answer_start
      ),
    )
  )
  return labeled_examples.Question(
    **{
      'id': f'q{number}',
      'language': 'en',
      'question': 'who sleeps',
      'context': context,
      'answers': answers,
      **more,
    }
  )


def _windows(context, length, stride):
  return question_featurizer.QuestionAnsweringFeaturizer(
    doc_stride=stride
  ).windows(
    [_question(context, None, question='xy')], Letters(), length=length
  )[0]


def _brute_force(context, windows, logits, longest):
  """Returns the best spans of all windows by exhaustive search."""
  best_scores = {}
  for number, (window, (start, end)) in enumerate(
    zip(windows, logits, strict=True)
  ):
    for i, j in itertools.product(range(window.num_tokens), repeat=2):
      if not i <= j < i + longest:
        continue
      token = window.first + i

      def margin(other, token=token):
        left_context = token - other.first
        right = other.first + other.num_tokens - 1 - token
        return min(left_context, right) + 0.01 * other.num_tokens

      inside = [
        k
        for k, w in enumerate(windows)
        if w.first <= token and window.first + j < w.first + w.num_tokens
      ]
      owner = max(inside, key=lambda k: (margin(windows[k]), -k))
      if owner != number:
        continue
      text = context[
        slice(*window.characters(window.offset + i, window.offset + j))
      ].strip()
      score = float(start[window.offset + i]) + float(end[window.offset + j])
      best_scores[text] = max(best_scores.get(text, -np.inf), score)
  return sorted(best_scores.items(), key=lambda item: -item[1])


@pytest.mark.parametrize(
  ('length', 'stride', 'longest'),
  [(40, 8, 4), (16, 4, 3), (13, 2, 30), (12, 1, 1)],
)
def test_n_best_equals_brute_force(length, stride, longest):
  context = 'ab cdef ghij klab mnopq r'
  windows = _windows(context, length, stride)
  rng = np.random.default_rng(length)
  logits = [
    tuple(rng.normal(size=(2, length)).astype(np.float32)) for _ in windows
  ]
  best_spans = qa_decoding.n_best(
    context,
    windows,
    logits,
    decoding=qa_decoding.Decoding(n_best_size=7, max_answer_length=longest),
  )
  expected = _brute_force(context, windows, logits, longest)[:7]
  assert [c.text for c in best_spans] == [text for text, _ in expected]
  np.testing.assert_allclose(
    [c.score for c in best_spans], [score for _, score in expected], rtol=1e-6
  )
  for candidate in best_spans:
    assert context[candidate.start :].startswith(candidate.text)


def test_gold_positions_decode_to_the_gold_text():
  context = '猫が いる。 東京（2021年）に 住む'
  windows = _windows(context, 14, 3)
  for start, stop in itertools.combinations(range(len(context) + 1), 2):
    text = context[start:stop]
    if text != text.strip():
      continue
    logits, held = [], False
    for window in windows:
      arrays = np.full((2, 14), -9.0)
      positions = window.positions(start, stop)
      if positions is not None:
        arrays[0, positions[0]] = arrays[1, positions[1]] = 9
        held = True
      logits.append(tuple(arrays))
    if held and stop - start < 5:
      best = qa_decoding.n_best(context, windows, logits)[0]
      assert best.text == text


@pytest.mark.parametrize(
  'threshold, expected', [(None, 'b'), (0.0, ''), (2.5, 'b')]
)
def test_null_score_threshold(threshold, expected):
  task = question_answering_task.ExtractiveQA(
    source=Examples(parts={}),
    null_score_diff_threshold=threshold,
    rules='squad_v2',
  )
  best = [qa_decoding.Candidate(3.0, 'b', 0)]
  logits = [
    # 2 above the score of the span
    (np.array([2.5, 0.0]), np.array([2.5, 0.0])),
    (np.array([9.0, 0.0]), np.array([9.0, 0.0])),
  ]
  assert qa_decoding.null_score(logits) == 5
  assert task._select_answer(best, logits) == expected


def test_a_context_without_tokens_has_no_answer():
  assert qa_decoding.n_best('  ', [], []) == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenFinder(objectives.QuestionAnswering):
  """Predicts answers that start and end at a token with this id."""

  token: int

  def predict(self, model, params, batch, vocabulary):
    is_match = (batch[batch_keys.TOKEN_IDS] == self.token) & (
      batch[batch_keys.CONTEXT_MASK] > 0
    )
    logits = jnp.where(is_match, 5.0, 0.0)
    return objectives.SpanLogits(logits, logits)


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


def _task(parts, **settings):
  return question_answering_task.ExtractiveQA(
    source=Examples(parts=parts), length=32, doc_stride=4, **settings
  )


def test_known_predictions_are_scored(eval_model):
  vocabulary = eval_model.vocabulary
  token_finder = _with_head(
    eval_model, TokenFinder(token=vocabulary.encode('warm')[-1])
  )
  context = 'the dog sleeps and the cat drinks warm milk'
  questions = [
    _question(context, 'warm', number=0),
    _question(context, 'the dog', number=1),
    _question(context, 'warm', 3, number=2),
  ]
  blind = [_question(context, None, number=5)]
  crossed = [dataclasses.replace(questions[0], question_language='de')]
  result = _task(
    {'en': questions, 'de': blind, 'en-de': crossed, 'xx': None}
  ).evaluate(token_finder)
  answers = json.loads(result.files['en.json'])
  assert list(answers) == ['q0', 'q1', 'q2']
  assert 'warm' in answers['q0'] and answers['q0'] in context
  exact = answers['q0'] == 'warm'
  assert result.metrics['exact_match/en'] == pytest.approx(2 * exact / 3)
  assert result.metrics['f1/en'] >= result.metrics['exact_match/en']
  assert result.metrics['f1/en-de'] == float(exact)
  assert 'f1/de' not in result.metrics
  assert json.loads(result.files['de.json']) == {'q5': answers['q0']}
  assert result.metrics['f1/mean'] == pytest.approx(
    (result.metrics['f1/en'] + result.metrics['f1/en-de']) / 2
  )
  (problem,) = result.tables['problems']
  assert problem['part'] == 'en'
  assert problem['problem'].startswith('question q2: ')
  notes = ' '.join(result.notes)
  assert 'en: 1 problems' in notes and 'de: 1 of 1 examples' in notes
  assert [f.part for f in result.failures] == ['xx']


def test_file_problems_are_listed_once(eval_model):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class UnpairedExamples(Examples):
    def problems(self, part):
      return ('question q0: the context has it nowhere',)

  context = 'the dog sleeps'
  task = question_answering_task.ExtractiveQA(
    length=32,
    source=UnpairedExamples(parts={'en': [_question(context, 'cow', -1)]}),
  )
  result = task.evaluate(_with_head(eval_model, objectives.QuestionAnswering()))
  assert [row['problem'] for row in result.tables['problems']] == [
    'question q0: the context has it nowhere'
  ]
  assert result.metrics['exact_match/en'] == 0  # Scored by its text.


def test_answers_do_not_depend_on_devices_and_batch_size(eval_model, sentences):
  trained = _with_head(eval_model, objectives.QuestionAnswering())
  examples = [
    _question(' '.join(sentences('en', 3 + i)), 'the', number=i)
    for i in range(5)
  ]
  task = _task({'en': examples})
  single_device_result = task.evaluate(trained)
  assert (
    len(set(json.loads(single_device_result.files['en.json']).values())) > 1
  )
  eight = task.evaluate(
    dataclasses.replace(trained, partitioner=partitioning.Partitioner())
  )
  small = task.evaluate(dataclasses.replace(trained, batch_size=3))
  assert single_device_result.files == eight.files == small.files
  assert single_device_result.metrics == eight.metrics == small.metrics


def test_invalid_settings_and_heads_are_rejected(eval_model):
  with raises_error(
    errors.ConfigError, got=0, where='ExtractiveQA.n_best_size'
  ):
    _task({}, n_best_size=0)
  with raises_error(
    errors.ConfigError, got='trivia', where='ExtractiveQA.rules'
  ):
    _task({}, rules='trivia')
  with raises_error(errors.ConfigError, got=0, where='ExtractiveQA.doc_stride'):
    question_answering_task.ExtractiveQA(
      source=Examples(parts={}), doc_stride=0
    )
  trained = _with_head(eval_model, objectives.QuestionAnswering())
  result = _task(
    {'en': [], 'sw': [_question('the dog', 'dog')]}, rules='mlqa'
  ).evaluate(trained)
  assert result.metrics['f1/sw'] >= 0  # The language of the answers is English.
  assert 'no example' in result.failures[0].message
