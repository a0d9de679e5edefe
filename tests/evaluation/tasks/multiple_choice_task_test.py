"""Tests of multiple choice with known scores: files, accuracy and loss."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.data.labeled_words import WordVocabulary
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.featurizers import choice_featurizer, featurizer
from xlflax.evaluation.tasks import multiple_choice_task
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning import multiple_choice
from xlflax.training import train_step
from xlflax.utils import errors

_WORDS = ('rain', 'wet', 'dry', 'sun', 'What', 'was', 'the', 'cause?')
_OBJECTIVE = multiple_choice.MultipleChoice(
  num_choices=2, pooling='mean', head_type='output', head_dropout=0.0
)


def _line(first, second, label=None, question='cause'):
  return json.dumps(
    {
      'premise': 'rain',
      'question': question,
      'choice1': first,
      'choice2': second,
    }
    | ({} if label is None else {'label': label})
  )


@pytest.fixture
def read(tmp_path):
  def make(*lines):
    path = tmp_path / 'a.jsonl'
    path.write_text('\n'.join(lines) + '\n')
    return file_formats.read_files('xcopa', str(path), 'en').examples

  return make


@pytest.fixture(scope='module')
def eval_model():
  """Model that gives `wet` the highest score and `dry` the lowest."""
  vocabulary = WordVocabulary(_WORDS)
  kernel = np.zeros((32, 1), np.float32)
  kernel[one_hot_model.piece(vocabulary, 'wet')] = 9
  kernel[one_hot_model.piece(vocabulary, 'dry')] = -9
  head = {'output': {'kernel': kernel, 'bias': np.zeros(1, np.float32)}}
  return one_hot_model.make_eval_model(
    _OBJECTIVE, head, vocabulary, batch_size=4
  )


def test_accuracy_and_files(eval_model, read):
  gold = read(
    _line('wet', 'dry', 0), _line('sun', 'wet', 0), _line('sun', 'dry', 0)
  )
  blind = read(_line('dry', 'wet'))
  task = multiple_choice_task.MultipleChoice(
    source=one_hot_model.Held(parts=(('en', gold), ('sw', blind)))
  )
  result = task.evaluate(eval_model)
  assert result.files['en.jsonl'] == (
    '{"label": 0}\n{"label": 1}\n{"label": 0}\n'
  )
  assert result.files['sw.jsonl'] == '{"label": 1}\n'
  assert result.metrics == {
    'accuracy/en': pytest.approx(2 / 3),
    'accuracy/mean': pytest.approx(2 / 3),
    'chance/en': 0.5,
    'chance/mean': 0.5,
  }
  assert json.loads(result.files['en.examples']).keys() == {'accuracy'}
  assert result.notes == ('sw: the choices have no labels and are not scored',)


def _context(eval_model, **more):
  return objective_base.ObjectiveContext(
    vocabulary=eval_model.vocabulary.spec,
    step=jnp.int32(0),
    rng=jax.random.key(0),
    train=False,
    **more,
  )


def _batch(eval_model, examples, size):
  maker = choice_featurizer.MultipleChoiceFeaturizer()
  rows = [
    row
    for batch in maker.make(examples, eval_model.vocabulary, length=16)
    for row in batch
  ]
  fields = maker.fields(16, eval_model.vocabulary.spec)
  batch = featurizer.stack_features(rows, fields)
  padding = {
    key: np.full((size - len(rows), *value.shape[1:]), field.fill, value.dtype)
    for (key, value), field in zip(
      batch.items(), (fields[key] for key in batch), strict=True
    )
  }
  return {
    key: jnp.asarray(np.concatenate([value, padding[key]]))
    for key, value in batch.items()
  }


def test_loss_computed_by_hand(eval_model, read):
  """Also checks jit, padding rows and finite gradients."""
  examples = read(_line('wet', 'dry', 0), _line('sun', 'sun', 1))
  context = _context(eval_model)

  def output(params, batch):
    return _OBJECTIVE(eval_model.model, params, batch, context)

  batch = _batch(eval_model, examples, 4)
  scores = _OBJECTIVE.predict(
    eval_model.model, eval_model.params, batch, eval_model.vocabulary.spec
  )
  first = np.log(1 + np.exp(float(scores[1] - scores[0])))
  loss_output = output(eval_model.params, batch)
  assert float(loss_output.loss.total) == pytest.approx(
    first + np.log(2), rel=1e-5
  )
  assert float(loss_output.loss.weight) == 2
  padded = jax.jit(output)(eval_model.params, _batch(eval_model, examples, 8))
  assert float(padded.loss.total) == pytest.approx(
    float(loss_output.loss.total)
  )
  assert float(padded.loss.weight) == 2
  gradient = jax.grad(lambda p: output(p, batch).loss.total)(eval_model.params)
  leaves = jax.tree.leaves(gradient['heads'])
  assert all(np.isfinite(x).all() for x in leaves)
  assert any(np.abs(x).max() > 0 for x in leaves)


def test_loss_is_a_sum_over_questions(eval_model, read):
  """Compares with SciPy, parts of the batch and finite differences."""
  lines = (_line('wet', 'dry', 0), _line('sun', 'wet', 1), _line('dry', 'x', 0))
  context = _context(eval_model)

  @jax.jit
  def output(params, batch):
    return _OBJECTIVE(eval_model.model, params, batch, context)

  def total(params, batch):
    return float(output(params, batch).loss.total)

  batch = _batch(eval_model, read(*lines), 6)
  scores = np.asarray(
    _OBJECTIVE.predict(
      eval_model.model, eval_model.params, batch, eval_model.vocabulary.spec
    )
  ).reshape(3, 2)
  expected = -special.log_softmax(scores, -1)[[0, 1, 2], [0, 1, 0]]
  loss_output = output(eval_model.params, batch)
  np.testing.assert_allclose(loss_output.loss.total, expected.sum(), rtol=1e-5)
  right = loss_output.metrics['multiple_choice/accuracy']
  assert (
    right.weight.sum() == 3
    and right.total.sum() == (scores.argmax(-1) == [0, 1, 0]).sum()
  )
  alone = [
    total(eval_model.params, _batch(eval_model, read(line), 6))
    for line in lines
  ]
  np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-6)
  blind = batch | {'labels': jnp.full(6, -1)}
  blind_output = output(eval_model.params, blind)
  assert float(blind_output.loss.total) == float(blind_output.loss.weight) == 0
  kernel = eval_model.params['heads']['multiple_choice']['output']['kernel']
  slopes = jax.grad(
    lambda k: output(_with(eval_model.params, k), batch).loss.total
  )(kernel)
  step = np.random.default_rng(0).normal(size=kernel.shape).astype(np.float32)
  ahead, behind = (
    total(_with(eval_model.params, kernel + sign * 1e-2 * step), batch)
    for sign in (1, -1)
  )
  assert float(np.vdot(slopes, step)) == pytest.approx(
    (ahead - behind) / 2e-2, rel=2e-2
  )


def _with(params, kernel):
  head = params['heads']['multiple_choice']['output'] | {'kernel': kernel}
  return params | {'heads': {'multiple_choice': {'output': head}}}


def test_invalid_settings_and_batches_are_rejected(eval_model, read):
  with raises_error(
    errors.ConfigError, got=1, where='MultipleChoice.num_choices'
  ):
    multiple_choice.MultipleChoice(num_choices=1)
  three = dataclasses.replace(_OBJECTIVE, num_choices=3)
  batch = _batch(eval_model, read(_line('wet', 'dry', 0)), 2)
  context = _context(eval_model)
  with raises_error(errors.ConfigError, mentions=(2, 'group_size')):
    three(eval_model.model, eval_model.params, batch, context)


def test_micro_batches_contain_complete_questions(eval_model, read):
  """Losses and weights of the micro-batches sum to those of the batch."""
  lines = [_line('wet', 'dry', i % 2) for i in range(4)]
  batch = _batch(eval_model, read(*lines), 8)
  micros = train_step.micro_batches(batch, 2, together=_OBJECTIVE.rows_together)
  full_batch, first, second = (
    _OBJECTIVE(
      eval_model.model, eval_model.params, part, _context(eval_model)
    ).loss
    for part in (batch, *({k: v[j] for k, v in micros.items()} for j in (0, 1)))
  )
  assert first.weight == second.weight == 2
  assert first.total + second.total == pytest.approx(float(full_batch.total))
  with raises_error(errors.ConfigError, mentions=(16, 8)):
    train_step.micro_batches(batch, 4, together=4)
