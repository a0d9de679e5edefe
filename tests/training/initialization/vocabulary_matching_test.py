"""Tests of matching the tokens of two vocabularies."""

import time

import numpy as np
import pytest

from tests.errors import raises_error
from tests.training.vocabularies import Pieces
from xlflax.training.initialization import vocabulary_matching
from xlflax.training.initialization.vocabulary_matching import Kind
from xlflax.utils import errors

_SOURCE = Pieces(('Ġthe', 'ing', 'Ġdog', 'ĠUSA', 'Ġcat', 'Cat'), ('en',), 2)


def _matched(target, source=_SOURCE, translations=()):
  """Returns the source piece (or None) and the kind of each target piece."""
  ids, kinds, _ = vocabulary_matching.match_tokens(target, source, translations)
  return {
    p: (source.piece(ids[i]) if ids[i] >= 0 else None, Kind(kinds[i]))
    for i, p in enumerate(target.all)
  }


def test_match_tokens_docstring_example():
  got = _matched(
    Pieces(('▁the', '▁The', 'ing', '▁Hund', '▁xyz')),
    translations=[('Hund', 'dog')],
  )
  assert {p: got[p] for p in ('▁the', '▁The', 'ing', '▁Hund', '▁xyz')} == {
    '▁the': ('Ġthe', Kind.EXACT),
    '▁The': ('Ġthe', Kind.NORMALIZED),
    'ing': ('ing', Kind.EXACT),
    '▁Hund': ('Ġdog', Kind.DICTIONARY),
    '▁xyz': (None, Kind.RANDOM),
  }


def test_special_tokens_are_matched_by_purpose():
  target = Pieces(('▁a', '▁<s>', 'mask'), ('de', 'en'), 3)
  got = _matched(target)
  assert got['<mask>'] == ('<mask>', Kind.SPECIAL)
  assert got['<lang:en>'] == ('<lang:en>', Kind.SPECIAL)
  assert got['<lang:de>'] == (None, Kind.RANDOM)
  assert [got[f'<sentinel:{i}>'][0] for i in range(3)] == [
    '<sentinel:0>',
    '<sentinel:1>',
    None,
  ]
  assert got['▁<s>'] == (None, Kind.RANDOM)


def test_order_of_normalized_matches():
  """The order is: same position in a word, lower case, first token."""
  source = Pieces(('▁CAT', '▁Cat', 'cat', '▁USA', '▁Usa', 'Zed'))
  got = _matched(Pieces(('▁cat', 'CAT', '▁usa', '▁zed', 'cat')), source)
  assert got['▁cat'] == ('▁CAT', Kind.NORMALIZED)
  assert got['CAT'] == ('cat', Kind.NORMALIZED)
  assert got['▁usa'][0] == '▁USA'
  assert got['▁zed'] == ('Zed', Kind.NORMALIZED)
  assert got['cat'] == ('cat', Kind.EXACT)


def test_word_start_markers_without_text():
  source = Pieces(('▁', '▁a'))
  assert _matched(Pieces(('Ġ', 'Ġa')), source)['Ġ'] == ('▁', Kind.EXACT)
  got = _matched(Pieces(('▁', '▁b')), Pieces(('##', '##b')))
  assert got['▁'] == (None, Kind.RANDOM)


def test_dictionaries_match_only_unmatched_words():
  """The first translation in the source vocabulary is used."""
  target = Pieces(('▁the', '▁hund', 'hund', '▁Hund', '狗', '▁katze', '▁the2'))
  got = _matched(
    target,
    translations=[
      ('the', 'cat'),
      ('hund', 'hound'),
      ('Hund', 'DOG'),
      ('HUND', 'cat'),
      ('狗', 'dog'),
      ('katze', 'kitty'),
    ],
  )
  assert got['▁the'] == ('Ġthe', Kind.EXACT)
  assert got['▁hund'] == got['▁Hund'] == ('Ġdog', Kind.DICTIONARY)
  assert got['hund'] == (None, Kind.RANDOM)  # not a word
  assert got['狗'] == ('Ġdog', Kind.DICTIONARY)
  assert got['▁katze'] == (None, Kind.RANDOM)


def test_language_prefixes_are_ignored():
  """Vocabularies without anchors write the language before each piece."""

  class Tagged(Pieces):
    def piece(self, i):
      return f'de:{self.all[i]}'

    def bare_piece(self, i):
      return self.all[i]

  target = Tagged(('▁the',))
  assert _matched(target)['▁the'] == ('Ġthe', Kind.EXACT)


