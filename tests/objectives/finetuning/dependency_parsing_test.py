"""Dependency parsing objective, compared with loops in NumPy."""

import jax
import numpy as np
import pytest
from flax import linen as nn
from scipy import special

from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.objectives.finetuning import fixtures
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning.dependency_parsing import DependencyParsing
from xlflax.utils import errors

_RELATIONS = ('root', 'det', 'obj')
_OBJECTIVE = DependencyParsing(relations=_RELATIONS, arc_dim=5, relation_dim=4)
_NAME = 'dependency_parsing'


@pytest.fixture(scope='module')
def params(model):
  return fixtures.make_params(model, _OBJECTIVE)


@pytest.fixture(scope='module')
def ran(model, params, batch):
  return fixtures.run(_OBJECTIVE, model, params, batch)


@pytest.fixture(scope='module')
def arcs(model, params, batch):
  predictions = jax.jit(_OBJECTIVE.predict, static_argnums=(0, 3))(
    model, params, batch, fixtures.SPEC
  )
  return jax.tree.map(np.asarray, predictions)


def _relation_scores(model, params, batch):
  """Returns relation scores at the gold heads, [B, W, R]."""
  head = jax.tree.map(np.asarray, params['heads'][_NAME])
  states = jax.jit(_OBJECTIVE.states, static_argnums=(0, 3))(
    model, params, batch, fixtures.SPEC
  )
  states = np.asarray(states)
  scores = np.zeros((*batch['heads'].shape, 3))

  def vector(name, state):
    hidden = state @ head[name]['kernel'] + head[name]['bias']
    return np.append(np.where(hidden > 0, hidden, 0.1 * hidden), 1)

  for b, i in zip(*np.nonzero(batch['heads'] >= 0), strict=True):
    of_head = batch['word_starts'][b, batch['heads'][b, i]]
    dependent = vector(
      'relation_dependent', states[b, batch['word_starts'][b, i]]
    )
    scores[b, i] = [
      dependent @ matrix @ vector('relation_head', states[b, of_head])
      for matrix in head['relation']
    ]
  return scores


def test_loss_of_equal_scores(model, batch):
  """A scorer of zeros gives all candidate heads and relations equal scores."""
  params = fixtures.make_params(model, _OBJECTIVE)
  head = params['heads'][_NAME]
  params['heads'][_NAME] = head | {
    'arc': 0 * head['arc'],
    'relation': 0 * head['relation'],
  }
  output, _ = fixtures.run(_OBJECTIVE, model, params, batch)
  expected = 3 * np.log(3) + 2 * np.log(2) + 5 * np.log(3)
  np.testing.assert_allclose(output.loss, (expected, 5), rtol=1e-5)


def test_loss_and_metrics_equal_loops(model, params, batch, ran, arcs):
  output, _ = ran
  relations = special.log_softmax(_relation_scores(model, params, batch), -1)
  arc_loss, relation_loss, uas, right, weight = np.zeros((5, 3))
  for b, i in zip(*np.nonzero(batch['heads'] >= 0), strict=True):
    head, relation = batch['heads'][b, i], batch['relations'][b, i]
    arc_loss[b] -= arcs.scores[b, i, head]
    relation_loss[b] -= relations[b, i, relation]
    uas[b] += arcs.scores[b, i].argmax() == head
    right[b] += relations[b, i].argmax() == relation
    weight[b] += 1
  assert weight.tolist() == [3, 2, 0]  # Sentence b is in language b.
  np.testing.assert_allclose(
    output.loss, ((arc_loss + relation_loss).sum(), 5), rtol=1e-4
  )
  for name, expected in (
    ('loss', arc_loss + relation_loss),
    ('arc_loss', arc_loss),
    ('relation_loss', relation_loss),
    ('uas', uas),
    ('relation_accuracy', right),
  ):
    np.testing.assert_allclose(
      output.metrics[f'{_NAME}/{name}'], (expected, weight), rtol=1e-4
    )


