"""Tests of corpus hidden states against states of single sentences and words."""

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.analysis import corpus_hidden_states, word_vectors
from xlflax.data.supervised.featurizers import word_ids
from xlflax.evaluation import hidden_states as sentence_states
from xlflax.evaluation import word_states
from xlflax.utils import errors, progress_reporting

pytest_plugins = ['tests.evaluation.fixtures']

_WORDS = ['der', 'hund', 'Katze', 'Milch', 'fehlt', 'der']


@pytest.fixture
def texts(sentences):
  return sentences('de', 20)


def _means(eval_model, texts, vocabulary_words):
  """Returns {word: mean [L + 1, H]} for texts with single spaces between words."""
  states_by_word = {}
  for text in texts:
    split = text.split()
    (reading,) = word_states.word_states(eval_model, [split], [('de', 0)])
    for i, word in enumerate(split):
      row = word if word in vocabulary_words else word.lower()
      if row in vocabulary_words:
        states_by_word.setdefault(row, []).append(reading.states[:, i])
  return {
    word: np.mean(states, axis=0) for word, states in states_by_word.items()
  }


def test_means_are_over_tokens_then_over_the_corpus(eval_model, texts):
  means = corpus_hidden_states.mean_word_states(
    eval_model, texts, 'de', _WORDS, block=7
  )
  expected = _means(eval_model, texts, _WORDS)
  assert means.words == ('der', 'hund', 'Katze', 'Milch', 'fehlt')
  assert means.sums.shape == (5, 3, 16) and means.sentences == 20
  assert means.counts.tolist() == [
    sum(word in (form, form.lower()) for text in texts for form in text.split())
    for word in means.words
  ]
  for layer in range(3):
    vectors = means.vectors(layer)
    assert set(vectors.words) == set(expected) == set(_WORDS) - {'fehlt'}
    for word, vector in zip(vectors.words, vectors.vectors, strict=True):
      np.testing.assert_allclose(vector, expected[word][layer], atol=1e-5)


def test_punctuation_is_part_of_the_context_only(eval_model):
  """Encodes `Hund,` as written, not as the two words `Hund ,`."""
  text = 'die kleine Katze, der Hund'
  means = corpus_hidden_states.mean_word_states(
    eval_model, [text], 'de', ['Katze', 'Hund']
  )
  ids, lengths = word_ids.encode_words(
    eval_model.vocabulary, text.split(), 'de'
  )
  assert ids.tolist() == eval_model.vocabulary.encode(text)
  of_word = np.repeat(np.arange(5), lengths)
  comma = int(lengths[:3].sum()) - 1  # a separate token in this vocabulary
  of_word[comma] = -1
  (reading,) = word_states.states_of_readings(
    eval_model, [word_states.Reading(ids, of_word)], [0]
  )
  np.testing.assert_allclose(means.sums[0], reading.states[:, 2], atol=1e-5)
  np.testing.assert_allclose(means.sums[1], reading.states[:, 4], atol=1e-5)


def test_interrupted_corpus_is_resumed(
  eval_model, texts, tmp_path, monkeypatch
):
  expected = corpus_hidden_states.mean_word_states(
    eval_model, texts, 'de', _WORDS, block=5
  )
  store = word_vectors.Store(tmp_path / 'de.npz', identity='run at step 3, de')
  monkeypatch.setattr(corpus_hidden_states, '_SAVE_SECONDS', -1.0)

  def interrupted_texts():
    yield from texts[:12]
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    corpus_hidden_states.mean_word_states(
      eval_model, interrupted_texts(), 'de', _WORDS, block=5, store=store
    )
  read = []
  means = corpus_hidden_states.mean_word_states(
    eval_model,
    (read.append(text) or text for text in texts),
    'de',
    _WORDS,
    block=5,
    store=store,
  )
  assert (
    store.restore(
      word_vectors.WordMeans(_WORDS, layers=3, dimension=16)
    ).sentences
    == 20
  )
  assert means.sentences == 20 and len(read) == 20
  np.testing.assert_array_equal(means.counts, expected.counts)
  np.testing.assert_allclose(means.sums, expected.sums, atol=1e-4)
  restored = corpus_hidden_states.mean_word_states(
    eval_model, texts, 'de', _WORDS, store=store
  )
  np.testing.assert_array_equal(restored.sums, means.sums)


