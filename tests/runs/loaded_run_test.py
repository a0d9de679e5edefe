"""Tests of the methods of `xlflax.Run`."""

import shutil
import types

import jax
import numpy as np
import pytest

import xlflax
from tests.errors import assert_mentions
from xlflax import evaluation
from xlflax.evaluation import hidden_states
from xlflax.objectives.model_calls import Pooling
from xlflax.runs import run_arguments
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]


def _one_device() -> partitioning.Partitioner:
  return partitioning.Partitioner(devices=(jax.devices()[0],))


def _open(directory, **options) -> xlflax.Run:
  return xlflax.load_run(directory, partitioner=_one_device(), **options)


@pytest.fixture(scope='module')
def directory(make_run, tmp_path_factory):
  run_directory = make_run(tmp_path_factory.mktemp('runs') / 'run', [10, 20])
  lines = [
    '{"step": 10, "eval": {"retrieval/accuracy/mean": 0.9}}\n',
    '{"step": 20, "eval": {"retrieval/accuracy/mean": 0.5}}\n',
  ]
  (run_directory / 'metrics.jsonl').write_text(''.join(lines))
  return run_directory


@pytest.fixture(scope='module')
def run(directory):
  return _open(directory)


def test_run_has_an_html_representation(run):
  text = run._repr_html_()
  assert '<th>checkpoints</th><td>10, 20</td>' in text
  assert 'Encoder' in text and 'num_layers' in text


def test_run_is_opened_at_a_checkpoint(directory, run, eval_model):
  assert run.steps == [10, 20]
  assert run.step == 20
  assert run.model == eval_model.model
  assert run.vocabulary.hash == eval_model.vocabulary.hash
  best = run.checkpoint('best', metric_for_best_model='retrieval/accuracy/mean')
  assert best.step == 10
  assert _open(directory, step=10).step == 10
  np.testing.assert_allclose(
    best.params()['model']['embeddings']['token'],
    eval_model.params['model']['embeddings']['token'] * 1.1,
    rtol=1e-6,
  )


def test_parameters_of_another_step_are_restored(run, eval_model):
  assert run.params() is run.params(20)
  scale = [
    float(run.params(step)['model']['embeddings']['token'].std())
    for step in (10, 20)
  ]
  assert scale[1] / scale[0] == pytest.approx(1.2 / 1.1, rel=1e-5)
  for name, step in (('last', 20), (10, 10)):
    np.testing.assert_array_equal(
      run.params(name)['model']['embeddings']['token'],
      run.params(step)['model']['embeddings']['token'],
    )
  initial_params = run.params('untrained')['model']
  assert jax.tree.structure(initial_params) == jax.tree.structure(
    eval_model.params['model']
  )


@pytest.mark.parametrize(
  'step, message',
  [
    (30, 'Got: 30. Expected: one of the steps 10, 20.'),
    ('best', '--metric_for_best_model=NAME'),
    ('newest', "'last', 'best' or 'untrained'"),
  ],
)
def test_unknown_checkpoints_are_rejected(directory, step, message):
  with pytest.raises(errors.XlflaxError, match=message):
    _open(directory, step=step)


@pytest.mark.parametrize(
  'options, layer, pooling',
  [
    ({}, 2, Pooling.MEAN),
    (dict(layer=-1, pooling='first'), 2, Pooling.FIRST),
    (dict(layer=0, pooling='mean'), 0, Pooling.MEAN),
  ],
)
def test_encode_returns_a_pooled_layer_of_hidden_states(
  run, sentences, options, layer, pooling
):
  texts = [*sentences('de', 5), *sentences('ja', 4)]
  codes = ['de'] * 5 + ['ja'] * 4
  vectors = run.encode(texts, languages=codes, **options)
  expected = hidden_states.sentence_states(
    run.eval_model(), texts, [0] * 5 + [2] * 4, pooling=pooling
  ).states[layer]
  assert vectors.shape == (9, 16)
  assert vectors.dtype == np.float32
  np.testing.assert_array_equal(vectors, expected)


def test_mean_of_token_states_equals_the_text_vector(run, sentences):
  texts = [*sentences('de', 2), *sentences('ja', 1)]
  codes = ['de', 'de', 'ja']
  hidden_states = run.states(texts, languages=codes)
  ids = [
    run.tokenizer.encode(text, language=code)
    for text, code in zip(texts, codes, strict=True)
  ]
  assert [text_states.shape for text_states in hidden_states] == [
    (3, len(text_ids), 16) for text_ids in ids
  ]
  means = np.stack([text_states.mean(1) for text_states in hidden_states], 1)
  expected = run.encode_layers(texts, languages=codes)
  np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)
  (cut,) = run.states(texts[:1], languages='de', max_length=4)
  assert cut.shape == (3, 2, 16)


def test_fill_mask_predicts_the_masked_token(run, sentences):
  (text,) = sentences('de', 1)
  prefix, _, suffix = text.partition(' ')
  (predictions,) = run.fill_mask(
    [f'{prefix} <mask> {suffix}'], languages='de', top_k=3
  )
  ids = [run.tokenizer.encode(side, language='de') for side in (prefix, suffix)]
  spec = run.vocabulary.spec
  row = np.array([[spec.bos_id, *ids[0], spec.mask_id, *ids[1], spec.eos_id]])
  logits = run.model.apply(
    {'params': run.params()['model']}, row, language_ids=np.zeros_like(row)
  )
  expected = jax.nn.softmax(logits[0, len(ids[0]) + 1])
  best = np.argsort(-expected)[:3]
  assert [prediction.id for prediction in predictions] == best.tolist()
  np.testing.assert_allclose(
    [prediction.probability for prediction in predictions],
    expected[best],
    rtol=1e-4,
  )
  assert predictions[0].token == run.tokenizer.decode(
    [predictions[0].id], language='de'
  )


