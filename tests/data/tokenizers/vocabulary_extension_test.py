"""Tests of vocabulary extension."""

import json

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import (
  fertility,
  vocabulary_extension,
  vocabulary_training,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.huggingface_vocabulary import TokenizersVocabulary
from xlflax.data.tokenizers.imported_vocabulary import Layout
from xlflax.utils import errors

_ENGLISH = [
  'all human beings are born free and equal in dignity and rights',
  'they are endowed with reason and conscience',
  'everyone has the right to life, liberty and security of person',
  'no one shall be held in slavery or servitude',
  *(
    f'the {a} {b} of a {c}'
    for a in ('cat', 'wanted', 'dog', 'water')
    for b in ('sleeps', 'walks', 'watches')
    for c in ('house', 'garden', 'nature', 'tower')
  ),
]
# Words of a language with the Latin script, of which some start like English
# words, and words with the Ethiopic script.
_SWAHILI = [
  f'{a} wanakuja {b} watoto {c}'
  for a in ('watu', 'wageni', 'wanafunzi', 'ndugu')
  for b in ('nyumbani', 'kanisani', 'shambani')
  for c in ('wadogo', 'wakubwa', 'ሰላም ለዓለም')
]
_LANGUAGE_TEXTS = {'en': _ENGLISH, 'sw': _SWAHILI}
_SPECIAL = ('[PAD]', '[CLS]', '[SEP]', '[UNK]', '[MASK]')
_ROLES = dict(zip(('pad', 'bos', 'eos', 'unk', 'mask'), _SPECIAL, strict=True))
_KINDS = (
  'sentencepiece unigram',
  'sentencepiece bpe',
  'sentencepiece bytes',
  'wordpiece',
  'byte-level',
  'unigram',
)
_NUM_ADDED = 40


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  directory = tmp_path_factory.mktemp('extension') / 'corpus'
  for language, lines in _LANGUAGE_TEXTS.items():
    corpus_writer.write_monolingual(directory, language, [lines])
  corpus_writer.write_parallel(
    directory,
    ('en', 'sw'),
    [('the cat sleeps', 'watoto wanakuja'), ('a house', 'nyumbani')],
    split='validation',
  )
  return Corpus(directory)


def _train_sentencepiece(directory, **options):
  corpus_writer.write_monolingual(directory / 'corpus', 'en', [_ENGLISH])
  return vocabulary_training.train_vocabulary(
    Corpus(directory / 'corpus'), directory / 'base', **options
  )


def _train_tokenizer(kind):
  """Trains a tokenizer with special tokens after those of the model."""
  if kind == 'wordpiece':
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token='[UNK]'))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
      vocab_size=90, special_tokens=list(_SPECIAL), show_progress=False
    )
  elif kind == 'byte-level':
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
      vocab_size=300,
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    )
  else:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
      vocab_size=60,
      special_tokens=list(_SPECIAL),
      unk_token='[UNK]',
      show_progress=False,
    )
  tokenizer.train_from_iterator(_ENGLISH, trainer)
  tokenizer.add_special_tokens(list(_SPECIAL))
  return TokenizersVocabulary(
    tokenizer.to_str().encode(), Layout(_ROLES, ('en',))
  )


@pytest.fixture(scope='module', params=_KINDS)
def pair(request, corpus, tmp_path_factory):
  """Returns a vocabulary and its extension."""
  directory = tmp_path_factory.mktemp('extension')
  match request.param:
    case 'sentencepiece unigram':
      base = _train_sentencepiece(directory, size=50)
    case 'sentencepiece bpe':
      base = _train_sentencepiece(directory, size=60, model_type='bpe')
    case 'sentencepiece bytes':
      base = _train_sentencepiece(
        directory, size=320, model_type='bpe', byte_fallback=True
      )
    case kind:
      base = _train_tokenizer(kind)
  extended = vocabulary_extension.extend_vocabulary(
    base, corpus, directory / 'extended', size=_NUM_ADDED
  )
  return base, extended


def test_tokens_keep_their_ids(pair):
  base, extended = pair
  assert len(extended) == len(base) + _NUM_ADDED
  assert [extended.piece(i) for i in range(len(base))] == [
    base.piece(i) for i in range(len(base))
  ]
  spec = extended.spec
  assert set(base.spec.special_ids) <= set(spec.special_ids)
  assert (spec.pad_id, spec.mask_id) == (base.spec.pad_id, base.spec.mask_id)
  assert spec.languages == ('en', 'sw')


def test_texts_of_the_other_language_keep_their_ids(pair):
  base, extended = pair
  assert extended.encode_batch(_ENGLISH) == base.encode_batch(_ENGLISH)