def test_store_of_another_corpus_is_rejected(tmp_path):
  word_means = word_vectors.WordMeans(['a', 'b'], layers=1, dimension=2)
  store = word_vectors.Store(tmp_path / 'x.npz', identity='de')
  store.save(word_means)
  other = word_vectors.Store(tmp_path / 'x.npz', identity='en')
  with raises_error(errors.AnalysisError, where='x.npz', mentions=(2, 'de')):
    other.restore(word_means)
  with raises_error(errors.AnalysisError, where='x.npz', mentions=(2, 'de')):
    store.restore(word_vectors.WordMeans(['a'], layers=1, dimension=2))
  (tmp_path / 'x.npz').write_bytes(b'PK')
  with raises_error(
    errors.AnalysisError, where='x.npz', mentions='allow_pickle='
  ):
    store.restore(word_means)


def test_word_means_match_hand_computed_values():
  means = word_vectors.WordMeans(['a', 'b', 'c'], layers=1, dimension=2)
  means.update(
    [
      (np.array([1, 0, 1]), np.array([[[1.0, 2], [5, 5], [3, 4]]])),
      (np.zeros(0, int), np.zeros((1, 0, 2))),
    ],
    sentences=2,
  )
  means.update([(np.array([1]), np.array([[[2.0, 0]]]))], sentences=1)
  assert means.sentences == 3
  vectors = means.vectors(0)
  assert vectors.words == ('a', 'b')
  np.testing.assert_allclose(vectors.vectors, [[5, 5], [2, 2]])
  assert means.vectors(-1, least=2).words == ('b',)
  with raises_error(errors.AnalysisError, got=1):
    means.vectors(1)
  with raises_error(errors.AnalysisError, mentions=3):
    means.vectors(0, least=4)


@pytest.mark.parametrize('block, sizes', [(6, [6, 6, 6, 2]), (100, [20])])
def test_sentence_blocks_match_unblocked_states(
  eval_model, texts, block, sizes
):
  blocks = list(
    corpus_hidden_states.sentence_blocks(
      eval_model, iter(texts), 'de', block=block
    )
  )
  assert [block.shape for block in blocks] == [(3, size, 16) for size in sizes]
  expected = sentence_states.sentence_states(eval_model, texts, [0] * 20).states
  np.testing.assert_allclose(np.concatenate(blocks, 1), expected, atol=1e-5)


def test_sentence_blocks_are_read_lazily(eval_model, texts):
  read = []
  blocks = corpus_hidden_states.sentence_blocks(
    eval_model, (read.append(text) or text for text in texts), 'de', block=4
  )
  next(blocks)
  assert len(read) == 4
  with raises_error(errors.ConfigError, got=0, mentions='block'):
    next(corpus_hidden_states.sentence_blocks(eval_model, texts, 'de', block=0))


def test_progress_is_logged(eval_model, texts, monkeypatch, caplog):
  monkeypatch.setattr(progress_reporting, '_LOG_INTERVAL_SECONDS', -1.0)
  caplog.set_level('INFO')
  list(corpus_hidden_states.sentence_blocks(eval_model, texts, 'de', block=12))
  corpus_hidden_states.mean_word_states(
    eval_model, iter(texts), 'de', _WORDS, block=20
  )
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == 3
  assert_mentions(messages[0], 12, 20)
  assert_mentions(messages[1], 20)
  assert_mentions(messages[2], 20)


def test_embedding_vectors_of_single_token_words(eval_model):
  vocabulary = eval_model.vocabulary
  pieces = [piece.removeprefix('▁') for piece in vocabulary.pieces()]
  queries = ['x' * 30, *pieces, 'der', '☃', *pieces]
  single = {}
  for word in queries:
    ids = vocabulary.encode(word)
    if len(ids) == 1 and ids[0] != vocabulary.spec.unk_id:
      single[word] = ids[0]
  assert 0 < len(single) < len(set(queries))
  word_embeddings = word_vectors.embedding_vectors(eval_model, queries, 'de')
  assert word_embeddings.words == tuple(single)
  table = np.asarray(eval_model.params['model']['embeddings']['token'])
  np.testing.assert_array_equal(
    word_embeddings.vectors, table[list(single.values())]
  )
  with raises_error(errors.AnalysisError, where='de', mentions=1):
    word_vectors.embedding_vectors(eval_model, ['x' * 30], 'de')