def test_counts_of_matches_by_kind():
  matching = vocabulary_matching.match_tokens(
    Pieces(('▁the', '▁THE', '▁Hund', '▁x', '▁y')), _SOURCE, [('hund', 'dog')]
  )
  assert matching.counts() == {
    'random': 2,
    'special': 5,
    'exact': 1,
    'normalized': 1,
    'dictionary': 1,
    'interpolated': 0,
  }
  assert matching.source_ids.dtype == np.int32
  assert (matching.source_ids >= 0).tolist() == (matching.kinds > 0).tolist()


def test_vocabulary_matches_itself():
  matching = vocabulary_matching.match_tokens(_SOURCE, _SOURCE)
  np.testing.assert_array_equal(matching.source_ids, np.arange(len(_SOURCE)))


@pytest.fixture
def folder(tmp_path):
  """Dictionaries in both formats and unrelated files."""
  (tmp_path / 'de-en.0-5000.txt').write_text('hund dog\nkatze cat\n')
  (tmp_path / 'en-fr.tsv').write_text('cat\tchien\t0.1\ndog\tchien\t0.9\n')
  (tmp_path / 'de-fr.tsv').write_text('hund\tchien\n')
  (tmp_path / 'README').write_text('nothing\n')
  return tmp_path


def _read(*paths, language='en'):
  matching = vocabulary_matching.EmbeddingTransfer(
    dictionaries=tuple(map(str, paths)), source_language=language
  )
  return vocabulary_matching.dictionary_translations.read_translations(
    matching.dictionaries, matching.source_language
  )


def test_dictionaries_of_a_folder_are_read(folder):
  assert list(_read(folder)) == [
    ('hund', 'dog'),
    ('katze', 'cat'),
    ('chien', 'dog'),
    ('chien', 'cat'),
  ]
  assert list(_read(folder / 'en-fr.tsv', language='fr')) == [
    ('dog', 'chien'),
    ('cat', 'chien'),
  ]


def test_dictionary_files_are_used_for_matching(folder):
  matching = vocabulary_matching.EmbeddingTransfer(
    dictionaries=(str(folder),)
  ).match(Pieces(('▁chien', '▁katze')), _SOURCE)
  assert [_SOURCE.piece(i) for i in matching.source_ids[-2:]] == [
    'Ġdog',
    'Ġcat',
  ]


def test_missing_dictionary_of_a_language_is_reported(folder):
  with pytest.raises(errors.CorpusError) as raised:
    list(_read(folder / 'de-fr.tsv'))
  text = str(raised.value)
  assert "No bilingual dictionary for the language 'en'" in text
  assert 'de-fr.tsv' in text and 'source_language' in text


def test_missing_dictionary_file_is_reported(tmp_path):
  with raises_error(errors.CorpusError, where='en-de.txt'):
    list(_read(tmp_path / 'en-de.txt'))


@pytest.mark.parametrize(
  ('name', 'line'),
  [
    ('en-de.txt', 'alone'),
    ('en-de.txt', 'a b c'),
    ('en-de.0-5000.tsv', 'a b'),
    ('en-de.tsv', 'a\tb\theavy'),
  ],
)
def test_malformed_line_is_reported(tmp_path, name, line):
  (tmp_path / name).write_text(f'dog\thund\n{line}\n')
  with raises_error(errors.CorpusError, mentions=f'{name}:2'):
    list(_read(tmp_path / name))


@pytest.mark.slow
def test_large_vocabularies_are_matched_in_seconds():
  """Matches 250,000 tokens with all methods."""
  size = 250_000
  target = _Numbered(tuple(f'▁W{i}' for i in range(size)))
  source = _Numbered(tuple(f'▁w{2 * i}' for i in range(size // 2)))
  start = time.perf_counter()
  matching = vocabulary_matching.match_tokens(
    target, source, ((f'w{i}', f'w{i + 1}') for i in range(size))
  )
  seconds = time.perf_counter() - start
  assert matching.counts()['normalized'] == size // 2
  assert matching.counts()['dictionary'] == size // 2 - 1
  assert seconds < 30


class _Numbered(Pieces):
  """`Pieces` that computes the list of pieces only once."""

  def __init__(self, text):
    super().__init__(text)
    object.__setattr__(self, '_all', Pieces.all.fget(self))
    object.__setattr__(self, '_spec', Pieces.spec.fget(self))

  @property
  def spec(self):
    return self._spec

  def piece(self, i):
    return self._all[i]

  def __len__(self):
    return len(self._all)
