"""Tests of vocabularies: id layout, encoding, and invalid directories."""

import io
import json
import pickle

import numpy as np
import pytest
import sentencepiece

from tests.errors import assert_mentions, raises_error
from xlflax.data.tokenizers import base_vocabulary
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.sentencepiece_vocabulary import (
  SentencePieceVocabulary,
)
from xlflax.storage import checksums
from xlflax.utils import errors


@pytest.fixture
def directory(tmp_path, toy_vocabulary):
  """Copy of the toy vocabulary's directory that tests may damage."""
  (tmp_path / base_vocabulary.MODEL_FILE).write_bytes(toy_vocabulary.model)
  (tmp_path / base_vocabulary.DESCRIPTION_FILE).write_text(
    json.dumps(checksums.add_digest(toy_vocabulary.description))
  )
  return tmp_path


def _load_error(directory) -> str:
  with pytest.raises(errors.VocabularyError) as caught:
    Vocabulary.load(directory)
  return str(caught.value)


def test_special_ids_come_first(toy_vocabulary):
  assert [toy_vocabulary.piece(i) for i in range(8)] == [
    '<pad>',
    '<s>',
    '</s>',
    '<unk>',
    '<mask>',
    '<lang:de>',
    '<lang:en>',
    '<lang:ru>',
  ]
  spec = toy_vocabulary.spec
  assert (spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id, spec.mask_id) == (
    0,
    1,
    2,
    3,
    4,
  )
  assert spec.special_ids == tuple(range(8))
  assert spec.languages == ('de', 'en', 'ru')
  assert spec.size == len(toy_vocabulary) == 180


def test_text_round_trips_through_ids(toy_vocabulary):
  text = 'the cat hears a bird in winter.'
  ids = toy_vocabulary.encode(text)
  assert min(ids) > max(toy_vocabulary.spec.special_ids)
  assert toy_vocabulary.decode(ids) == text
  assert toy_vocabulary.decode([1, *ids, 2, 0, 0]) == text


def test_special_symbols_in_text_are_not_special_tokens(toy_vocabulary):
  ids = toy_vocabulary.encode('<mask> <lang:en> <s>')
  special = set(toy_vocabulary.spec.special_ids)
  assert set(ids) & special <= {toy_vocabulary.spec.unk_id}


def test_batches_equal_single_texts(toy_vocabulary):
  texts = ['the cat', '', 'кошка видит']
  single = [toy_vocabulary.encode(text) for text in texts]
  assert toy_vocabulary.encode_batch(texts, num_threads=2) == single
  ids, lengths = toy_vocabulary.encode_ragged([text.encode() for text in texts])
  assert (ids.dtype, lengths.dtype) == (np.int32, np.int32)
  assert lengths.tolist() == [len(row) for row in single]
  assert ids.tolist() == sum(single, [])


def test_language_ids_and_unknown_languages(toy_vocabulary):
  assert toy_vocabulary.language_id('ru') == 2
  symbol = toy_vocabulary.spec.language_symbol_ids[2]
  assert toy_vocabulary.piece(symbol) == '<lang:ru>'
  with raises_error(errors.VocabularyError, mentions=('sw', 'de', 'en', 'ru')):
    toy_vocabulary.language_id('sw')
  with raises_error(errors.VocabularyError, got='German', mentions='de'):
    toy_vocabulary.language_id('German')


def test_hint_for_a_language_without_text_requires_its_text(toy_vocabulary):
  # `--languages` would add the language without training on its text.
  with raises_error(errors.VocabularyError, got='sw') as caught:
    toy_vocabulary.language_id('sw')
  assert_mentions(caught.value.fix, '--extend=VOCABULARY')
  assert '--languages' not in caught.value.fix


def test_piece_and_piece_id_are_inverse(toy_vocabulary):
  index = toy_vocabulary.encode('the')[0]
  assert toy_vocabulary.piece_id(toy_vocabulary.piece(index)) == index
  assert toy_vocabulary.piece_id('no such piece') is None
  assert toy_vocabulary.piece_id('<unk>') == 3
  with raises_error(
    errors.VocabularyError, got=180, where='Vocabulary.piece.index'
  ):
    toy_vocabulary.piece(180)


def test_equality_is_by_content(toy_vocabulary, directory):
  loaded = Vocabulary.load(directory)
  assert loaded == toy_vocabulary
  assert hash(loaded) == hash(toy_vocabulary)
  assert pickle.loads(pickle.dumps(loaded)).encode('the dog') == (
    toy_vocabulary.encode('the dog')
  )


def test_missing_directory_is_rejected(tmp_path):
  message = _load_error(tmp_path / 'nowhere')
  assert_mentions(message, tmp_path / 'nowhere')


@pytest.mark.parametrize(
  'name', [base_vocabulary.DESCRIPTION_FILE, base_vocabulary.MODEL_FILE]
)
def test_file_in_a_vocabulary_directory_has_a_hint(directory, name):
  with raises_error(errors.VocabularyError, got=directory / name) as caught:
    Vocabulary.load(directory / name)
  assert f'{directory}.' in caught.value.fix


def test_file_outside_a_vocabulary_directory_has_no_hint(tmp_path):
  (tmp_path / 'notes.txt').write_text('')
  with raises_error(
    errors.VocabularyError, got=tmp_path / 'notes.txt', fix=None
  ):
    Vocabulary.load(tmp_path / 'notes.txt')


def test_missing_model_is_rejected(directory):
  (directory / base_vocabulary.MODEL_FILE).unlink()
  assert 'sentencepiece.model is missing' in _load_error(directory)


def test_model_with_wrong_checksum_is_rejected(directory):
  (directory / base_vocabulary.MODEL_FILE).write_bytes(b'another')
  assert 'sentencepiece.model does not match' in (_load_error(directory))


@pytest.mark.parametrize(
  'content, what',
  [
    ('{', 'cannot be read'),
    ('[]', 'Expected: 1'),
    ('{"format": 9, "sha256": ""}', 'Got: 9'),
    ('{"format": 1, "sha256": ""}', 'its own digest'),
    ({'format': 1, 'sha256': ''}, 'SHA-256'),
    ({'format': 1}, 'Expected: None'),
    ({'format': 1, 'type': 'x'}, 'Got: x. Expected: sentence'),
  ],
)
def test_malformed_description_is_rejected(directory, content, what):
  if isinstance(content, dict):
    content = json.dumps(checksums.add_digest(content))
  (directory / base_vocabulary.DESCRIPTION_FILE).write_text(content)
  assert what in _load_error(directory)


def test_invalid_model_bytes_are_rejected():
  with raises_error(errors.VocabularyError, mentions='SentencePiece'):
    SentencePieceVocabulary(b'nothing')


def test_models_with_another_id_layout_are_rejected():
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['a b c', 'c d e']),
    model_writer=model,
    vocab_size=12,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with raises_error(errors.VocabularyError, mentions=('<pad>', '/s')):
    SentencePieceVocabulary(model.getvalue())