def test_the_new_language_has_fewer_tokens_and_no_unknown_ones(pair):
  base, extended = pair
  before, after = (
    sum(map(len, vocabulary.encode_batch(_SWAHILI))) for vocabulary in pair
  )
  texts = [text for text in _SWAHILI if 'ሰ' not in text]
  known_before, known_after = (
    sum(map(len, vocabulary.encode_batch(texts))) for vocabulary in pair
  )
  assert known_after < 0.7 * known_before
  assert after < 1.1 * before
  for text in _SWAHILI:
    ids = extended.encode(text)
    assert extended.spec.unk_id not in ids
    assert extended.decode(ids) == text


def test_new_tokens_are_used(pair):
  base, extended = pair
  used = {i for ids in extended.encode_batch(_SWAHILI) for i in ids}
  assert len(used & set(range(len(base), len(extended)))) >= _NUM_ADDED / 4


def test_statistics_before_and_after(pair):
  base, extended = pair
  rows = {row['language']: row for row in extended.description['statistics']}
  assert rows['en']['changed_ids_rate'] == 0
  sentences = ['watoto wanakuja', 'nyumbani']
  num_tokens, base_num_tokens = (
    sum(map(len, vocabulary.encode_batch(sentences)))
    for vocabulary in (extended, base)
  )
  num_english = sum(map(len, base.encode_batch(['the cat sleeps', 'a house'])))
  assert rows['sw']['tokens_per_word'] == num_tokens / 3
  assert rows['sw']['parity'] == pytest.approx(num_tokens / num_english)
  assert rows['sw']['base']['parity'] == pytest.approx(
    base_num_tokens / num_english
  )
  assert 'tokens/word' in fertility.format_comparison(list(rows.values()))


def test_the_extension_is_deterministic(pair, corpus, tmp_path):
  base, extended = pair
  again = vocabulary_extension.extend_vocabulary(
    base, corpus, tmp_path / 'extended', size=_NUM_ADDED
  )
  assert again == extended


def test_an_extension_can_be_extended(pair, tmp_path):
  _, extended = pair
  corpus_writer.write_monolingual(
    tmp_path, 'fi', [['talossa talossa talossa asuu asuu hiiri']]
  )
  corpus_writer.write_monolingual(tmp_path, 'sw', [_SWAHILI])
  twice = vocabulary_extension.extend_vocabulary(
    extended, Corpus(tmp_path), tmp_path / 'v', size=6, character_coverage=0
  )
  assert len(twice) == len(extended) + 6
  assert twice.spec.languages == ('en', 'sw', 'fi')
  assert twice.encode_batch(_SWAHILI) == extended.encode_batch(_SWAHILI)
  text = 'talossa asuu'
  assert len(twice.encode(text)) < len(extended.encode(text))


@pytest.fixture(scope='module')
def base(tmp_path_factory):
  return _train_sentencepiece(
    tmp_path_factory.mktemp('base'), size=60, model_type='bpe'
  )


def test_preserve_text_false_may_change_ids(base, corpus, tmp_path):
  shorter, preserving = (
    vocabulary_extension.extend_vocabulary(
      base, corpus, tmp_path / str(preserve), size=24, preserve_text=preserve
    )
    for preserve in (False, True)
  )
  assert shorter.encode_batch(_ENGLISH) != base.encode_batch(_ENGLISH)
  before, after = (
    sum(map(len, vocabulary.encode_batch(_SWAHILI)))
    for vocabulary in (preserving, shorter)
  )
  assert after < before


def test_identical_extension_is_not_rewritten(base, corpus, tmp_path):
  vocabulary_extension.extend_vocabulary(base, corpus, tmp_path, size=30)
  modified_ns = (tmp_path / 'vocabulary.json').stat().st_mtime_ns
  vocabulary_extension.extend_vocabulary(base, corpus, tmp_path, size=30)
  assert (tmp_path / 'vocabulary.json').stat().st_mtime_ns == modified_ns
  with raises_error(errors.VocabularyError, where=tmp_path):
    vocabulary_extension.extend_vocabulary(base, corpus, tmp_path, size=31)
  replaced = vocabulary_extension.extend_vocabulary(
    base, corpus, tmp_path, size=31, overwrite=True
  )
  assert len(replaced) == len(base) + 31


def test_extension_can_be_loaded(base, corpus, tmp_path):
  extended = vocabulary_extension.extend_vocabulary(
    base, corpus, tmp_path, size=30
  )
  assert Vocabulary.load(tmp_path) == extended
  stored = json.loads((tmp_path / 'vocabulary.json').read_text())['extension']
  assert stored['base_hash'] == base.hash
  assert stored['base_size'] == len(base)


