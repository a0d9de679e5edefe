"""Tests of the readers of bitext mining data."""

import pytest

from tests.errors import raises_error
from xlflax.data.supervised.readers import bucc
from xlflax.utils import errors


@pytest.fixture
def files(write):
  return (
    write('a.zh', 'zh-1\t你好\nzh-2\t猫\n'),
    write('a.en', 'en-7\tcat\tor kitten\nen-8\tdog\n'),
    write('a.gold', 'zh-2\ten-7\n'),
  )


def test_read_bucc(files):
  mined = bucc.read_bucc(*files, languages=('zh', 'en'))
  assert mined.languages == ('zh', 'en')
  assert mined.first == {'zh-1': '你好', 'zh-2': '猫'}
  assert mined.second == {'en-7': 'cat\tor kitten', 'en-8': 'dog'}
  assert mined.gold == {('zh-2', 'en-7')}
  assert bucc.read_bucc(*files[:2], languages=('zh', 'en')).gold is None


def test_swapped_text_files_are_rejected(write):
  first = write('a.fr', 'fr-1\tbonjour\nfr-2\tchat\n')
  second = write('a.en', 'en-7\tcat\nen-8\tdog\n')
  gold = write('a.gold', 'fr-2\ten-7\n')
  with raises_error(
    errors.CorpusError, where='a.gold:1', mentions=('fr-2', 'swapped')
  ) as caught:
    bucc.read_bucc(second, first, gold, languages=('fr', 'en'))
  assert caught.value.fix


def test_swapped_numbered_text_files_are_rejected(write):
  sides = write('a', 'ndiyo\nhapana\n'), write('b', 'no\nnope\nyes\n')
  gold = write('gold', '1\n1\n0\n')
  with raises_error(errors.CorpusError, where='gold:1', mentions='swapped'):
    bucc.read_lines(*sides[::-1], gold, languages=('sw', 'en'))


def test_lines_are_numbered_from_0(write):
  mined = bucc.read_lines(
    write('a', 'ndiyo\nhapana\n'), write('b', 'no\n'), languages=('sw', 'en')
  )
  assert mined.first == {'0': 'ndiyo', '1': 'hapana'}
  assert (mined.second, mined.gold) == ({'0': 'no'}, None)
  with raises_error(errors.CorpusError, where='c'):
    bucc.read_lines(write('a', 'x'), write('c', ''), languages=('sw', 'en'))


def test_gold_lines_map_target_lines_to_source_lines(write):
  sides = write('a', 'ndiyo\nhapana\n'), write('b', 'no\nnope\nyes\n')
  gold = write('gold', '1\n1\n0\n')
  mined = bucc.read_lines(*sides, gold, languages=('sw', 'en'))
  assert mined.gold == {('1', '0'), ('1', '1'), ('0', '2')}
  for text, values in (('1\n2\n0\n', ('2', 0, 1, 'gold:2')), ('1\n', (1, 3))):
    with raises_error(errors.CorpusError, mentions=values):
      bucc.read_lines(*sides, write('gold', text), languages=('sw', 'en'))


@pytest.mark.parametrize(
  'name, text, values',
  [
    ('a.zh', 'zh-1\t\n', ('zh-1\\t', 'a.zh:1')),
    ('a.zh', 'zh-1\ta\nzh-1\tb\n', ('id', 'zh-1', 'a.zh:2')),
    ('a.gold', 'zh-2\ten-9\n', ('en-9', 'a.gold:1')),
    ('a.en', '\n', 'a.en'),
  ],
)
def test_malformed_files_are_rejected(files, write, name, text, values):
  write(name, text)
  with raises_error(errors.CorpusError, mentions=values):
    bucc.read_bucc(*files, languages=('zh', 'en'))