@pytest.mark.slow
def test_jit_equals_eager(batch):
  """The states of the fake model are one-hot tokens."""
  model = one_hot_model.OneHot()
  head = nn.meta.unbox(_OBJECTIVE.init_output(model, jax.random.key(0)))
  params = {
    'model': {},
    'heads': {
      _NAME: head
      | {'arc': 0.1 + head['arc'], 'relation': 0.1 + head['relation']}
    },
  }
  context = fixtures.make_context()
  eager = _OBJECTIVE(model, params, batch, context)
  jitted = jax.jit(lambda params: _OBJECTIVE(model, params, batch, context))(
    params
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), eager, jitted
  )


def test_sentences_without_trees_have_no_effect(model, params, batch, ran):
  """The third sentence has no tree."""
  changed_batch = batch | {'token_ids': batch['token_ids'].copy()}
  changed_batch['token_ids'][2, 1] = 20
  output, gradient = fixtures.run(_OBJECTIVE, model, params, changed_batch)
  np.testing.assert_allclose(output.loss, ran[0].loss, rtol=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), gradient, ran[1]
  )


def test_predictions_exclude_invalid_heads(batch, arcs):
  assert arcs.scores.shape == arcs.relations.shape == (3, 7, 7)
  assert arcs.scores.dtype == np.float32
  is_word = batch['word_lengths'] > 0
  probability = np.exp(arcs.scores)
  np.testing.assert_allclose(probability.sum(-1), 1, rtol=1e-5)
  for b in range(3):
    assert not probability[b][:, ~is_word[b]].any()  # Padding cannot be a head.
    assert not np.diagonal(probability[b]).any()
  # Only the root relation is allowed.
  assert (arcs.relations[:, :, 0] == 0).all()
  assert (arcs.relations[:, :, 1:] > 0).all()


def test_all_head_parameters_have_gradients(params, ran):
  _, gradient = ran
  for name, leaf in gradient['heads'][_NAME].items():
    assert all(np.any(x) for x in jax.tree.leaves(leaf)), name
  assert np.any(gradient['model']['embeddings']['token'])


def test_batch_without_trees_has_zero_loss(model, params, batch):
  empty = batch | {
    key: np.full_like(batch[key], -1) for key in ('heads', 'relations')
  }
  output, gradient = fixtures.run(_OBJECTIVE, model, params, empty)
  assert (
    float(objective_base.weighted_mean(output.loss)) == output.loss.weight == 0
  )
  assert not any(np.any(x) for x in jax.tree.leaves(gradient))


def test_mean_word_pooling(model, params, batch, arcs):
  """Only the sentence with a word of two tokens has other scores."""
  objective = DependencyParsing(
    relations=_RELATIONS, arc_dim=5, relation_dim=4, word_pooling='mean'
  )
  predictions = jax.jit(objective.predict, static_argnums=(0, 3))(
    model, params, batch, fixtures.SPEC
  )
  np.testing.assert_allclose(predictions.scores[1:], arcs.scores[1:], rtol=1e-4)
  assert not np.allclose(predictions.scores[0], arcs.scores[0])


def test_relations_without_a_root_are_all_allowed():
  allowed = DependencyParsing(relations=('a', 'b'))._allowed_relations()
  assert allowed.tolist() == [[True, True], [True, True]]


@pytest.mark.parametrize(
  ('fields', 'values'),
  [
    (
      dict(head_type='dense'),
      ('dense', 'output', 'DependencyParsing.head_type'),
    ),
    (dict(arc_dim=0), (0, 'DependencyParsing.arc_dim')),
    (dict(relations=('x', 'x')), ("('x', 'x')", 'DependencyParsing.relations')),
  ],
)
def test_invalid_settings_are_rejected(fields, values):
  with raises_error(errors.ConfigError, mentions=values):
    DependencyParsing(**dict(relations=_RELATIONS) | fields)
