"""Tests of lexicon induction with word vectors and dictionaries."""

import gzip

import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from xlflax.analysis import lexicon_induction
from xlflax.analysis.lexicon_induction import WordVectors
from xlflax.similarity import csls
from xlflax.utils import errors

_VEC = """4 3
the 0.1 -2 3e-1
New York 1 2 3
the 9 9 9
ñ 0 0 1
"""


@pytest.fixture
def languages():
  """Vectors of 200 words and a rotated copy with other words."""
  rng = np.random.default_rng(0)
  first = rng.normal(size=(200, 12)).astype(np.float32)
  turned = first @ scipy.stats.ortho_group.rvs(12, random_state=0)
  word_lists = [f'w{i}' for i in range(200)], [f'x{i}' for i in range(200)]
  return (
    WordVectors(tuple(word_lists[0]), first),
    WordVectors(tuple(word_lists[1]), turned.astype(np.float32)),
  )


def _pairs(numbers):
  return [(f'w{i}', f'x{i}') for i in numbers]


def test_procrustes_recovers_a_rotation(languages):
  result = lexicon_induction.translate(
    *languages, train=_pairs(range(80)), test=_pairs(range(80, 200))
  )
  assert set(result.precision) == {
    (score, k) for score in csls.Score for k in (1, 5, 10)
  }
  assert set(result.precision.values()) == {1.0}
  assert (result.queries, result.learned_from) == (120, 80)
  assert result.coverage == 1


def test_mapping_none_compares_unmapped_vectors(languages):
  first, second = languages
  same = WordVectors(second.words, first.vectors)
  for target, expected in ((same, 1.0), (second, 0.0)):
    result = lexicon_induction.translate(
      first,
      target,
      test=_pairs(range(200)),
      mapping='none',
      top=(1,),
      scores=('cosine',),
    )
    assert result.precision[csls.Score.COSINE, 1] == pytest.approx(
      expected, abs=0.05
    )
    assert result.learned_from == 0


def test_any_translation_counts_and_unknown_words_are_skipped(languages):
  first, second = languages
  same = WordVectors(second.words, first.vectors)
  test = [
    ('w1', 'x7'),
    ('w1', 'x1'),
    ('w2', 'x9'),
    ('w2', 'unknown'),
    ('unknown', 'x3'),
    ('w3', 'unknown'),
  ]
  result = lexicon_induction.translate(
    first, same, test=test, mapping='none', top=(1, 200)
  )
  assert result.precision[csls.Score.COSINE, 1] == 0.5
  assert result.precision[csls.Score.COSINE, 200] == 1
  assert (result.queries, result.num_source_words, result.coverage) == (
    2,
    4,
    0.5,
  )


def test_more_neighbors_than_words_are_accepted():
  few = WordVectors(('a', 'b'), np.eye(2, dtype=np.float32))
  result = lexicon_induction.translate(
    few, few, test=[('a', 'a'), ('b', 'a')], mapping='none', top=(1, 5)
  )
  assert result.precision[csls.Score.CSLS, 1] == 0.5
  assert result.precision[csls.Score.CSLS, 5] == 1


def test_lookup_falls_back_to_lower_case():
  vectors = WordVectors(('haus', 'Haus', 'tür'), np.eye(3))
  assert [vectors.find(word) for word in ('Haus', 'HAUS', 'Tür', 'x')] == [
    1,
    0,
    2,
    None,
  ]
  rows = lexicon_induction.index_pairs(
    [('HAUS', 'Tür'), ('haus', 'tür'), ('Haus', 'x')], vectors, vectors
  )
  assert rows.tolist() == [[0, 2]]


def test_lookup_applies_case_rules_of_the_language():
  vectors = WordVectors(('insan', 'ışık', 'de\u0301ja'), np.eye(3), 'tr')
  spellings = ('İnsan', 'IŞIK', 'Işık', 'déja', 'Insan')
  assert [vectors.find(word) for word in spellings] == [0, 1, 1, 2, None]


@pytest.mark.parametrize(
  'name, write',
  [
    ('a.vec', lambda path, text: path.write_bytes(text.encode())),
    (
      'a.vec.gz',
      lambda path, text: path.write_bytes(gzip.compress(text.encode())),
    ),
  ],
)
def test_read_vectors_reads_fasttext_files(tmp_path, name, write):
  write(tmp_path / name, _VEC)
  vectors = lexicon_induction.read_vectors(tmp_path / name)
  assert vectors.words == ('the', 'New York', 'ñ')
  np.testing.assert_allclose(
    vectors.vectors, [[0.1, -2, 0.3], [1, 2, 3], [0, 0, 1]], rtol=1e-6
  )
  assert vectors.vectors.dtype == np.float32
  two = lexicon_induction.read_vectors(tmp_path / name, max_words=2)
  assert two.words == ('the', 'New York')


@pytest.mark.parametrize(
  'text, where',
  [
    ('the 1 2\n', 'bad.vec:1'),
    ('', 'bad.vec:1'),
    ('2 2\nthe 1 2\ncat 1 x\n', 'bad.vec:3'),
    ('2 2\nthe 1 2\ncat 1\n', 'bad.vec:3'),
    ('1 2\nthe 1 nan\n', 'bad.vec:2'),
    ('1 2\n', 'bad.vec'),
  ],
)
def test_invalid_vector_files_are_rejected_with_the_line(tmp_path, text, where):
  (tmp_path / 'bad.vec').write_text(text)
  with raises_error(errors.CorpusError, where=where):
    lexicon_induction.read_vectors(tmp_path / 'bad.vec')


@pytest.mark.parametrize('header', ['', '1 2\n'])
def test_invalid_lines_are_shortened_in_errors(tmp_path, header):
  path = tmp_path / 'bad.vec'
  path.write_text(header + '1' + 'ж' * 80 + '\n', encoding='utf-8')
  with pytest.raises(errors.CorpusError) as caught:
    lexicon_induction.read_vectors(path)
  assert caught.value.got == repr('1' + 'ж' * 59 + '…')


def test_dictionaries_without_known_words_are_rejected(languages):
  with pytest.raises(errors.AnalysisError):
    lexicon_induction.translate(
      *languages, train=_pairs([1]), test=[('a', 'b')]
    )
  with pytest.raises(errors.AnalysisError):
    lexicon_induction.translate(
      *languages, train=[('a', 'b')], test=_pairs([1])
    )


def test_numbers_of_words_and_vectors_must_match():
  with raises_error(errors.AnalysisError, mentions=(2, 3)):
    WordVectors(('a', 'b'), np.eye(3))


def test_truncated_vector_file_is_an_error(tmp_path):
  path = tmp_path / 'a.vec'
  path.write_text('3 2\nx 1 2\ny 3 4\n')
  with pytest.raises(errors.CorpusError):
    lexicon_induction.read_vectors(str(path))
  vectors = lexicon_induction.read_vectors(str(path), max_words=2)
  assert vectors.words == ('x', 'y')
