"""Tests of code-switching: statistics, text and determinism."""

import collections
import dataclasses

import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary, Entry
from xlflax.data.dictionaries.code_switching import Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.utils import errors

ALWAYS = CodeSwitching(probability=1.0, max_replaced_ratio=1.0)
UNCAPPED = CodeSwitching(max_replaced_ratio=1.0)
_MIN_P_VALUE = 1e-4  # smallest accepted p-value; the draws are deterministic


def _dictionary(*entries, languages=('en', 'de')):
  return Dictionary(
    languages,
    tuple(
      Entry(*entry) if len(entry) == 3 else Entry(*entry, 1.0)
      for entry in entries
    ),
  )


CATS = _dictionary(('cat', 'Katze'))


def test_switch_example_in_docstring():
  switched = Switcher('en', [CATS], ALWAYS).switch(
    ['The cat sees a Cat.', 'CAT!']
  )
  assert switched.lines == ['The Katze sees a Katze.', 'KATZE!']
  assert switched[1:] == (6, 3, 3)


def test_text_without_translations_is_unchanged():
  lines = ['', ' \t the  cat…—"cat"', 'no\u00a0words', '¿?', 'e\u0301te\0']
  never = dataclasses.replace(ALWAYS, probability=0.0)
  assert Switcher('en', [CATS], never).switch(lines).lines == [
    *lines[:4],
    'e\u0301te ',
  ]
  assert Switcher('en', [CATS], ALWAYS).switch(lines).lines[1] == (
    ' \t the  Katze…—"Katze"'
  )
  assert Switcher('en', [CATS], ALWAYS).switch([]).lines == []


# Statistics over 10^5 draws.

_NUM_LINES, _PER_LINE = 5000, 20
_LINES = ['w ' * _PER_LINE] * _NUM_LINES  # 100,000 words


def test_replacement_rate_without_maximum_ratio():
  switcher = Switcher('en', [_dictionary(('w', 'x'))], UNCAPPED)
  lines = switcher.switch(_LINES, name='t').lines
  changed = sum(line.count('x') for line in lines)
  total = _NUM_LINES * _PER_LINE
  assert (
    scipy.stats.chisquare(
      [changed, total - changed], [0.3 * total, 0.7 * total]
    ).pvalue
    > _MIN_P_VALUE
  )
  # Words are drawn independently, so counts per line are binomial.
  counts = np.bincount(
    [line.count('x') for line in lines], minlength=_PER_LINE + 1
  )
  expected = (
    scipy.stats.binom.pmf(np.arange(_PER_LINE + 1), _PER_LINE, 0.3) * _NUM_LINES
  )
  group = slice(2, 12)
  assert (
    scipy.stats.chisquare(
      [*counts[group], _NUM_LINES - counts[group].sum()],
      [*expected[group], _NUM_LINES - expected[group].sum()],
    ).pvalue
    > _MIN_P_VALUE
  )


def test_translations_are_sampled_by_weight():
  """German and French have equal probabilities; German weights are 6, 3 and 1."""
  german = _dictionary(('w', 'a', 6.0), ('w', 'b', 3.0), ('w', 'c', 1.0))
  french = _dictionary(('d', 'w'), ('e', 'w'), languages=('fr', 'en'))
  switcher = Switcher(
    'en', [german, french], dataclasses.replace(ALWAYS, seed=3)
  )
  counts = collections.Counter(
    ''.join(switcher.switch(_LINES, name='t').lines).replace(' ', '')
  )
  assert set(counts) == set('abcde')
  total = _NUM_LINES * _PER_LINE
  assert (
    scipy.stats.chisquare(
      [counts[letter] for letter in 'abcde'],
      [0.3 * total, 0.15 * total, 0.05 * total, 0.25 * total, 0.25 * total],
    ).pvalue
    > _MIN_P_VALUE
  )


