"""Tests of dropping pairs with low margins."""

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.preprocessing import margin_filter, pipeline
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.utils import errors

_PAIRS = [(f'en {i}', f'de {i}') for i in range(9)] + [('en 9', 'de 2')]


def _encode(texts, languages):
  """Returns a vector per number, slightly rotated for German."""
  assert len(texts) == len(languages)
  vectors = np.eye(12, dtype=np.float32)[[int(t.split()[1]) for t in texts]]
  vectors += 0.1
  if languages[0] == 'de':
    vectors[:, 11] += 0.2
  return vectors


@pytest.fixture
def corpus(tmp_path):
  directory = tmp_path / 'in'
  corpus_writer.write_parallel(directory, ('en', 'de'), _PAIRS)
  corpus_writer.write_parallel(
    directory, ('en', 'de'), [('en 1', 'de 5')], split='test'
  )
  corpus_writer.write_monolingual(directory, 'en', [['en 3']])
  return Corpus(directory)


def _filter(**fields):
  return margin_filter.MarginFilter(
    **(dict(min_margin=1.0, encoder='the test') | fields)
  )


def test_low_margin_pairs_are_found_in_training_text(corpus):
  (low_margin,) = margin_filter.find_low_margin_pairs(
    corpus, corpus.files, _filter(), _encode
  ).values()
  assert low_margin.tolist() == [9]


def test_neighbors_are_searched_in_groups(corpus):
  """In a group of one pair, its margin is 1."""
  (low_margin,) = margin_filter.find_low_margin_pairs(
    corpus, corpus.files, _filter(group_size=1, min_margin=0.999), _encode
  ).values()
  assert low_margin.tolist() == []


def test_low_margin_pairs_are_dropped_and_counted(corpus, tmp_path):
  def run(least):
    return pipeline.preprocess_corpus(
      corpus,
      tmp_path / 'out',
      processing=TextProcessing(),
      margins=(_filter(min_margin=least), _encode),
      overwrite=True,
    )

  done = {p.path: p for p in run(1.0)}
  train, test = (
    next(p for path, p in done.items() if path.startswith(folder))
    for folder in ('parallel', 'test')
  )
  assert (train.lines, train.dropped) == (9, {'low margin': 1})
  assert (test.lines, test.dropped) == (1, {})
  text = (tmp_path / 'out' / train.path).read_text()
  assert text == ''.join(f'{a}\t{b}\n' for a, b in _PAIRS[:9])
  assert all(p.reused for p in run(1.0))
  assert not any(p.reused for p in run(0.5))


def test_shards_encode_only_their_own_pairs(corpus, tmp_path):
  """The encoder of the other shards returns an invalid result."""

  def run(shard, encode):
    return pipeline.preprocess_corpus(
      corpus,
      tmp_path / 'out',
      processing=TextProcessing(),
      margins=(_filter(), encode),
      shard=shard,
    )

  (train,) = run((1, 3), _encode)
  assert (train.lines, train.dropped) == (9, {'low margin': 1})
  for index in (0, 2):
    (other,) = run((index, 3), lambda texts, languages: None)
    assert not other.dropped
  assert all(p.reused for p in run(None, _encode))


@pytest.mark.parametrize('field', ['min_margin', 'num_neighbors', 'group_size'])
def test_invalid_settings_are_rejected(field):
  with raises_error(errors.ConfigError, mentions=field):
    _filter(**{field: 0})
