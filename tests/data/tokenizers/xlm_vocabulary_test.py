"""Compares the XLM vocabulary with the reference tokenizer."""

import json
import pathlib
import pickle

import pytest
import transformers

from tests.errors import raises_error
from tests.interop.huggingface.reference_tokenizers import LINES
from tests.interop.huggingface.tokenizers.tokenizer_reader_test import (
  EDGE_CASES,
)
from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.interop.huggingface.tokenizers import tokenizer_reader as importer
from xlflax.utils import errors

# Optional folder of texts next to the repository.
_UDHR = pathlib.Path(__file__).parents[4] / 'shared/data/udhr'
_MERGES = (
  't h',
  'th e</w>',
  'a t</w>',
  'e n</w>',
  'i n',
  'e r',
  'ma n',
  'm a',
  'c h</w>',
  'о т',
  'th er',
  'n d</w>',
  'in g</w>',
)


@pytest.fixture(params=[True, False], ids=['lower', 'cased'])
def folder(request, tmp_path):
  characters = sorted(set(''.join(LINES[:8])) - {' '})
  pieces = [
    '<s>',
    '</s>',
    '<pad>',
    '<unk>',
    *(f'<special{i}>' for i in range(10)),
    *characters,
    *(c + '</w>' for c in characters),
    *(m.replace(' ', '') for m in _MERGES if m != 'ma n'),
  ]
  pieces = list(dict.fromkeys(pieces))
  (tmp_path / 'vocab.json').write_text(
    json.dumps({piece: i for i, piece in enumerate(pieces)})
  )
  (tmp_path / 'merges.txt').write_text('\n'.join(_MERGES) + '\n')
  (tmp_path / 'tokenizer_config.json').write_text(
    json.dumps(
      {
        'do_lowercase_and_remove_accent': request.param,
        'cls_token': '</s>',
        'bos_token': '<s>',
      }
    )
  )
  return tmp_path


def _read(folder):
  return importer.read_tokenizer(
    folder,
    model_type='xlm',
    size=None,
    languages=('en', 'de', 'ro', 'zh', 'ru'),
  )


def _reference(folder):
  return transformers.XLMTokenizer.from_pretrained(folder)


@pytest.mark.parametrize('language', ['en', 'de', 'ro', 'ru', 'fr'])
def test_ids_equal_those_of_the_reference(folder, language):
  reference, vocabulary = _reference(folder), _read(folder)
  texts = LINES[:11] + EDGE_CASES + ['Şi ţară în fâşie. Ătta ２３％！「x」…']
  for text in texts:
    expected = [
      reference.convert_tokens_to_ids(token)
      for token in reference._tokenize(text, lang=language)
    ]
    assert vocabulary.encode(text, language=language) == expected, text
  text = 'the other man at the river'
  assert vocabulary.decode(vocabulary.encode(text)) == text


def test_special_ids_equal_those_of_the_reference(folder):
  reference, spec = _reference(folder), _read(folder).spec
  assert (spec.bos_id, spec.eos_id, spec.pad_id, spec.unk_id, spec.mask_id) == (
    reference.bos_token_id,
    reference.sep_token_id,
    reference.pad_token_id,
    reference.unk_token_id,
    reference.mask_token_id,
  )
  assert spec.size == len(reference)
  assert spec.special_ids == tuple(range(14))


def test_vocabulary_round_trips_through_disk(folder, tmp_path):
  vocabulary = _read(folder)
  vocabulary_training.write_vocabulary(
    vocabulary, vocabulary.describe(), tmp_path / 'made'
  )
  loaded = base_vocabulary.Vocabulary.load(tmp_path / 'made')
  again = pickle.loads(pickle.dumps(loaded))
  assert loaded == vocabulary == again
  for text in LINES[:5]:
    assert (
      loaded.encode(text, language='de')
      == vocabulary.encode(text, language='de')
      == again.encode(text, language='de')
    )
  assert loaded.encode_each(['die Tür', 'the door'], [1, 0]) == [
    vocabulary.encode('die Tür', language='de'),
    vocabulary.encode('the door', language='en'),
  ]
  (tmp_path / 'made/merges.txt').write_text('a b\n')
  with raises_error(errors.VocabularyError, where='made'):
    base_vocabulary.Vocabulary.load(tmp_path / 'made')


def test_ids_of_many_scripts_equal_those_of_the_reference(folder):
  if not _UDHR.is_dir():
    pytest.skip('no folder of texts next to the project')
  reference, vocabulary = _reference(folder), _read(folder)
  for path in sorted(_UDHR.glob('*.txt'))[::8]:
    lines = path.read_text(encoding='utf-8', errors='replace').splitlines()
    for line in lines[:12]:
      assert vocabulary.encode(line, language='en') == [
        reference.convert_tokens_to_ids(token)
        for token in reference._tokenize(line)
      ], (path.name, line)
