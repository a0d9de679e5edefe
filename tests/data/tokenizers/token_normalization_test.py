"""Tests of token normalization across vocabulary types."""

import pytest

from xlflax.data.tokenizers import token_normalization
from xlflax.data.tokenizers.token_normalization import Notation, PlainToken

_TOKENS = [
  PlainToken('the', True),
  PlainToken('ing', False),
  PlainToken('New York', True),
]


@pytest.mark.parametrize(
  ('pieces', 'notation'),
  [
    (['▁the', 'ing', '▁New▁York'], Notation.SENTENCEPIECE),
    (['Ġthe', 'ing', 'ĠNewĠYork'], Notation.BYTE_LEVEL),
  ],
)
def test_plain_tokens_docstring_example(pieces, notation):
  assert token_normalization.notation_of(pieces) is notation
  assert token_normalization.plain_tokens(pieces) == _TOKENS


def test_wordpiece_suffixes_are_plain():
  assert token_normalization.plain_tokens(['the', '##ing', '##s']) == [
    *_TOKENS[:2],
    PlainToken('s', False),
  ]


def test_end_of_word_marks_are_removed():
  assert token_normalization.plain_tokens(['the</w>', 'hou', '</w>']) == [
    PlainToken('the', True),
    PlainToken('hou', False),
    PlainToken('', True),
  ]


def test_byte_level_tokens_are_decoded():
  tokens = token_normalization.plain_tokens(
    ['ĠcafÃ©', 'Ġä½', 'Ã', '<s>', 'ĠÐ´Ð¾Ð¼', '…'], Notation.BYTE_LEVEL
  )
  assert tokens == [
    PlainToken('café', True),
    PlainToken('<0x20><0xE4><0xBD>', False),
    PlainToken('<0xC3>', False),
    PlainToken('<s>', False),
    PlainToken('дом', True),
    PlainToken('…', False),
  ]


def test_byte_table_is_a_bijection():
  table = token_normalization._bytes_by_letter()
  assert sorted(table.values()) == list(range(256))
  assert table['Ġ'] == ord(' ') and table['Ċ'] == ord('\n')


def test_tokens_without_marks_use_sentencepiece_notation():
  assert token_normalization.notation_of(['a', 'b']) is Notation.SENTENCEPIECE


def test_normalize_token():
  assert token_normalization.normalize_token('Ｔｈｅ ﬁÄ') == 'the fiä'


@pytest.mark.parametrize(
  ('text', 'script'),
  [
    ('the', 'LATIN'),
    ('12дом', 'CYRILLIC'),
    ('狗', 'CJK'),
    ('12,', 'NONE'),
    ('', 'NONE'),
  ],
)
def test_script_of_token(text, script):
  assert token_normalization.script_of_token(text) == script


@pytest.mark.parametrize(
  'notation, pieces, starts',
  [
    (
      Notation.SENTENCEPIECE,
      ['▁the', 'ing', '我', '▁你', 'ไทย', 'かな'],
      '101111',
    ),
    (Notation.BYTE_LEVEL, ['Ġthe', 'ing', 'æĪĳ', 'æĪ'], '1010'),
    (Notation.WORDPIECE, ['the', '##ing', '我', '##本'], '1010'),
  ],
)
def test_word_starts_in_scripts_without_spaces(notation, pieces, starts):
  is_start = token_normalization.word_starts(pieces, notation)
  assert is_start == [flag == '1' for flag in starts]


def test_may_be_word():
  assert token_normalization.may_be_word(PlainToken('dog', True))
  assert not token_normalization.may_be_word(PlainToken('dog', False))
  assert token_normalization.may_be_word(PlainToken('狗', False))
  assert token_normalization.may_be_word(PlainToken('แมว', False))
  assert token_normalization.may_be_word(PlainToken('፡ለዓለም', False))


@pytest.mark.parametrize(
  'text',
  ['ิน', 'าก', 'ำ', 'ๆ', '្ញុំ', 'ៅ', 'ັກ', 'ຳ', 'ျွန်', 'ーム', 'ི་', 'ለዓለም', ''],
)
def test_may_be_word_rejects_continuations_without_spaces(text):
  assert not token_normalization.may_be_word(PlainToken(text, False))
