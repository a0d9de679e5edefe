"""Conversion of SentencePiece vocabularies to Hugging Face tokenizers."""

import io
import unicodedata

import pytest
import sentencepiece
import tokenizers
import transformers

from tests.interop.huggingface.reference_tokenizers import LINES
from tests.interop.huggingface.tokenizers.tokenizer_reader_test import (
  EDGE_CASES,
)
from xlflax.data.tokenizers import base_vocabulary
from xlflax.data.tokenizers import (
  sentencepiece_vocabulary as vocabulary_sentencepiece,
)
from xlflax.interop.huggingface.tokenizers import sentencepiece_files


def _vocabulary(**options):
  model = io.BytesIO()
  padding, begin, end, unknown, mask = base_vocabulary.SPECIAL_PIECES
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(LINES),
    model_writer=model,
    minloglevel=2,
    hard_vocab_limit=False,
    num_threads=1,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    pad_piece=padding,
    bos_piece=begin,
    eos_piece=end,
    unk_piece=unknown,
    control_symbols=[mask, '<lang:de>', '<lang:en>'],
    **{'vocab_size': 260} | options,
  )
  return vocabulary_sentencepiece.SentencePieceVocabulary(model.getvalue())


_TEXTS = [
  'Tất cả mọi người sinh ra đều được tự do',
  '모든 인간은 태어날 때부터 자유로우며',
  '가\u11a8 각 ㄱㅏㄱ ｶﾞ',
  'بَّ ذَّ שָּׁלוֹם',  # accents in keyboard order, which differs from NFC
  'a\u0300\u0323 e\u0301\u0327 A\u0327 A\ufe0f',
  'ガが ～ 👨‍👩‍👧 👍🏽 น้ำ',
]


@pytest.mark.parametrize('form', ['NFC', 'NFD', None])
@pytest.mark.parametrize('bytes_', [False, True], ids=['plain', 'bytes'])
@pytest.mark.parametrize('rule', ['nmt_nfkc', 'nfkc', 'nfkc_cf', 'identity'])
def test_ids_equal_for_composed_and_decomposed_text(rule, bytes_, form):
  vocabulary = _vocabulary(
    normalization_rule_name=rule,
    byte_fallback=bytes_,
    vocab_size=480 if bytes_ else 260,
  )
  content = sentencepiece_files.convert_sentencepiece(vocabulary)[
    'tokenizer.json'
  ]
  tokenizer = tokenizers.Tokenizer.from_str(content.decode())
  for text in _TEXTS:
    text = unicodedata.normalize(form, text) if form else text
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == vocabulary.encode(text), ascii(text)


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'byte_fallback': True, 'vocab_size': 480},
    {'model_type': 'bpe', 'vocab_size': 300},
    {'normalization_rule_name': 'nfkc_cf'},
  ],
  ids=['unigram', 'bytes', 'bpe', 'folded'],
)
def test_ids_of_converted_tokenizer_are_equal(options, tmp_path):
  vocabulary = _vocabulary(**options)
  files = sentencepiece_files.convert_sentencepiece(vocabulary)
  for name, content in files.items():
    (tmp_path / name).write_bytes(content)
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  spec = vocabulary.spec
  assert (
    tokenizer.pad_token_id,
    tokenizer.cls_token_id,
    tokenizer.sep_token_id,
    tokenizer.unk_token_id,
    tokenizer.mask_token_id,
  ) == (spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id, spec.mask_id)
  assert len(tokenizer) == spec.size
  keeps_marks = options.get('normalization_rule_name') == 'nfkc_cf'
  for text in LINES[:11] + EDGE_CASES:
    if keeps_marks and '▁' in text:
      continue  # transformers reads this character as a space
    ids = vocabulary.encode(text)
    assert tokenizer.encode(text, add_special_tokens=False) == ids, text
  ids = vocabulary.encode(LINES[2])
  assert tokenizer.encode(LINES[2]) == [spec.bos_id, *ids, spec.eos_id]
  assert tokenizer.decode(ids) == vocabulary.decode(ids)


def test_character_models_cannot_be_converted():
  assert (
    sentencepiece_files.convert_sentencepiece(_vocabulary(model_type='char'))
    is None
  )
