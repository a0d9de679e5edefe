"""Sentence alignment, compared with NumPy."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.errors import raises_error
from xlflax.objectives import (
  duplicate_detection,
  model_calls,
  objective_base,
  objective_metrics,
  pretraining_heads,
  sentence_pairs,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining.sentence_alignment import (
  Direction,
  Duplicates,
  SentenceAlignment,
)
from xlflax.utils import errors

PLAIN = SentenceAlignment(temperature=0.5)
find_equal_rows = jax.jit(duplicate_detection.find_equal_rows)
VALID = np.array([0, 1, 2, 4])  # pairs in which both texts are not empty


def _assert_close(a, b):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), a, b
  )


@functools.partial(jax.jit, static_argnums=0)
def _encode_layers(model, params, tokens, segments, positions):
  return model.apply(
    {'params': params['model']},
    tokens,
    segment_ids=segments,
    positions=positions,
    method='encode_layers',
  )


def _side_vectors(model, params, batch, prefix, vocabulary, pooling, layer=-1):
  """Returns unit vectors of one text of all pairs in float64."""
  tokens, segments = (batch[prefix + k] for k in ('token_ids', 'segment_ids'))
  states = np.asarray(
    _encode_layers(model, params, tokens, segments, batch[prefix + 'positions'])
  )[layer]
  vectors = []
  for row, ids in zip(states.astype(np.float64), tokens, strict=True):
    text = ~np.isin(ids, vocabulary.special_ids)
    vector = row[0] if pooling is Pooling.FIRST else row[text].sum(0)
    vectors.append(vector / max(np.linalg.norm(vector), 1e-12))
  return np.array(vectors)


def _oracle(queries, keys, temperature):
  scores = queries[VALID] @ keys[VALID].T / temperature
  loss = np.log(np.exp(scores).sum(1)) - np.diag(scores)
  return loss, (np.diag(scores) >= scores.max(1)).astype(float)


@pytest.mark.parametrize(
  'settings',
  [
    {},
    {'pooling': Pooling.FIRST},
    {'direction': Direction.FORWARD},
    {'layer': 1},
    {'layer': 0, 'temperature': 0.05},
  ],
)
def test_loss_and_metrics_equal_numpy(
  settings, model, params, pairs, context, run
):
  objective = SentenceAlignment(**{'temperature': 0.5, **settings})
  output, _ = run(objective, pairs, context())
  layer = -1 if objective.layer is None else objective.layer
  x, y = (
    _side_vectors(
      model,
      params,
      pairs,
      prefix,
      context().vocabulary,
      objective.pooling,
      layer,
    )
    for prefix in ('', 'paired_')
  )
  results = [
    _oracle(x, y, objective.temperature),
    _oracle(y, x, objective.temperature),
  ]
  if objective.direction is Direction.FORWARD:
    results = results[:1]
  want = np.mean([loss for loss, _ in results], axis=0)
  np.testing.assert_allclose(output.loss.total, want.sum(), rtol=1e-4)
  assert output.loss.weight == len(VALID)
  accuracy = output.metrics['align/accuracy']
  np.testing.assert_allclose(
    accuracy.total.sum(), sum(c.sum() for _, c in results)
  )
  assert accuracy.weight.sum() == len(VALID) * len(results)


def test_loss_of_equal_vectors(params, pairs, context, run):
  """Each of the four predictions is a guess."""
  zeros = jax.tree.map(np.zeros_like, params)
  output, _ = run(PLAIN, pairs, context(), zeros)
  np.testing.assert_allclose(
    objective_base.weighted_mean(output.loss), np.log(4), rtol=1e-6
  )


def test_metrics_use_the_language_of_the_query(pairs, context, run):
  output, _ = run(PLAIN, pairs, context())
  np.testing.assert_array_equal(
    output.metrics['align/loss'].weight, [4.0, 2.0, 2.0]
  )
  tokens = output.metrics['align/tokens'].total
  # words, bos and eos
  np.testing.assert_array_equal(tokens, [25 + 10, 13 + 4, 10 + 6])
  got = objective_metrics.finalize_metrics(output.metrics, ('en', 'de', 'fr'))
  np.testing.assert_allclose(
    got['align/loss'], objective_base.weighted_mean(output.loss), rtol=1e-5
  )


def test_pair_with_an_empty_text_has_no_effect(pairs, context, run):
  """Compares with the batch without the pair."""
  subset = jax.tree.map(lambda x: x[VALID], pairs)
  all_pairs, gradient = run(PLAIN, pairs, context())
  part, part_gradient = run(PLAIN, subset, context())
  _assert_close(all_pairs.loss, part.loss)
  _assert_close(gradient, part_gradient)


def test_loss_does_not_depend_on_the_order(pairs, context, run):
  moved = jax.tree.map(lambda x: x[np.array([4, 2, 0, 1, 3])], pairs)
  swapped = {
    (k.removeprefix('paired_') if k.startswith('paired_') else f'paired_{k}'): v
    for k, v in pairs.items()
  }
  want = run(PLAIN, pairs, context())
  for other in (moved, swapped):
    _assert_close(run(PLAIN, other, context()), want)


def test_equal_sentences_are_not_negatives(pairs, context, run):
  """Pair 5 repeats the first text of pair 0 with another translation."""
  twice = jax.tree.map(lambda x: np.concatenate([x, x[:1]]), pairs)
  for key in ('token_ids', 'segment_ids', 'positions', 'language_ids'):
    twice[f'paired_{key}'][5] = pairs[f'paired_{key}'][1][::1]
  same = np.asarray(find_equal_rows(twice['token_ids']))
  np.testing.assert_array_equal(
    same,
    np.eye(6, dtype=bool)
    | (
      np.isin(np.arange(6), [0, 5])[:, None]
      & np.isin(np.arange(6), [0, 5])[None]
    ),
  )
  keep = SentenceAlignment(temperature=0.5, duplicates=Duplicates.NEGATIVE)
  excluded, _ = run(PLAIN, twice, context())
  negative, _ = run(keep, twice, context())
  assert excluded.loss.total < negative.loss.total - 0.1


def test_find_equal_rows_is_exact():
  rows = np.random.default_rng(0).integers(0, 50, (600, 12), np.int32)
  rows[1] = rows[0][::-1]
  rows[2] = rows[0]
  same = np.asarray(find_equal_rows(jnp.asarray(rows)))
  want = (rows[:, None] == rows[None]).all(-1)
  np.testing.assert_array_equal(same, want)
  assert same[0, 2] and not same[0, 1]


@pytest.mark.parametrize(
  'objective', [PLAIN, SentenceAlignment(pooling=Pooling.FIRST)]
)
def test_empty_batch_has_zero_loss_and_gradient(objective, pairs, context, run):
  empty = jax.tree.map(np.zeros_like, pairs)
  output, gradient = run(objective, empty, context())
  assert output.loss == (0.0, 0.0)
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))


def test_gradient_equals_finite_differences(params, pairs, context, run):
  _, gradient = run(PLAIN, pairs, context())
  rng = np.random.default_rng(0)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), params
  )

  def total(scale):
    moved = jax.tree.map(
      lambda p, d: p + np.float32(scale) * d, params, direction
    )
    return run(PLAIN, pairs, context(), moved)[0].loss.total

  numerical = (total(3e-3) - total(-3e-3)) / 6e-3
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
  np.testing.assert_allclose(sum(jax.tree.leaves(dots)), numerical, rtol=2e-2)


def test_dropout_of_both_texts_is_independent(
  dropout_model, params, pairs, context
):
  """The cosine of equal texts is below 1 only in training."""
  equal_sides = {k: v for k, v in pairs.items() if not k.startswith('paired_')}
  equal_sides.update({f'paired_{k}': v for k, v in equal_sides.items()})
  rows = sentence_pairs.interleave_sides(
    *[
      {k: equal_sides[p + k] for k in ('token_ids', 'segment_ids', 'positions')}
      for p in ('', 'paired_')
    ]
  )
  for train in (True, False):
    vectors = jax.jit(
      functools.partial(
        PLAIN._vectors, dropout_model, context=context(train=train)
      )
    )(params, rows)
    cosine = np.sum(np.asarray(vectors[0::2] * vectors[1::2]), axis=1)
    assert (cosine < 0.999).all() == train


def test_projection_head(model, params, pairs, context, run):
  objective = SentenceAlignment(projection_dim=3, temperature=0.5)
  boxed = jax.jit(functools.partial(objective.init_heads, model))(
    jax.random.key(2)
  )
  assert jax.tree.map(
    lambda x: (x.names, x.value.shape),
    boxed,
    is_leaf=lambda x: isinstance(x, nn.Partitioned),
  ) == {
    'inner': {'kernel': (('embed', 'mlp'), (8, 8))},
    'outer': {'kernel': (('mlp', None), (8, 3))},
  }
  head = nn.unbox(boxed)
  vectors = np.array([[1.0, -2.0, 3.0, 0.0, 1.0, 1.0, -1.0, 2.0]])
  np.testing.assert_allclose(
    pretraining_heads.ProjectionHead(3).apply({'params': head}, vectors),
    np.maximum(vectors @ head['inner']['kernel'], 0) @ head['outer']['kernel'],
    rtol=1e-5,
  )
  output, gradient = run(
    objective, pairs, context(), {**params, 'heads': {'align': head}}
  )
  assert np.isfinite(output.loss.total)
  assert all((g != 0).any() for g in jax.tree.leaves(gradient['heads']))
  assert PLAIN.init_heads(model, jax.random.key(0)) == {}


def test_states_are_normalized_before_the_projection(
  model, params, pairs, context, run
):
  """As in PPA, equations 2 and 3, projections are not normalized."""
  objective = SentenceAlignment(
    projection_dim=3,
    temperature=0.5,
    pooling='first',
    normalize='states',
    direction='forward',
    duplicates='negative',
  )
  head = nn.unbox(objective.init_heads(model, jax.random.key(2)))
  output, _ = run(
    objective, pairs, context(), {**params, 'heads': {'align': head}}
  )
  queries, keys = (
    np.maximum(h @ np.asarray(head['inner']['kernel']), 0)
    @ np.asarray(head['outer']['kernel'])
    for h in (
      _side_vectors(
        model, params, pairs, side, context().vocabulary, Pooling.FIRST
      )
      for side in ('', 'paired_')
    )
  )
  losses, _ = _oracle(queries, keys, 0.5)
  np.testing.assert_allclose(output.loss.total, losses.sum(), rtol=1e-4)


def test_sharded_batch_has_global_negatives(pairs, context, run):
  pairs = jax.tree.map(lambda x: np.concatenate([x, x[:3] * 1]), pairs)
  rows = NamedSharding(
    Mesh(np.array(jax.devices()), ('data',)), PartitionSpec('data')
  )
  _assert_close(
    run(PLAIN, jax.device_put(pairs, rows), context()),
    run(PLAIN, pairs, context()),
  )


def test_mean_pooling_excludes_special_symbols(vocabulary):
  states = jnp.arange(10.0).reshape(1, 5, 2)
  text = masking.is_text(
    {'token_ids': jnp.array([[1, 7, 9, 2, 0]])}, vocabulary
  )
  np.testing.assert_array_equal(
    model_calls.pool_hidden_states(states, text, Pooling.MEAN), [[3.0, 4.0]]
  )
  np.testing.assert_array_equal(
    model_calls.pool_hidden_states(states, text, Pooling.FIRST), [[0.0, 1.0]]
  )
  np.testing.assert_array_equal(
    model_calls.pool_hidden_states(states, text & False, Pooling.MEAN),
    [[0.0, 0.0]],
  )


def test_batch_without_second_texts_is_rejected(model, params, batch, context):
  with raises_error(
    errors.ConfigError,
    mentions=(
      "'align'",
      'ExampleLayout.DUAL',
      'language_ids',
      'positions',
      'segment_ids',
    ),
  ):
    PLAIN(model, params, batch, context())


@pytest.mark.parametrize(
  'settings, got',
  [
    ({'temperature': 0.0}, 0.0),
    ({'projection_dim': 0}, 0),
    ({'layer': -1}, -1),
  ],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    SentenceAlignment(**settings)


def test_layer_out_of_range_is_rejected(model):
  with raises_error(errors.ConfigError, got=3, mentions=("'align'", 0, 2)):
    SentenceAlignment(layer=3).init_heads(model, jax.random.key(0))
