"""Momentum contrast, compared with a NumPy simulation."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.pretraining import momentum_contrast
from xlflax.objectives.pretraining.momentum_contrast import MoCoQueue
from xlflax.objectives.pretraining.sentence_alignment import (
  Direction,
  SentenceAlignment,
)
from xlflax.training import train_state, train_step
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_WORDS = np.setdiff1d(np.arange(23), [0, 1, 2, 3, 4, 10, 22])
ROWS, SIZE, STEPS = 4, 12, 5
MOCO = SentenceAlignment(
  queue=MoCoQueue(size=SIZE, momentum=0.5),
  direction='forward',
  pooling='first',
  projection_dim=3,
  temperature=0.5,
  duplicates='negative',
)


def _side(rng, rows, language, empty=()):
  tokens = np.zeros((rows, 8), np.int32)
  for i, row in enumerate(tokens):
    count = 0 if i in empty else rng.integers(2, 7)
    row[: count + 2] = [1, *rng.choice(_WORDS, count), 2]
  present = (tokens > 0).astype(np.int32)
  return {
    'token_ids': tokens,
    'segment_ids': present,
    'positions': np.arange(8, dtype=np.int32)[None] * present,
    'language_ids': language * present,
  }


def _pairs(seed, rows=ROWS, empty=()):
  """Returns en-de pairs; the target of those in `empty` has no text."""
  rng = np.random.default_rng(seed)
  second = _side(rng, rows, 1, empty)
  return {
    **_side(rng, rows, 0),
    **{f'paired_{k}': v for k, v in second.items()},
  }


@pytest.fixture
def with_head(model, params):
  head = nn.unbox(MOCO.init_heads(model, jax.random.key(1)))
  return {**params, 'heads': {'align': head}}


@pytest.fixture
def moco_state(model, with_head, vocabulary):
  return MOCO.init_state(model, with_head, vocabulary)


@pytest.fixture
def trained(model, with_head, vocabulary):
  """Fixture that trains steps and returns all states and outputs."""

  def train(batches, *, objective=MOCO, accumulation=1):
    optimizer = optimizers.SGD(learning_rate=0.5)
    builder = train_step.TrainStepBuilder(
      model=model,
      mixture=objective_mixture.ObjectiveMixture(
        entries=(
          objective_mixture.WeightedObjective(
            dataset='sides', objective=objective
          ),
        )
      ),
      optimizer=optimizer,
      vocabulary=vocabulary,
      seed=0,
      gradient_accumulation_steps=accumulation,
    )
    state = train_state.TrainState(
      step=jnp.zeros([], jnp.int32),
      params=with_head,
      opt_state=optimizer.transform.init(with_head),
      ema=(),
      objective_state={
        'align': objective.init_state(model, with_head, vocabulary)
      },
    )
    step = jax.jit(builder.build((0,)))
    states, outputs = [state], []
    for batch in batches:
      state, output = step(state, {'sides': batch})
      states.append(state)
      outputs.append(output)
    return states, outputs

  return train


@functools.partial(jax.jit, static_argnums=0)
def _first_states(model, params, side):
  return model.apply(
    {'params': params},
    side['token_ids'],
    segment_ids=side['segment_ids'],
    positions=side['positions'],
    method='encode',
  )[:, 0]


def _unit_vectors(model, params, batch, prefix):
  """Computes `SentenceAlignment._vectors` in NumPy."""
  side = {
    k: batch[prefix + k] for k in ('token_ids', 'segment_ids', 'positions')
  }
  hidden = np.asarray(_first_states(model, params['model'], side), np.float64)
  head = params['heads']['align']
  z = np.maximum(hidden @ np.asarray(head['inner']['kernel']), 0)
  z = z @ np.asarray(head['outer']['kernel'])
  return z / np.linalg.norm(z, axis=1, keepdims=True)


def _simulate(model, states, batches, queue):
  """Returns losses, queue, pointer and key encoder of MoCo in NumPy.

  The parameters of the query encoder are those of the train states.
  """
  encoder = jax.tree.map(np.asarray, states[0].params)
  queue, pointer, losses = np.asarray(queue, np.float64), 0, []
  for state, batch in zip(states, batches, strict=False):
    encoder = jax.tree.map(
      lambda k, q: 0.5 * k + 0.5 * np.asarray(q), encoder, state.params
    )
    queries = _unit_vectors(model, state.params, batch, '')
    keys = _unit_vectors(model, encoder, batch, 'paired_')
    positive = (queries * keys).sum(1) / 0.5
    total = np.exp(positive) + np.exp(queries @ queue.T / 0.5).sum(1)
    valid = (batch['paired_token_ids'] > 4).any(1)
    losses.append((np.log(total) - positive)[valid].mean())
    for i in range(len(keys)):
      if valid[i]:
        queue[(pointer + i) % SIZE] = keys[i]
    pointer = (pointer + len(keys)) % SIZE
  return losses, queue, pointer, encoder


@pytest.mark.parametrize('accumulation', [1, 2])
def test_training_equals_a_numpy_simulation(
  model, trained, moco_state, accumulation
):
  """The queue contains three of five batches."""
  batches = [_pairs(i, empty=[1] if i == 4 else []) for i in range(STEPS)]
  states, outputs = trained(batches, accumulation=accumulation)
  losses, queue, pointer, encoder = _simulate(
    model, states, batches, moco_state['queue']['keys']
  )
  np.testing.assert_allclose([o.loss for o in outputs], losses, rtol=1e-4)
  last = states[-1].objective_state['align']
  np.testing.assert_allclose(last['queue']['keys'], queue, atol=2e-5)
  assert int(last['pointer']) == pointer == 2 * ROWS
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=1e-5),
    last['key_encoder'],
    encoder,
  )
  assert not np.allclose(
    last['key_encoder']['heads']['align']['outer']['kernel'],
    states[-1].params['heads']['align']['outer']['kernel'],
    atol=1e-4,
  )


def test_enqueue_skips_slots_of_invalid_keys():
  def state(pointer):
    keys = 10.0 * jnp.arange(6)[:, None] + jnp.zeros((6, 2))
    return {'queue': {'keys': keys}, 'pointer': jnp.int32(pointer)}

  new = {'keys': jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])}
  valid = jnp.array([True, False, True])

  def context(j, count):
    return objective_base.ObjectiveContext(
      vocabulary=None,
      step=0,
      train=True,
      rng=None,
      micro_batch=jnp.int32(j),
      micro_batches=count,
    )

  got = momentum_contrast.enqueue(state(3), new, valid, context(0, 1))
  np.testing.assert_array_equal(
    got['queue']['keys'][:, 0], [0, 10, 20, 1, 40, 3]
  )
  assert got['pointer'] == 0  # The pointer wrapped around.
  half = momentum_contrast.enqueue(state(0), new, valid, context(0, 2))
  assert half['pointer'] == 0
  got = momentum_contrast.enqueue(half, new, ~valid, context(1, 2))
  np.testing.assert_array_equal(  # Micro-batch j contains the pairs j + 2 i.
    got['queue']['keys'][:, 0], [1, 10, 20, 2, 3, 50]
  )
  assert got['pointer'] == 0


def test_initial_state_copies_parameters_and_has_random_keys(
  with_head, moco_state
):
  jax.tree.map(
    np.testing.assert_array_equal, moco_state['key_encoder'], with_head
  )
  keys = np.asarray(moco_state['queue']['keys'])
  assert keys.shape == (SIZE, 3)
  np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1, rtol=1e-5)
  assert len(np.unique(keys.round(4), axis=0)) == SIZE
  np.testing.assert_array_equal(keys, moco_state['negatives']['keys'])


def _context(vocabulary, state, *, seed=0):
  return objective_base.ObjectiveContext(
    vocabulary=vocabulary,
    step=jnp.int32(0),
    train=True,
    rng=jax.random.key(seed),
    state=state,
  )


def test_state_has_no_gradient(model, with_head, moco_state, vocabulary):
  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1), allow_int=True)
  def gradient(params, state):
    return MOCO(
      model, params, _pairs(0), _context(vocabulary, state)
    ).loss.total

  params_gradient, state_gradient = gradient(with_head, moco_state)
  assert (params_gradient['model']['table'] != 0).any()
  assert (params_gradient['heads']['align']['outer']['kernel'] != 0).any()
  for path, leaf in jax.tree_util.tree_leaves_with_path(state_gradient):
    if leaf.dtype == jnp.float32:
      assert (leaf == 0).all(), path


def test_empty_pairs_have_weight_zero(model, with_head, moco_state, vocabulary):
  @jax.jit
  def run(batch):
    return MOCO(model, with_head, batch, _context(vocabulary, moco_state))

  some = run(_pairs(0, empty=[1, 2]))
  assert some.loss.weight == 2
  subset = {k: v[[0, 3, 0, 3]] for k, v in _pairs(0, empty=[1, 2]).items()}
  np.testing.assert_allclose(
    run(subset).loss.total, 2 * some.loss.total, rtol=1e-5
  )
  empty = run(jax.tree.map(np.zeros_like, _pairs(0)))
  assert empty.loss == (0.0, 0.0)
  np.testing.assert_array_equal(
    empty.state['queue']['keys'], moco_state['queue']['keys']
  )


def test_key_encoder_uses_dropout(
  dropout_model, with_head, moco_state, vocabulary
):
  """The keys depend on the seed in training."""
  batch = _pairs(0)
  batch |= {
    f'paired_{k}': v for k, v in batch.items() if not k.startswith('paired_')
  }

  @jax.jit
  def keys(seed):
    return MOCO(
      dropout_model,
      with_head,
      batch,
      _context(vocabulary, moco_state, seed=seed),
    ).state['queue']['keys'][:ROWS]

  assert (np.abs(keys(0) - keys(1)).max(axis=1) > 1e-3).all()


def test_duplicates_in_the_queue_are_not_negatives(
  model, with_head, vocabulary
):
  """The second batch contains the same pairs with exchanged texts."""
  batch = _pairs(3)
  swapped = {
    (k.removeprefix('paired_') if k.startswith('paired_') else f'paired_{k}'): v
    for k, v in batch.items()
  }

  def second(duplicates):
    objective = SentenceAlignment(
      queue=MoCoQueue(size=ROWS),
      direction='forward',
      temperature=0.5,
      projection_dim=3,
      duplicates=duplicates,
    )

    @jax.jit
    def run(state):
      for step_batch in (batch, swapped):
        state = objective.start_step(with_head, state)
        output = objective(
          model, with_head, step_batch, _context(vocabulary, state)
        )
        state = output.state
      return output

    return run(objective.init_state(model, with_head, vocabulary))

  excluded, negative = second('exclude'), second('negative')
  assert excluded.loss.total < negative.loss.total - 0.5
  np.testing.assert_allclose(  # All pairs contribute.
    excluded.metrics['align/loss'].weight.sum(), ROWS
  )
  prints = excluded.state['queue']['prints']
  shared = momentum_contrast.shared_sentences(prints, prints[:, [2, 3, 0, 1]])
  np.testing.assert_array_equal(shared, np.eye(ROWS, dtype=bool))


def _vectors(seed, rows, dim=5):
  vectors = np.random.default_rng(seed).normal(size=(rows, dim))
  return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(
    np.float32
  )


_QUERIES, _KEYS, _NEGATIVES = _vectors(0, 3), _vectors(1, 3), _vectors(2, 7)
_loss = jax.jit(momentum_contrast.info_nce, static_argnames='temperature')


def test_loss_computed_by_hand():
  """An equal positive and an orthogonal negative give log(1 + e^-2)."""
  x, y = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
  loss, correct = momentum_contrast.info_nce(
    x, x, y, temperature=0.5, weights=jnp.ones(1)
  )
  np.testing.assert_allclose(loss, [np.log1p(np.exp(-2))], rtol=1e-5)
  assert correct == 1
  loss, correct = momentum_contrast.info_nce(
    x, y, x, temperature=0.5, weights=jnp.ones(1)
  )
  np.testing.assert_allclose(loss, [np.log1p(np.exp(2))], rtol=1e-5)
  assert correct == 0


def test_loss_equals_numpy():
  args = (_QUERIES, _KEYS, _NEGATIVES)
  eager = momentum_contrast.info_nce(
    *args, temperature=0.1, weights=jnp.ones(3)
  )
  compiled = _loss(*args, temperature=0.1, weights=jnp.ones(3))
  assert eager.loss.shape == eager.correct.shape == (3,)
  np.testing.assert_allclose(compiled.loss, eager.loss, rtol=1e-5)
  scores = (
    np.concatenate(
      [(_QUERIES * _KEYS).sum(1)[:, None], _QUERIES @ _NEGATIVES.T], axis=1
    )
    / 0.1
  )
  want = np.log(np.exp(scores).sum(1)) - scores[:, 0]
  np.testing.assert_allclose(eager.loss, want, rtol=1e-4)


def test_masked_loss_equals_the_subset():
  excluded = np.zeros((3, 7), bool)
  excluded[:, [2, 5]] = True
  masked = _loss(
    _QUERIES,
    _KEYS,
    _NEGATIVES,
    temperature=0.1,
    weights=jnp.array([1.0, 0.0, 1.0]),
    excluded=excluded,
  )
  subset = _loss(
    _QUERIES[[0, 2]],
    _KEYS[[0, 2]],
    _NEGATIVES[[0, 1, 3, 4, 6]],
    temperature=0.1,
    weights=jnp.ones(2),
  )
  np.testing.assert_allclose(
    masked.loss, [subset.loss[0], 0, subset.loss[1]], rtol=1e-5
  )
  assert masked.correct[1] == 0


def test_loss_gradient_equals_finite_differences():
  def total(queries):
    return jnp.sum(
      _loss(
        queries,
        _KEYS,
        _NEGATIVES,
        temperature=0.5,
        weights=jnp.array([1.0, 0.0, 2.0]),
      ).loss
    )

  gradient = jax.grad(total)(_QUERIES)
  direction = _vectors(5, 3)
  numerical = (
    total(_QUERIES + 1e-2 * direction) - total(_QUERIES - 1e-2 * direction)
  ) / 2e-2
  np.testing.assert_allclose((gradient * direction).sum(), numerical, rtol=1e-2)
  assert (gradient[1] == 0).all()


def test_loss_of_degenerate_inputs_is_finite():
  zeros = np.zeros_like(_QUERIES)

  def total(queries):
    return jnp.sum(
      _loss(
        queries,
        zeros,
        0 * _NEGATIVES,
        temperature=1e-3,
        weights=jnp.ones(3),
        excluded=np.ones((3, 7), bool),
      ).loss
    )

  loss, gradient = jax.value_and_grad(total)(zeros)
  assert loss == 0 and np.isfinite(gradient).all()


@pytest.mark.parametrize(
  'settings, got', [({'size': 0}, 0), ({'momentum': 1.0}, 1.0)]
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    MoCoQueue(**settings)


def test_queue_size_must_be_a_multiple_of_the_batch_size(
  model, with_head, moco_state, vocabulary
):
  with raises_error(
    errors.ConfigError, where="objective 'align'", mentions=(12, 5, 10)
  ):
    MOCO(model, with_head, _pairs(0, 5), _context(vocabulary, moco_state))


def test_queue_requires_one_direction():
  with raises_error(
    errors.ConfigError,
    mentions=("'align'", 'both', 'forward', 'random', 'direction='),
  ):
    SentenceAlignment(queue=MoCoQueue())
  assert MOCO.direction is Direction.FORWARD