@pytest.mark.parametrize('text', ['none', '<mask> and <mask>'])
def test_fill_mask_requires_exactly_one_mask(run, text):
  with pytest.raises(errors.ConfigError, match='<mask>'):
    run.fill_mask([text], languages='de')


def test_single_language_applies_to_all_texts(run, sentences):
  texts = sentences('ja', 3)
  vectors = run.encode(texts, languages='ja')
  np.testing.assert_array_equal(
    vectors, run.encode(texts, languages=['ja'] * 3)
  )
  assert np.abs(vectors - run.encode(texts, languages='de')).max() > 1e-3


def test_encode_layers_returns_all_layers(run, sentences):
  texts = sentences('de', 3)
  layers = run.encode_layers(texts, languages='de')
  assert layers.shape == (3, 3, 16)
  np.testing.assert_array_equal(
    layers[1], run.encode(texts, languages='de', layer=1)
  )
  assert run.encode([], languages='de').shape == (0, 16)


@pytest.mark.slow
def test_attention_weights_of_a_pair(run, sentences):
  (first,), (second,) = sentences('de', 1), sentences('ja', 1)
  pair_weights = run.attention_weights(first, second, languages=['de', 'ja'])
  length = len(pair_weights.token_ids)
  assert pair_weights.weights.shape[2:] == (length, length)
  np.testing.assert_allclose(pair_weights.weights.sum(-1), 1, rtol=1e-5)
  for number, text, code in ((1, first, 'de'), (2, second, 'ja')):
    ids = run.tokenizer.encode(text, language=code)
    np.testing.assert_array_equal(
      pair_weights.token_ids[pair_weights.texts == number], ids
    )
  spec = run.tokenizer.spec
  assert pair_weights.token_ids[pair_weights.texts == 0].tolist() == [
    spec.bos_id,
    spec.eos_id,
    spec.eos_id,
    spec.eos_id,
  ]
  single_weights = run.attention_weights(first, languages='de')
  assert set(single_weights.texts) == {0, 1}


def test_truncated_texts_are_logged(run, sentences, caplog):
  run.encode([' '.join(sentences('de', 9)), 'Hund'], languages='de')
  assert '1 of 2 texts' in caplog.text


@pytest.mark.parametrize(
  'texts, options, message',
  [
    ('Hund', dict(languages='de'), 'into a list'),
    (['Hund'], {}, 'languages.*Run.encode'),
    (['Hund'], dict(languages=['de', 'ja']), 'languages, 2, .*texts, 1'),
    (
      ['Hund'],
      dict(languages='fr'),
      'no parameters for the requested language',
    ),
    (['Hund'], dict(languages='de', layer=3), r'0 \(the embeddings\) to 2'),
    (['Hund'], dict(languages='de', layer='first'), "'first'"),
    (['Hund'], dict(languages='de', pooling='max'), 'mean'),
  ],
)
def test_encode_rejects_invalid_arguments(run, texts, options, message):
  with pytest.raises(errors.XlflaxError, match=message):
    run.encode(texts, **options)


def test_languages_outside_the_vocabulary_are_logged(run, caplog):
  """A warning suffices for a model that does not depend on languages."""
  eval_model = types.SimpleNamespace(
    needs_languages=False,
    model=types.SimpleNamespace(config=None),
    vocabulary=run.vocabulary,
  )
  ids = run_arguments.language_ids(eval_model, ['Hund'] * 2, ['de_Latn', 'dex'])
  assert ids == [run.vocabulary.language_id('de'), 0]
  [record] = caplog.records
  assert record.levelname == 'WARNING'
  assert_mentions(record.getMessage(), 'dex', 'de')


def test_evaluate_writes_and_returns_results(run, corpus):
  task = evaluation.Retrieval(
    source=evaluation.ParallelCorpus(directory=corpus)
  )
  (result,) = run.evaluate([task]).values()
  assert 0 <= result.metrics['accuracy/mean'] <= 1
  result_files = (run.directory / 'eval' / 'retrieval').glob('*/20.json')
  assert len(list(result_files)) == 1
  untrained = run.checkpoint('untrained').evaluate([task])['retrieval']
  assert untrained.metrics != result.metrics


def test_evaluate_requires_a_readable_checkpoint(directory, tmp_path, corpus):
  copy = tmp_path / 'run'
  shutil.copytree(directory, copy)
  shutil.rmtree(copy / 'eval', ignore_errors=True)
  shutil.rmtree(copy / 'checkpoints' / '20' / 'params')
  (copy / 'checkpoints' / '20' / 'params').mkdir()
  task = evaluation.Retrieval(
    source=evaluation.ParallelCorpus(directory=corpus)
  )
  with pytest.raises(errors.CheckpointError, match='step 20'):
    _open(copy).evaluate([task])


def test_translate_returns_translations(copying_run):
  run = _open(copying_run)
  texts = ['the dog sleeps', '', 'warm milk']
  assert run.translate(texts, source='en', target='de', beam_size=2) == texts


def test_only_encoder_decoders_translate(run):
  with pytest.raises(errors.ConfigError, match='EncoderDecoder'):
    run.translate(['Hund'], source='de', target='en')
