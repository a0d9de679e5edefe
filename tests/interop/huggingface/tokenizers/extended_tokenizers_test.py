"""Extended tokenizers have the same token ids in transformers."""

import json

import pytest
import transformers

from tests.interop.huggingface import reference_tokenizers
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import vocabulary_extension, vocabulary_training
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.interop.huggingface.tokenizers import (
  sentencepiece_files,
  tokenizer_reader,
)
from xlflax.interop.huggingface.verification import tokenizer_checks
from xlflax.storage import checksums

# Tigrinya: Universal Declaration of Human Rights, article 1.
_TIGRINYA = [
  'ብመንፅር ክብርን መሰልን ኩሎም ሰባት እንትውለዱ ነፃን ማዕሪን እዮም።',
  'ምስትውዓልን ሕልናን ዝተዓደሎም ብምዃኑ ንሕድሕዶም ብሕውነታዊ መንፈስ ክተሓላለዩ ኦለዎም።',
] * 3
_TEXTS = (
  *tokenizer_checks.DIFFICULT_TEXTS,
  *_TIGRINYA,
  *reference_tokenizers.LINES,
  'ሰባት seven ሰባት, ሕልናን! 1ክብርን',
)


@pytest.fixture
def corpus(tmp_path):
  directory = tmp_path / 'corpus'
  corpus_writer.write_monolingual(directory, 'ti', [_TIGRINYA])
  corpus_writer.write_monolingual(directory, 'en', [reference_tokenizers.LINES])
  return Corpus(directory)


def _write_imported(folder, directory, model_type):
  """Imports the tokenizer of a folder as a vocabulary."""
  vocabulary = tokenizer_reader.read_tokenizer(
    folder, model_type=model_type, size=None, languages=('en',)
  )
  names = tokenizer_reader.tokenizer_file_names(folder)
  description = vocabulary.describe() | {
    'tokenizer_files': {
      name: checksums.digest_file(folder / name) for name in names
    }
  }
  vocabulary_training.write_vocabulary(vocabulary, description, directory)
  for name in names:
    (directory / name).write_bytes((folder / name).read_bytes())
  return Vocabulary.load(directory)


def _assert_same_ids(folder, vocabulary, base):
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  assert len(tokenizer) == len(vocabulary)
  for text in _TEXTS:
    if '▁' not in text:
      ids = tokenizer.encode(text, add_special_tokens=False)
      assert ids == vocabulary.encode(text), text
  if base.spec.bos_id != base.spec.pad_id:  # T5 has no mask token.
    assert tokenizer.mask_token_id == base.spec.mask_id
  assert tokenizer.pad_token_id == base.spec.pad_id
  for text in reference_tokenizers.LINES:
    assert vocabulary.encode(text) == base.encode(text)
  for text in _TIGRINYA:
    assert vocabulary.spec.unk_id not in vocabulary.encode(text)


@pytest.mark.parametrize(
  ('kind', 'model_type'),
  [
    ('bert', 'bert'),
    ('roberta', 'roberta'),
    ('xlmr', 'xlm-roberta'),
    ('mt5', 'mt5'),
  ],
)
@pytest.mark.parametrize('has_tokenizer_json', [False, True])
def test_extended_imported_tokenizers_equal_transformers(
  kind, model_type, has_tokenizer_json, corpus, tmp_path
):
  folder = tmp_path / 'folder'
  folder.mkdir()
  reference = getattr(reference_tokenizers, kind)(folder)
  if has_tokenizer_json:
    folder = tmp_path / 'saved'
    reference.save_pretrained(folder)
  base = _write_imported(folder, tmp_path / 'base', model_type)
  status = cli.main(
    [
      'vocab',
      f'--extend={tmp_path / "base"}',
      f'--corpus={corpus}',
      f'--output={tmp_path / "extended"}',
      '--size=+60',
    ]
  )
  assert status == 0
  extended = Vocabulary.load(tmp_path / 'extended')
  assert extended.spec.languages == ('en', 'ti')
  _assert_same_ids(tmp_path / 'extended', extended, base)
  before, after = (
    sum(map(len, vocabulary.encode_batch(_TIGRINYA)))
    for vocabulary in (base, extended)
  )
  assert kind != 'roberta' or after < 0.5 * before


@pytest.mark.parametrize('model_type', ['unigram', 'bpe'])
@pytest.mark.parametrize('byte_fallback', [False, True])
def test_extended_sentencepiece_models_equal_transformers(
  model_type, byte_fallback, corpus, tmp_path
):
  corpus_writer.write_monolingual(
    tmp_path / 'old', 'en', [reference_tokenizers.LINES]
  )
  base = vocabulary_training.train_vocabulary(
    Corpus(tmp_path / 'old'),
    tmp_path / 'base',
    size=140 + 256 * byte_fallback,
    model_type=model_type,
    byte_fallback=byte_fallback,
  )
  extended = vocabulary_extension.extend_vocabulary(
    base, corpus, tmp_path / 'extended', size=60
  )
  folder = tmp_path / 'folder'
  folder.mkdir()
  converted = sentencepiece_files.convert_sentencepiece(extended)
  for name, content in converted.items():
    (folder / name).write_bytes(content)
  _assert_same_ids(folder, extended, base)
  assert not tokenizer_checks.check_tokenizer(extended, folder, texts=_TEXTS)
  special = json.loads((folder / 'tokenizer.json').read_text())['added_tokens']
  assert '<lang:ti>' in {token['content'] for token in special}
