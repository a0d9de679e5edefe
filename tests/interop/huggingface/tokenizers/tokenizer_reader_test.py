"""Compares imported tokenizers with transformers."""

import json
import pathlib
import unicodedata

import numpy as np
import pytest
import tokenizers as library
import transformers

from tests.errors import raises_error
from tests.interop.huggingface import reference_tokenizers
from tests.slow import mark_slow
from xlflax.data.tokenizers import (
  base_vocabulary,
  token_normalization,
  vocabulary_training,
)
from xlflax.interop.huggingface.tokenizers import sentencepiece_files
from xlflax.interop.huggingface.tokenizers import tokenizer_reader as importer
from xlflax.utils import errors

# An optional folder of texts next to the repository.
_UDHR = pathlib.Path(__file__).parents[5] / 'shared/data/udhr'
EDGE_CASES = [
  '',
  ' ',
  '  two  spaces  ',
  '\ttab\tand\nnewline\r\n',
  'ALL CAPS é É ñ',
  'e\u0301 combining',
  'ﬁ ligature ½ ① ﾊﾝｶｸ Ｆｕｌｌ',
  '👍🏽 family 👨‍👩‍👧',
  '日本語テキスト',
  'zero\u200bwidth\u00a0nbsp\ufeffbom',
  'control\x07bell',
  '▁underline ▁▁',
  "don't won't I'm they'll",
  'a,b;c:d!e?f(g)[h]{i}',
  '1234567890',
  'supercalifragilisticexpialidocious' * 4,
  '\u202eright-to-left',
  'under_score-dash—em…',
  'İstanbul ß ẞ',
  '𝔘𝔫𝔦𝔠𝔬𝔡𝔢',
]


_BYTES = dict(byte_fallback=True, vocab_size=480)
_KINDS = {
  'bert': ('bert', reference_tokenizers.bert),
  'bert_cased': (
    'bert',
    lambda f: reference_tokenizers.bert(f, do_lower_case=False),
  ),
  'roberta': ('roberta', reference_tokenizers.roberta),
  'xlm-roberta': ('xlm-roberta', reference_tokenizers.xlmr),
  'mt5': ('mt5', reference_tokenizers.mt5),
  'mbart': ('mbart', reference_tokenizers.mbart),
}


@pytest.fixture(scope='module', params=_KINDS)
def pair(request, tmp_path_factory):
  """Fixture with a tokenizer, and vocabularies of tokenizer.json and legacy files."""
  model_type, make = _KINDS[request.param]
  old = tmp_path_factory.mktemp(request.param)
  reference = make(old)
  new = tmp_path_factory.mktemp(request.param + '_saved')
  reference.save_pretrained(new)
  kwargs = dict(model_type=model_type, size=None, languages=('en', 'de'))
  return (
    reference,
    importer.read_tokenizer(new, **kwargs),
    importer.read_tokenizer(old, **kwargs),
  )


def _ids(reference, texts):
  return [reference.encode(text, add_special_tokens=False) for text in texts]


def test_ids_equal_transformers(pair):
  reference, vocabulary, _ = pair
  texts = reference_tokenizers.LINES[:11] + EDGE_CASES
  assert vocabulary.encode_batch(texts) == _ids(reference, texts)
  ids, lengths = vocabulary.encode_ragged(texts)
  assert lengths.tolist() == [len(row) for row in _ids(reference, texts)]
  assert ids.dtype == np.int32


@pytest.mark.parametrize('kind', ['bert', 'bert_cased', 'roberta'])
def test_legacy_files_are_exported_with_tokenizer_json(kind, tmp_path):
  """The exported tokenizer.json has the same ids as the legacy files."""
  model_type, make = _KINDS[kind]
  reference = make(tmp_path)
  tokenizer = importer.read_tokenizer(
    tmp_path, model_type=model_type, size=None, languages=('en',)
  )
  (tmp_path / 'tokenizer.json').write_bytes(tokenizer.files()['tokenizer.json'])
  (tmp_path / 'config.json').write_text(f'{{"model_type": "{model_type}"}}')
  reference_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  for text in reference_tokenizers.LINES[:11] + EDGE_CASES:
    assert reference_tokenizer.encode(text) == reference.encode(text), text
    assert reference_tokenizer.encode(text, text) == reference.encode(
      text, text
    ), text


