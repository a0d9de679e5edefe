"""Tests of the word alignment reader."""

import subprocess

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised.readers import word_alignment_reader
from xlflax.utils import errors

_PAIR = ('ja', 'en')


def _read(write, text, links, **options):
  return word_alignment_reader.read_aligned_sentences(
    (write('text', text), write('gold', links)), _PAIR, **options
  )


def test_docstring_example(write):
  reading = _read(
    write, 'das Haus ||| the house\n', '1-1 2-2P\n', first_index=1
  )
  (example,) = reading.examples
  assert example.source_words == ('das', 'Haus')
  assert example.target_words == ('the', 'house')
  assert example.sure == {(0, 0)}
  assert example.possible == {(0, 0), (1, 1)}
  assert (example.language, example.target_language) == _PAIR


def test_numbered_sentences_are_matched_in_any_order(write):
  paths = (
    write('s', '4\tπῶς ἔχεις\n2\tναί\n'),
    write('t', '2\tyes\n4\thow d\n'),
    write('g', '2\t0-0\n4\t0-0 1p1\n'),
  )
  examples = word_alignment_reader.read_aligned_sentences(
    paths, ('grc', 'en')
  ).examples
  assert [(e.id, e.source_words, e.target_words) for e in examples] == [
    ('2', ('ναί',), ('yes',)),
    ('4', ('πῶς', 'ἔχεις'), ('how', 'd')),
  ]
  assert examples[1].sure == {(0, 0)}
  assert examples[1].possible == {(0, 0), (1, 1)}


def test_wpt_format(write):
  """The NAACL format of WPT 2003 and 2005, with a sentence without links."""
  reading = word_alignment_reader.read_aligned_sentences(
    [
      write('s', '<s snum=0001> das Haus </s>\n<s snum=0002> ja </s>\n'),
      write('t', '<s snum=0001> the house </s>\n<s snum=0002> yes </s>\n'),
      write('g', '0001 1 1 S\n0001 2 2 P\n0001 0 2\n0001 2 1\n'),
    ],
    ('de', 'en'),
  )
  first, second = reading.examples
  assert first.source_words == ('das', 'Haus')
  assert first.sure == {(0, 0), (1, 0)}
  assert first.possible == {(0, 0), (1, 0), (1, 1)}
  assert (second.target_words, second.possible) == (('yes',), frozenset())


def test_sentences_without_links_are_kept(write):
  reading = _read(write, '猫 ||| cat\n犬 ||| dog\n', '0-0S 0?0\n\n')
  assert [e.possible for e in reading.examples] == [{(0, 0)}, frozenset()]


def test_links_past_the_end_are_dropped_and_listed(write):
  reading = _read(write, '猫 ||| a cat\n', '0-1 1-0 0-2P\n')
  assert reading.examples[0].possible == {(0, 1)}
  first, second = reading.problems
  assert_mentions(first, 'gold:1', '1-0', 1, 2)
  assert_mentions(second, 'gold:1', '0-2P', 1, 2)


_REVERSED_TEXT = 'a b ||| c d e f g h\n' * 3
_REVERSED_LINKS = '0-0 1-1 2-1 3-1 5-1\n' * 3


def test_reversed_links_cause_a_warning(write, caplog):
  _read(write, _REVERSED_TEXT, _REVERSED_LINKS)
  [record] = caplog.records
  assert record.levelname == 'WARNING'
  assert_mentions(record.getMessage(), 'gold', 9, 15, '2-1', 0, 'sed')


def test_suggested_command_reverses_links(write, caplog, tmp_path):
  _read(write, _REVERSED_TEXT, '0-0S 1-1 2?1 3p1 5-1P\n' * 3)
  command = caplog.records[0].getMessage().rpartition('with ')[2].rstrip('.')
  output = subprocess.run(
    f'{command} gold', shell=True, cwd=tmp_path, capture_output=True, text=True
  ).stdout
  assert output == '0-0S 1-1 1?2 1p3 1-5P\n' * 3
  caplog.clear()
  assert not _read(write, _REVERSED_TEXT, output).problems
  assert not caplog.records


