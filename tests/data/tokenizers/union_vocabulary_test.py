"""Tests of vocabularies with one model per language, in several scripts."""

import itertools
import json
import pickle

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import base_vocabulary, token_normalization
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.union_vocabulary import UnionVocabulary
from xlflax.data.tokenizers.vocabulary_config import Anchors
from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
from xlflax.storage import checksums
from xlflax.utils import errors

_WORDS = {
  'ar': (
    'القطة|الكلب|الطفل',
    'ترى|تسمع|تجد',
    'النهر|البيت|الجسر',
    'اليوم|مساء|DNA 2024',
  ),
  'en': (
    'the cat|the dog|a child',
    'sees|hears|finds',
    'the river|the house|Paris',
    'today|again|DNA 2024',
  ),
  'fr': (
    'le chat|le chien|un enfant',
    'voit|entend|trouve',
    'le fleuve|la maison|Paris',
    'encore|ce soir|DNA 2024',
  ),
  'ru': (
    'кошка|собака|ребёнок',
    'видит|слышит|находит',
    'реку|дом|мост',
    'сегодня|вечером|DNA 2024',
  ),
  'zh': ('猫|狗|孩子', '看见|听到|找到', '河|房子|桥', '今天|晚上|DNA 2024'),
}
_CODES = tuple(_WORDS)
_UNIONS = (Anchors.SHARED, Anchors.NONE, Anchors.SEPARATE)


def _sentences(language: str) -> list[str]:
  slots = [alternatives.split('|') for alternatives in _WORDS[language]]
  space = '' if language == 'zh' else ' '
  return [
    space.join(alternatives) for alternatives in itertools.product(*slots)
  ]


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  directory = tmp_path_factory.mktemp('scripts')
  for language in _CODES:
    corpus_writer.write_monolingual(directory, language, [_sentences(language)])
  return Corpus(directory)


@pytest.fixture(scope='module')
def unions(tmp_path_factory, corpus):
  """Vocabularies with the same models, one for each `Anchors` value."""
  shared = train_vocabulary(
    corpus,
    tmp_path_factory.mktemp('unions') / 'shared',
    merges=60,
    anchors='shared',
    model_type='bpe',
    byte_fallback=True,
    sentinels=2,
    character_coverage=1.0,
  )
  models = {code: member.model for code, member in shared.members.items()}
  vocabularies = {
    anchors: UnionVocabulary(models, anchors=anchors) for anchors in _UNIONS[1:]
  }
  return {Anchors.SHARED: shared} | vocabularies


def _words(vocabulary_, code: str) -> set[int]:
  runs = vocabulary_.spec.language_words[_CODES.index(code)]
  return set(itertools.chain.from_iterable(itertools.starmap(range, runs)))


@pytest.fixture(params=_UNIONS)
def union(request, unions):
  return unions[request.param]


def test_special_tokens_are_shared(union):
  spec = union.spec
  assert spec.languages == _CODES
  assert spec.special_ids == tuple(range(12))
  assert spec.language_symbol_ids == (5, 6, 7, 8, 9)
  assert spec.sentinel_ids == (10, 11)
  assert [union.piece(i) for i in (3, 5, 11)] == [
    '<unk>',
    '<lang:ar>',
    '<extra_id_1>',
  ]
  assert union.piece_id('<extra_id_1>') == 11
  assert union.piece_id('<lang:zh>') == 9
  for code in _CODES:
    assert not _words(union, code) & set(spec.special_ids)


@pytest.mark.parametrize('code', _CODES)
def test_text_round_trips_through_ids(union, code):
  for text in [*_sentences(code)[::7], 'ñ €', '']:  # 'ñ €' is encoded as bytes.
    ids = union.encode(text, language=code)
    assert set(ids) <= _words(union, code)
    assert union.decode(ids, language=code) == text
    assert union.decode([1, *ids, 2, 0], language=code) == text
    if union.anchors is not Anchors.SEPARATE:
      assert union.decode(ids) == text


def test_tokens_equal_those_of_the_language_model(union):
  for code, member in union.members.items():
    text = _sentences(code)[5]
    member_pieces = [member.piece(i) for i in member.encode(text)]
    ids = union.encode(text, language=code)
    assert [union.bare_piece(i, language=code) for i in ids] == member_pieces
    assert [
      union.piece_id(piece, language=code) for piece in member_pieces
    ] == ids
  assert union.piece_id('no such piece', language='en') is None