def test_legacy_files_have_the_same_ids(pair):
  reference, saved, old = pair
  texts = reference_tokenizers.LINES[:11] + EDGE_CASES[4:6]
  if isinstance(reference, transformers.MBartTokenizer):
    # transformers omits the normalization of the SentencePiece model.
    texts = [t for t in texts if unicodedata.normalize('NFKC', t) == t]
  assert old.encode_batch(texts) == _ids(reference, texts)
  assert len(old) == len(saved) == len(reference)
  assert old.spec.special_ids == saved.spec.special_ids
  assert old.piece(7) == saved.piece(7) == reference.convert_ids_to_tokens(7)
  assert old.decode(old.encode(reference_tokenizers.LINES[0])) == saved.decode(
    saved.encode(reference_tokenizers.LINES[0])
  )


def test_decoded_text_equals_transformers(pair):
  reference, vocabulary, _ = pair
  for text in reference_tokenizers.LINES[:11] + EDGE_CASES:
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == reference.decode(
      ids, clean_up_tokenization_spaces=False
    )
    framed = [vocabulary.spec.bos_id, *ids, vocabulary.spec.eos_id]
    assert vocabulary.decode(framed) == vocabulary.decode(ids)


def test_special_ids_equal_transformers(pair):
  reference, vocabulary, _ = pair
  spec = vocabulary.spec
  assert (spec.pad_id, spec.unk_id) == (
    reference.pad_token_id,
    reference.unk_token_id,
  )
  if reference.cls_token_id is None:  # T5
    assert spec.eos_id == reference.eos_token_id
    assert spec.bos_id == spec.pad_id
    assert spec.sentinel_ids == tuple(
      reference.convert_tokens_to_ids(f'<extra_id_{i}>') for i in range(100)
    )
  else:
    assert (spec.bos_id, spec.eos_id, spec.mask_id) == (
      reference.cls_token_id,
      reference.sep_token_id,
      reference.mask_token_id,
    )
  assert set(reference.all_special_ids) <= set(spec.special_ids)
  assert spec.size == len(reference)
  assert spec.languages == ('en', 'de')


def test_language_symbols_of_mbart(tmp_path):
  reference = reference_tokenizers.mbart(tmp_path)
  saved = tmp_path / 'saved'
  reference.save_pretrained(saved)
  for folder in (tmp_path, saved):
    all_tokens, some = (
      importer.read_tokenizer(
        folder, model_type='mbart', size=None, languages=codes
      )
      for codes in (None, ('ro', 'en'))
    )
    assert len(all_tokens.spec.languages) == 25
    for code, index in zip(
      all_tokens.spec.languages,
      all_tokens.spec.language_symbol_ids,
      strict=True,
    ):
      piece = reference.convert_ids_to_tokens(index)
      assert piece.startswith(f'{code}_') and all_tokens.piece(index) == piece
      assert all_tokens.piece_id(piece) == index
    assert some.spec.languages == ('ro', 'en')
    assert some.spec.language_symbol_ids == tuple(
      reference.convert_tokens_to_ids(['ro_RO', 'en_XX'])
    )
    assert set(all_tokens.spec.language_symbol_ids) <= set(
      some.spec.special_ids
    )
    assert some != all_tokens
    with raises_error(
      errors.VocabularyError, got='tlh', mentions=('--languages', 'ro')
    ):
      importer.read_tokenizer(
        folder, model_type='mbart', size=None, languages=('en', 'tlh')
      )


