"""Compares greedy, sampled and beam decoding with search without a cache."""

import functools
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import (
  decoding,
  encoder_decoder,
  encoder_decoder_config,
  model_params,
)
from xlflax.models.decoding import generation
from xlflax.training.devices import partitioning
from xlflax.utils import errors

_VOCAB, _EOS, _PAD, _ROWS = 7, 2, 0, 8
_SPEC = vocabulary_spec.VocabularySpec(
  size=_VOCAB,
  pad_id=_PAD,
  bos_id=1,
  eos_id=_EOS,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 4),
  languages=('en', 'fr'),
)
_MODEL = encoder_decoder.EncoderDecoder(
  encoder_decoder_config.EncoderDecoderConfig(
    family='post_ln',
    num_encoder_layers=1,
    num_decoder_layers=2,
    hidden_dim=8,
    mlp_dim=12,
    num_heads=2,
    vocab_size=_VOCAB,
    pad_vocab_size_multiple=1,
    max_position_embeddings=12,
    use_language_embeddings=True,
    num_languages=2,
    initializer_range=0.6,
  )
)
_BATCH = dict(
  token_ids=np.random.default_rng(0).integers(1, _VOCAB, (_ROWS, 6)),
  segment_ids=np.array([[1] * 6, [1] * 3 + [0] * 3] * 4),
  language_ids=np.zeros((_ROWS, 6), 'int32'),
)
_START = np.array([5, 6] * 4)
_LANGUAGES = np.array([1, 0] * 4)


@pytest.fixture(scope='module')
def boxed():
  return model_params.init_params(_MODEL, jax.random.key(5))


@pytest.fixture(scope='module')
def params(boxed):
  return {'model': nn.unbox(boxed)}


def _generate(
  params,
  batch=_BATCH,
  start=_START,
  rng=None,
  languages=_LANGUAGES,
  max_lengths=None,
  **options,
):
  return decoding.generate(
    _MODEL,
    params,
    batch,
    vocabulary=_SPEC,
    decoder_start=start,
    language_ids=languages,
    rng=rng,
    max_lengths=max_lengths,
    options=decoding.DecodingOptions(**options),
  )


@functools.partial(jax.jit, static_argnums=0)
def _logits(model, params, batch, target, languages):
  return model.apply(
    {'params': params['model']},
    **batch,
    decoder_token_ids=target,
    decoder_language_ids=jnp.broadcast_to(languages[:, None], target.shape),
  )


def _log_probs(params, target, rows=None):
  """Returns log probabilities after each prefix of sequences [R, S]."""
  batch, languages = _BATCH, _LANGUAGES
  if rows is not None:
    batch = {k: v[rows] for k, v in batch.items()}
    languages = languages[rows]
  return np.asarray(
    jax.nn.log_softmax(_logits(_MODEL, params, batch, target, languages))
  )


def _pad_after_eos(tokens):
  """Replaces everything after the end symbol by padding."""
  ended = np.cumsum(tokens == _EOS, axis=-1) - (tokens == _EOS) > 0
  return np.where(ended, _PAD, tokens)


def test_greedy_equals_the_argmax_without_a_cache(params):
  want = np.zeros((_ROWS, 7), 'int32')
  scores, open_rows = np.zeros(_ROWS), np.ones(_ROWS, bool)
  want[:, 0] = _START
  for i in range(6):
    step = _log_probs(params, want)[:, i]
    want[:, i + 1] = step.argmax(-1)
    scores += np.where(open_rows, step.max(-1), 0)
    open_rows &= want[:, i + 1] != _EOS
  got = _generate(params, method='greedy', max_length=6)
  assert got.token_ids.shape == (_ROWS, 1, 6)
  np.testing.assert_array_equal(
    got.token_ids[:, 0], _pad_after_eos(want[:, 1:])
  )
  np.testing.assert_allclose(got.scores[:, 0], scores, atol=1e-4)
  # Some sequences end, and some reach the limit.
  assert not open_rows.all() and open_rows.any()


