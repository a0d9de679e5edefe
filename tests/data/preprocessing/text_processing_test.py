"""Tests of Moses processing and Chinese word segmentation."""

import sys
import unicodedata

import pytest

from tests.errors import raises_error
from xlflax.data.preprocessing import text_processing
from xlflax.data.preprocessing.text_processing import Processor, TextProcessing
from xlflax.utils import errors

_MOSES = TextProcessing(moses=True)


@pytest.mark.parametrize(
  'language, before, after',
  [
    ('en', "It’s 1,000… isn't (it)?", "It 's 1,000 ... isn 't ( it ) ?"),
    ('fr', 'L’homme dit : « oui » !', 'L\' homme dit : " oui " !'),
    (
      'de',
      'Das kostet z. B. 1.000,50 Euro „heute“.',
      'Das kostet z. B. 1.000,50 Euro " heute " .',
    ),
    ('hi', 'यह हिन्दी है।', 'यह हिन्दी है ।'),
    ('ja', '私は（猫）が好き！', '私は (猫) が好き!'),
    ('zh_Hans', '我来到北京清华大学：好', '我来到北京清华大学:好'),
  ],
)
def test_moses_normalizes_and_tokenizes(language, before, after):
  assert Processor(language, _MOSES)(before) == after


def test_segment_chinese_example_in_docstring():
  process = Processor('zh', TextProcessing(segment_chinese=True))
  assert process('我来到北京清华大学。') == '我 来到 北京 清华大学 。'
  assert process('我 来到 北京') == '我 来到 北京'
  assert (
    Processor('ja', TextProcessing(segment_chinese=True))('清华大学')
    == '清华大学'
  )


def test_control_characters_become_spaces_except_joiners():
  assert text_processing.drop_unprintable('a\u200bb\x07c\u00add') == 'a b c d'
  persian = 'می\u200cخواهم'
  assert text_processing.drop_unprintable(persian) == persian
  assert Processor('en', _MOSES)('a\ufeffb\u00a0c') == 'a b c'


def test_processing_does_not_remove_all_characters_of_a_line():
  assert Processor('en', _MOSES)('\u200b') == '\u200b'


def test_default_processing_only_joins_spaces():
  assert Processor('en', TextProcessing())('It’s  (it)') == 'It’s (it)'


def test_missing_library_is_an_error(monkeypatch):
  monkeypatch.setitem(sys.modules, 'sacremoses', None)
  with raises_error(errors.ConfigError, mentions='sacremoses'):
    Processor('en', _MOSES)


@pytest.mark.parametrize(
  'language, text, expected',
  [
    ('fa', 'می\u200cخواهم بروم.', 'می\u200cخواهم بروم .'),
    ('yo', 'Ọjọ́ kan, mo rí i.', 'Ọjọ́ kan , mo rí i .'),
    ('vi', 'Tie\u0302\u0301ng Vie\u0323\u0302t.', 'Tiếng Việt .'),
    ('ff_Adlm', '𞤋𞤲𞤢𞤥𞤢 𞤫.', '𞤋𞤲𞤢𞤥𞤢 𞤫 .'),
    ('kor', '나는 학교에 간다.', '나는 학교에 간다 .'),
    ('bo', 'བོད་ཡིག་རེད།', 'བོད་ཡིག་རེད།'),
    ('km', 'ខ្ញុំ\u200bទៅ\u200bផ្ទះ។', 'ខ្ញុំ\u200bទៅ\u200bផ្ទះ។'),
    ('gan', '你好吗', '你好吗'),
    ('fra', "l'eau", "l' eau"),
    ('eng', "it's", "it 's"),
  ],
)
def test_moses_preserves_words_of_all_scripts(language, text, expected):
  processed = Processor(language, _MOSES)(text)
  assert unicodedata.normalize('NFC', processed) == expected


@pytest.mark.parametrize(
  'language, sentences',
  [
    ('km', ['ខ្ញុំទៅផ្ទះ។', 'គាត់មក។']),
    ('bod_Tibt', ['བོད་ཡིག་རེད།', 'ཁོ་ཡོང་སོང་།']),
    ('mya', ['ကျွန်တော်။', 'သူ။']),
    ('zho_Hant', ['你好。', '你是誰？']),
    ('eng', ['Dr. Smith went home.', 'He slept!']),
  ],
)
def test_split_sentences_of_all_scripts(language, sentences):
  separator = '' if language == 'zho_Hant' else ' '
  text = separator.join(sentences)
  assert text_processing.split_sentences(text, language) == sentences
