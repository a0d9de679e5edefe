"""Tests of splitting text into words and separators."""

import sys
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies

from tests.errors import raises_error
from xlflax.data.corpus import word_segmentation
from xlflax.data.corpus.word_segmentation import BORDER, KnownWords, Segmenter
from xlflax.utils import errors


@pytest.mark.parametrize(
  'language, text, words',
  [
    ('en', "don't re-read it - now", ["don't", 're-read', 'it', 'now']),
    ('en', "'dogs' don’t", ['dogs', 'don’t']),
    ('fr', "l'au-delà", ["l'", 'au-delà']),
    (
      'fr',
      "L’homme d'aujourd'hui 'bon'",
      ['L’', 'homme', "d'", "aujourd'", 'hui', 'bon'],
    ),
    ('hi', 'हिन्दी भाषा।', ['हिन्दी', 'भाषा']),
    ('ru', 'кто-то (и я)', ['кто-то', 'и', 'я']),
    ('de', 'u\u0308ber 3,5', ['u\u0308ber', '3', '5']),
  ],
)
def test_words_of_scripts_with_spaces(language, text, words):
  assert word_segmentation.word_pattern(language).findall(text) == words
  parts = Segmenter(language).split(text)
  assert parts[1::2] == words
  assert ''.join(parts) == text


def test_separators_and_words_alternate():
  assert Segmenter('en').split('A cat, no?') == [
    '',
    'A',
    ' ',
    'cat',
    ', ',
    'no',
    '?',
  ]
  assert Segmenter('en').split('') == ['']


def test_border_character_is_a_word():
  assert Segmenter('en').split(f'a{BORDER}{BORDER}b')[1::2] == [
    'a',
    BORDER,
    BORDER,
    'b',
  ]
  assert Segmenter('th').split(f'แมว{BORDER}แมว')[1::2] == [
    'แมว',
    BORDER,
    'แมว',
  ]


@pytest.mark.parametrize('language', ['zh', 'zh_Hans', 'yue'])
def test_chinese_is_segmented_by_jieba(language):
  text = '我来到北京清华大学, ok?\0清华'
  parts = Segmenter(language).split(text)
  assert parts[1::2] == ['我', '来到', '北京', '清华大学', 'ok', BORDER, '清华']
  assert parts[0::2] == ['', '', '', '', ', ', '?', '', '']
  assert ''.join(parts) == text


@pytest.mark.parametrize(
  ('language', 'words'),
  [
    ('th', ['ผม', 'ชื่อ', 'สมชาย']),
    ('tha_Thai', ['ผม', 'ชื่อ', 'สมชาย']),
    ('km', ['ខ្ញុំ', 'ស្រឡាញ់', 'កម្ពុជា']),
    ('lo', ['ຂ້ອຍ', 'ຮັກ', 'ປະເທດ', 'ລາວ']),
    ('my', ['ကျွန်တော်', 'မြန်မာ']),
    ('ja', ['私', 'は', '猫', 'が', '好き']),
  ],
)
def test_scripts_with_an_icu_dictionary_are_segmented_by_icu(language, words):
  text = ''.join(words)
  parts = Segmenter(language).split(f'{text}, ok? {text}')
  assert parts[1::2] == [*words, 'ok', *words]
  assert ''.join(parts) == f'{text}, ok? {text}'


def test_known_word_inside_another_word_is_not_split():
  """`ชาย` (man) is only the end of the name `สมชาย`."""
  segments = Segmenter('th', ['ชาย', 'มชื่อ']).split('ผมชื่อสมชาย')[1::2]
  assert segments == ['ผม', 'ชื่อ', 'สมชาย']


def test_known_words_may_consist_of_several_segments():
  segmenter = Segmenter('th', ['ชื่อสมชาย', 'ผมชื่อ', 'ผมชื่อสม'])
  assert segmenter.split('ผมชื่อสมชาย')[1::2] == ['ผมชื่อ', 'สมชาย']


def test_hyphens_between_words_without_spaces_are_separators():
  assert Segmenter('th').split('ไทย-ลาว') == ['', 'ไทย', '-', 'ลาว', '']


def test_longest_known_word_is_used():
  dictionary = KnownWords(['', 'ab', 'abc', 'd'])
  assert dictionary.join(list('abcxyd')) == ['abc', 'x', 'y', 'd']
  assert dictionary.join(list('abcxyd'), merge_rest=True) == ['abc', 'xy', 'd']
  assert dictionary.join(['a', 'bc', 'd']) == ['abc', 'd']
  assert dictionary.join(['xa', 'b', 'd']) == ['xa', 'b', 'd']
  assert KnownWords([]).join(['a', 'b']) == ['a', 'b']
  assert KnownWords([]).join(['a', 'b'], merge_rest=True) == ['ab']


def test_scripts_without_a_dictionary_are_split_at_known_words():
  first, second = '\ua9b2\ua98f\ua9c0\ua9b1\ua9ab', '\ua997\ua9ae'
  text = first + second + first
  assert Segmenter('jv_Java').split(text)[1::2] == [text]
  assert Segmenter('jv_Java', [second]).split(text)[1::2] == [
    first,
    second,
    first,
  ]


@pytest.mark.parametrize(
  'language', ['th', 'km', 'lo', 'my', 'ja', 'jv_Java', 'bo', 'zh', 'hi', 'am']
)
@hypothesis.given(
  text=strategies.text('กาิ์ เแខ្ញុំ\u200bຂ້ຳမြ်猫がー\ua9b2\ua9c0བོ་हि्ሰ፡a-\u0301'),
  known_words=strategies.lists(
    strategies.text('กาิเ猫がມြ', max_size=3), max_size=4
  ),
)
@hypothesis.settings(max_examples=100, deadline=None)
def test_words_do_not_start_with_marks_and_text_is_preserved(
  language, text, known_words
):
  parts = Segmenter(language, known_words).split(text)
  assert ''.join(parts) == text
  for word in parts[1::2]:
    assert unicodedata.category(word[0])[0] != 'M'


def test_ethiopic_word_space_separates_words():
  assert Segmenter('am').split('ሰላም፡ለዓለም።')[1::2] == ['ሰላም', 'ለዓለም']


def test_count_words():
  assert word_segmentation.count_words('pomme de terre', 'fr') == 3
  assert word_segmentation.count_words('研究所', 'zh') == 1


@pytest.mark.parametrize(
  ('language', 'package', 'load'),
  [
    ('zh', 'jieba', word_segmentation.chinese_words),
    ('th', 'icu4py', word_segmentation._icu_breakers),
  ],
)
def test_missing_segmenter_is_an_error(monkeypatch, language, package, load):
  load.cache_clear()
  monkeypatch.setitem(sys.modules, package, None)
  monkeypatch.delitem(sys.modules, f'{package}.breakers', raising=False)
  with raises_error(errors.ConfigError, mentions=package):
    Segmenter(language)
  load.cache_clear()


def test_fast_patterns_agree_with_the_complete_pattern():
  """Covers text without marks, with marks, and with supplementary characters."""
  for text in (
    "it's a b-c, d",
    'naïve кот',
    'e\u0301te\u0301 हिन्दी',
    'Chakma \U00011107\U00011127 x\u0301',
    'an 🙂 emoji',
  ):
    for language in ('en', 'fr'):
      assert Segmenter(language).split(text) == (
        word_segmentation.word_pattern(language).split(text)
      )
  assert Segmenter('en').split('\U00011107\U00011127')[1::2] == [
    '\U00011107\U00011127'
  ]
