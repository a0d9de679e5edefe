"""One token, written by three kinds of vocabularies."""

import pytest

from xlflax.training.initialization import token_normalization as token_forms
from xlflax.training.initialization.token_normalization import Form, Notation

_FORMS = [Form('the', True), Form('ing', False), Form('New York', True)]


@pytest.mark.parametrize(
  ('pieces', 'notation'),
  [
    (['▁the', 'ing', '▁New▁York'], Notation.SENTENCEPIECE),
    (['Ġthe', 'ing', 'ĠNewĠYork'], Notation.BYTE_LEVEL),
  ],
)
def test_docstring(pieces, notation):
  assert token_forms.notation_of(pieces) is notation
  assert token_forms.forms(pieces) == _FORMS


def test_wordpiece():
  assert token_forms.forms(['the', '##ing', '##s']) == [
    *_FORMS[:2],
    Form('s', False),
  ]


def test_ends_of_words():
  assert token_forms.forms(['the</w>', 'hou', '</w>']) == [
    Form('the', True),
    Form('hou', False),
    Form('', True),
  ]


def test_byte_level_letters_are_bytes():
  forms = token_forms.forms(
    ['ĠcafÃ©', 'Ġä½', 'Ã', '<s>', 'ĠÐ´Ð¾Ð¼', '…'], Notation.BYTE_LEVEL
  )
  assert forms == [
    Form('café', True),
    Form('<0x20><0xE4><0xBD>', False),
    Form('<0xC3>', False),
    Form('<s>', False),
    Form('дом', True),
    Form('…', False),
  ]


def test_every_byte_has_its_letter():
  table = token_forms._bytes_of_letters()
  assert sorted(table.values()) == list(range(256))
  assert table['Ġ'] == ord(' ') and table['Ċ'] == ord('\n')


def test_without_marks():
  assert token_forms.notation_of(['a', 'b']) is Notation.SENTENCEPIECE


def test_normalize():
  assert token_forms.normalize('Ｔｈｅ ﬁÄ') == 'the fiä'


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
def test_script(text, script):
  assert token_forms.script(text) == script


def test_words():
  assert token_forms.may_be_word(Form('dog', True))
  assert not token_forms.may_be_word(Form('dog', False))
  assert token_forms.may_be_word(Form('狗', False))