def _train_base(kind, directory):
  """Trains a vocabulary on English text."""
  if kind.startswith('sentencepiece'):
    model_type = kind.removeprefix('sentencepiece ')
    return _train_sentencepiece(directory, size=60, model_type=model_type)
  return _train_tokenizer(kind)


@pytest.mark.parametrize(
  'kind', ['sentencepiece unigram', 'sentencepiece bpe', 'wordpiece', 'unigram']
)
@pytest.mark.parametrize('preserve_text', [True, False])
def test_suggested_size_is_accepted(kind, preserve_text, tmp_path):
  base = _train_base(kind, tmp_path / 'vocabulary')
  # Half of the sentences of the new language are English, so that many
  # candidates occur in text of the other language.
  corpus_writer.write_monolingual(tmp_path / 'new', 'en', [_ENGLISH])
  corpus_writer.write_monolingual(
    tmp_path / 'new', 'sw', [[*_SWAHILI, *_ENGLISH]]
  )

  def extend(size):
    return vocabulary_extension.extend_vocabulary(
      base,
      Corpus(tmp_path / 'new'),
      tmp_path / 'extended',
      size=size,
      preserve_text=preserve_text,
    )

  with raises_error(errors.VocabularyError, got=5000) as error:
    extend(5000)
  largest = int(error.value.expected.removeprefix('at most '))
  assert f'--size=+{largest},' in error.value.fix
  assert ('--allow_changed_ids' in error.value.fix) == preserve_text
  assert not (tmp_path / 'extended' / 'vocabulary.json').exists()
  assert len(extend(largest)) == len(base) + largest
  if preserve_text:
    assert Vocabulary.load(tmp_path / 'extended').encode_batch(
      _ENGLISH
    ) == base.encode_batch(_ENGLISH)
  for size in (largest - 1, largest // 2):
    (tmp_path / 'extended' / 'vocabulary.json').unlink()
    extended = extend(size)
    assert len(extended) == len(base) + size
    if preserve_text:
      assert extended.encode_batch(_ENGLISH) == base.encode_batch(_ENGLISH)
  with raises_error(errors.VocabularyError):
    extend(largest + 1)


def test_number_of_discarded_candidates_is_logged_once(tmp_path, caplog):
  """Discarded candidates are replaced, so that all tokens are added."""
  base = _train_base('wordpiece', tmp_path)
  corpus_writer.write_monolingual(tmp_path / 'new', 'en', [_ENGLISH])
  corpus_writer.write_monolingual(
    tmp_path / 'new', 'sw', [[*_SWAHILI, *_ENGLISH]]
  )
  for preserve_text in (True, False):
    caplog.clear()
    with caplog.at_level('INFO'):
      extended = vocabulary_extension.extend_vocabulary(
        base,
        Corpus(tmp_path / 'new'),
        tmp_path / f'extended_{preserve_text}',
        size=20,
        preserve_text=preserve_text,
      )
    assert len(extended) == len(base) + 20
    [message] = [
      record.getMessage()
      for record in caplog.records
      if 'candidate' in record.getMessage()
    ]
    assert message.startswith('Adding 20 tokens')
    assert ('could not be selected' in message) == preserve_text


def test_size_below_the_number_of_new_characters_is_rejected(
  base, corpus, tmp_path
):
  with raises_error(errors.VocabularyError, mentions='--size'):
    vocabulary_extension.extend_vocabulary(base, corpus, tmp_path, size=2)


def test_languages_without_text_are_rejected(base, corpus, tmp_path):
  with raises_error(errors.CorpusError, got='fi'):
    vocabulary_extension.extend_vocabulary(
      base, corpus, tmp_path, size=30, languages=('fi',)
    )


def test_unsupported_vocabulary_types_are_rejected(corpus, tmp_path):
  union = vocabulary_training.train_vocabulary(
    corpus, tmp_path / 'union', size=33, anchors='shared'
  )
  with raises_error(errors.VocabularyError, got='sentencepiece_union'):
    vocabulary_extension.extend_vocabulary(
      union, corpus, tmp_path / 'v', size=30
    )


def test_changed_ids_rate_is_none_if_all_sentences_have_unknown_characters(
  tmp_path,
):
  text = ['ሰላም ለዓለም', 'ዓለም']
  corpus_writer.write_monolingual(tmp_path / 'new', 'am', [text])
  base = _train_sentencepiece(tmp_path, size=50)
  [row] = fertility.compare_vocabularies(base, base, Corpus(tmp_path / 'new'))
  assert row['changed_ids_rate'] is None
  assert fertility.format_comparison([row]).splitlines()[-1].endswith('-')
