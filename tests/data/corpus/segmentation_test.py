"""Words of text, and everything between them."""

import sys

import pytest

from tests.errors import raises_error
from xlflax.data.corpus import segmentation
from xlflax.data.corpus.segmentation import BORDER, LongestMatch, Segmenter
from xlflax.foundation import errors


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
  assert segmentation.word_pattern(language).findall(text) == words
  parts = Segmenter(language).split(text)
  assert parts[1::2] == words
  assert ''.join(parts) == text


def test_separators_and_words_take_turns():
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


def test_a_border_is_a_word():
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
def test_chinese_is_cut_by_jieba(language):
  text = '我来到北京清华大学, ok?\0清华'
  parts = Segmenter(language).split(text)
  assert parts[1::2] == ['我', '来到', '北京', '清华大学', 'ok', BORDER, '清华']
  assert parts[0::2] == ['', '', '', '', ', ', '?', '', '']
  assert ''.join(parts) == text


def test_the_longest_match_from_the_left():
  assert LongestMatch(['ab', 'abc', 'd'])('abcxyd') == ['abc', 'xy', 'd']
  assert LongestMatch([])('abc') == ['abc']
  assert LongestMatch(['', 'a'])('aa') == ['a', 'a']


def test_a_match_does_not_end_before_a_mark():
  assert LongestMatch(['ก', 'กา'])('กากิ') == ['กา', 'กิ']


@pytest.mark.parametrize('language', ['ja', 'th', 'lo', 'km', 'my'])
def test_other_scripts_without_spaces_are_cut_at_known_words(language):
  assert Segmenter(language, ['猫', '好き']).split('私は猫が好き。2 cats')[
    1::2
  ] == ['私は', '猫', 'が', '好き', '2', 'cats']


def test_counting_words():
  assert segmentation.count_words('pomme de terre', 'fr') == 3
  assert segmentation.count_words('研究所', 'zh') == 1


def test_a_missing_jieba_is_told(monkeypatch):
  segmentation.chinese_words.cache_clear()
  monkeypatch.setitem(sys.modules, 'jieba', None)
  with raises_error(errors.ConfigError, mentions='jieba'):
    Segmenter('zh')
  segmentation.chinese_words.cache_clear()


def test_the_fast_patterns_split_as_the_complete_one():
  """Text without marks, with marks, and beyond the basic plane."""
  for text in (
    "it's a b-c, d",
    'naïve кот',
    'e\u0301te\u0301 हिन्दी',
    'Chakma \U00011107\U00011127 x\u0301',
    'an 🙂 emoji',
  ):
    for language in ('en', 'fr'):
      assert Segmenter(language).split(text) == (
        segmentation.word_pattern(language).split(text)
      )
  assert Segmenter('en').split('\U00011107\U00011127')[1::2] == [
    '\U00011107\U00011127'
  ]