@pytest.mark.parametrize('ratio', [0.15, 0.1, 0.29])
def test_maximum_ratio_is_reached_and_never_exceeded(ratio):
  rng = np.random.default_rng(0)
  lines = ['w ' * n for n in rng.integers(0, 15, 14_000)]  # 98,000 words
  settings = CodeSwitching(max_replaced_ratio=ratio, group_lines=40)
  new = Switcher('en', [_dictionary(('w', 'x'))], settings).switch(lines).lines
  binding = 0
  for start in range(0, len(lines), 40):
    num_words = sum(line.count('w') for line in lines[start : start + 40])
    changed = sum(line.count('x') for line in new[start : start + 40])
    cap = num_words * round(100 * ratio) // 100
    assert changed <= cap
    binding += changed == cap
  assert binding > (300 if ratio < 0.2 else 50)


def test_maximum_ratio_does_not_prefer_positions():
  """Compares the counts by line of a group and by position in a line."""
  switcher = Switcher(
    'en', [_dictionary(('w', 'x'))], CodeSwitching(group_lines=10)
  )
  lines = switcher.switch(_LINES, name='t').lines
  changed = np.array([[word == 'x' for word in line.split()] for line in lines])
  assert changed.sum() == 30 * 500  # the maximum is reached in all 500 groups
  by_line = changed.reshape(500, 10, _PER_LINE).sum(axis=(0, 2))
  assert scipy.stats.chisquare(by_line).pvalue > _MIN_P_VALUE
  assert scipy.stats.chisquare(changed.sum(axis=0)).pvalue > _MIN_P_VALUE


def test_maximum_ratio_applies_to_replaced_and_inserted_words():
  dictionary = _dictionary(('a', 'p q r'), ('b c d', 'x'), ('e', 'y'))
  settings = CodeSwitching(
    probability=1.0, max_replaced_ratio=0.2, group_lines=5
  )
  rng = np.random.default_rng(1)
  lines = [
    ' '.join(rng.choice(['a', 'b c d', 'e', 'o'], 12)) for _ in range(500)
  ]
  new = Switcher('en', [dictionary], settings).switch(lines).lines
  for start in range(0, 500, 5):
    before = ' '.join(lines[start : start + 5]).split()
    after = ' '.join(new[start : start + 5]).split()
    foreign = sum(word in set('pqrxy') for word in after)
    replaced = len(before) - (len(after) - foreign)
    assert 5 * replaced <= len(before) and 5 * foreign <= len(after)
    assert max(replaced, foreign) > 0.1 * len(before)  # close to the maximum


# Matching of words.


def test_multi_word_entries_are_replaced_together():
  dictionary = _dictionary(
    ('ice cream', 'Eis'), ('ice', 'Glatteis'), ('potato', 'pomme de terre')
  )
  switched = Switcher('en', [dictionary], ALWAYS).switch(
    ['Ice cream, ice', 'a potato']
  )
  assert switched.lines == ['Eis, Glatteis', 'a pomme de terre']
  assert switched[1:] == (5, 3, 2 + 1 + 1)


def test_languages_are_sampled_uniformly():
  french = _dictionary(('cat', 'chat'), languages=('en', 'fr'))
  text = ['cat'] * 4000
  counts = collections.Counter(
    Switcher('en', [CATS, french], ALWAYS).switch(text).lines
  )
  assert (
    scipy.stats.chisquare([counts['Katze'], counts['chat']]).pvalue
    > _MIN_P_VALUE
  )
  only = dataclasses.replace(ALWAYS, languages=('fr',))
  assert set(Switcher('en', [CATS, french], only).switch(text).lines) == {
    'chat'
  }
  assert Switcher('fr', [CATS, french], ALWAYS).switch(['le Chat']).lines == [
    'le Cat'
  ]


def test_chinese_words_are_switched():
  dictionary = _dictionary(
    ('猫', 'cat'), ('清华大学', 'Tsinghua'), languages=('zh', 'en')
  )
  pair = _dictionary(('来到', '行く'), languages=('zh', 'ja'))
  lines = (
    Switcher('zh', [dictionary], ALWAYS)
    .switch(['我有猫。', '猫', '在清华大学，猫', '猫 猫', 'a 猫!'])
    .lines
  )
  assert lines == ['我有 cat。', 'cat', '在 Tsinghua，cat', 'cat cat', 'a cat!']
  assert Switcher('zh', [pair], ALWAYS).switch(['我来到北京']).lines == [
    '我行く北京'
  ]


