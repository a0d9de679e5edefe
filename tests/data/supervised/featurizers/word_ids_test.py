"""Tests of word encoding for all vocabulary types."""

import dataclasses
import json

import numpy as np
import pytest

from tests.errors import raises_error
from tests.interop.huggingface.tokenizers import tokenizer_reader_test
from xlflax.data.supervised.featurizers import word_ids
from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.interop.huggingface.tokenizers import tokenizer_reader as importer
from xlflax.utils import errors

_SENTENCES = {
  'de': 'die Katze sucht , ohne Grund , den Fluss .',
  'en': 'the neighbour sees 12,345 old ships in the garden !',
  'ru': 'соседка видит старый корабль зимой ( опять ) .',
}


@pytest.fixture(
  scope='module',
  params=['joint', 'shared', 'none', 'bert', 'roberta', 'xlm-roberta', 'mt5'],
)
def vocabulary(request, toy_corpus, tmp_path_factory):
  kind = request.param
  folder = tmp_path_factory.mktemp('v')
  if kind == 'joint':
    return request.getfixturevalue('toy_vocabulary')
  if kind in ('shared', 'none'):
    return vocabulary_training.train_vocabulary(
      toy_corpus, folder / 'v', size=60, anchors=kind
    )
  model_type, make = tokenizer_reader_test._KINDS[kind]
  make(folder).save_pretrained(folder / 'saved')
  return importer.read_tokenizer(
    folder / 'saved',
    model_type=model_type,
    size=None,
    languages=('de', 'en', 'ru'),
  )


@pytest.fixture(scope='module')
def union(toy_corpus, tmp_path_factory):
  return vocabulary_training.train_vocabulary(
    toy_corpus, tmp_path_factory.mktemp('v') / 'v', size=60, anchors='none'
  )


@pytest.mark.parametrize('language', list(_SENTENCES))
def test_word_ids_equal_the_encoding_of_the_sentence(vocabulary, language):
  text = _SENTENCES[language]
  encoded = word_ids.encode_words(vocabulary, text.split(), language)
  assert encoded.token_ids.tolist() == vocabulary.encode(
    text, language=language
  )
  assert encoded.token_ids.dtype == encoded.lengths.dtype == np.int32
  assert len(encoded.lengths) == len(text.split())
  assert encoded.lengths.sum() == len(encoded.token_ids)


@pytest.mark.parametrize('language', list(_SENTENCES))
def test_tokens_of_a_word_decode_to_the_word(vocabulary, language):
  sentence_words = _SENTENCES[language].split()
  ids, lengths = word_ids.encode_words(vocabulary, sentence_words, language)
  ends = np.cumsum(lengths)
  for word, end, length in zip(sentence_words, ends, lengths, strict=True):
    alone = vocabulary.encode(word, language=language)
    assert (
      vocabulary.decode(ids[end - length : end], language=language).strip()
      == vocabulary.decode(alone, language=language).strip()
    )


def test_every_word_has_at_least_one_token(vocabulary):
  unusual_words = ['', 'the', '\x07', '', '\u200b']
  ids, lengths = word_ids.encode_words(vocabulary, unusual_words, 'en')
  assert len(lengths) == 5 and lengths.min() >= 1
  assert lengths.sum() == len(ids)
  assert not set(ids.tolist()) & (
    set(vocabulary.spec.special_ids) - {vocabulary.spec.unk_id}
  )


def test_no_words_give_empty_arrays(vocabulary):
  ids, lengths = word_ids.encode_words(vocabulary, [], 'en')
  assert ids.shape == lengths.shape == (0,)
  assert ids.dtype == lengths.dtype == np.int32


def test_starts_and_word_of_token():
  encoded = word_ids.EncodedWords(
    np.arange(6, dtype=np.int32), np.array([2, 1, 3], np.int32)
  )
  assert encoded.starts.tolist() == [0, 2, 3]
  assert encoded.word_of_token.tolist() == [0, 0, 1, 2, 2, 2]


