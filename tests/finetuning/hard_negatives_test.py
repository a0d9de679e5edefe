"""Tests of hard negative mining."""

import json
import types

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.supervised.readers import query_document_reader
from xlflax.finetuning import hard_negatives
from xlflax.utils import errors


def _at(*degrees):
  angles = np.radians(degrees)
  return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


# Cosines with the query at 0: 0.94 (its document), 0.98, 0.87, 0.5, 0.
_DOCUMENTS = _at(20, 10, 30, 60, 90)


@pytest.mark.parametrize(
  'settings, expected',
  [
    ({}, [2]),
    ({'max_score_ratio': 1.0, 'num_negatives': 2}, [2, 3]),
    ({'max_score_ratio': 0.6}, [3]),
    ({'range_min': 3}, [3]),
    ({'range_max': 2}, []),
  ],
)
def test_documents_above_the_score_ratio_are_not_negatives(settings, expected):
  (negatives,) = hard_negatives.select_negatives(
    _at(0),
    _DOCUMENTS,
    np.array([[0, 0]]),
    mining=hard_negatives.Mining(**settings),
  )
  assert negatives.tolist() == expected


def test_positives_of_a_query_are_not_negatives():
  (negatives,) = hard_negatives.select_negatives(
    _at(0), _DOCUMENTS, np.array([[0, 0], [0, 2]])
  )
  assert negatives.tolist() == [3]


class _Run:
  vocabulary = types.SimpleNamespace(
    spec=types.SimpleNamespace(languages=('en',))
  )
  places = {'q': 0, 'r': 85, 'own': 20, 'near': 30, 'far': 80}

  def encode(self, texts, **settings):
    assert settings['prompt_name'] in ('query', 'document')
    return _at(*(self.places[text] for text in texts))


def test_mined_triples_are_read_by_fine_tuning(tmp_path):
  pairs, output = tmp_path / 'pairs.tsv', tmp_path / 'triples.jsonl'
  pairs.write_text('q\town\nr\tfar\nq\tnear\n')
  counts = hard_negatives.mine_hard_negatives(
    _Run(), pairs=str(pairs), output=str(output), language='en'
  )
  assert counts == (3, 0)
  first = json.loads(output.read_text().splitlines()[0])
  assert first == {'query': 'q', 'positive': 'own', 'negatives': ['far']}
  read = query_document_reader.read_query_documents(
    str(output), 'en', texts=3
  ).examples
  assert [example.text for example in read[3:6]] == ['r', 'far', 'near']


def test_too_few_documents_are_rejected(tmp_path):
  (tmp_path / 'pairs.tsv').write_text('q\town\n')
  with raises_error(errors.CorpusError, where='pairs.tsv', mentions=1):
    hard_negatives.mine_hard_negatives(
      _Run(),
      pairs=str(tmp_path / 'pairs.tsv'),
      output=str(tmp_path / 'out.jsonl'),
      language='en',
    )