def test_thai_and_japanese_are_split_at_dictionary_entries():
  thai = _dictionary(('แมว', 'cat'), languages=('th', 'en'))
  assert Switcher('th', [thai], ALWAYS).switch(['ฉันรักแมวมาก']).lines == [
    'ฉันรัก cat มาก'
  ]
  japanese = _dictionary(('猫', 'cat'), languages=('ja', 'en'))
  assert Switcher('ja', [japanese], ALWAYS).switch(['私は猫です']).lines == [
    '私は cat です'
  ]


# Determinism.


def _numbered(count):
  return [f'w{i % 7} a{i} w3 w5 w{i % 5} b' for i in range(count)]


@pytest.fixture(scope='module')
def numbers():
  return _dictionary(
    *((f'w{i}', f'x{i}') for i in range(7)),
    *((f'w{i}', f'y{i}') for i in range(7)),
  )


def test_parts_of_a_text_are_switched_like_the_complete_text(numbers):
  settings = CodeSwitching(group_lines=16)
  lines = _numbered(100)
  all_lines = Switcher('en', [numbers], settings).switch(lines, name='t').lines
  other = Switcher('en', [numbers], settings)
  assert other.switch(lines[48:], name='t', first=48).lines == all_lines[48:]
  assert other.switch(lines[:48], name='t').lines == all_lines[:48]


def test_switching_depends_on_seed_name_and_line_number(numbers):
  settings = CodeSwitching(group_lines=64)
  lines = _numbered(64)
  texts = [
    Switcher('en', [numbers], settings).switch(lines, name='t').lines,
    Switcher('en', [numbers], settings).switch(lines, name='u').lines,
    Switcher('en', [numbers], settings).switch(lines, name='t', first=64).lines,
    Switcher('en', [numbers], dataclasses.replace(settings, seed=1))
    .switch(lines, name='t')
    .lines,
  ]
  assert len({tuple(text) for text in texts}) == 4


def test_switched_text_does_not_change_between_versions(numbers):
  """Caches and published runs depend on this golden text."""
  switched = Switcher('en', [numbers], CodeSwitching(group_lines=4)).switch(
    _numbered(4), name='golden'
  )
  assert switched.lines == GOLDEN


GOLDEN = [
  'w0 a0 x3 y5 w0 b',
  'w1 a1 w3 w5 w1 b',
  'w2 a2 y3 w5 w2 b',
  'w3 a3 w3 w5 w3 b',
]


# Errors.


def test_settings_out_of_range_are_rejected():
  with raises_error(
    errors.ConfigError, got=1.5, where='CodeSwitching.probability'
  ):
    CodeSwitching(probability=1.5)
  with raises_error(
    errors.ConfigError, got=0, where='CodeSwitching.num_copies'
  ):
    CodeSwitching(num_copies=0)


def test_language_without_a_dictionary_is_rejected():
  with raises_error(errors.CorpusError, mentions='sw'):
    Switcher('sw', [CATS])
  with raises_error(errors.CorpusError, mentions=('en', 'fr')):
    Switcher('en', [CATS], CodeSwitching(languages=('fr',)))


def test_source_languages_of_pairs():
  pairs = [('en', 'de'), ('en', 'fr')]
  assert CodeSwitching().sources(pairs) == {'en', 'de', 'fr'}
  assert CodeSwitching(languages=('fr',)).sources(pairs) == {'en'}


def test_fingerprint_depends_on_dictionary_and_settings(numbers):
  first = Switcher('en', [numbers]).fingerprint()
  assert first == Switcher('en', [numbers]).fingerprint()
  assert first != Switcher('en', [CATS]).fingerprint()
  assert first != Switcher('en', [numbers], UNCAPPED).fingerprint()
  chinese = _dictionary(('猫', 'cat'), languages=('zh', 'en'))
  assert 'jieba' in Switcher('zh', [chinese]).fingerprint()
