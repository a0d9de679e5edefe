"""Tests of embeddings of new tokens as the mean of their subwords."""

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import vocabulary_extension, vocabulary_training
from xlflax.data.tokenizers.huggingface_vocabulary import TokenizersVocabulary
from xlflax.data.tokenizers.imported_vocabulary import Layout
from xlflax.training.initialization import embedding_interpolation
from xlflax.training.initialization.vocabulary_matching import (
  EmbeddingMixing,
  EmbeddingTransfer,
  Kind,
)
from xlflax.utils import errors

_ENGLISH = [
  'the cat walks in the garden',
  'two dogs watch the water flow up by my jam',
]
_SWAHILI = ['watoto wanakuja nyumbani', 'wageni wanakuja shambani'] * 3
_ROLES = {'pad': '<p>', 'bos': '<b>', 'eos': '<e>', 'unk': '<u>', 'mask': '<m>'}


@pytest.fixture
def corpus(tmp_path):
  corpus_writer.write_monolingual(tmp_path / 'old', 'en', [_ENGLISH])
  for language, lines in (('en', _ENGLISH), ('sw', _SWAHILI)):
    corpus_writer.write_monolingual(tmp_path / 'corpus', language, [lines])
  return Corpus(tmp_path / 'corpus')


def _row(rows, index):
  """Returns the weight of each source id."""
  ids, weights = (array[index].tolist() for array in rows)
  row: dict[int, float] = {}
  for i, weight in zip(ids, weights, strict=True):
    if weight:
      row[i] = row.get(i, 0) + weight
  return row


def _mean(ids):
  return {i: pytest.approx(ids.count(i) / len(ids)) for i in ids}


def test_new_sentencepiece_tokens_are_means_of_subwords(corpus, tmp_path):
  base = vocabulary_training.train_vocabulary(
    Corpus(tmp_path / 'old'), tmp_path / 'base', size=42, model_type='bpe'
  )
  extended = vocabulary_extension.extend_vocabulary(
    base, corpus, tmp_path / 'extended', size=26
  )
  matching = EmbeddingTransfer(mixing=EmbeddingMixing.SUBWORDS).match(
    extended, base
  )
  num_old = len(base)
  np.testing.assert_array_equal(
    matching.source_ids[:num_old], np.arange(num_old)
  )
  symbol = extended.piece_id('<lang:sw>')
  assert matching.kinds[symbol] == Kind.RANDOM
  word_starts = 0
  for index in range(num_old, len(extended)):
    piece = extended.piece(index)
    ids = base.encode(piece.removeprefix('▁'))
    if piece.startswith('▁') and base.spec.unk_id not in ids:
      word_starts += 1
      assert matching.kinds[index] == Kind.INTERPOLATED
      assert _row(matching.rows(), index) == _mean(ids)
  assert word_starts > 1


def test_tokens_inside_words_are_segmented_without_a_word_start():
  pieces = ('wa', '##to', '##t', '##o', '##wato')
  source = _Source(pieces[:4])
  rows = embedding_interpolation.subword_mixture(
    ['##totot', *pieces[:4]],
    source,
    pieces[:4],
    np.array([False, True, True, True, True]),
  )
  # "totot" is segmented as "to", "to", "t".
  assert _row(rows, 0) == {1: pytest.approx(2 / 3), 2: pytest.approx(1 / 3)}
  assert not rows[1][1:].any()


def test_unknown_characters_are_skipped():
  pieces = ('wa', '##to', '##t', '##o')
  source = _Source(pieces)
  rows = embedding_interpolation.subword_mixture(
    ['watoxo', *pieces], source, pieces, np.array([False] + [True] * 4)
  )
  # "watoxo" is segmented as "wa", "to", "o". The character "x" is skipped.
  assert _row(rows, 0) == _mean([0, 1, 3])


class _Source:
  """Vocabulary whose special id occurs in no text."""

  def __init__(self, pieces):
    self.spec = _Spec(special_ids=(len(pieces),), unk_id=len(pieces))

  def encode(self, text):
    return [self.spec.unk_id]


class _Spec:
  def __init__(self, **fields):
    self.__dict__.update(fields)


def test_partial_characters_are_means_of_bytes(tmp_path):
  tokenizer = tokenizers.Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.train_from_iterator(
    _ENGLISH,
    trainers.BpeTrainer(
      vocab_size=280,
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  tokenizer.add_special_tokens(list(_ROLES.values()))
  base = TokenizersVocabulary(
    tokenizer.to_str().encode(), Layout(_ROLES, ('en',))
  )
  corpus_writer.write_monolingual(tmp_path, 'ti', [['ሰላም ሰላም ሰሰ ሰለ']])
  extended = vocabulary_extension.extend_vocabulary(
    base, Corpus(tmp_path), tmp_path / 'extended', size=5
  )
  rows = (
    EmbeddingTransfer(mixing=EmbeddingMixing.SUBWORDS)
    .match(extended, base)
    .rows()
  )
  for index in range(len(base), len(extended)):
    letters = extended.piece(index)
    ids = [base.piece_id(letter) for letter in letters]
    assert _row(rows, index) == _mean(ids)


def test_subword_mixing_rejects_text():
  with raises_error(errors.ConfigError, where='EmbeddingTransfer.text'):
    EmbeddingTransfer(mixing=EmbeddingMixing.SUBWORDS, text='corpus')
