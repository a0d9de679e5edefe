"""Tests of reservoir sampling by one or several processes."""

import collections
import dataclasses

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import reservoir_sampling, text_sampling
from xlflax.utils import errors


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  directory = tmp_path_factory.mktemp('corpus')
  for code, count, compression in (('en', 500, ''), ('fr', 60, 'gz')):
    lines = [f'{code} {number}' for number in range(count)]
    corpus_writer.write_monolingual(
      directory, code, [lines], compression=compression
    )
  corpus_writer.write_parallel(
    directory, ('de', 'en'), [(f'd{i}', f'e{i}') for i in range(40)]
  )
  return Corpus(directory)


def _lines(drawn):
  return {
    code: reservoir.lines()[1] for code, reservoir in sorted(drawn.items())
  }


@pytest.mark.parametrize('count', [1, 2, 5])
def test_sample_does_not_depend_on_the_number_of_processes(
  corpus, tmp_path, monkeypatch, count
):
  """Spans of 1 kB divide each file among the processes."""
  monkeypatch.setattr(reservoir_sampling, '_SPAN_BYTES', 1000)
  expected = reservoir_sampling.draw_reservoirs(corpus, capacity=50, seed=3)
  origin = reservoir_sampling.Origin.from_corpus(corpus, capacity=50, seed=3)
  for index in range(count):
    shard = (index, count)
    reservoirs = reservoir_sampling.draw_reservoirs(
      corpus, capacity=50, seed=3, shard=shard
    )
    reservoir_sampling.write_reservoirs(tmp_path, shard, reservoirs, origin)
  loaded = reservoir_sampling.read_reservoirs(tmp_path, origin)
  assert _lines(loaded) == _lines(expected)
  counts = {code: part.count for code, part in loaded.items()}
  assert counts == text_sampling.count_sentences(corpus)
  assert {code: len(texts) for code, texts in _lines(loaded).items()} == {
    'de': 40,
    'en': 50,
    'fr': 50,
  }


def test_all_lines_have_the_same_probability(corpus):
  """Chi-square test over 400 seeds that sample 6 of 60 lines."""
  counts = collections.Counter()
  for seed in range(400):
    # The French file is the second of three.
    reservoirs = reservoir_sampling.draw_reservoirs(
      corpus, capacity=6, seed=seed, shard=(1, 3)
    )
    counts.update(_lines(reservoirs)['fr'])
  expected = 400 * 6 / 60
  frequencies = np.array([counts[f'fr {number}'] for number in range(60)])
  assert (
    (frequencies - expected) ** 2 / expected
  ).sum() < 99  # 59 degrees of freedom, 0.1%


def test_sample_sizes_equal_the_quotas(corpus):
  """Quotas below and above the number of lines; the latter repeat lines."""
  reservoirs = reservoir_sampling.draw_reservoirs(corpus, capacity=500, seed=0)
  quotas = {
    'fr': text_sampling.Quota(60, 150),
    'en': text_sampling.Quota(540, 20),
  }
  counts = collections.Counter(
    reservoir_sampling.sample_reservoirs(reservoirs, quotas)
  )
  french = [n for text, n in counts.items() if text.startswith('fr')]
  assert sorted(french) == [2] * 30 + [3] * 30
  assert sum(counts.values()) - sum(french) == 20


def test_missing_and_damaged_shards_are_rejected(corpus, tmp_path):
  origin = reservoir_sampling.Origin.from_corpus(corpus, capacity=9, seed=0)
  for index in (0, 2):
    reservoir_sampling.write_reservoirs(tmp_path, (index, 3), {}, origin)
  with raises_error(
    errors.CorpusError, got='shard-0-of-3.npz, shard-2-of-3.npz'
  ):
    reservoir_sampling.read_reservoirs(tmp_path, origin)
  reservoir_sampling.write_reservoirs(tmp_path, (1, 3), {}, origin)
  reservoir_sampling.read_reservoirs(tmp_path, origin)
  (tmp_path / 'shard-1-of-3.npz').write_bytes(b'PK')
  with raises_error(
    errors.CorpusError, where='shard-1-of-3.npz', mentions='allow_pickle='
  ):
    reservoir_sampling.read_reservoirs(tmp_path, origin)


@pytest.mark.parametrize(
  'changes, values',
  [
    ({'seed': 1}, '--seed=1'),
    ({'capacity': 8}, '--max_sentences=8'),
    (
      {'files': (('mono/en.txt', 3, 4),)},
      ('mono/en.txt', 'mono/fr.txt.gz', 'parallel/de-en.tsv'),
    ),
  ],
)
def test_shards_of_another_sample_are_rejected(
  corpus, tmp_path, changes, values
):
  """The shard has another seed, too few lines or other text."""
  origin = reservoir_sampling.Origin.from_corpus(corpus, capacity=9, seed=0)
  reservoir_sampling.write_reservoirs(tmp_path, (0, 2), {}, origin)
  reservoir_sampling.write_reservoirs(
    tmp_path, (1, 2), {}, dataclasses.replace(origin, **changes)
  )
  with raises_error(
    errors.CorpusError, mentions=values, where='shard-1-of-2.npz'
  ):
    reservoir_sampling.read_reservoirs(tmp_path, origin)


def test_larger_samples_can_be_reused(corpus, tmp_path):
  origin = reservoir_sampling.Origin.from_corpus(corpus, capacity=9, seed=0)
  reservoirs = reservoir_sampling.draw_reservoirs(corpus, capacity=9, seed=0)
  reservoir_sampling.write_reservoirs(tmp_path, (0, 1), reservoirs, origin)
  loaded = reservoir_sampling.read_reservoirs(
    tmp_path, dataclasses.replace(origin, capacity=5)
  )
  assert _lines(loaded) == _lines(
    reservoir_sampling.draw_reservoirs(corpus, capacity=5, seed=0)
  )
