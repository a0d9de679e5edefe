"""MLM and TLM, compared with NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax.objectives import model_calls, objective_base, objective_metrics
from xlflax.objectives.corruption import masking
from xlflax.objectives.pretraining.masked_lm import (
  LogitPositions,
  MaskedLM,
  TranslationLM,
)
from xlflax.utils import errors

HALF = MaskedLM(mask_ratio=0.5)
VARIANTS = [
  MaskedLM(mask_ratio=0.5, chunk_size=8),
  MaskedLM(mask_ratio=0.5, chunk_size=7),
  MaskedLM(mask_ratio=0.5, logit_positions=LogitPositions.ALL),
  MaskedLM(mask_ratio=0.5, logit_positions=LogitPositions.ALL, chunk_size=6),
]


def _assert_close(a, b):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), a, b
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _jitted_mask(objective, vocabulary, batch, step, rng):
  context = objective_base.ObjectiveContext(
    vocabulary=vocabulary, step=step, train=True, rng=rng
  )
  return objective.mask(batch, context, jax.random.split(rng)[0])


def _mask(objective, batch, context):
  """Returns the masked ids and the choice for a context."""
  return _jitted_mask(
    objective, context.vocabulary, batch, context.step, context.rng
  )


def _oracle(model, params, batch, objective, context):
  """Returns loss, accuracy and language of each chosen token."""
  masked, choice = _mask(objective, batch, context)
  keys = ('segment_ids', 'positions', 'language_ids')
  logits = np.asarray(
    jax.jit(model.apply)(
      {'params': params['model']}, masked, **{k: batch[k] for k in keys}
    ),
    np.float64,
  )
  rows = []
  slots = zip(*np.nonzero(choice.weights), strict=True)
  for b, t in [(b, choice.positions[b, k]) for b, k in slots]:
    scores, label = logits[b, t], batch['token_ids'][b, t]
    rows.append(
      (
        np.log(np.exp(scores).sum()) - scores[label],
        float(scores.argmax() == label),
        batch['language_ids'][b, t],
      )
    )
  return np.array(rows)


def test_loss_and_metrics_equal_numpy(model, params, batch, context, run):
  context = context(3)
  output, _ = run(HALF, batch, context)
  loss, correct, languages = _oracle(model, params, batch, HALF, context).T
  assert len(loss) == 6 + 3 + 5  # half of 12, 5 and 9, rounded up
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)
  assert output.loss.weight == len(loss)
  for language in range(3):
    mine = languages == language
    got = {
      name: (value.total[language], value.weight[language])
      for name, value in output.metrics.items()
    }
    np.testing.assert_allclose(
      got['mlm/loss'], (loss[mine].sum(), mine.sum()), rtol=1e-5
    )
    assert got['mlm/accuracy'] == (correct[mine].sum(), mine.sum())
    tokens = (
      (batch['language_ids'] == language) & (batch['segment_ids'] > 0)
    ).sum()
    assert got['mlm/tokens'] == (tokens, tokens)


def test_finalized_metrics(batch, context, run):
  output, _ = run(HALF, batch, context())
  got = objective_metrics.finalize_metrics(output.metrics, ('en', 'de', 'fr'))
  np.testing.assert_allclose(
    got['mlm/loss'], objective_base.weighted_mean(output.loss), rtol=1e-5
  )
  np.testing.assert_allclose(
    got['mlm/perplexity/de'], np.exp(got['mlm/loss/de']), rtol=1e-6
  )
  assert got['mlm/tokens'] == (batch['token_ids'] > 0).sum()
  assert 'mlm/loss/fr' not in got  # The French sequence is empty.
  assert got['mlm/tokens/fr'] == 2


def test_loss_of_a_uniform_model(params, vocabulary, context, run):
  """Every chosen token has a loss of log V."""
  zeros = jax.tree.map(np.zeros_like, params)
  tokens = np.zeros((4, 14), np.int32)
  tokens[0, :6] = [1, 5, 6, 7, 8, 2]
  present = (tokens > 0).astype(np.int32)
  batch = {
    'token_ids': tokens,
    'segment_ids': present,
    'positions': np.arange(14, dtype=np.int32)[None] * present,
    'language_ids': present,
  }
  output, _ = run(HALF, batch, context(), zeros)
  np.testing.assert_allclose(
    output.loss.total, 2 * np.log(vocabulary.size), rtol=1e-6
  )
  assert output.loss.weight == 2 and output.state == ()


@pytest.mark.parametrize('other', mark_slow(VARIANTS, slow=VARIANTS[:1]))
def test_logit_positions_and_chunks_do_not_change_the_loss(
  other, batch, context, run
):
  """Compares losses and gradients."""
  _assert_close(run(other, batch, context()), run(HALF, batch, context()))


def test_dropout_is_used_only_in_training(
  dropout_model, params, batch, context
):
  for train, same in ((True, False), (False, True)):
    encode = jax.jit(
      functools.partial(
        model_calls.encode_batch,
        dropout_model,
        params,
        batch,
        context=context(train=train),
      )
    )
    first, second = (np.asarray(encode(rng=jax.random.key(r))) for r in (5, 6))
    assert (first == second).all() == same


def test_empty_sequence_has_no_effect(model, params, batch, context, run):
  """The empty sequence has no chosen tokens."""
  output, gradient = run(HALF, batch, context())
  choice = _mask(HALF, batch, context())[1]
  np.testing.assert_array_equal(choice.weights[2], 0)
  loss = _oracle(model, params, batch, HALF, context())[:, 0]
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)
  assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


@pytest.mark.parametrize('head', list(LogitPositions))
def test_empty_batch_has_zero_loss_and_gradient(head, batch, context, run):
  empty = jax.tree.map(np.zeros_like, batch)
  objective = MaskedLM(mask_ratio=0.5, logit_positions=head)
  output, gradient = run(objective, empty, context())
  assert (
    output.loss == (0.0, 0.0) and objective_base.weighted_mean(output.loss) == 0
  )
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))
  assert (
    objective_metrics.finalize_metrics(output.metrics, ('en', 'de', 'fr')) == {}
  )


def test_losses_do_not_depend_on_the_order(model, params, batch, context):
  """The chosen positions are permuted with the sequences."""
  choice = _mask(HALF, batch, context())[1]
  order = np.array([2, 0, 3, 1])

  @jax.jit
  def losses(rows, choice):
    states = model_calls.call_model(
      model,
      params,
      'encode',
      rows['token_ids'],
      segment_ids=rows['segment_ids'],
    )
    return HALF.score_tokens(model, params, rows, states, choice)[0]

  expected_losses = losses(batch, choice)
  moved = losses(*jax.tree.map(lambda x: np.asarray(x)[order], (batch, choice)))
  np.testing.assert_allclose(expected_losses[order], moved, rtol=1e-5)


def test_gradient_equals_finite_differences(params, batch, context, run):
  output, gradient = run(HALF, batch, context())
  rng = np.random.default_rng(0)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), params
  )

  def total(scale):
    moved = jax.tree.map(
      lambda p, d: p + np.float32(scale) * d, params, direction
    )
    return run(HALF, batch, context(), moved)[0].loss.total

  numerical = (total(1e-2) - total(-1e-2)) / 2e-2
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
  np.testing.assert_allclose(sum(jax.tree.leaves(dots)), numerical, rtol=1e-2)


def test_mask_ratio_follows_the_schedule(batch, context, run):
  objective = MaskedLM(
    mask_ratio=optax.linear_schedule(0.1, 0.5, 100), max_mask_ratio=0.5
  )
  weights = [
    run(objective, batch, context(step=step))[0].loss.weight
    for step in (0, 100)
  ]
  assert weights == [1 + 1 + 1, 6 + 3 + 5]


def test_losses_of_micro_batches_add_up(batch, context, run):
  """Sums of metrics and gradients equal those of the batch."""
  objective = MaskedLM(
    mask_ratio=1.0, mask_probability=1.0, random_probability=0.0
  )
  (full_batch, gradient), *micro = [
    run(
      objective,
      jax.tree.map(lambda x, r=rows: np.where(r[:, None], x, 0), batch),
      context(),
    )
    for rows in (np.arange(4) >= 0, np.arange(4) < 2, np.arange(4) >= 2)
  ]
  added = objective_metrics.add_metrics(
    micro[0][0].metrics, micro[1][0].metrics
  )
  _assert_close(added, full_batch.metrics)
  _assert_close(jax.tree.map(np.add, micro[0][1], micro[1][1]), gradient)
  assert full_batch.loss.weight == sum(m[0].loss.weight for m in micro)


def test_both_texts_of_pairs_are_scored(batch, context, run):
  """The loss is the sum of the losses of both batches."""
  objective = MaskedLM(
    mask_ratio=1.0, mask_probability=1.0, random_probability=0.0
  )
  other = jax.tree.map(lambda x: x[::-1], batch)
  paired = batch | {f'paired_{key}': value for key, value in other.items()}
  both_sides, first, second = (
    run(objective, rows, context())[0] for rows in (paired, batch, other)
  )
  _assert_close(
    both_sides.metrics,
    objective_metrics.add_metrics(first.metrics, second.metrics),
  )
  np.testing.assert_allclose(
    both_sides.loss.total, first.loss.total + second.loss.total, rtol=1e-5
  )


@pytest.mark.parametrize(
  'objective', [HALF, pytest.param(VARIANTS[3], marks=pytest.mark.slow)]
)
def test_sharded_equals_one_device(objective, batch, context, run):
  batch = jax.tree.map(lambda x: np.concatenate([x, x]), batch)
  mesh = Mesh(np.array(jax.devices()), ('data',))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  _assert_close(
    run(objective, jax.device_put(batch, rows), context()),
    run(objective, batch, context()),
  )


def test_masking_needs_no_communication(batch, vocabulary):
  mesh = Mesh(np.array(jax.devices()), ('data',))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  batch = jax.device_put(
    jax.tree.map(lambda x: np.concatenate([x, x]), batch), rows
  )

  def mask(batch):
    context = objective_base.ObjectiveContext(
      vocabulary=vocabulary, step=0, train=True, rng=jax.random.key(0)
    )
    token_ids, choice = HALF.mask(batch, context, context.rng)
    states = jnp.ones(token_ids.shape + (4,)) * token_ids[..., None]
    return token_ids, masking.gather_rows(states, choice.positions)

  text = jax.jit(mask, out_shardings=rows).lower(batch).compile().as_text()
  assert 'scatter' in text or 'dynamic-update-slice' in text
  for collective in ('all-gather', 'all-to-all', 'collective-permute'):
    assert collective not in text


def test_translation_lm_masks_both_sides(batch, context, run):
  pair = {
    **batch,
    'language_ids': np.asarray(
      (batch['positions'] > 3) & (batch['segment_ids'] > 0), np.int32
    ),
  }
  output, _ = run(TranslationLM(mask_ratio=0.5), pair, context())
  assert TranslationLM().name == 'tlm' and TranslationLM().mask_ratio == 0.15
  assert set(output.metrics) == {
    f'tlm/{n}' for n in ('loss', 'perplexity', 'accuracy', 'tokens')
  }
  assert (output.metrics['tlm/loss'].weight[:2] > 0).all()


@pytest.mark.parametrize(
  'settings, got', [({'chunk_size': 0}, 0), ({'mask_ratio': 2.0}, 2.0)]
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    MaskedLM(**settings)


def test_words_are_masked_completely(vocabulary):
  """Odd token ids continue a word."""
  starts = np.packbits(
    np.arange(vocabulary.size) % 2 == 0, bitorder='little'
  ).tobytes()
  spec = dataclasses.replace(vocabulary, word_starts=starts)
  token_ids = np.array([[1, 6, 7, 7, 8, 12, 13, 14, 16, 17, 6, 2]] * 4)
  batch = {
    'token_ids': token_ids,
    'segment_ids': np.ones_like(token_ids),
    'language_ids': np.zeros_like(token_ids),
  }
  objective = MaskedLM(
    mask_ratio=0.5,
    masking_unit='words',
    mask_probability=1.0,
    random_probability=0.0,
  )
  masked = np.asarray(
    _jitted_mask(objective, spec, batch, 0, jax.random.key(0))[0]
  )
  hidden = masked == vocabulary.mask_id
  for word in ([1, 2, 3], [4], [5, 6], [7], [8, 9], [10]):
    assert (hidden[:, word] == hidden[:, word[:1]]).all()
  assert (2 <= hidden.sum(1)).all() and (hidden.sum(1) <= 5).all()
