import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from xlflax.data.supervised.featurizers import word_ids
from xlflax.evaluation import word_states
from xlflax.models import model_params
from xlflax.models.variants import parameter_sharing
from xlflax.training.devices import partitioning

pytest_plugins = ['tests.evaluation.fixtures']

_LANGUAGES = [('de', 0)] * 9 + [('ja', 2)] * 6


@pytest.fixture
def split(sentences):
  return [text.split() for text in sentences('de', 9) + sentences('ja', 6)]


def _read(eval_model, split, languages, **options):
  readings = list(
    word_states.word_states(eval_model, split, languages, **options)
  )
  assert sorted(reading.sentence for reading in readings) == list(
    range(len(split))
  )
  for reading in readings:
    assert reading.words.tolist() == list(range(reading.states.shape[1]))
  return [
    reading.states
    for reading in sorted(readings, key=lambda reading: reading.sentence)
  ]


def test_word_states_are_means_over_tokens(eval_model, split):
  states = _read(eval_model, split, _LANGUAGES)
  spec = eval_model.vocabulary.spec
  encode = jax.jit(
    functools.partial(eval_model.model.apply, method='encode_layers')
  )
  for i in (3, 12):
    ids, lengths = word_ids.encode_words(
      eval_model.vocabulary, split[i], _LANGUAGES[i][0]
    )
    tokens = np.array([[spec.bos_id, *ids, spec.eos_id]])
    layers = np.asarray(
      encode(
        {'params': eval_model.params['model']},
        jnp.asarray(tokens),
        language_ids=jnp.full(tokens.shape, _LANGUAGES[i][1]),
      )
    )[:, 0]
    start = 1
    for word, length in enumerate(lengths):
      np.testing.assert_allclose(
        states[i][:, word], layers[:, start : start + length].mean(1), atol=1e-5
      )
      start += length
    assert states[i].shape == (3, len(split[i]), 16)
    assert states[i].dtype == np.float32


@pytest.mark.slow
def test_states_do_not_depend_on_batch_size_and_devices(eval_model, split):
  expected = _read(eval_model, split, _LANGUAGES)
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  for other in (
    dataclasses.replace(eval_model, batch_size=3),
    dataclasses.replace(
      eval_model,
      partitioner=partitioner,
      batch_size=12,
      params=jax.device_put(eval_model.params, partitioner.replicated),
    ),
  ):
    for x, y in zip(_read(other, split, _LANGUAGES), expected, strict=True):
      np.testing.assert_allclose(x, y, atol=1e-5)


def test_words_beyond_the_limit_are_omitted(eval_model, split):
  sentence_words = split[8]
  ids, lengths = word_ids.encode_words(
    eval_model.vocabulary, sentence_words, 'de'
  )
  assert lengths[2] > 1  # so that the limit can be inside a word
  max_pieces = int(lengths[:3].sum()) - 1
  (short,) = _read(
    eval_model, [sentence_words], [('de', 0)], max_length=max_pieces + 2
  )
  of_token = np.repeat(np.arange(len(sentence_words)), lengths)[:max_pieces]
  (expected,) = word_states.states_of_readings(
    eval_model,
    [
      word_states.Reading(
        ids[:max_pieces], np.where(of_token < 2, of_token, -1)
      )
    ],
    [0],
  )
  assert short.shape[1] == 2
  np.testing.assert_allclose(short, expected.states, atol=1e-5)


@pytest.mark.slow
def test_languages_use_their_own_parameters(eval_model, split):
  plan = parameter_sharing.SharingPlan(embeddings=True, layers=1)
  model = eval_model.model.clone(
    config=dataclasses.replace(eval_model.model.config, sharing=plan)
  )
  params = nn.meta.unbox(model_params.init_params(model, jax.random.key(1)))
  mixed = dataclasses.replace(eval_model, model=model, params={'model': params})
  states = _read(mixed, split[7:11], _LANGUAGES[7:11])
  for language, part in ((0, slice(0, 2)), (2, slice(2, 4))):
    single_run = dataclasses.replace(
      eval_model,
      params={
        'model': parameter_sharing.select_language_params(
          plan, params, language
        )
      },
    )
    expected = _read(single_run, split[7:11][part], _LANGUAGES[7:11][part])
    for x, y in zip(states[part], expected, strict=True):
      np.testing.assert_allclose(x, y, atol=1e-5)


def test_tokens_without_a_word_are_ignored(eval_model, split):
  sentence_words = split[7]
  ids, lengths = word_ids.encode_words(
    eval_model.vocabulary, sentence_words, 'de'
  )
  of_token = np.repeat(np.arange(len(sentence_words)), lengths)
  word_numbers = np.where(np.isin(of_token, [1, 3]), of_token * 10, -1)
  (states,) = word_states.states_of_readings(
    eval_model, [word_states.Reading(ids, word_numbers)], [0]
  )
  (states_of_all,) = _read(eval_model, [sentence_words], [('de', 0)])
  assert states.words.tolist() == [10, 30]
  np.testing.assert_allclose(states.states, states_of_all[:, [1, 3]], atol=1e-5)


def test_sentence_without_words_has_no_states(eval_model, split):
  states = _read(eval_model, [[], split[0]], [('de', 0)] * 2)
  assert states[0].shape == (3, 0, 16)
  assert states[1].shape == (3, len(split[0]), 16)
  assert list(word_states.word_states(eval_model, [], [])) == []
