"""CA-MLM, compared with equations 1 to 13 of VECO in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.errors import raises_error
from tests.models import random_parameters
from tests.objectives import veco_reference
from tests.slow import mark_slow
from xlflax.models.encoder import Encoder
from xlflax.models.encoder_config import EncoderConfig
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import (
  model_calls,
  objective_base,
  objective_metrics,
  sentence_pairs,
)
from xlflax.objectives.pretraining.cross_attention_mlm import CrossAttentionMLM
from xlflax.objectives.pretraining.masked_lm import LogitPositions
from xlflax.utils import errors

HALF = CrossAttentionMLM(mask_ratio=0.5)
# Every token is masked, so the loss does not depend on the key.
ALL = CrossAttentionMLM(
  mask_ratio=1.0, mask_probability=1.0, random_probability=0.0
)
_SIZES = dict(
  num_layers=2,
  hidden_dim=8,
  mlp_dim=12,
  num_heads=2,
  max_position_embeddings=18,
  vocab_size=23,
  pad_vocab_size_multiple=1,
  num_languages=3,
  dropout_rate=0.0,
  attention_dropout_rate=0.0,
)
_KEYS = ('token_ids', 'segment_ids', 'positions', 'language_ids')


def _encoder(**changes):
  return Encoder(EncoderConfig(**_SIZES | dict(cross_attention=True) | changes))


@pytest.fixture
def model():
  return _encoder()


def _random_params(model):
  return {'model': random_parameters.draw_parameters(model), 'heads': {}}


@pytest.fixture
def pairs(pairs):
  """Pairs padded to shape [8, 18], so that tests share a compiled program."""
  return {key: np.pad(value, ((0, 3), (0, 8))) for key, value in pairs.items()}


@pytest.fixture
def params(model):
  return _random_params(model)


def _assert_close(a, b, rtol=1e-4, atol=1e-5):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _masked(objective, vocabulary, batch, rng):
  """Returns the interleaved masked ids and the choice for a key."""
  context = objective_base.ObjectiveContext(
    vocabulary=vocabulary, step=jnp.int32(0), train=True, rng=rng
  )
  rows = sentence_pairs.interleave_sides(
    *sentence_pairs.split_sides(batch, objective='test')
  )
  mask_rng = jax.random.split(rng, 3)[0]
  return objective.mask(rows, context, mask_rng)


def _texts(batch, b, seen):
  """Returns unpadded tokens and positions of both texts of pair b."""
  present = [
    np.asarray(batch[p + 'segment_ids'][b]) > 0 for p in ('', 'paired_')
  ]
  tokens = [np.asarray(seen[2 * b + i])[present[i]] for i in range(2)]
  places = [
    np.asarray(batch[p + 'positions'][b])[present[i]]
    for i, p in enumerate(('', 'paired_'))
  ]
  return tokens, places


def _reference(params, batch, seen, choice, memory_params=None):
  """Returns self and cross losses, correctness and language per token."""
  terms_by_token = []
  for b in np.flatnonzero(batch['segment_ids'].any(1)):
    terms = veco_reference.pair_terms(
      params, *_texts(batch, b, seen), memory_params
    )
    for i, prefix in enumerate(('', 'paired_')):
      slots = np.nonzero(choice.weights[2 * b + i])[0]
      for t in np.asarray(choice.positions[2 * b + i])[slots]:
        label = batch[prefix + 'token_ids'][b, t]
        terms_by_token.append(
          [-term[t, label] for term in terms[i]]
          + [term[t].argmax() == label for term in terms[i]]
          + [batch[prefix + 'language_ids'][b, t]]
        )
  return np.asarray(terms_by_token)


def test_loss_and_metrics_equal_equations_1_to_13(
  params, pairs, context, vocabulary, run
):
  context = context(3)
  output, _ = run(HALF, pairs, context)
  masked = _masked(HALF, vocabulary, pairs, context.rng)
  terms = _reference(params['model'], pairs, *masked)
  self_losses, cross, self_correct, cross_correct, languages = terms.T
  assert len(terms) == (2 + 4 + 2 + 3 + 3) + (3 + 3 + 4 + 0 + 2)
  assert abs(self_losses - cross).min() > 1e-4  # The two passes differ.
  np.testing.assert_allclose(
    output.loss.total, self_losses.sum() + cross.sum(), rtol=1e-5
  )
  assert output.loss.weight == len(terms)
  values = {
    'loss': self_losses + cross,
    'self_loss': self_losses,
    'cross_loss': cross,
    'self_accuracy': self_correct,
    'cross_accuracy': cross_correct,
  }
  for language in range(3):  # x is English, and y is German or French.
    mine = languages == language
    for name, value in values.items():
      got = output.metrics[f'ca_mlm/{name}']
      np.testing.assert_allclose(
        (got.total[language], got.weight[language]),
        (value[mine].sum(), mine.sum()),
        rtol=1e-5,
        err_msg=name,
      )


def test_gradient_treats_the_memory_as_a_constant(
  params, pairs, context, vocabulary, run
):
  """Compares with finite differences of the reference in float64."""
  context = context(3)
  _, gradient = run(HALF, pairs, context)
  masked = _masked(HALF, vocabulary, pairs, context.rng)
  rng = np.random.default_rng(0)
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params['model'])
  direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient['model'], direction)
  slope = sum(jax.tree.leaves(dots))

  def loss(scale, constant_memory):
    moved = jax.tree.map(lambda p, d: p + scale * d, params, direction)
    terms = _reference(
      moved, pairs, *masked, params if constant_memory else moved
    )
    return terms[:, :2].sum()

  def numerical(constant_memory):
    return (loss(1e-5, constant_memory) - loss(-1e-5, constant_memory)) / 2e-5

  np.testing.assert_allclose(slope, numerical(True), rtol=1e-3)
  assert abs(numerical(False) / numerical(True) - 1) > 0.02


def _with_empty_side(pairs):
  """Replaces the second texts by special symbols at unused positions.

  These symbols are not masked, so they affect only the memory.
  """
  batch = dict(pairs)
  present = batch['paired_segment_ids'] > 0
  batch['paired_token_ids'] = np.where(present, 10, 0)
  batch['paired_positions'] = np.where(present, np.arange(18)[None] % 3 + 13, 0)
  return batch


def test_memory_has_no_gradient(params, pairs, context, run):
  batch = _with_empty_side(pairs)
  output, gradient = run(ALL, batch, context())
  assert output.loss.weight == 4 + 7 + 3 + 5 + 6  # tokens of x
  position = gradient['model']['embeddings']['position']
  assert not position[13:].any()
  assert position[:5].any()
  # The memory affects the loss.
  moved = jax.tree.map(np.copy, params)
  moved['model']['embeddings']['position'][13:] *= -3
  other, _ = run(ALL, batch, context(), moved)
  assert abs(other.loss.total - output.loss.total) > 0.01


@pytest.mark.slow
def test_loss_of_a_uniform_model(params, vocabulary, context, run):
  """Both terms of every chosen token have a loss of log V."""
  zeros = jax.tree.map(np.zeros_like, params)
  row = {
    'token_ids': np.array([[1, 5, 6, 7, 8, 2]], np.int32),
    'language_ids': np.ones((1, 6), np.int32),
  }
  batch = {**row, **{f'paired_{k}': v for k, v in row.items()}}
  output, _ = run(HALF, batch, context(), zeros)
  assert output.loss.weight == 4 and output.state == ()
  np.testing.assert_allclose(output.loss.total, 4 * 2 * np.log(23), rtol=1e-6)
  got = objective_metrics.finalize_metrics(output.metrics, vocabulary.languages)
  np.testing.assert_allclose(got['ca_mlm/cross_loss/de'], np.log(23), rtol=1e-6)
  assert got['ca_mlm/tokens'] == 12
  assert set(output.metrics) == {
    f'ca_mlm/{name}'
    for name in (
      'loss',
      'self_loss',
      'cross_loss',
      'self_accuracy',
      'cross_accuracy',
      'tokens',
    )
  }


@pytest.mark.parametrize(
  'fields',
  [
    pytest.param(dict(chunk_size=7), marks=pytest.mark.slow),
    pytest.param(
      dict(logit_positions=LogitPositions.ALL), marks=pytest.mark.slow
    ),
    pytest.param(
      dict(logit_positions=LogitPositions.ALL, chunk_size=8),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_logit_positions_and_chunks_do_not_change_the_loss(
  fields, pairs, context, run
):
  _assert_close(
    run(CrossAttentionMLM(mask_ratio=0.5, **fields), pairs, context()),
    run(HALF, pairs, context()),
    rtol=1e-3,
    atol=1e-4,
  )


@pytest.mark.slow
def test_losses_of_micro_batches_add_up(pairs, context, run):
  """One micro-batch contains the pair without a second text."""
  (full_batch, gradient), *micro = [
    run(ALL, jax.tree.map(lambda x, r=rows: x[r], pairs), context())
    for rows in (slice(0, 4), slice(0, 2), slice(2, 4))
  ]
  _assert_close(
    objective_metrics.add_metrics(micro[0][0].metrics, micro[1][0].metrics),
    full_batch.metrics,
  )
  _assert_close(
    jax.tree.map(np.add, micro[0][1], micro[1][1]),
    gradient,
    rtol=1e-3,
    atol=1e-4,
  )
  assert full_batch.loss.weight == sum(m[0].loss.weight for m in micro)


def test_loss_is_symmetric(pairs, context, run):
  """The pairs (y, x) and (x, y) have equal losses."""
  swapped = {
    key: pairs[
      key.removeprefix('paired_')
      if key.startswith('paired_')
      else f'paired_{key}'
    ]
    for key in pairs
  }
  _assert_close(
    run(ALL, swapped, context()),
    run(ALL, pairs, context()),
    rtol=1e-3,
    atol=1e-4,
  )


def test_packed_equals_padded(pairs, context, run):
  """Two pairs are packed into one sequence."""
  packed = jax.tree.map(np.zeros_like, pairs)
  for prefix in ('', 'paired_'):
    side = {key: pairs[prefix + key][:2, :10] for key in _KEYS}
    order = np.argsort(side['segment_ids'].ravel() == 0, kind='stable')
    side['segment_ids'] = side['segment_ids'] * np.array([[1], [2]])
    for key, value in side.items():
      packed[prefix + key][0] = value.ravel()[order][:18]
  padded = jax.tree.map(
    lambda x: np.where(np.arange(8)[:, None] < 2, x, 0), pairs
  )
  got, want = (run(ALL, batch, context()) for batch in (packed, padded))
  _assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
  'head', mark_slow(LogitPositions, slow=[LogitPositions.ALL])
)
def test_empty_batch_has_zero_loss_and_gradient(head, pairs, context, run):
  empty = jax.tree.map(np.zeros_like, pairs)
  objective = CrossAttentionMLM(mask_ratio=0.5, logit_positions=head)
  output, gradient = run(objective, empty, context())
  assert (
    output.loss == (0.0, 0.0) and objective_base.weighted_mean(output.loss) == 0
  )
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))
  assert (
    objective_metrics.finalize_metrics(output.metrics, ('en', 'de', 'fr')) == {}
  )


def test_masks_of_both_texts_are_independent(pairs, context, vocabulary):
  same = {
    **{k: pairs[k] for k in _KEYS},
    **{f'paired_{k}': pairs[k] for k in _KEYS},
  }
  _, choice = _masked(HALF, vocabulary, same, context(1).rng)
  chosen = np.sort(np.where(choice.weights > 0, choice.positions, -1), axis=1)
  assert (chosen[::2] != chosen[1::2]).any(axis=1).sum() >= 3


@pytest.mark.slow
def test_dropout_is_used_only_in_training(params, pairs, context, run):
  model = _encoder(dropout_rate=0.3, attention_dropout_rate=0.3)

  def total(objective, train):
    call = jax.jit(
      lambda rng: (
        objective(
          model,
          params,
          pairs,
          objective_base.ObjectiveContext(
            vocabulary=context().vocabulary,
            step=jnp.int32(0),
            train=train,
            rng=rng,
          ),
        ).loss.total
      )
    )
    return [float(call(jax.random.key(seed))) for seed in (0, 1)]

  plain = float(run(ALL, pairs, context())[0].loss.total)
  np.testing.assert_allclose(total(ALL, False), plain, rtol=1e-5)
  first, second = total(ALL, True)
  assert first != second != plain


@pytest.mark.slow
def test_sharded_equals_one_device(pairs, context, run):
  batch = jax.tree.map(lambda x: np.concatenate([x[:5], x[:3]]), pairs)
  mesh = Mesh(np.array(jax.devices()), ('data',))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  _assert_close(
    run(HALF, jax.device_put(batch, rows), context()),
    run(HALF, batch, context()),
    rtol=1e-3,
    atol=1e-4,
  )


def test_swap_sides_needs_no_communication():
  states = jnp.arange(16 * 3.0).reshape(16, 3)
  mesh = Mesh(np.array(jax.devices()), ('data',))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  swap = (
    jax.jit(sentence_pairs.swap_sides, out_shardings=rows)
    .lower(jax.device_put(states, rows))
    .compile()
  )
  for collective in ('all-gather', 'all-to-all', 'collective-permute'):
    assert collective not in swap.as_text()
  swapped = swap(jax.device_put(states, rows))
  np.testing.assert_array_equal(swapped[:4, 0], [3, 0, 9, 6])


@pytest.mark.slow
def test_language_specific_parameters(params, pairs, context):
  """A sharing plan selects the parameters of the language of each text."""
  choice = parameter_sharing.SharingPlan(embeddings=True, layers=1)
  model = _encoder(sharing=choice)
  batch = jax.tree.map(lambda x: x[:1], pairs)  # English and German

  def loss(params):
    output = ALL(model, params, batch, context())
    return output.loss.total, output

  shared = _random_params(model)
  step = jax.jit(jax.value_and_grad(loss, has_aux=True))
  (_, output), gradient = step(shared)
  language_gradient = gradient['model'][parameter_sharing.LANGUAGE_SPECIFIC]
  for leaf in jax.tree.leaves(
    language_gradient['layers']['cross_attention']['value']
  ):
    assert leaf[0].any() and leaf[1].any() and not leaf[2].any()
  # Equal parameters in all languages have the effect of no plan.
  language_params = parameter_sharing.select_language_params(
    choice, shared['model'], 1
  )
  equal_params = jax.tree.map(np.copy, shared)
  equal_params['model'][parameter_sharing.LANGUAGE_SPECIFIC] = jax.tree.map(
    lambda x: np.stack([x[1]] * 3),
    equal_params['model'][parameter_sharing.LANGUAGE_SPECIFIC],
  )
  same = jax.jit(lambda p: ALL(_encoder(), p, batch, context()))(
    {'model': language_params, 'heads': {}}
  )
  _assert_close(step(equal_params)[0][1], same)
  assert abs(output.loss.total - same.loss.total) > 0.01


def test_cross_attention_is_required(pairs, context):
  model = _encoder(cross_attention=False)
  value = 'cross_attention=False'
  with raises_error(
    errors.ConfigError, where="objective 'ca_mlm'", mentions=value
  ):
    HALF.init_heads(model, jax.random.key(0))
  with raises_error(
    errors.ConfigError, where='Encoder.plug_in', mentions=value
  ):
    jax.eval_shape(lambda: HALF(model, _random_params(model), pairs, context()))
  assert HALF.init_heads(_encoder(), jax.random.key(0)) == {}


def test_batch_without_second_texts_is_rejected(model, params, batch, context):
  with raises_error(
    errors.ConfigError,
    mentions=(
      "'ca_mlm'",
      'language_ids',
      'positions',
      'segment_ids',
      'token_ids',
    ),
  ):
    HALF(model, params, batch, context())


def test_all_parameters_have_gradients(pairs, context, run):
  """The parameters of both passes have gradients."""
  _, gradient = run(HALF, pairs, context())
  # The softmax ignores it.
  del gradient['model']['layers']['attention']['key']['bias']
  del gradient['model']['layers']['cross_attention']['key']['bias']
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
    assert leaf.any(), path
  assert model_calls.model_kwargs(pairs).keys() == {
    'segment_ids',
    'positions',
    'language_ids',
  }
