"""Objectives with language-specific parameters."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import random_parameters
from tests.objectives.corruption import random_words_test
from xlflax.models.encoder import Encoder
from xlflax.models.encoder_config import EncoderConfig
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import model_calls, objective_base
from xlflax.objectives.pretraining.masked_lm import MaskedLM
from xlflax.objectives.pretraining.sentence_alignment import (
  MoCoQueue,
  SentenceAlignment,
)
from xlflax.training import param_tree

_CONFIG = EncoderConfig(
  num_layers=2,
  hidden_dim=8,
  mlp_dim=12,
  num_heads=2,
  max_position_embeddings=14,
  vocab_size=23,
  pad_vocab_size_multiple=1,
  num_languages=3,
  initializer_range=0.4,
)
_PLAN = parameter_sharing.SharingPlan(embeddings=True, layers=1)
_MODEL = Encoder(dataclasses.replace(_CONFIG, sharing=_PLAN))
_MLM = MaskedLM(mask_ratio=0.5, random_words='language')
_ALIGN = SentenceAlignment()
_WORDS = random_words_test.WORDS


@pytest.fixture
def vocabulary(vocabulary):
  return dataclasses.replace(vocabulary, language_words=random_words_test.RUNS)


@pytest.fixture(scope='module')
def params():
  return {'model': random_parameters.draw_parameters(_MODEL), 'heads': {}}


def _rows(language: int, seed: int, lengths=(12, 5, 0, 9)):
  """Returns sequences of words of one language; the third is empty."""
  rng = np.random.default_rng(seed)
  tokens = np.zeros((len(lengths), 14), np.int32)
  for row, n in zip(tokens, lengths, strict=True):
    row[: n + 2] = [1, *rng.choice(_WORDS[language], n), 2]
  present = (tokens > 0).astype(np.int32)
  return {
    'token_ids': tokens,
    'segment_ids': present,
    'positions': np.arange(14, dtype=np.int32)[None] * present,
    'language_ids': language * present,
  }


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(model, objective, vocabulary, params, batch, state=()):
  def total(params):
    output = objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=vocabulary,
        step=jnp.int32(0),
        train=False,
        rng=jax.random.key(5),
        state=state,
      ),
    )
    return output.loss.total, output

  (_, output), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return output, gradient['model']


def _language_params(params, language, words=None):
  """Returns the parameters of one language, with a softmax over its words."""
  tree = dict(
    parameter_sharing.select_language_params(_PLAN, params['model'], language)
  )
  if words is not None:
    tree['output_bias'] = np.where(
      np.isin(np.arange(23), words), tree['output_bias'], -1e9
    )
  return {**params, 'model': tree}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _masked(objective, vocabulary, batch):
  context = objective_base.ObjectiveContext(
    vocabulary=vocabulary, step=jnp.int32(0), train=True, rng=jax.random.key(0)
  )
  return objective.mask(batch, context, jax.random.key(1))


@jax.jit
def _encode(params, rows):
  return model_calls.call_model(
    Encoder(_CONFIG),
    params,
    'encode',
    rows['token_ids'],
    segment_ids=rows['segment_ids'],
    positions=rows['positions'],
  )


def _language_words(language, vocabulary):
  return [*_WORDS[language], *vocabulary.special_ids]


def test_parameters_are_unchanged_without_a_plan(params, vocabulary):
  assert (
    model_calls.bind_language_params(Encoder(_CONFIG), params, {}, vocabulary)
    is params
  )


def test_language_of_a_batch_ignores_padding():
  batch = _rows(2, 0)
  batch['language_ids'][2:] = 0
  assert model_calls.language_of(batch) == 2
  assert model_calls.language_of(_rows(0, 0)) == 0


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(vocabulary, params, batch):
  bound = model_calls.bind_language_params(_MODEL, params, batch, vocabulary)
  return jax.nn.softmax(
    model_calls.call_model(
      Encoder(_CONFIG), bound, '__call__', batch['token_ids']
    )
  )


@pytest.mark.parametrize('language', [0, 1, 2])
def test_softmax_is_over_the_words_of_the_language(
  params, vocabulary, language
):
  batch = _rows(language, 1)

  got = np.asarray(_probabilities(vocabulary, params, batch))
  is_language_word = np.isin(
    np.arange(23), _language_words(language, vocabulary)
  )
  assert (got[..., ~is_language_word] == 0).all() and (
    got[..., is_language_word] > 0
  ).all()
  np.testing.assert_allclose(got.sum(-1), 1, rtol=1e-5)


def test_softmax_of_a_shared_vocabulary_includes_all_words(params, vocabulary):
  common = dataclasses.replace(vocabulary, language_words=())
  bound = model_calls.bind_language_params(_MODEL, params, _rows(1, 0), common)
  np.testing.assert_array_equal(
    bound['model']['output_bias'],
    params['model']['language_specific']['output_bias'][1],
  )


@pytest.fixture(scope='module')
def scored(params):
  """Fixture that returns output and gradient of German masked LM."""

  @functools.cache
  def run(vocabulary):
    return _run(_MODEL, _MLM, vocabulary, params, _rows(1, 2))

  return run


def test_masked_lm_equals_the_encoder_of_the_language(
  scored, params, vocabulary
):
  output, gradient = scored(vocabulary)
  want, want_gradient = _run(
    Encoder(_CONFIG),
    _MLM,
    vocabulary,
    _language_params(params, 1, _language_words(1, vocabulary)),
    _rows(1, 2),
  )
  np.testing.assert_allclose(output.loss.total, want.loss.total, rtol=1e-6)
  assert output.loss.weight == want.loss.weight == 6 + 3 + 5
  language_gradient = parameter_sharing.select_language_params(
    _PLAN, gradient, 1
  )
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6),
    language_gradient,
    want_gradient,
  )
  assert output.metrics['mlm/loss'].weight.tolist() == [0, 14, 0]


def test_masked_lm_updates_only_one_language(scored, vocabulary):
  _, gradient = scored(vocabulary)
  language_gradient = gradient['language_specific']
  for name, leaf in param_tree.flatten_params(language_gradient).items():
    assert not leaf[0].any() and not leaf[2].any(), name
  table = np.asarray(language_gradient['embeddings']['token'][1])
  moved = set(np.flatnonzero(table.any(axis=1)).tolist())
  assert set(_WORDS[1]) <= moved <= set(_language_words(1, vocabulary))
  assert np.abs(gradient['layers']['mlp']['wi']['kernel']).max() > 1e-4
  assert np.abs(gradient['head_dense']['kernel']).max() > 1e-4


def test_random_words_are_words_of_the_language(vocabulary, params):
  """All chosen tokens are replaced by random German words."""
  objective = MaskedLM(
    mask_ratio=1.0,
    mask_probability=0.0,
    random_probability=1.0,
    random_words='language',
  )
  batch = _rows(1, 3, lengths=(12,) * 200)
  token_ids, choice = _masked(objective, vocabulary, batch)
  input_ids = np.asarray(token_ids)[np.arange(200)[:, None], choice.positions]
  assert set(input_ids[choice.weights > 0].tolist()) == set(_WORDS[1])


def _pairs():
  """Returns English-French pairs; the third pair is empty."""
  second = _rows(2, 5, lengths=(4, 9, 0, 2))
  return {**_rows(0, 4), **{f'paired_{k}': v for k, v in second.items()}}


def _sentence_vectors(params, vocabulary, pairs):
  """Returns unit vectors [B, H] of both texts."""
  vectors = []
  for prefix, language in (('', 0), ('paired_', 2)):
    rows = {
      key: pairs[prefix + key]
      for key in ('token_ids', 'segment_ids', 'positions', 'language_ids')
    }
    states = np.asarray(_encode(_language_params(params, language), rows))
    text = ~np.isin(rows['token_ids'], vocabulary.special_ids)
    pooled = (states * text[..., None]).sum(1)
    norm = np.linalg.norm(pooled, axis=-1, keepdims=True)
    vectors.append(pooled / np.where(norm > 0, norm, 1))
  return vectors


@pytest.mark.slow
def test_sentence_alignment_uses_the_parameters_of_each_language(
  params, vocabulary
):
  output, gradient = _run(_MODEL, _ALIGN, vocabulary, params, _pairs())
  keep = [0, 1, 3]
  first, second = (
    v[keep] for v in _sentence_vectors(params, vocabulary, _pairs())
  )
  scores = first @ second.T / 0.05
  loss = [np.log(np.exp(s).sum(1)) - np.diag(s) for s in (scores, scores.T)]
  np.testing.assert_allclose(output.loss.total, np.sum(loss) / 2, rtol=1e-4)
  for name, leaf in param_tree.flatten_params(
    gradient['language_specific']
  ).items():
    assert not leaf[1].any(), name
    if not name.endswith(('output_bias', 'attention/key/bias')):
      assert leaf[0].any() and leaf[2].any(), name


@pytest.mark.slow
def test_queue_keys_use_the_parameters_of_their_language(params, vocabulary):
  objective = SentenceAlignment(queue=MoCoQueue(size=8), direction='forward')
  state = objective.init_state(_MODEL, params, vocabulary)
  output, _ = _run(_MODEL, objective, vocabulary, params, _pairs(), state)
  _, second = _sentence_vectors(params, vocabulary, _pairs())
  keys = np.asarray(output.state['queue']['keys'])[:4]
  np.testing.assert_allclose(keys[[0, 1, 3]], second[[0, 1, 3]], atol=1e-5)