@pytest.fixture(scope='module')
def exhaustive(params):
  """All sequences of up to 3 tokens with log probabilities, by source."""
  rows = {
    tuple(_pad_after_eos(np.array(x)))
    for x in itertools.product(range(_VOCAB), repeat=3)
  }
  sequences = np.array(sorted(rows))
  target = np.concatenate(
    [np.zeros((len(sequences), 1), int), sequences], axis=1
  )
  result = []
  for row in range(2):
    target[:, 0] = _START[row]
    steps = _log_probs(params, target, [row] * len(sequences))[:, :3]
    chosen = np.take_along_axis(steps, sequences[..., None], axis=2)[..., 0]
    lengths = _lengths(sequences)
    inside = np.arange(3) < lengths[:, None]
    result.append((sequences, (chosen * inside).sum(-1), lengths))
  return result


def _lengths(tokens):
  """Returns the number of tokens up to and including the end symbol."""
  ended = tokens == _EOS
  return np.where(ended.any(-1), ended.argmax(-1) + 1, tokens.shape[-1])


@pytest.mark.parametrize('penalty', mark_slow([0.0, 1.0, 2.0], slow=[1.0, 2.0]))
def test_wide_beam_equals_exhaustive_search(params, exhaustive, penalty):
  """49 beams contain all unfinished sequences of two tokens."""
  got = _generate(
    params,
    beam_size=49,
    num_samples=5,
    max_length=3,
    length_penalty=penalty,
    early_stopping='exact',
  )
  for row, (sequences, log_probs, lengths) in enumerate(exhaustive):
    scores = log_probs / lengths**penalty
    order = np.argsort(-scores)[:5]
    np.testing.assert_allclose(got.scores[row], scores[order], atol=1e-4)
    np.testing.assert_array_equal(got.token_ids[row], sequences[order])


def test_one_beam_equals_greedy(params):
  want = _generate(params, method='greedy', max_length=6)
  got = _generate(params, beam_size=1, max_length=6)
  np.testing.assert_array_equal(got.token_ids, want.token_ids)
  np.testing.assert_allclose(
    got.scores[:, 0],
    want.scores[:, 0] / _lengths(want.token_ids[:, 0]),
    atol=1e-5,
  )


@pytest.mark.slow
def test_exact_early_stopping_is_not_worse_than_full(params):
  full = _generate(
    params,
    beam_size=3,
    max_length=8,
    num_samples=3,
    length_penalty=0.0,
    early_stopping='full',
  )
  exact = _generate(
    params,
    beam_size=3,
    max_length=8,
    num_samples=3,
    length_penalty=0.0,
    early_stopping='exact',
  )
  assert (np.asarray(exact.scores) >= np.asarray(full.scores) - 1e-6).all()
  assert (np.diff(exact.scores, axis=1) <= 0).all()


@pytest.mark.slow
def test_exact_early_stopping_does_not_depend_on_num_samples(params):
  """The best of several hypotheses equals a single hypothesis."""
  options = dict(beam_size=4, max_length=8, early_stopping='exact')
  single_sample = _generate(params, num_samples=1, **options)
  all_of_them = _generate(params, num_samples=4, **options)
  np.testing.assert_array_equal(
    single_sample.token_ids[:, 0], all_of_them.token_ids[:, 0]
  )
  np.testing.assert_allclose(
    single_sample.scores[:, 0], all_of_them.scores[:, 0], atol=1e-6
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'options',
  [
    dict(method='greedy'),
    dict(beam_size=3, early_stopping='exact'),
    dict(beam_size=3, early_stopping='full'),
  ],
)
def test_max_lengths_apply_per_sequence(params, options):
  """Compares each sequence with that of a batch with its limit."""
  limits = np.array([2, 5, 3, 4] * 2)
  got = _generate(params, max_lengths=limits, max_length=5, **options)
  for limit in (2, 5):
    want = _generate(params, max_length=limit, **options)
    rows = limits == limit
    np.testing.assert_array_equal(
      got.token_ids[rows][..., :limit], want.token_ids[rows]
    )
    np.testing.assert_allclose(got.scores[rows], want.scores[rows], atol=1e-5)
  assert (_lengths(np.asarray(got.token_ids)[:, 0]) == 5).any()
  assert (np.asarray(got.token_ids)[limits == 2][..., 2:] == _PAD).all()


