"""Replaced-token detection, compared with torch."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.errors import raises_error
from tests.models import random_parameters
from xlflax.models.encoder import Encoder
from xlflax.models.encoder_config import EncoderConfig
from xlflax.objectives import losses, model_calls
from xlflax.objectives.cross_entropy import softmax_sampling
from xlflax.objectives.pretraining.replaced_token import ReplacedTokenDetection
from xlflax.utils import errors

CONFIG = EncoderConfig(
  num_layers=1,
  hidden_dim=8,
  mlp_dim=16,
  num_heads=2,
  max_position_embeddings=14,
  vocab_size=23,
  pad_vocab_size_multiple=1,
  num_languages=3,
  dropout_rate=0.0,
  attention_dropout_rate=0.0,
  scan_layers=False,
)
GENERATOR = dataclasses.replace(
  CONFIG, hidden_dim=4, mlp_dim=8, vocab_size=None, num_languages=None
)
MODEL = Encoder(CONFIG)
RTD = ReplacedTokenDetection(generator=GENERATOR, mask_ratio=0.5)


@functools.lru_cache
def _params(objective=RTD):
  return {
    'model': random_parameters.draw_parameters(MODEL, spread=0.3),
    'heads': {
      objective.name: random_parameters.of_heads(objective, MODEL, spread=0.3)
    },
  }


@functools.partial(jax.jit, static_argnums=0)
def _run(objective, params, batch, rng):
  context = _CONTEXT['make'](rng)

  def total(params):
    output = objective(MODEL, params, batch, context)
    return output.loss.total, output

  (_, output), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return output, gradient


_CONTEXT = {}


@pytest.fixture(autouse=True)
def _make_context(context):
  """Stores a context factory, so that `_run` is compiled once."""
  _CONTEXT['make'] = lambda rng: dataclasses.replace(context(), rng=rng)


def run(batch, *, objective=RTD, params=None, seed=0):
  return _run(
    objective,
    _params(objective) if params is None else params,
    batch,
    jax.random.key(seed),
  )


@jax.jit
def _generated(batch, params, rng):
  """Returns the logits, choice and samples of the generator.

  Also returns the model states of the sampled tokens.
  """
  context = _CONTEXT['make'](rng)
  rng, _ = jax.random.split(rng)
  replaced = RTD._replace_tokens(MODEL, params, batch, context, rng)
  mask_rng = jax.random.split(rng, 3)[0]
  masked, choice = RTD._masked_lm.mask(batch, context, mask_rng)
  logits = Encoder(
    dataclasses.replace(GENERATOR, vocab_size=23, num_languages=3)
  ).apply(
    {'params': params['heads']['rtd']['generator']},
    masked,
    **model_calls.model_kwargs(batch),
  )
  states = MODEL.apply(
    {'params': params['model']},
    replaced.token_ids,
    method='encode',
    **model_calls.model_kwargs(batch),
  )
  return logits, choice, replaced.token_ids, states


def test_losses_and_metrics_equal_torch(batch):
  """The weights of the two losses are those of the paper."""
  params = _params()
  output, _ = run(batch)
  logits, choice, input_ids, states = _generated(
    batch, params, jax.random.key(0)
  )
  chosen = np.asarray(choice.weights) > 0
  rows = np.arange(4)[:, None]
  labels = batch['token_ids'][rows, choice.positions]
  picked = np.asarray(logits)[rows, choice.positions]
  generator = torch.nn.functional.cross_entropy(
    torch.tensor(np.asarray(picked)[chosen]),
    torch.tensor(np.asarray(labels)[chosen]).long(),
  )
  head = params['heads']['rtd']['discriminator']
  hidden = torch.nn.functional.gelu(
    torch.tensor(
      np.asarray(states) @ head['inner']['kernel'] + head['inner']['bias']
    )
  )
  scores = (
    hidden @ torch.tensor(head['outer']['kernel'])
    + torch.tensor(head['outer']['bias'])
  )[..., 0]
  present = batch['segment_ids'] > 0
  replaced = np.asarray(input_ids) != batch['token_ids']
  binary = torch.nn.functional.binary_cross_entropy_with_logits(
    scores[present], torch.tensor(replaced[present].astype(np.float32))
  )
  np.testing.assert_allclose(
    output.loss.total / output.loss.weight,
    float(generator + 50 * binary),
    rtol=1e-4,
  )
  assert output.loss.weight == present.sum()
  right = (scores.numpy() > 0) == replaced
  got = {
    k.removeprefix('rtd/'): v.total.sum() / v.weight.sum()
    for k, v in output.metrics.items()
  }
  want = {
    'generator_loss': float(generator),
    'discriminator_loss': float(binary),
    'accuracy': right[present].mean(),
    'recall': right[replaced].mean(),
    'replaced': replaced[present].mean(),
    'tokens': 1.0,
  }
  for name, value in want.items():
    np.testing.assert_allclose(got[name], value, rtol=1e-4, err_msg=name)
  np.testing.assert_array_equal(
    output.metrics['rtd/tokens'].total, [14, 7 + 11, 2]
  )


def test_only_chosen_text_is_replaced(batch):
  _, choice, input_ids, _ = _generated(batch, _params(), jax.random.key(0))
  moved = np.asarray(input_ids) != batch['token_ids']
  chosen = np.zeros_like(moved)
  for row, positions, weights in zip(
    chosen, choice.positions, choice.weights, strict=True
  ):
    row[np.asarray(positions)[np.asarray(weights) > 0]] = True
  assert moved.any() and not moved[~chosen].any()
  assert chosen.sum() == 6 + 3 + 5
  assert not moved[batch['token_ids'] < 5].any()


def test_sampled_original_tokens_are_not_replaced(batch):
  """The generator always samples the original token."""
  params = jax.tree.map(np.zeros_like, _params())
  only = {
    **batch,
    'token_ids': np.where(batch['token_ids'] > 4, 7, batch['token_ids']),
  }
  params['heads']['rtd']['generator']['output_bias'][7] = 100.0
  output, _ = run(only, params=params)
  assert output.metrics['rtd/replaced'].total.sum() == 0
  assert output.metrics['rtd/recall'].weight.sum() == 0
  np.testing.assert_allclose(  # The discriminator guesses for each token.
    output.loss.total / output.loss.weight, 50 * np.log(2), rtol=1e-5
  )


@pytest.mark.slow
def test_padding_sequences_have_no_effect(batch):
  """Adding empty sequences changes neither losses nor gradients."""
  rows = {k: np.concatenate([v, np.zeros_like(v)]) for k, v in batch.items()}
  params = jax.tree.map(np.copy, _params())
  # The samples are certain.
  params['heads']['rtd']['generator']['output_bias'][7] = 100.0
  objective = dataclasses.replace(RTD, mask_ratio=1.0)
  some, gradient = run(batch, params=params, objective=objective)
  more, more_gradient = run(rows, params=params, objective=objective)
  np.testing.assert_allclose(some.loss, more.loss, rtol=1e-5)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4),
    gradient,
    more_gradient,
  )


def test_metrics_use_the_language_of_each_token(batch):
  """Each sequence contains two languages."""
  halves = {
    **batch,
    'language_ids': np.where(np.arange(14)[None] < 7, 0, 1)
    * (batch['segment_ids'] > 0),
  }
  output, _ = run(halves)
  np.testing.assert_array_equal(
    output.metrics['rtd/tokens'].total, [7 + 7 + 2 + 7, 7 + 0 + 0 + 4, 0]
  )
  assert output.metrics['rtd/discriminator_loss'].weight[1] == 11


@pytest.mark.slow
def test_discriminator_loss_does_not_train_the_generator(batch):
  params = _params()
  _, combined = run(batch)
  halved = dataclasses.replace(RTD, discriminator_weight=25.0)
  _, less = run(batch, objective=halved, params=params)
  for name, factor in (('generator', 1.0), ('discriminator', 2.0)):
    a, b = (g['heads']['rtd'][name] for g in (combined, less))
    assert any((x != 0).any() for x in jax.tree.leaves(a))
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
      a,
      jax.tree.map(lambda x, f=factor: f * x, b),
    )
  assert all(
    (x != 0).any()
    for x in (
      combined['model']['embeddings']['token'],
      combined['heads']['rtd']['discriminator']['inner']['kernel'],
    )
  )
  # The discriminator has no MLM loss.
  assert (combined['model']['output_bias'] == 0).all()


@pytest.mark.slow
def test_shared_embeddings_get_both_gradients(batch):
  shared = ReplacedTokenDetection(
    generator=dataclasses.replace(GENERATOR, hidden_dim=8, num_heads=2),
    share_embeddings=True,
    mask_ratio=0.5,
    generator_weight=3.0,
  )
  params = _params(shared)
  generator_embeddings = params['heads']['rtd']['generator']['embeddings']
  assert sorted(generator_embeddings) == ['norm']
  _, gradient = run(batch, objective=shared)
  other, other_gradient = run(
    batch,
    objective=dataclasses.replace(shared, generator_weight=6.0),
    params=params,
  )
  table, moved = (
    g['model']['embeddings']['token'] for g in (gradient, other_gradient)
  )
  assert np.abs(table - moved).max() > 1e-3
  assert np.isfinite(other.loss.total)
  wide = dataclasses.replace(shared, generator=GENERATOR)
  with raises_error(
    errors.ConfigError, mentions=('hidden_dim', 4, 8, 'separate')
  ):
    wide.init_heads(MODEL, jax.random.key(0))


def test_empty_batch_has_zero_loss_and_gradient(batch):
  output, gradient = run(jax.tree.map(np.zeros_like, batch))
  assert output.loss == (0.0, 0.0)
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))


def test_heads_have_logical_axes():
  boxed = jax.eval_shape(
    functools.partial(RTD.init_heads, MODEL), jax.random.key(0)
  )
  head = boxed['discriminator']
  assert head['inner']['kernel'].names == ('embed', 'mlp')
  assert head['outer']['kernel'].names == ('mlp', None)
  table = boxed['generator']['embeddings']['token']
  assert table.names == ('vocab', 'columns') and table.value.shape == (23, 4)


def test_binary_loss_computed_by_hand():
  loss, correct = losses.binary_cross_entropy(
    jnp.array([0.0, 2.0, 2.0, 0.0]), jnp.array([True, True, False, False])
  )
  np.testing.assert_allclose(
    loss,
    [np.log(2), np.log1p(np.exp(-2)), np.log1p(np.exp(2)), np.log(2)],
    rtol=1e-6,
  )
  np.testing.assert_array_equal(correct, [0, 1, 0, 1])


def test_binary_loss_and_gradient_equal_torch():
  logits = jnp.array([[-1e4, 1e4, 0.3], [-2.0, 0.0, 5.0]])
  labels = jnp.array([[True, False, True], [False, True, True]])

  def total(logits):
    return jnp.sum(losses.binary_cross_entropy(logits, labels).loss)

  compiled = jax.jit(losses.binary_cross_entropy)(logits, labels)
  assert compiled.loss.shape == compiled.correct.shape == (2, 3)
  want = torch.nn.functional.binary_cross_entropy_with_logits(
    torch.tensor(np.asarray(logits)),
    torch.tensor(np.asarray(labels).astype(np.float32)),
    reduction='none',
  )
  np.testing.assert_allclose(compiled.loss, want, rtol=1e-5)
  np.testing.assert_allclose(
    jax.grad(total)(logits),
    torch.sigmoid(torch.tensor(np.asarray(logits))).numpy()
    - np.asarray(labels),
    atol=1e-6,
  )


@pytest.mark.parametrize('chunk_size', [None, 4])
def test_samples_follow_the_softmax(chunk_size):
  """Chi-square test of 40,000 samples; the chunks do not divide V."""
  rng = np.random.default_rng(0)
  table = rng.normal(size=(10, 3)).astype(np.float32)
  bias = np.append(rng.normal(size=9), -1e9).astype(np.float32)
  state = np.array([1.0, -0.5, 0.3], np.float32)
  logits = table @ state + bias
  want = np.exp(logits - logits.max())
  want /= want.sum()
  count = 40_000
  samples = jax.jit(
    functools.partial(softmax_sampling.sample_tokens, chunk_size=chunk_size)
  )(jax.random.key(3), np.tile(state, (count, 1)), table, bias)
  frequencies = np.bincount(samples, minlength=10)
  assert samples.dtype == np.int32 and frequencies[9] == 0
  statistic = ((frequencies - count * want)[:9] ** 2 / (count * want[:9])).sum()
  assert statistic < 26.1  # 99.9 % of chi-square with 8 degrees of freedom


@pytest.mark.parametrize(
  'settings, got',
  [
    ({'discriminator_weight': 0}, 0),
    ({'mask_ratio': 0.0}, 0.0),
    ({'chunk_size': 0}, 0),
    ({'share_embeddings': 'tied'}, 'tied'),
  ],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    ReplacedTokenDetection(generator=GENERATOR, **settings)


def test_different_generator_vocabulary_is_rejected():
  objective = ReplacedTokenDetection(
    generator=dataclasses.replace(GENERATOR, vocab_size=99)
  )
  with raises_error(
    errors.VocabularyError,
    got=99,
    expected=23,
    mentions=("'rtd'", 'vocab_size'),
  ):
    objective.init_heads(MODEL, jax.random.key(0))


def test_generator_has_no_cross_attention():
  """No objective would train the cross-attention of the generator."""
  model = Encoder(dataclasses.replace(CONFIG, cross_attention=True))
  objective = dataclasses.replace(
    RTD, generator=dataclasses.replace(GENERATOR, cross_attention=True)
  )
  assert not objective.generator_module(model).config.cross_attention
  shapes = jax.eval_shape(
    lambda rng: objective.init_heads(model, rng), jax.random.key(0)
  )
  names = [
    jax.tree_util.keystr(path)
    for path, _ in jax.tree_util.tree_leaves_with_path(shapes)
  ]
  assert names and not any('cross_attention' in name for name in names)
