"""Evaluation texts are found in training text by runs of words."""

import json

import pytest

from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.corpus.directory import Corpus
from xlflax.data.preparation import decontamination, preparation
from xlflax.data.preparation.decontamination import Decontamination
from xlflax.data.preparation.text_processing import TextProcessing
from xlflax.foundation import errors

_SENTENCE = ' '.join(f'word{n}' for n in range(20))


def _corpus(root, lines, pairs=()) -> Corpus:
  corpus_writer.write_monolingual(root, 'en', [lines])
  if pairs:
    corpus_writer.write_parallel(root, ('en', 'zh'), pairs)
  return Corpus(root)


def _found(corpus, *files, **settings) -> dict[str, list[int]]:
  asked = Decontamination(files=[str(file) for file in files], **settings)
  found = decontamination.find(corpus, asked)
  return {path: lines.tolist() for path, lines in found.items()}


def test_runs_of_words_are_found_wherever_they_stand(tmp_path):
  words = _SENTENCE.split()
  lines = [
    'Before it: ' + ' '.join(words[3:16]).upper() + ', and after.',  # 13
    ' '.join(words[3:15]) + ' and then others',  # 12 in a row
    ' '.join(words[:12]) + ' x ' + ' '.join(words[12:]),
    _SENTENCE,
    'nothing of it',
  ]
  texts = tmp_path / 'test.txt'
  texts.write_text(_SENTENCE + '.\n')
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _found(corpus, texts) == {'mono/en.txt': [0, 3]}
  assert _found(corpus, texts, words=12) == {'mono/en.txt': [0, 1, 2, 3]}


def test_short_texts_count_as_a_whole(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text('The sea is calm.\n')
  lines = ['the sea is calm', 'the sea is calm today', 'sea is calm']
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _found(corpus, texts) == {'mono/en.txt': [0]}


def test_pairs_columns_records_and_characters(tmp_path):
  chinese = '今天下午我们在河边看见了三只白色的鸟'
  table = tmp_path / 'test.tsv'
  table.write_text(f'an English text of no importance\t{chinese}\n')
  records = tmp_path / 'test.jsonl'
  records.write_text(json.dumps({'text': _SENTENCE}) + '\n')
  pairs = [('one', f'他说{chinese[:13]}吗'), ('two', chinese[:12])]
  corpus = _corpus(tmp_path / 'corpus', ['a line', _SENTENCE], pairs)
  assert _found(corpus, table) == {'mono/en.txt': [], 'parallel/en-zh.tsv': [0]}
  assert _found(corpus, table, records)['mono/en.txt'] == [1]


def test_prepare_drops_them_and_goes_on_only_with_the_same_files(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text(_SENTENCE)
  corpus = _corpus(tmp_path / 'corpus', ['a line', _SENTENCE, 'another line'])

  def prepare():
    return preparation.prepare(
      corpus,
      tmp_path / 'out',
      processing=TextProcessing(),
      decontamination=Decontamination(files=[str(texts)]),
    )

  [done] = prepare()
  assert (done.lines, done.dropped) == (2, {'evaluation text': 1})
  assert [line.text for line in Corpus(tmp_path / 'out').monolingual('en')] == [
    'a line',
    'another line',
  ]
  texts.write_text('Others')
  with pytest.raises(errors.CorpusError, match='other settings'):
    prepare()


def test_files_without_words_are_refused(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text('\n')
  corpus = _corpus(tmp_path / 'corpus', ['a line'])
  with pytest.raises(errors.CorpusError, match='have no words'):
    _found(corpus, texts)
  with pytest.raises(errors.CorpusError, match='cannot be read'):
    _found(corpus, tmp_path / 'none.txt')