@dataclasses.dataclass(frozen=True)
class _CharacterVocabulary:
  """Encodes a space as one token and every other character as one."""

  mark: str = '▁'
  first: bool = True  # whether to prepend a space to the text
  spec = base_vocabulary.VocabularySpec(
    size=2000,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en', 'ja'),
  )

  def encode(self, text, *, language):
    return self.encode_batch([text], language=language)[0]

  def encode_batch(self, texts, *, language):
    return [
      [
        7 if c == ' ' else 10 + ord(c) % 1900
        for c in (' ' + text.lstrip() if self.first else text)
      ]
      for text in texts
    ]

  def piece_id(self, piece, *, language):
    return 7 if piece == self.mark else None


def test_no_space_between_words_of_languages_without_spaces():
  japanese_words = ['猫', 'が', 'いる']
  for language in ('ja', 'ja-JP', 'zh_TW', 'th'):
    ids, lengths = word_ids.encode_words(
      _CharacterVocabulary(), japanese_words, language
    )
    assert ids.tolist() == _CharacterVocabulary().encode(
      '猫がいる', language='ja'
    )
    assert lengths.tolist() == [2, 1, 2]
  ids, lengths = word_ids.encode_words(
    _CharacterVocabulary(), japanese_words, 'ko'
  )
  assert ids.tolist() == _CharacterVocabulary().encode(
    '猫 が いる', language='ja'
  )
  assert lengths.tolist() == [2, 2, 3]


def test_vocabulary_without_a_leading_space():
  plain = _CharacterVocabulary(mark='Ġ', first=False)
  ids, lengths = word_ids.encode_words(plain, ['a', 'bc'], 'en')
  assert ids.tolist() == plain.encode('a bc', language='en')
  assert lengths.tolist() == [1, 3]
  ids, lengths = word_ids.encode_words(plain, ['猫', 'いる'], 'ja')
  assert ids.tolist() == plain.encode('猫いる', language='ja')
  assert lengths.tolist() == [1, 2]


def test_equivalent_language_codes_give_the_same_ids(union):
  ids = [
    word_ids.encode_words(union, ['die', 'Katze'], code).token_ids.tolist()
    for code in ('de', 'deu')
  ]
  assert ids[0] == ids[1]
  with raises_error(errors.VocabularyError, got='fr'):
    word_ids.encode_words(union, ['die'], 'fr')


def test_space_words_are_kept():
  ids, lengths = word_ids.encode_words(
    _CharacterVocabulary(), ['猫', ' '], 'ja'
  )
  assert ids.tolist()[2:] == [7] and lengths.tolist() == [2, 1]


def test_xlm_words_are_tokenized_by_language(tmp_path):
  """XLM uses a separate tokenizer for each language."""
  characters = sorted(set('thedogsaw ain.')) + ['th', 'the</w>']
  pieces = [
    '<s>',
    '</s>',
    '<pad>',
    '<unk>',
    *(f'<special{i}>' for i in range(10)),
    *characters,
    *(c + '</w>' for c in characters),
  ]
  (tmp_path / 'vocab.json').write_text(
    json.dumps({piece: i for i, piece in enumerate(dict.fromkeys(pieces))})
  )
  (tmp_path / 'merges.txt').write_text('t h\nth e</w>\n')
  (tmp_path / 'tokenizer_config.json').write_text('{}')
  xlm = importer.read_tokenizer(
    tmp_path, model_type='xlm', size=None, languages=('en', 'de')
  )
  text = 'the dog saw a dog in the seat .'
  ids, lengths = word_ids.encode_words(xlm, text.split(), 'en')
  assert ids.tolist() == xlm.encode(text, language='en')
  assert lengths.tolist() == [1, 3, 3, 1, 3, 2, 1, 4, 1]


def test_unsplit_sentence_is_rejected():
  with raises_error(errors.VocabularyError, got='the dog'):
    word_ids.encode_words(_CharacterVocabulary(), 'the dog', 'en')