def test_sentinels_with_leading_space_marker(tmp_path):
  """The SentencePiece model of mT5 contains its sentinels as tokens."""
  reference_tokenizers.sentencepiece(
    tmp_path,
    'spiece.model',
    pad_id=0,
    eos_id=1,
    unk_id=2,
    bos_id=-1,
    user_defined_symbols=[f'▁<extra_id_{i}>' for i in reversed(range(3))],
  )
  (tmp_path / 'tokenizer_config.json').write_text('{"extra_ids": 0}')
  tokenizer = importer.read_tokenizer(
    tmp_path, model_type='mt5', size=None, languages=('en',)
  )
  assert [tokenizer.piece(i) for i in tokenizer.spec.sentinel_ids] == [
    f'▁<extra_id_{i}>' for i in range(3)
  ]
  assert tokenizer.spec.mask_id == tokenizer.spec.sentinel_ids[0]
  assert tokenizer.spec.bos_id == tokenizer.spec.pad_id == 0


def test_special_tokens_in_text_are_encoded_as_characters(pair):
  _, vocabulary, old = pair
  text = f'a {vocabulary.piece(vocabulary.spec.mask_id)} b </s> [SEP] c'
  named = {vocabulary.spec.mask_id, vocabulary.spec.eos_id}
  assert not named & set(vocabulary.encode(text))
  assert not named & set(old.encode(text))


def test_written_vocabulary_round_trips(pair, tmp_path):
  for i, vocabulary in enumerate(pair[1:]):
    directory = tmp_path / str(i)
    vocabulary_training.write_vocabulary(
      vocabulary, vocabulary.describe(), directory
    )
    loaded = base_vocabulary.Vocabulary.load(directory)
    assert loaded == vocabulary
    assert loaded.spec == vocabulary.spec
    assert loaded.encode_batch(EDGE_CASES) == vocabulary.encode_batch(
      EDGE_CASES
    )
    name = next(iter(vocabulary.files()))
    (directory / name).write_bytes(b'{}')
    with pytest.raises(errors.VocabularyError):
      base_vocabulary.Vocabulary.load(directory)


def test_word_starts_follow_the_token_notation(pair):
  _, vocabulary, _ = pair
  bits = np.unpackbits(
    np.frombuffer(vocabulary.spec.word_starts, np.uint8), bitorder='little'
  )
  starts = {
    vocabulary.piece(i)
    for i in np.flatnonzero(bits)
    if i not in vocabulary.spec.special_ids
  }
  wordpiece = vocabulary.piece(vocabulary.spec.bos_id) == '[CLS]'
  assert starts
  if wordpiece:
    assert not any(piece.startswith('##') for piece in starts)
  else:
    marked = {piece for piece in starts if piece[0] in 'Ġ▁'}
    assert marked
    notation = token_normalization.notation_of(sorted(marked))
    plain = token_normalization.plain_tokens(sorted(starts - marked), notation)
    assert all(map(token_normalization.may_be_word, plain))


@pytest.mark.parametrize(
  'pair', mark_slow(_KINDS, set(_KINDS) - {'xlm-roberta'}), indirect=True
)
def test_ids_of_many_scripts_equal_transformers(pair):
  if not _UDHR.is_dir():
    pytest.skip('no folder of texts beside the project')
  reference, vocabulary, _ = pair
  for path in sorted(_UDHR.glob('*.txt')):
    lines = path.read_text(encoding='utf-8', errors='replace').splitlines()
    assert vocabulary.encode_batch(lines) == _ids(reference, lines), path.name


def test_unused_embeddings_have_special_ids(tmp_path):
  reference_tokenizers.bert(tmp_path)
  short = importer.read_tokenizer(
    tmp_path, model_type='bert', size=None, languages=('en',)
  )
  tokenizer = importer.read_tokenizer(
    tmp_path, model_type='bert', size=len(short) + 3, languages=('en',)
  )
  assert tokenizer.spec.size == len(short) + 3
  assert set(range(len(short), len(short) + 3)) <= set(
    tokenizer.spec.special_ids
  )
  assert tokenizer.piece(len(short)) == f'<unused:{len(short)}>'
  assert tokenizer.encode('the cat') == short.encode('the cat')
  assert tokenizer != short


