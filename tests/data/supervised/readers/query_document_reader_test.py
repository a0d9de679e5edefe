"""Tests of the readers of queries and documents."""

import json

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import file_formats
from xlflax.utils import errors

_LINES = [['Who?', 'She.', 'Rain.', 'Snow.'], ['Why?', 'So.', 'No.', 'Oh.']]


def _texts(path, **options):
  labeled_texts = file_formats.read_files(
    'search', str(path), 'en', **options
  ).examples
  assert {example.label for example in labeled_texts} == {'query', 'document'}
  return [example.text for example in labeled_texts]


@pytest.mark.parametrize('suffix', ['tsv', 'jsonl'])
def test_queries_are_followed_by_their_documents(tmp_path, suffix):
  path = tmp_path / f'train.{suffix}'
  lines = ['\t'.join(line) for line in _LINES]
  if suffix == 'jsonl':
    lines = [
      json.dumps({'query': line[0], 'positive': line[1], 'negatives': line[2:]})
      for line in _LINES
    ]
  path.write_text('\n'.join(lines) + '\n')
  assert _texts(path) == ['Who?', 'She.', 'Why?', 'So.']
  assert _texts(path, texts=3) == [t for line in _LINES for t in line[:3]]
  prompts = {'query': 'ask: '}
  assert _texts(path, prompts=prompts)[:2] == ['ask: Who?', 'She.']


@pytest.mark.parametrize(
  'text', ['Who?\tShe.\n', 'Who?\t\tRain.\n', '{"anchor": "Who?"}\n']
)
def test_too_few_texts_are_rejected(tmp_path, text):
  path = tmp_path / ('a.jsonl' if text[0] == '{' else 'a.tsv')
  path.write_text(text)
  with raises_error(errors.CorpusError, mentions=3):
    _texts(path, texts=3)


def _pairs(path, part='en', **options):
  return file_formats.read_files(
    'reranking', str(path), part, **options
  ).examples


def test_reranking_groups_start_with_the_positive(tmp_path):
  path = tmp_path / 'train.tsv'
  path.write_text('\n'.join('\t'.join(line) for line in _LINES) + '\n')
  pairs = _pairs(path, 'sw-en', documents=3)
  assert [(pair.text, pair.paired_text, pair.score) for pair in pairs] == [
    ('Who?', 'She.', 1),
    ('Who?', 'Rain.', 0),
    ('Who?', 'Snow.', 0),
    ('Why?', 'So.', 1),
    ('Why?', 'No.', 0),
    ('Why?', 'Oh.', 0),
  ]
  assert {(pair.language, pair.paired_language) for pair in pairs} == {
    ('sw', 'en')
  }
  with raises_error(errors.CorpusError, where=f'{path}:1'):
    _pairs(path, documents=4)


def test_teacher_scores_are_read(tmp_path):
  path = tmp_path / 'train.jsonl'
  line = {'query': 'Who?', 'positive': 'She.', 'negatives': ['Rain.', 'Snow.']}
  path.write_text(json.dumps(line | {'scores': [9, -1.5, -3]}) + '\n')
  pairs = _pairs(path, scores=True)
  assert [pair.score for pair in pairs] == [9, -1.5]
  for scores in ([9], None, [9, 'high'], [9, float('nan')], {'0': 9}):
    path.write_text(json.dumps(line | {'scores': scores}) + '\n')
    with raises_error(errors.CorpusError, where=f'{path}:1'):
      _pairs(path, scores=True)