def test_reversed_links_of_wpt_cause_a_warning(write, caplog, tmp_path):
  links = ''.join(f'1 {n} 1 S\n' for n in range(1, 8))
  paths = [
    write('s', '<s snum=1> a </s>\n'),
    write('t', '<s snum=1> b c d e f g h </s>\n'),
    write('g', links),
  ]
  word_alignment_reader.read_aligned_sentences(paths, ('de', 'en'))
  [record] = caplog.records
  command = record.getMessage().rpartition('with ')[2].rstrip('.')
  output = subprocess.run(
    f'{command} g', shell=True, cwd=tmp_path, capture_output=True, text=True
  ).stdout
  assert output == ''.join(f'1 1 {n} S\n' for n in range(1, 8))


@pytest.mark.parametrize(
  'links, num_skipped',
  [('0-0 1-1 9-8 8-9\n', 6), ('0-0 1-1\n', 0), ('0-0 2-1\n', 3)],
)
def test_other_skipped_links_are_counted(write, caplog, links, num_skipped):
  """The links are outside of the sentences in both directions, or few."""
  _read(write, _REVERSED_TEXT, links * 3)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == bool(num_skipped)
  for message in messages:
    assert_mentions(message, 'gold', num_skipped)
    assert 'sed' not in message


def test_links_numbered_from_1_are_rejected_if_the_first_index_is_0(write):
  """With first index 0, two links are out of range and word 0 has no link."""
  text = '猫 が 好き ||| likes cats\n犬 ||| dog\n'
  with raises_error(
    errors.CorpusError,
    got='1-2',
    where='gold:1',
    mentions=('--gin.FIRST_INDEX=1', '--index_base=1'),
  ):
    _read(write, text, '1-2 3-1\n1-1\n')
  reading = _read(write, text, '1-2 3-1\n1-1\n', first_index=1)
  assert [e.sure for e in reading.examples] == [{(0, 1), (2, 0)}, {(0, 0)}]
  assert not reading.problems


@pytest.mark.parametrize('links', ['1-1 2-1 4-1\n\n', '1-1 2-1 3-1\n0-0\n'])
def test_ambiguous_links_are_numbered_from_0(write, links):
  """The link 4-1 is also out of range if words are numbered from 1."""
  reading = _read(write, '猫 が 好き ||| likes cats\n犬 ||| dog\n', links)
  assert reading.examples[0].sure == {(1, 1), (2, 1)}
  assert len(reading.problems) == 1


@pytest.mark.parametrize(
  'text, links, options, values',
  [
    ('猫 cat\n', '0-0\n', {}, ('猫 cat', 'text:1')),
    ('猫 ||| cat\n', '0:0\n', {}, ('0:0', 'i-j', 'i-jS', 'i-jP', 'gold:1')),
    (
      '猫 ||| cat\n',
      '0-0\n',
      {'first_index': 1},
      ('first_index=0', '--gin.FIRST_INDEX=0', '0-0', 'gold:1'),
    ),
    ('a ||| b\nc ||| d\n', '0-0\n', {}, (2, 1)),
    ('', '', {}, 'gold'),
  ],
)
def test_malformed_files_are_rejected(write, text, links, options, values):
  with raises_error(errors.CorpusError, mentions=values):
    _read(write, text, links, **options)


def test_repeated_sentence_numbers_are_rejected(write):
  paths = [write(n, '1\ta\n1\tb\n') for n in 'st'] + [write('g', '1\t0-0\n')]
  with raises_error(errors.CorpusError, where='s:2', mentions=1):
    word_alignment_reader.read_aligned_sentences(paths, _PAIR)


def test_invalid_number_of_files_is_rejected():
  with raises_error(
    errors.ConfigError, mentions=('(text', 1, 'first_index', 0)
  ):
    word_alignment_reader.read_aligned_sentences(('a',), _PAIR)