def test_languages_share_exactly_the_common_tokens(unions):
  union = unions[Anchors.SHARED]
  strings = {
    code: set(member.pieces()[12:]) for code, member in union.members.items()
  }
  for first, second in itertools.combinations(_CODES, 2):
    common = strings[first] & strings[second]
    assert len(common) >= 256  # at least the byte tokens
    assert {
      union.piece(i) for i in _words(union, first) & _words(union, second)
    } == common
  assert '▁Paris' in strings['en'] & strings['fr']
  paris = union.encode('Paris', language='en')
  assert union.encode('Paris', language='fr') == paris
  assert union.piece_id('▁Paris') == paris[0]
  assert union.spec.size == 12 + len(set().union(*strings.values()))
  assert not union.spec.words_overlap


def test_no_anchors_shares_no_rows(unions):
  union = unions[Anchors.NONE]
  word_ids = [_words(union, code) for code in _CODES]
  # The ids are disjoint and complete.
  assert sorted(itertools.chain.from_iterable(word_ids)) == list(
    range(12, union.spec.size)
  )
  assert union.spec.size == 12 + sum(
    len(member) - 12 for member in union.members.values()
  )
  assert all(len(runs) == 1 for runs in union.spec.language_words)
  english, french = (
    union.encode('Paris', language=code) for code in ('en', 'fr')
  )
  assert not set(english) & set(french)
  assert [union.piece(i) for i in (english[0], french[0])] == [
    'en:▁Paris',
    'fr:▁Paris',
  ]
  assert union.bare_piece(french[0]) == '▁Paris'
  assert union.piece_id('fr:▁Paris') == french[0]
  assert union.piece_id('▁Paris', language='fr') == french[0]
  assert union.piece_id('▁Paris') is None
  assert union.decode([*english, *french]) == 'Paris Paris'


def test_separate_ids_overlap(unions):
  union = unions[Anchors.SEPARATE]
  sizes = [len(member) for member in union.members.values()]
  assert union.spec.language_words == tuple(((12, size),) for size in sizes)
  assert union.spec.size == max(sizes)
  assert union.spec.words_overlap
  assert union.spec.word_starts == b''
  ids = union.encode('the cat', language='en')
  assert ids == union.members['en'].encode('the cat')
  for method in (
    union.decode,
    lambda ids: union.piece(ids[0]),
    lambda ids: union.is_byte(ids[0]),
    lambda ids: union.piece_id('▁the'),
  ):
    with raises_error(errors.VocabularyError, mentions=('en', 'language=CODE')):
      method(ids)


@pytest.mark.parametrize('anchors', _UNIONS[:2])
def test_word_starts_of_shared_and_disjoint_ids(unions, anchors):
  union = unions[anchors]
  flags = np.unpackbits(
    np.frombuffer(union.spec.word_starts, np.uint8), bitorder='little'
  )[: union.spec.size]
  assert flags.tolist() == [
    int(piece[0] == '▁' or token_normalization.script_of_token(piece) == 'CJK')
    for piece in map(union.bare_piece, range(len(union)))
  ]
  assert 0 < flags.sum() < union.spec.size


def test_is_byte_in_each_language(union):
  for code in ('en', 'zh'):
    ids = union.encode('ñ', language=code)
    assert [union.is_byte(i, language=code) for i in ids][-2:] == [True, True]


def test_batches_equal_single_texts(union):
  texts = [_sentences('ru')[3], '', _sentences('ru')[9]]
  single = [union.encode(text, language='ru') for text in texts]
  assert union.encode_batch(texts, language='ru', num_threads=2) == single
  ids, lengths = union.encode_ragged(
    [text.encode() for text in texts], language='ru'
  )
  assert (ids.dtype, lengths.dtype) == (np.int32, np.int32)
  assert ids.tolist() == sum(single, [])
  assert lengths.tolist() == [len(row) for row in single]


def test_encode_each_uses_the_language_of_each_text(union, toy_vocabulary):
  texts = [_sentences(code)[4] for code in ('ru', 'en', 'ru', 'ar')]
  assert union.encode_each(texts, [3, 1, 3, 0]) == [
    union.encode(text, language=code)
    for text, code in zip(texts, ('ru', 'en', 'ru', 'ar'), strict=True)
  ]
  assert union.encode_each([], []) == []
  # A joint vocabulary ignores the languages.
  assert toy_vocabulary.encode_each(['the cat', 'a bird'], [0, 2]) == [
    toy_vocabulary.encode(text) for text in ('the cat', 'a bird')
  ]


