"""Tests that embeddings of unmatched tokens are interpolated."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training.vocabularies import Pieces
from xlflax.training.initialization import (
  embedding_interpolation,
  embedding_transfer,
  vocabulary_matching,
)
from xlflax.training.initialization.vocabulary_matching import (
  EmbeddingMixing,
  EmbeddingNorms,
  EmbeddingTransfer,
  Kind,
)
from xlflax.utils import errors

PIECES = ('▁sea', '▁ship', '▁oven', '▁bread', '▁море', '▁печь')


class Words(Pieces):
  """A vocabulary of whole words."""

  def encode(self, text: str, *, language: str) -> list[int]:
    del language
    return [self.all.index(f'▁{word}') for word in text.split()]


@pytest.fixture
def text(tmp_path):
  draw = random.Random(0)
  groups = ('sea ship море'.split(), 'bread oven печь'.split())
  lines = [' '.join(draw.choices(groups[i % 2], k=8)) for i in range(60)]
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/en.txt').write_text('\n'.join(lines), encoding='utf-8')
  return str(tmp_path)


def test_sparsemax_is_the_projection_onto_the_simplex():
  """Compares with a search over a grid of the simplex."""
  scores = np.array([0.9, 0.7, 0.1])
  grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), -1).reshape(-1, 2)
  grid = np.concatenate([grid, 1 - grid.sum(1, keepdims=True)], axis=1)
  grid = grid[grid[:, 2] >= -1e-9]
  best = grid[((grid - scores) ** 2).sum(1).argmin()]
  projection = embedding_interpolation.sparsemax(scores)
  np.testing.assert_allclose(projection, best, atol=1e-6)
  assert projection[2] == 0 and projection.sum() == pytest.approx(1)


def test_tokens_of_the_same_sentences_have_similar_vectors():
  rng = np.random.default_rng(0)
  texts = [rng.permutation([0, 1, 2, 3]) + 4 * (i % 2) for i in range(60)]
  vectors = embedding_interpolation.static_token_vectors(texts, 9)
  same = vectors[:8] @ vectors[:8].T
  assert same[:4, :4].min() > same[:4, 4:].max() + 0.1
  assert not vectors[8].any()  # The token occurs in no text.


def test_unmatched_rows_are_interpolated_from_similar_tokens(text, tmp_path):
  target, source = Words(PIECES), Words(PIECES[:4])
  matching = EmbeddingTransfer(text=text).match(target, source)
  matched_rows = embedding_transfer.MatchedRows(
    target, source, matching, norms=EmbeddingNorms.SOURCE
  )
  rows = np.zeros((len(source), 2), np.float32)
  places = [source.all.index(piece) for piece in PIECES[:4]]
  rows[places] = [[1, 0], [1, 0], [0, 1], [0, 1]]
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  fresh = jnp.full((len(target) + 3, 2), 7.0)
  filled = np.asarray(matched_rows.fill(fresh, jnp.asarray(rows), sharding))
  sea, oven = (target.all.index(piece) for piece in PIECES[4:])
  assert filled[sea, 0] > 0.9 > 0.2 > filled[sea, 1]
  assert filled[oven, 1] > 0.9 > 0.2 > filled[oven, 0]
  np.testing.assert_allclose(filled[[sea, oven]].sum(1), 1, rtol=1e-5)
  np.testing.assert_array_equal(filled[len(target) :], 7.0)
  assert matched_rows.matching.kinds[sea] == Kind.INTERPOLATED
  matched_rows.report(tmp_path / 'report')
  report = json.loads(
    (tmp_path / 'report' / embedding_transfer.REPORT).read_text()
  )
  assert report['counts']['interpolated'] == 2


def test_parallel_text_is_used_for_interpolation(text, tmp_path):
  (tmp_path / 'parallel').mkdir()
  (tmp_path / 'parallel/en-fi.tsv').write_text('sea\tship\n' * 4)
  target, source = Words(PIECES), Words(PIECES[:4])
  matching = EmbeddingTransfer(text=text).match(target, source)
  assert matching.counts()['interpolated'] == 2


def test_wechsel_interpolates_rows_across_languages(
  tmp_path, monkeypatch, caplog
):
  """The two languages share no sentences and are aligned by a linear map."""
  monkeypatch.setattr(embedding_interpolation, '_DIMENSIONS', 3)
  draw = random.Random(0)
  english = 'sea ship sail oven bread flour king queen crown'.split()
  (tmp_path / 'mono').mkdir()
  for code, language_words in (
    ('en', english),
    ('xx', [f'x{word}' for word in english]),
  ):
    groups = [language_words[i : i + 3] for i in (0, 3, 6)]
    lines = [' '.join(draw.choices(groups[i % 3], k=8)) for i in range(300)]
    (tmp_path / 'mono' / f'{code}.txt').write_text('\n'.join(lines))
  source = Words(tuple(f'▁{word}' for word in english))
  target = Words(tuple(f'▁x{word}' for word in english))
  (tmp_path / 'dictionaries').mkdir()
  language_words = tmp_path / 'dictionaries/en-xx.tsv'
  language_words.write_text(
    ''.join(f'{word}\tx{word}\n' for word in english if word != 'ship')
  )
  transfer = EmbeddingTransfer(
    text=str(tmp_path),
    dictionaries=(str(language_words),),
    mixing=EmbeddingMixing.WECHSEL,
  )
  matches = transfer.match(target, source)
  ship = target.all.index('▁xship')
  assert matches.kinds[ship] == Kind.INTERPOLATED
  assert (matches.kinds == Kind.DICTIONARY).sum() == 8
  ids, weights = matches.rows()
  assert weights[ship].sum() == pytest.approx(1, rel=1e-5)
  near = [source.all.index(f'▁{word}') for word in english[:3]]
  assert weights[ship][np.isin(ids[ship], near)].sum() > 0.9
  monkeypatch.setattr(embedding_interpolation, '_DIMENSIONS', 20)
  assert transfer.match(target, source).kinds[ship] == Kind.RANDOM
  assert_mentions(caplog.text, 'xx')


def test_mixing_requires_text():
  with raises_error(
    errors.ConfigError, where='EmbeddingTransfer.text', mentions="'wechsel'"
  ):
    EmbeddingTransfer(mixing='wechsel')


def test_rows_are_not_interpolated_without_text():
  target, source = Words(PIECES), Words(PIECES[:4])
  matched_rows = embedding_transfer.MatchedRows(
    target, source, vocabulary_matching.match_tokens(target, source)
  )
  assert matched_rows.matching.counts()['interpolated'] == 0
