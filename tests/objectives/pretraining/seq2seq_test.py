"""Teacher forcing and translation, compared with NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.errors import raises_error
from tests.objectives import encoder_decoder_fake as fake
from xlflax.objectives import objective_base, objective_metrics, teacher_forcing
from xlflax.objectives.pretraining import seq2seq
from xlflax.objectives.pretraining.seq2seq import SourceSymbols, Translation
from xlflax.utils import errors

SMOOTH = Translation()
_PARTS = ('loss', 'perplexity', 'accuracy', 'tokens')


def _assert_close(a, b, **tolerance):
  jax.tree.map(
    functools.partial(
      np.testing.assert_allclose, **({'rtol': 1e-4, 'atol': 1e-5} | tolerance)
    ),
    a,
    b,
  )


@jax.jit
def _logits(source, inputs, segments):
  def forward(model, source, inputs, segments):
    memory = model.encode(
      source['token_ids'],
      segment_ids=source['segment_ids'],
      positions=source['positions'],
    )
    states = model.transform(
      model.decode(
        inputs,
        memory,
        memory_segment_ids=source['segment_ids'],
        segment_ids=segments,
      )
    )
    table, bias = model.output_table()
    return jnp.einsum('bsh,vh->bsv', states, table) + bias[None, None]

  return fake.MODEL.apply(
    {'params': fake.params()['model']}, source, inputs, segments, method=forward
  )


def _oracle(batch, smoothing, starts, source=None):
  """Returns smoothed loss, -log p, correctness and language per label."""
  inputs = np.zeros_like(batch['paired_token_ids'])
  for b, row in enumerate(batch['paired_token_ids']):
    tokens = fake.filled(row)
    if tokens:
      inputs[b, : len(tokens) - 1] = [starts[b], *tokens[1:-1]]
  source = source or {
    k: v for k, v in batch.items() if not k.startswith('paired_')
  }
  logits = np.asarray(
    _logits(source, inputs, (inputs > 0).astype(np.int32)), np.float64
  )
  out = []
  for b, row in enumerate(batch['paired_token_ids']):
    for t, label in enumerate(fake.filled(row)[1:]):
      z = logits[b, t]
      log_p = z - np.log(np.exp(z).sum())
      target = np.full(len(z), smoothing / len(z))
      target[label] += 1 - smoothing
      out.append(
        (
          -(target * log_p).sum(),
          -log_p[label],
          float(z.argmax() == label),
          batch['paired_language_ids'][b, 0],
        )
      )
  return np.array(out)


_STARTS = [6, 7, 6, 0, 5]  # symbols of de, fr, de, none, en


@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_loss_and_metrics_equal_numpy(smoothing):
  batch, context = fake.pair_batch(), fake.context(train=False)
  output, _ = fake.run(Translation(label_smoothing=smoothing), batch, context)
  loss, nll, right, languages = _oracle(batch, smoothing, _STARTS).T
  assert len(loss) == 3 + 8 + 2 + 7  # target tokens including eos
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)
  assert output.loss.weight == len(loss)
  for language in range(3):
    mine = languages == language
    got = {
      name: (value.total[language], value.weight[language])
      for name, value in output.metrics.items()
    }
    for name, values in zip(_PARTS, (loss, nll, right), strict=False):
      np.testing.assert_allclose(
        got[f'translation/{name}'], (values[mine].sum(), mine.sum()), rtol=1e-4
      )
  tokens = output.metrics['translation/tokens']
  assert (
    tokens.total.sum()
    == ((batch['token_ids'] > 0).sum() + len(loss))
    == tokens.weight.sum()
  )


def test_finalized_metrics():
  output, _ = fake.run(SMOOTH, fake.pair_batch(), fake.context())
  got = objective_metrics.finalize_metrics(output.metrics, fake.SPEC.languages)
  np.testing.assert_allclose(
    got['translation/loss'],
    objective_base.weighted_mean(output.loss),
    rtol=1e-5,
  )
  assert got['translation/perplexity'] < np.exp(30)
  assert set(name.split('/')[1] for name in got) == set(_PARTS)


def test_loss_of_a_uniform_model():
  """Every label has a loss of log V, with and without smoothing."""
  zeros = jax.tree.map(np.zeros_like, fake.params())
  for objective in (SMOOTH, Translation(label_smoothing=0.0)):
    output, _ = fake.run(objective, fake.pair_batch(), fake.context(), zeros)
    np.testing.assert_allclose(
      output.loss.total, 20 * np.log(fake.SPEC.size), rtol=1e-6
    )
    assert output.loss.weight == 20 and output.state == ()


@pytest.mark.parametrize('chunk_size', [8, 7])
def test_chunks_do_not_change_loss_and_gradient(chunk_size):
  """The loss includes label smoothing."""
  batch, context = fake.pair_batch(), fake.context()
  chunked = dataclasses.replace(SMOOTH, chunk_size=chunk_size)
  _assert_close(
    fake.run(chunked, batch, context), fake.run(SMOOTH, batch, context)
  )


def test_label_smoothing_excludes_vocabulary_padding():
  rng = np.random.default_rng(0)
  hidden = jnp.asarray(rng.normal(size=(5, 8)), jnp.float32)
  table = jnp.asarray(rng.normal(size=(32, 8)), jnp.float32)
  bias = jnp.where(jnp.arange(32) < 23, 0.1, -1e9)
  got = teacher_forcing._logit_above_mean(
    hidden, table, bias, jnp.arange(5), 23
  )
  logits = np.asarray(hidden) @ np.asarray(table[:23]).T
  np.testing.assert_allclose(
    got,
    logits[np.arange(5), np.arange(5)] - logits.mean(1),
    rtol=1e-4,
    atol=1e-5,
  )


def test_pair_without_target_has_no_effect():
  """Compares with the batch without the pair."""
  batch = fake.pair_batch()
  remaining = jax.tree.map(lambda x: np.delete(x, 3, axis=0), batch)
  full_output, gradient = fake.run(SMOOTH, batch, fake.context(train=False))
  part, other = fake.run(SMOOTH, remaining, fake.context(train=False))
  _assert_close((full_output.loss, gradient), (part.loss, other))


def test_loss_does_not_depend_on_the_order():
  batch = fake.pair_batch()
  moved = jax.tree.map(lambda x: x[::-1].copy(), batch)
  _assert_close(
    fake.run(SMOOTH, batch, fake.context())[0],
    fake.run(SMOOTH, moved, fake.context())[0],
  )


def test_empty_batch_has_zero_loss_and_gradient():
  empty = jax.tree.map(np.zeros_like, fake.pair_batch())
  output, gradient = fake.run(SMOOTH, empty, fake.context())
  assert output.loss == (0.0, 0.0)
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))
  assert (
    objective_metrics.finalize_metrics(output.metrics, fake.SPEC.languages)
    == {}
  )


def test_gradient_equals_finite_differences():
  batch, context = fake.pair_batch(), fake.context()
  _, gradient = fake.run(SMOOTH, batch, context)
  rng = np.random.default_rng(0)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), fake.params()
  )

  def total(scale):
    moved = jax.tree.map(
      lambda p, d: p + np.float32(scale) * d, fake.params(), direction
    )
    return fake.run(SMOOTH, batch, context, moved)[0].loss.total

  numerical = (total(1e-2) - total(-1e-2)) / 2e-2
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
  np.testing.assert_allclose(sum(jax.tree.leaves(dots)), numerical, rtol=1e-2)


def test_decoder_is_causal():
  """The loss of a label does not depend on later tokens."""
  batch = fake.pair_batch()
  other = {**batch, 'paired_token_ids': batch['paired_token_ids'].copy()}
  other['paired_token_ids'][1, 6] = fake.FIRST + int(
    batch['paired_token_ids'][1, 6] == fake.FIRST
  )
  first, second = (_oracle(b, 0.0, _STARTS) for b in (batch, other))
  assert (first[: 3 + 5, 0] == second[: 3 + 5, 0]).all()
  assert first[3 + 5, 0] != second[3 + 5, 0]


def test_make_target_shifts_tokens():
  rows = {'token_ids': jnp.array([[1, 7, 8, 2, 0]])}
  target = teacher_forcing.make_target(rows, jnp.array([5]), fake.SPEC)
  assert target.rows['token_ids'].tolist() == [[5, 7, 8, 0, 0]]
  assert target.labels.tolist() == [[7, 8, 2, 0, 0]]
  assert target.weights.tolist() == [[1, 1, 1, 0, 0]]
  assert target.rows['segment_ids'].tolist() == [[1, 1, 1, 0, 0]]


def test_make_target_of_full_sequences():
  rows = {'token_ids': jnp.array([[1, 7, 2]])}
  target = teacher_forcing.make_target(rows, jnp.array([5]), fake.SPEC)
  assert target.labels.tolist() == [[7, 2, 0]]
  assert target.weights.sum() == 2


@pytest.mark.parametrize(
  ('start', 'ids'),
  [
    ('language', [6, 5, 7]),
    ('bos', [1, 1, 1]),
    ('pad', [0, 0, 0]),
    ('eos', [2, 2, 2]),
  ],
)
def test_decoder_start_ids(start, ids):
  got = teacher_forcing.start_ids(
    jnp.array([1, 0, 2]),
    Translation(decoder_start=start).decoder_start,
    fake.SPEC,
  )
  assert got.tolist() == ids


def test_language_suffix_of_the_source():
  batch = fake.batch_of([[[8, 9]], [[8] * 3], []], 5, [1, 2, 0])
  batch['token_ids'][2] = 0
  batch['segment_ids'][2] = 0
  got = seq2seq.with_symbols(batch, SourceSymbols.LANGUAGE_SUFFIX, fake.SPEC)
  assert got['token_ids'].tolist() == [
    [8, 9, 2, 6, 0],
    [8, 8, 8, 2, 7],
    [0] * 5,
  ]


def test_masked_source_predicts_the_complete_target():
  objective = Translation(
    mask_ratio=0.5,
    mask_probability=1.0,
    random_probability=0.0,
    label_smoothing=0.0,
  )
  batch, context = fake.pair_batch(), fake.context(3, train=False)
  source, goal, scored = fake.rows(objective, batch, context)
  assert (source['token_ids'] == fake.MASK).sum(1).tolist() == [4, 2, 1, 2, 3]
  np.testing.assert_array_equal(goal['token_ids'], batch['paired_token_ids'])
  assert scored is None
  output, _ = fake.run(objective, batch, context)
  loss = _oracle(batch, 0.0, _STARTS, source)[:, 0]
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)


def test_mask_ratio_follows_the_schedule():
  objective = Translation(
    mask_ratio=optax.linear_schedule(0.1, 0.5, 10),
    max_mask_ratio=0.5,
    mask_probability=1.0,
    random_probability=0.0,
  )
  masked = [
    (
      fake.rows(objective, fake.pair_batch(), fake.context(step=step))[0][
        'token_ids'
      ]
      == fake.MASK
    ).sum()
    for step in (0, 10)
  ]
  assert masked == [5, 12]


def test_batch_without_targets_is_rejected():
  batch = {
    k: v for k, v in fake.pair_batch().items() if not k.startswith('paired_')
  }
  with raises_error(errors.ConfigError, mentions='ExampleLayout.DUAL'):
    SMOOTH.rows(batch, fake.context(), jax.random.key(0))


def test_vocabulary_without_language_symbols_is_rejected():
  spec = dataclasses.replace(fake.SPEC, language_symbol_ids=())
  with raises_error(errors.VocabularyError, mentions=(0, 3)):
    fake.run(SMOOTH, fake.pair_batch(), fake.context(spec=spec))


def test_model_without_a_decoder_is_rejected(model):
  with raises_error(errors.ConfigError, mentions='FakeEncoder'):
    SMOOTH.init_heads(model, jax.random.key(0))
  assert SMOOTH.init_heads(fake.MODEL, jax.random.key(0)) == {}


@pytest.mark.parametrize(
  ('settings', 'got'),
  [
    ({'label_smoothing': 1.0}, 1.0),
    ({'chunk_size': 0}, 0),
    ({'decoder_start': 'end'}, 'end'),
    ({'source_symbols': 'x'}, 'x'),
    ({'mask_ratio': 2.0}, 2.0),
  ],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    Translation(**settings)