@pytest.mark.slow
def test_larger_length_penalty_gives_longer_sequences(params):
  lengths = [
    _lengths(
      _generate(
        params,
        beam_size=4,
        max_length=8,
        length_penalty=a,
        early_stopping='exact',
      ).token_ids
    ).mean()
    for a in (-2.0, 0.0, 3.0)
  ]
  assert lengths[0] <= lengths[1] < lengths[2], lengths


def test_samples_follow_the_model_distribution(params):
  """Chi-square test of the first tokens of 8 x 2000 samples."""
  temperature = 1.7
  got = _generate(
    params,
    method='sample',
    num_samples=2000,
    max_length=1,
    temperature=temperature,
    rng=jax.random.key(0),
  )
  log_probs = _log_probs(params, _START[:, None])[:, 0]
  weights = np.exp(log_probs.astype('float64') / temperature)
  expected = 2000 * weights / weights.sum(-1, keepdims=True)
  for row in range(_ROWS):
    counts = np.bincount(got.token_ids[row, :, 0], minlength=_VOCAB)
    common = expected[row] > 5
    observed = np.append(counts[common], counts[~common].sum())
    expected_row = np.append(
      expected[row][common], expected[row][~common].sum()
    )
    is_token = expected_row > 0
    assert (
      scipy.stats.chisquare(observed[is_token], expected_row[is_token]).pvalue
      > 1e-4
    ), (observed, expected_row)
  np.testing.assert_allclose(
    got.scores,
    np.take_along_axis(log_probs, np.asarray(got.token_ids[:, :, 0]), axis=1),
    atol=1e-4,
  )


@pytest.mark.parametrize(
  'options',
  [
    dict(top_k=2),
    pytest.param(dict(top_p=0.7), marks=pytest.mark.slow),
    pytest.param(dict(top_k=3, top_p=0.9), marks=pytest.mark.slow),
  ],
)
def test_samples_are_truncated_by_top_k_and_top_p(params, options):
  got = _generate(
    params,
    method='sample',
    num_samples=300,
    max_length=1,
    rng=jax.random.key(1),
    **options,
  )
  probabilities = np.exp(_log_probs(params, _START[:, None])[:, 0])
  for row in range(_ROWS):
    order = np.argsort(-probabilities[row])[: options.get('top_k', _VOCAB)]
    mass = probabilities[row][order] / probabilities[row][order].sum()
    before = np.cumsum(mass) - mass
    support = set(order[before < options.get('top_p', 1.0)])
    assert set(np.asarray(got.token_ids[row, :, 0]).tolist()) == support


@pytest.mark.slow
def test_samples_depend_on_the_key(params):
  def draw(seed):
    return np.asarray(
      _generate(
        params,
        method='sample',
        num_samples=4,
        max_length=6,
        rng=jax.random.key(seed),
      ).token_ids
    )

  np.testing.assert_array_equal(draw(0), draw(0))
  assert (draw(0) != draw(1)).any()
  np.testing.assert_array_equal(draw(2), _pad_after_eos(draw(2)))


@pytest.mark.slow
@pytest.mark.parametrize('method', ['greedy', 'beam'])
def test_start_of_two_tokens(params, method):
  """The second token of the start is the first generated token."""
  options = dict(method=method, beam_size=1, length_penalty=0.0)
  short = _generate(params, max_length=6, **options)
  first = np.asarray(short.token_ids)[:, 0, 0]
  going = first != _EOS
  long = _generate(
    params, start=np.stack([_START, first], axis=1), max_length=5, **options
  )
  assert going.any()
  np.testing.assert_array_equal(
    np.asarray(long.token_ids)[going, 0],
    np.asarray(short.token_ids)[going, 0, 1:],
  )


def test_scores_depend_on_language_and_start(params):
  got = _generate(params, method='greedy', max_length=6)
  other = _generate(
    params, method='greedy', max_length=6, languages=1 - _LANGUAGES
  )
  start = _generate(params, method='greedy', max_length=6, start=_START * 0)
  assert (np.asarray(got.scores) != np.asarray(other.scores)).all()
  assert (np.asarray(got.scores) != np.asarray(start.scores)).all()


