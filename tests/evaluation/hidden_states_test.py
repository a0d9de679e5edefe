import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.evaluation import hidden_states
from xlflax.objectives.model_calls import Pooling
from xlflax.training.devices import partitioning

pytest_plugins = ['tests.evaluation.fixtures']

LANGUAGES = [0] * 20 + [2] * 17


@pytest.fixture
def texts(sentences):
  return sentences('de', 20) + sentences('ja', 17)


def _pool_single_sentence(eval_model, text, language, pooling):
  """Returns the states of one sentence without padding, pooled in NumPy."""
  spec = eval_model.vocabulary.spec
  ids = np.array(
    [[spec.bos_id, *eval_model.vocabulary.encode(text), spec.eos_id]]
  )
  layers = jax.jit(
    functools.partial(eval_model.model.apply, method='encode_layers')
  )(
    {'params': eval_model.params['model']},
    jnp.asarray(ids),
    language_ids=jnp.full(ids.shape, language),
  )
  layers = np.asarray(layers)[:, 0]
  if pooling is Pooling.FIRST:
    return layers[:, 0]
  if pooling is Pooling.MEAN_ALL:
    return layers.mean(1)
  text = ~np.isin(ids[0], spec.special_ids)
  return layers[:, text].mean(1)


@pytest.mark.parametrize('pooling', list(Pooling))
def test_states_equal_those_of_single_sentences(eval_model, pooling, texts):
  states = hidden_states.sentence_states(
    eval_model, texts, LANGUAGES, pooling=pooling
  )
  assert states.states.shape == (3, 37, 16)
  assert states.states.dtype == np.float32
  assert states.truncated == 0
  for i in (0, 24):
    np.testing.assert_allclose(
      states.states[:, i],
      _pool_single_sentence(eval_model, texts[i], LANGUAGES[i], pooling),
      atol=1e-5,
    )


@pytest.mark.parametrize('batch_size', [1, 40])
def test_states_do_not_depend_on_the_batch_size(
  eval_model, with_batch_size, batch_size, texts
):
  expected = hidden_states.sentence_states(eval_model, texts, LANGUAGES).states
  batch_states = hidden_states.sentence_states(
    with_batch_size(batch_size), texts, LANGUAGES
  ).states
  np.testing.assert_allclose(batch_states, expected, atol=1e-5)


@pytest.mark.parametrize(
  'shape', [pytest.param((8, 1, 1), marks=pytest.mark.slow), (2, 2, 2)]
)
def test_eight_devices_agree_with_one(eval_model, shape, texts):
  partitioner = partitioning.Partitioner(
    data=shape[0], fsdp=shape[1], tensor=shape[2]
  )
  sharded = dataclasses.replace(
    eval_model,
    partitioner=partitioner,
    batch_size=12,
    params=jax.device_put(eval_model.params, partitioner.replicated),
  )
  expected = hidden_states.sentence_states(eval_model, texts, LANGUAGES).states
  batch_states = hidden_states.sentence_states(sharded, texts, LANGUAGES).states
  np.testing.assert_allclose(batch_states, expected, atol=1e-5)


def test_long_sentences_are_truncated_and_counted(eval_model, texts):
  long_texts = [texts[8], texts[0], texts[8] + ' und so weiter']
  short = len(eval_model.vocabulary.encode(texts[0]))
  states = hidden_states.sentence_states(
    eval_model, long_texts, [0] * 3, max_length=short + 2
  )
  assert states.truncated == 2
  np.testing.assert_allclose(
    states.states[:, 0], states.states[:, 2], atol=1e-5
  )


def test_empty_text_is_pooled_over_bos_and_eos(eval_model, texts):
  batch_states = hidden_states.sentence_states(
    eval_model, ['', texts[0]], [0, 0]
  ).states
  spec = eval_model.vocabulary.spec
  layers = jax.jit(
    functools.partial(eval_model.model.apply, method='encode_layers')
  )(
    {'params': eval_model.params['model']},
    jnp.array([[spec.bos_id, spec.eos_id]]),
    language_ids=jnp.zeros((1, 2), int),
  )
  np.testing.assert_allclose(
    batch_states[:, 0], layers.mean(2)[:, 0], atol=1e-5
  )


def test_empty_input_has_no_states(eval_model):
  assert hidden_states.sentence_states(eval_model, [], []).states.shape == (
    3,
    0,
    16,
  )


def test_the_number_of_compilations_is_bounded(eval_model, texts):
  hidden_states.pooled_states.clear_cache()
  for count in (3, 11, 37):
    hidden_states.sentence_states(eval_model, texts[:count], LANGUAGES[:count])
  other = dataclasses.replace(
    eval_model, params=jax.tree.map(lambda x: x + 1, eval_model.params)
  )
  hidden_states.sentence_states(other, texts, LANGUAGES, pooling=Pooling.FIRST)
  assert (
    1
    <= hidden_states.pooled_states._cache_size()
    <= len(hidden_states.bucket_lengths(32))
  )


def test_bucket_lengths_double_every_second_time_up_to_the_limit():
  assert hidden_states.bucket_lengths(100) == (16, 24, 32, 48, 64, 96, 100)
  assert hidden_states.bucket_lengths(64) == (16, 24, 32, 48, 64)
  assert hidden_states.bucket_lengths(10) == (10,)


def test_plan_batches_covers_every_sentence_once_in_few_shapes():
  lengths = np.random.default_rng(0).integers(2, 300, size=500)
  plan = list(
    hidden_states.plan_batches(
      lengths, max_length=300, batch_size=20, multiple=8
    )
  )
  indices = np.concatenate([chosen for chosen, _, _ in plan])
  assert sorted(indices) == list(range(500))
  assert len({(rows, length) for _, rows, length in plan}) <= 10
  for chosen, rows, length in plan:
    assert len(chosen) <= rows
    assert rows % 8 == 0
    assert lengths[chosen].max() <= length
    assert rows * length <= 24 * 300