def test_folder_without_tokenizer_is_rejected(tmp_path):
  with raises_error(
    errors.VocabularyError, mentions=('tokenizer.json', 'vocab.txt')
  ):
    importer.read_tokenizer(
      tmp_path, model_type='bert', size=None, languages=('en',)
    )


def test_m2m_100_without_tokenizer_json_is_rejected(tmp_path):
  """Its ids are defined by vocab.json, not by the SentencePiece model."""
  reference_tokenizers.sentencepiece(tmp_path, 'sentencepiece.bpe.model')
  (tmp_path / 'vocab.json').write_text('{"<s>": 0, "a": 1}')
  with pytest.raises(errors.VocabularyError) as caught:
    importer.read_tokenizer(
      tmp_path, model_type='m2m_100', size=400, languages=None
    )
  assert 'tokenizer.json' in caught.value.fix


@pytest.mark.parametrize(
  ('kind', 'options'),
  [('xlm-roberta', {}), ('mbart', {}), ('mt5', {}), ('mt5', _BYTES)],
  ids=['xlmr', 'mbart', 'mt5', 'mt5_bytes'],
)
def test_converted_legacy_files_have_the_same_ids(kind, options, tmp_path):
  name = {'mt5': 'spiece.model'}.get(kind, 'sentencepiece.bpe.model')
  ids = {'mt5': dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)}.get(kind, {})
  reference_tokenizers.sentencepiece(tmp_path, name, **ids | options)
  tokenizer = importer.read_tokenizer(
    tmp_path, model_type=kind, size=None, languages=('en',)
  )
  out = tmp_path / 'out'
  out.mkdir()
  for path, content in sentencepiece_files.convert_sentencepiece(
    tokenizer
  ).items():
    (out / path).write_bytes(content)
  (out / 'config.json').write_text(f'{{"model_type": "{kind}"}}')
  exported_tokenizer = transformers.AutoTokenizer.from_pretrained(out)
  for text in reference_tokenizers.LINES[:11] + EDGE_CASES:
    if '▁' not in text:
      ids = tokenizer.encode(text)
      assert exported_tokenizer.encode(text, add_special_tokens=False) == ids, (
        text
      )
  assert len(exported_tokenizer) == len(tokenizer)
  assert exported_tokenizer.pad_token_id == tokenizer.spec.pad_id
  framed = {
    'xlm-roberta': [tokenizer.spec.bos_id, *ids, tokenizer.spec.eos_id],
    'mbart': [*ids, tokenizer.spec.eos_id, tokenizer.piece_id('en_XX')],
    'mt5': [*ids, tokenizer.spec.eos_id],
  }[kind]
  assert exported_tokenizer.encode(text) == framed


def test_mask_token_after_a_large_unigram_vocabulary(tmp_path):
  """The added tokens of XLM-R have a similar gap of 250,000 ids."""
  special = ['<s>', '<pad>', '</s>', '<unk>']
  pieces = [*special, *(f'▁w{i}' for i in range(70_000)), '<mask>']
  tokenizer = library.Tokenizer(
    library.models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3)
  )
  tokenizer.add_special_tokens([*special, '<mask>'])
  tokenizer.save(str(tmp_path / 'tokenizer.json'))
  imported = importer.read_tokenizer(
    tmp_path, model_type='xlm-roberta', size=None, languages=('en',)
  )
  assert imported.spec.mask_id == len(pieces) - 1


@pytest.mark.parametrize(
  'settings',
  [
    {'tokenizer_class': 'BertJapaneseTokenizer'},
    {'word_tokenizer_type': 'mecab'},
    {'tokenizer_class': 'HerbertTokenizerFast'},
  ],
)
def test_tokenizers_with_other_rules_are_rejected(tmp_path, settings):
  reference_tokenizers.bert(tmp_path)
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(settings))
  with raises_error(
    errors.VocabularyError, mentions=('tokenizer.json', 'DistilBert')
  ):
    importer.read_tokenizer(
      tmp_path, model_type='bert', size=None, languages=('en',)
    )