def test_missing_and_unknown_languages_are_rejected(union):
  with raises_error(
    errors.VocabularyError, mentions=('ar', 'en', 'fr', 'ru', 'zh')
  ):
    union.encode('the cat')
  with raises_error(errors.VocabularyError, got='sw'):
    union.encode_batch(['paka'], language='sw')
  with raises_error(
    errors.VocabularyError, where='Vocabulary.piece.index', mentions='id'
  ):
    union.piece(union.spec.size, language='en')


def test_hash_depends_on_members_and_anchors(unions):
  hashes = {union.hash for union in unions.values()}
  hashes |= {member.hash for member in unions[Anchors.NONE].members.values()}
  assert len(hashes) == len(unions) + len(_CODES)
  first = unions[Anchors.SHARED]
  models = {code: member.model for code, member in first.members.items()}
  assert UnionVocabulary(models, anchors=Anchors.SHARED) == first
  assert unions[Anchors.NONE] != first


def test_pickle_round_trip(union):
  again = pickle.loads(pickle.dumps(union))
  assert again == union
  assert again.spec == union.spec
  assert again.encode('猫', language='zh') == union.encode('猫', language='zh')


def test_unknown_characters_decode_as_in_sentencepiece(tmp_path, corpus):
  union = train_vocabulary(corpus, tmp_path, size=40, anchors='none')
  for text in ('漢 the cat 漢', 'the 漢', '漢'):
    ids = union.encode(text, language='en')
    assert 3 in ids
    english_model = union.members['en']
    assert union.decode(ids) == english_model.decode(english_model.encode(text))


@pytest.fixture
def directory(tmp_path, unions):
  """Copy of a union vocabulary's directory that tests may damage."""
  union = unions[Anchors.SHARED]
  for name, content in union.files().items():
    (tmp_path / name).write_bytes(content)
  (tmp_path / base_vocabulary.DESCRIPTION_FILE).write_text(
    json.dumps(checksums.add_digest(union.description))
  )
  return tmp_path


def test_load_reads_all_models(directory, unions):
  assert sorted(path.name for path in directory.iterdir()) == [
    'sentencepiece.ar.model',
    'sentencepiece.en.model',
    'sentencepiece.fr.model',
    'sentencepiece.ru.model',
    'sentencepiece.zh.model',
    'vocabulary.json',
  ]
  loaded = Vocabulary.load(directory)
  assert isinstance(loaded, UnionVocabulary)
  assert loaded == unions[Anchors.SHARED]
  assert loaded.spec == unions[Anchors.SHARED].spec


@pytest.mark.parametrize(
  'change, values',
  [
    (
      {'members': None},
      ('NoneType', 'items', 'AttributeError', 'vocabulary.json'),
    ),
    ({'anchors': 'joined'}, ('joined', 'ValueError', 'vocabulary.json')),
    ({'anchors': 'none'}, 'vocabulary.json'),
    ({'hash': 'x'}, 'vocabulary.json'),
  ],
)
def test_malformed_descriptions_are_rejected(directory, change, values):
  path = directory / base_vocabulary.DESCRIPTION_FILE
  changed = json.loads(path.read_text()) | change
  path.write_text(json.dumps(checksums.add_digest(changed)))
  with raises_error(errors.VocabularyError, mentions=values):
    Vocabulary.load(directory)


def test_damaged_and_missing_models_are_rejected(directory):
  (directory / 'sentencepiece.fr.model').write_bytes(b'another')
  with raises_error(
    errors.VocabularyError, mentions=('fr.model', 'vocabulary.json')
  ):
    Vocabulary.load(directory)
  (directory / 'sentencepiece.fr.model').unlink()
  with raises_error(errors.VocabularyError, mentions='sentencepiece.fr.model'):
    Vocabulary.load(directory)


def test_incompatible_models_are_rejected(unions, toy_vocabulary):
  models = {
    code: member.model for code, member in unions[Anchors.NONE].members.items()
  }
  with raises_error(errors.VocabularyError, mentions=8):
    UnionVocabulary(models | {'ar': toy_vocabulary.model}, anchors=Anchors.NONE)
  with pytest.raises(errors.VocabularyError):
    UnionVocabulary({}, anchors=Anchors.NONE)
  models.pop('zh')
  with raises_error(errors.VocabularyError, mentions=('ar', 'en', 'fr', 'ru')):
    UnionVocabulary(models, anchors=Anchors.NONE)
