"""Tests of batched translation with an encoder-decoder."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.evaluation import sentence_translator, translation_options
from xlflax.models import encoder_decoder, encoder_decoder_config, model_params
from xlflax.objectives.pretraining import denoising, seq2seq
from xlflax.objectives.pretraining.seq2seq import SourceSymbols
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]

_Options = translation_options.TranslationOptions


def _translate(eval_model, texts, **options):
  return sentence_translator.Translator(
    eval_model, source='en', target='de', options=_Options(**options)
  ).translate(texts)


def _best(candidates):
  return [hypotheses[0].text for hypotheses in candidates.hypotheses]


def test_translations_keep_the_order_of_the_input(copier, sentences):
  texts = [*sentences('en', 20), '', *sentences('de', 15)]
  translations = _translate(copier, texts)
  assert _best(translations) == texts and translations.cut == 0
  assert translations.hypotheses[20] == [('', 0.0)]
  assert all(
    -0.1 < hypotheses[0].score < 0
    for hypotheses in translations.hypotheses[:20]
  )


def test_early_stopping_full_may_truncate_sentences(copier, sentences):
  """The eos token is among the five best tokens at every position."""
  texts = sentences('en', 20)
  full = _translate(copier, texts, early_stopping='full')
  exact = _translate(copier, texts, early_stopping='exact')
  greedy = _translate(copier, texts, beam_size=1)
  assert _best(greedy) == _best(exact) == texts
  shorter = [
    a
    for a, b in zip(_best(full), texts, strict=True)
    if a != b and b.startswith(a)
  ]
  assert len(shorter) > 5
  assert all(
    a[0].score <= b[0].score + 1e-6
    for a, b in zip(full.hypotheses, exact.hypotheses, strict=True)
  )


def test_long_sentences_are_truncated_and_counted(copier):
  translations = _translate(
    copier, ['milk ' * 40, 'milk', 'dog ' * 50], max_length=12
  )
  assert translations.cut == 2
  long, short, _ = _best(translations)
  assert short == 'milk' and long and ('milk ' * 40).startswith(long)


@pytest.fixture(scope='module')
def untrained(copier):
  """Untrained model whose output differs by sentence and language."""
  model = encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      family='post_ln',
      num_encoder_layers=1,
      num_decoder_layers=1,
      hidden_dim=8,
      mlp_dim=12,
      num_heads=2,
      max_position_embeddings=40,
      vocab_size=len(copier.vocabulary),
      initializer_range=0.9,
      use_language_embeddings=True,
      num_languages=3,
    )
  )
  boxed = model_params.init_params(model, jax.random.key(3))
  return dataclasses.replace(
    copier, model=model, params={'model': nn.unbox(boxed)}
  ), boxed


@pytest.mark.slow
def test_translations_do_not_depend_on_batches_and_devices(
  untrained, sentences
):
  eval_model, boxed = untrained
  texts = sentences('en', 11)
  options = dict(beam_size=2, n_best=2, max_length=16)
  expected = _translate(eval_model, texts, **options)
  assert len(set(_best(expected))) > 3
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  sharded = dataclasses.replace(
    eval_model,
    partitioner=partitioner,
    params={
      'model': jax.device_put(
        eval_model.params['model'], partitioner.shardings(boxed)
      )
    },
  )
  for other in (dataclasses.replace(eval_model, batch_size=3), sharded):
    got = _translate(other, texts, **options)
    for a, b in zip(expected.hypotheses, got.hypotheses, strict=True):
      assert [x.text for x in a] == [x.text for x in b]
      np.testing.assert_allclose(
        [x.score for x in a], [x.score for x in b], atol=1e-5
      )


@pytest.mark.slow
def test_length_limit_depends_on_the_sentence(untrained):
  """Three tokens become at most 10 + 1, even in a batch with longer sentences."""
  eval_model, _ = untrained
  encode = eval_model.vocabulary.encode
  short, long = _best(
    _translate(
      eval_model,
      ['a', 'the small dog drinks warm milk 1 2 3'],
      beam_size=1,
      max_length_ratio=0.01,
    )
  )
  assert len(encode(short)) <= 10 and len(encode(long)) <= 10
  (free,) = _best(
    _translate(eval_model, ['a'], beam_size=1, max_length_ratio=9.0)
  )
  assert len(encode(free)) > 10 and free.startswith(short[:3])


def test_decoding_symbols_follow_the_trained_objective(copier):
  def find_decoder_start(*objectives, **options):
    return translation_options.decoding_symbols(
      _Options(**options), {o.name: o for o in objectives}
    )

  trained = seq2seq.Translation(
    decoder_start='eos', source_symbols='language_suffix'
  )
  other = denoising.SpanCorruption(decoder_start='pad')
  assert find_decoder_start(other, trained) == (
    trained.decoder_start,
    SourceSymbols.LANGUAGE_SUFFIX,
  )
  assert find_decoder_start(other)[0] is other.decoder_start
  assert find_decoder_start(trained, decoder_start='bos')[0].value == 'bos'
  with raises_error(
    errors.ConfigError,
    mentions=('decoder_start', 'language', 'bos', 'pad', 'eos'),
  ):
    find_decoder_start()
  assert (
    'starts with bos'
    in sentence_translator.Translator(
      copier, source='en', target='de'
    ).describe()
  )


def test_source_symbols_are_those_of_training(copier):
  """With `x </s> <lang:en>`, the copy lacks the first token of x."""
  translations = _translate(
    copier,
    ['warm milk'],
    source_symbols='language_suffix',
    decoder_start='language',
  )
  pieces = copier.vocabulary.encode('warm milk')
  assert _best(translations) == [copier.vocabulary.decode(pieces[1:])]


@pytest.mark.parametrize(
  'options, values',
  [
    (dict(beam_size=0), ('beam_size', 0)),
    (dict(n_best=6), ('n_best', 6, 5)),
    (dict(max_length=2), ('max_length', 2)),
    (dict(max_length_ratio=0), ('max_length_ratio', 0)),
    (dict(decoder_start='x'), ('x', 'language', 'bos', 'pad', 'eos')),
  ],
)
def test_invalid_options_are_rejected(options, values):
  with raises_error(errors.ConfigError, mentions=values):
    _Options(**options)


def test_model_without_a_decoder_is_rejected(eval_model):
  with raises_error(errors.ConfigError, got='Encoder'):
    sentence_translator.Translator(eval_model, source='en', target='de')
