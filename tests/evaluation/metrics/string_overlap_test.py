import numpy as np
import pytest
from sklearn.feature_extraction import text as sklearn_text

from xlflax.evaluation.metrics import string_overlap
from xlflax.evaluation.metrics.string_overlap import Kind


@pytest.mark.parametrize(
  'first, second, kind',
  [
    ('Save the file', 'Сохранить файл', Kind.UNSHARED),
    ('Save as PDF', 'Сохранить в pdf', Kind.SHARED),
    ('Save as PDF', 'Сохранить в ＰＤＦ', Kind.SHARED),  # full-width letters
    ('the car', 'die Karte', Kind.UNSHARED),  # A part of a word does not count.
    ('in 1969', '1969年に', Kind.SHARED),
    ('use Word', 'Wordを使う', Kind.SHARED),
    ('use it', 'Wordを使う', Kind.UNSHARED),
    ('日本語の本', '日本的书', Kind.SHARED),
    ('日の本', '日本的书', Kind.UNSHARED),  # Single characters do not count.
    # Combining marks are part of words.
    ('हिन्दी में', 'मराठी मध्ये', Kind.UNSHARED),
    ('ภาษาไทย', 'ภาษาลาว', Kind.SHARED),
    ('OK!', 'o.k.', Kind.EQUAL),
    ('STRASSE 1', 'straße 1', Kind.EQUAL),
    ('Ctrl+F4', 'ctrl f4', Kind.EQUAL),
    ('3.5 %', '3,5 Prozent', Kind.WITHOUT_LETTERS),
    ('…', '...', Kind.WITHOUT_LETTERS),
    ('', 'text', Kind.WITHOUT_LETTERS),
  ],
)
def test_overlap_kind(first, second, kind):
  assert string_overlap.overlap_kind(first, second) is kind
  assert string_overlap.overlap_kind(second, first) is kind


def test_trivial_kinds():
  assert [kind for kind in Kind if kind.is_trivial] == [
    Kind.EQUAL,
    Kind.WITHOUT_LETTERS,
  ]


def test_split_overlap_words():
  assert string_overlap.split_overlap_words('Don’t use ＰＤＦ 2.0!') == [
    'don', 't', 'use', 'pdf', '2', '0',
  ]  # fmt: skip


@pytest.mark.parametrize('block_size', [3, 1024])
def test_nearest_by_ngrams_equals_scikit_learn(block_size):
  draw = np.random.default_rng(0)
  first, second = (
    [
      ' '.join(
        ''.join(draw.choice(list('abcde'), draw.integers(1, 5)))
        for _ in range(draw.integers(1, 4))
      )
      for _ in range(count)
    ]
    for count in (10, 8)
  )
  nearest = string_overlap.nearest_by_ngrams(
    first, second, block_size=block_size
  )
  weights = sklearn_text.TfidfVectorizer(
    analyzer='char_wb', ngram_range=(3, 3)
  ).fit_transform([*first, *second])
  cosines = (weights[:10] @ weights[10:].T).toarray()
  for indices, matrix in zip(nearest, (cosines, cosines.T), strict=True):
    for index, row in zip(indices, matrix, strict=True):
      if row.max() == 0:
        assert index == string_overlap.NOTHING
      else:
        assert row[index] == pytest.approx(row.max())


def test_texts_without_common_ngrams_have_no_neighbor():
  nearest = string_overlap.nearest_by_ngrams(['ab', '…'], ['xy', '', 'cab'])
  assert nearest.forward.tolist() == [2, string_overlap.NOTHING]
  assert nearest.backward.tolist() == [-1, -1, 0]
