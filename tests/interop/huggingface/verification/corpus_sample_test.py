"""Verification of exported tokenizers on the training corpus."""

import pytest

from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.interop.huggingface.tokenizers import sentencepiece_files
from xlflax.interop.huggingface.verification import (
  corpus_sample,
  tokenizer_checks,
)
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']


def _write_trainer(directory, corpus):
  run_directory.write_run_file(
    directory, run_directory.TRAINER, {'fields': {'corpus': corpus}}
  )


def test_sample_contains_each_language_and_pair(tmp_path):
  corpus = tmp_path / 'corpus'
  for name, text in (
    ('mono/de.txt', 'eins\n\nzwei\n' + 'x\n' * 100),
    ('mono/en.txt', 'y' * 5000 + '\n'),
    ('parallel/de-en.tsv', 'Hund\tdog\n'),
  ):
    (corpus / name).parent.mkdir(parents=True, exist_ok=True)
    (corpus / name).write_text(text)
  # The run has no trainer file.
  assert corpus_sample.sample_texts(tmp_path) == ([], [])
  _write_trainer(tmp_path, str(corpus))
  texts, notes = corpus_sample.sample_texts(tmp_path)
  assert notes == [] and texts[:2] == ['eins', 'zwei']
  assert len(texts) == 50 + 1 + 2 and texts[-2:] == ['Hund', 'dog']
  assert max(map(len, texts)) == 1000


@pytest.mark.parametrize('corpus', [None, 'missing'])
def test_missing_corpus_adds_a_note(tmp_path, corpus):
  _write_trainer(tmp_path, corpus)
  texts, notes = corpus_sample.sample_texts(tmp_path)
  assert texts == [] and len(notes) == 1


def test_different_token_ids_of_the_sample_are_rejected(
  vocabulary, tmp_path, monkeypatch
):
  for name, content in sentencepiece_files.convert_sentencepiece(
    vocabulary
  ).items():
    (tmp_path / name).write_bytes(content)
  assert (
    tokenizer_checks.check_tokenizer(vocabulary, tmp_path, texts=['Hund']) == []
  )
  encode = vocabulary.encode
  monkeypatch.setattr(
    vocabulary, 'encode', lambda text: encode(text.replace('Hund', 'Katze'))
  )
  with pytest.raises(errors.VocabularyError, match='Hund'):
    tokenizer_checks.check_tokenizer(vocabulary, tmp_path, texts=['Hund'])
