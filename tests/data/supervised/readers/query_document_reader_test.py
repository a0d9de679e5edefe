"""Queries and documents from TSV and from JSON lines."""

import json

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import file_formats
from xlflax.utils import errors

_LINES = [['Who?', 'She.', 'Rain.', 'Snow.'], ['Why?', 'So.', 'No.', 'Oh.']]


def _texts(path, **options):
  found = file_formats.read_files('search', str(path), 'en', **options).examples
  assert {one.label for one in found} == {'query', 'document'}
  return [one.text for one in found]


@pytest.mark.parametrize('suffix', ['tsv', 'jsonl'])
def test_a_query_comes_with_its_documents(tmp_path, suffix):
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
def test_too_few_texts_are_refused(tmp_path, text):
  path = tmp_path / ('a.jsonl' if text[0] == '{' else 'a.tsv')
  path.write_text(text)
  with raises_error(errors.CorpusError, mentions=3):
    _texts(path, texts=3)
