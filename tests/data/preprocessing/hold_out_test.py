"""Tests of holding out documents for validation and test."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import SPLITS, Corpus
from xlflax.data.preprocessing import hold_out, pipeline
from xlflax.data.preprocessing.fuzzy_deduplication import Deduplication
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.utils import errors


def _documents(count, prefix='en'):
  return [
    [f'{prefix} {n} first.', f'{prefix} {n} second.'] for n in range(count)
  ]


def _preprocess(source, output, **options):
  options = {'processing': TextProcessing()} | options
  return pipeline.preprocess_corpus(Corpus(source), output, **options)


def _read(corpus, *languages):
  """Returns the documents or the pairs of each split."""
  result = {}
  for split in SPLITS:
    if len(languages) == 2:
      result[split] = list(corpus.parallel(*languages, split=split))
      continue
    documents = []
    for line in corpus.monolingual(*languages, split=split):
      if line.starts_document:
        documents.append([])
      documents[-1].append(line.text)
    result[split] = documents
  return result


def test_documents_are_divided_without_splitting_them(tmp_path):
  documents = _documents(20)
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', documents[:12], name='a'
  )
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', documents[12:], name='b', compression='gz'
  )
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=3)
  splits = _read(Corpus(tmp_path / 'out'), 'en')
  assert {name: len(texts) for name, texts in splits.items()} == {
    'train': 14,
    'validation': 3,
    'test': 3,
  }
  assert sorted(sum(splits.values(), [])) == sorted(documents)


@pytest.mark.parametrize(
  'files, unit, level',
  [
    ({'a': _documents(20)}, 'documents', 'INFO'),
    ({'a': [[f'en {n}' for n in range(20)]]}, 'lines', 'INFO'),
    (
      {'a': _documents(20), 'b': [[f'en {n}' for n in range(20)]]},
      'documents or lines',
      'WARNING',
    ),
  ],
)
def test_unit_and_number_of_lines_are_logged(
  tmp_path, caplog, files, unit, level
):
  caplog.set_level('INFO')
  for name, documents in files.items():
    corpus_writer.write_monolingual(tmp_path / 'in', 'en', documents, name=name)
  corpus = Corpus(tmp_path / 'in')
  divided = hold_out.hold_out_documents(corpus, 3)
  [record] = [r for r in caplog.records if 'en' in (r.args or ())]
  assert record.levelname == level
  number, logged_unit, language, splits = record.args
  assert (number, logged_unit, language) == ('3', unit, 'en')
  for split in ('validation', 'test'):
    num_lines = len(list(divided.monolingual('en', split=split)))
    assert_mentions(splits, split, num_lines)


def test_pairs_with_the_same_source_count_once(tmp_path):
  pairs = [(f'en {n % 10}', f'fr {n}') for n in range(20)]
  corpus_writer.write_parallel(tmp_path / 'in', ('en', 'fr'), pairs)
  corpus = hold_out.hold_out_documents(Corpus(tmp_path / 'in'), 3)
  for split in ('validation', 'test'):
    held_out = list(corpus.parallel('en', 'fr', split=split))
    assert len(held_out) == 6
    assert len({pair.source for pair in held_out}) == 3


def test_selection_does_not_depend_on_the_order(tmp_path):
  documents = _documents(20)
  results = []
  for name, ordered in ('a', documents), ('b', documents[::-1]):
    corpus_writer.write_monolingual(tmp_path / name, 'en', ordered)
    _preprocess(tmp_path / name, tmp_path / f'out-{name}', hold_out=3)
    results.append(_read(Corpus(tmp_path / f'out-{name}'), 'en'))
  first, second = results
  assert sorted(first['test']) == sorted(second['test'])
  assert first['test'] != sorted(documents)[:3]


def test_equal_documents_are_in_the_same_split(tmp_path):
  documents = _documents(10)
  repeated = documents + [[line.upper() for line in text] for text in documents]
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', repeated)
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  splits = _read(Corpus(tmp_path / 'out'), 'en')
  assert [len(splits[name]) for name in SPLITS] == [12, 4, 4]


def test_pairs_with_the_same_source_are_in_the_same_split(tmp_path):
  pairs = [(f'house {n}', f'Haus {n}') for n in range(10)]
  pairs += [(f'house {n}', f'Gebäude {n}') for n in range(10)]
  corpus_writer.write_parallel(tmp_path / 'in', ('en', 'de'), pairs)
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  splits = _read(Corpus(tmp_path / 'out'), 'en', 'de')
  assert [len(splits[name]) for name in SPLITS] == [12, 4, 4]
  sources = [{source for source, _ in splits[name]} for name in SPLITS]
  assert not (sources[0] & sources[1] or sources[0] & sources[2])


def test_lines_are_documents_in_files_without_blank_lines(tmp_path):
  lines = [f'line {n}' for n in range(10)]
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', [lines])
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  corpus = Corpus(tmp_path / 'out')
  assert [corpus.count('en', split=split) for split in SPLITS] == [6, 2, 2]


def test_existing_held_out_text_is_kept(tmp_path):
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', _documents(10))
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', [['Own test.']], split='test'
  )
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  splits = _read(Corpus(tmp_path / 'out'), 'en')
  assert splits['test'] == [['Own test.']]
  assert (len(splits['train']), len(splits['validation'])) == (8, 2)


def test_deduplication_treats_the_documents_as_held_out(tmp_path):
  """A training pair with a held-out sentence is dropped."""
  sentences = [f'sentence number {n}' for n in range(12)]
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', [[text] for text in sentences]
  )
  corpus_writer.write_parallel(
    tmp_path / 'in',
    ('en', 'de'),
    [(text, f'Satz {n}') for n, text in enumerate(sentences)],
  )
  _preprocess(
    tmp_path / 'in',
    tmp_path / 'out',
    hold_out=3,
    deduplication=Deduplication(mode='exact'),
  )
  corpus = Corpus(tmp_path / 'out')
  held_out = {
    line.text
    for split in ('validation', 'test')
    for line in corpus.monolingual('en', split)
  }
  assert len(held_out) == 6
  sources = {source for source, _ in corpus.parallel('en', 'de')}
  assert sources
  assert not held_out & sources


def test_too_few_documents_are_an_error(tmp_path):
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', _documents(4))
  with raises_error(errors.CorpusError, mentions=('4', '--hold_out')):
    _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)


def test_excluded_languages_are_not_divided(tmp_path):
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', _documents(10))
  corpus_writer.write_monolingual(tmp_path / 'in', 'de', _documents(1, 'de'))
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2, languages=['en'])
  assert Corpus(tmp_path / 'out').languages == ('en',)


def test_hold_out_is_recorded_and_output_is_reused(tmp_path):
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', _documents(10))
  _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  again = _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=2)
  assert all(prepared.reused for prepared in again)
  with raises_error(errors.CorpusError, mentions=('hold_out',)):
    _preprocess(tmp_path / 'in', tmp_path / 'out', hold_out=3)


@pytest.mark.parametrize('flag', ['--shard_index=0', '--hold_out=0'])
def test_incompatible_flags_are_rejected(tmp_path, flag):
  corpus_writer.write_monolingual(tmp_path / 'in', 'en', _documents(10))
  flags = ['--num_shards=2'] if 'shard' in flag else []
  command = ['preprocess', f'--corpus={tmp_path / "in"}', '--hold_out=2']
  assert cli.main([*command, f'--output={tmp_path / "o"}', flag, *flags]) == 2