@pytest.mark.slow
def test_suppressed_tokens_are_never_generated(params):
  for method in ('beam', 'sample'):
    got = _generate(
      params,
      method=method,
      max_length=6,
      num_samples=1,
      suppressed_ids=(1, 3, 5),
      rng=jax.random.key(0),
    )
    assert not np.isin(got.token_ids, (1, 3, 5)).any()


@pytest.mark.parametrize(
  'options',
  [
    dict(method='greedy'),
    pytest.param(dict(beam_size=3, num_samples=2), marks=pytest.mark.slow),
    pytest.param(
      dict(method='sample', num_samples=2, rng=jax.random.key(4)),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_sharded_equals_one_device(params, boxed, options):
  want = _generate(params, max_length=6, **options)
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  placed = {
    'model': jax.device_put(params['model'], partitioner.shardings(boxed))
  }
  batch = jax.device_put(_BATCH, partitioner.batch_sharding)
  with partitioner.scope():
    got = _generate(placed, batch, max_length=6, **options)
  np.testing.assert_array_equal(got.token_ids, want.token_ids)
  np.testing.assert_allclose(got.scores, want.scores, atol=1e-5)


@pytest.mark.slow
def test_batches_of_the_same_shape_compile_once(params):
  options = decoding.DecodingOptions(beam_size=2, max_length=4)
  program = generation.compile_generate(_MODEL, options, _EOS, _PAD)
  for shift in range(3):
    _generate(
      params,
      {k: np.roll(v, shift, 0) for k, v in _BATCH.items()},
      beam_size=2,
      max_length=4,
    )
  assert program._cache_size() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
  'fields',
  [
    dict(family='t5', per_layer_relative_bias=True),
    dict(family='pre_ln', scan_layers=False),
    dict(family='post_ln', tie_decoder=True, num_decoder_layers=1),
  ],
)
def test_bfloat16_models_generate(fields):
  model = encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      **dict(
        num_encoder_layers=1,
        num_decoder_layers=2,
        hidden_dim=8,
        mlp_dim=12,
        num_heads=2,
        vocab_size=_VOCAB,
        pad_vocab_size_multiple=1,
        max_position_embeddings=12,
        dtype='bfloat16',
      )
      | fields
    )
  )
  tree = nn.unbox(model_params.init_params(model, jax.random.key(0)))
  got = decoding.generate(
    model,
    {'model': tree},
    _BATCH,
    vocabulary=_SPEC,
    decoder_start=_START,
    options=decoding.DecodingOptions(beam_size=2, num_samples=2, max_length=4),
  )
  assert got.token_ids.shape == (_ROWS, 2, 4)
  assert np.isfinite(got.scores).all()
  # Scores equal those without a cache, to 8 bits.
  target = np.concatenate([_START[:, None], got.token_ids[:, 0]], axis=1)
  log_probs = jax.nn.log_softmax(
    model.apply(
      {'params': tree},
      _BATCH['token_ids'],
      segment_ids=_BATCH['segment_ids'],
      decoder_token_ids=target[:, :-1],
    )
  )
  chosen = np.take_along_axis(
    np.asarray(log_probs), target[:, 1:, None], axis=2
  )[..., 0]
  lengths = _lengths(target[:, 1:])
  total = (chosen * (np.arange(4) < lengths[:, None])).sum(-1)
  np.testing.assert_allclose(got.scores[:, 0], total / lengths, atol=0.05)


def test_invalid_options_are_rejected(params):
  for options, values in (
    (dict(top_p=0.0), 'top_p'),
    (dict(method='greedy', num_samples=2), (2, 1, 'greedy')),
    (dict(beam_size=2, num_samples=3), (3, 2)),
    (dict(method='best'), 'best'),
    (dict(temperature=0.7), ('temperature', 0.7, "method='sample'")),
    (dict(method='greedy', top_k=5), ('top_k', 5, "method='sample'")),
    (dict(method='beam', top_p=0.9), ('top_p', 0.9, "method='sample'")),
    (dict(max_length=13), 'max_length'),
    (dict(method='sample', max_length=3), 'rng'),
  ):
    with raises_error(errors.ConfigError, mentions=values):
      _generate(params, **options)
  with raises_error(errors.ConfigError, mentions=('decoder_start', 3, 1)):
    _generate(params, start=_START[:3], max_length=3)
