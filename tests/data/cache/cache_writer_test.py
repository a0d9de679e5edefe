"""Content of written token caches, and rejected settings."""

import fcntl
import json

import numpy as np
import pytest

from tests.data.cache import reading, writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader
from xlflax.data.corpus import corpus_directory
from xlflax.utils import errors


def test_content(written, toy_corpus, toy_vocabulary):
  directory, metas = written
  assert [meta.task for meta in metas] == [
    'corpus.mono.de',
    'corpus.mono.en',
    'corpus.mono.ru',
    'corpus.parallel.de_en',
  ]
  tasks = cache_reader.TokenCache(directory).open('corpus.mono', 'train')
  english = tasks['corpus.mono.en']
  lines = list(toy_corpus.monolingual('en'))
  eos = toy_vocabulary.spec.eos_id
  expected = [[*toy_vocabulary.encode(line.text), eos] for line in lines]
  assert len(english.meta.shards) == 4  # plain text: of 2048 bytes
  assert [
    len(tasks[f'corpus.mono.{code}'].meta.shards) for code in ('de', 'ru')
  ] == [8, 13]  # compressed: of 8 examples
  [side] = english.sides
  assert reading.tokens(side).dtype == np.uint16
  assert reading.tokens(side).tolist() == sum(expected, [])
  assert reading.lengths(side).tolist() == [len(ids) - 1 for ids in expected]
  assert english.shards.starts_document().tolist() == [
    line.starts_document for line in lines
  ]
  assert not list(directory.rglob('*.end'))


def test_meta_has_statistics_and_fingerprint(
  written, toy_corpus, toy_vocabulary
):
  directory, metas = written
  meta = json.loads(
    (
      directory
      / 'tasks'
      / 'corpus.parallel.de_en'
      / 'train'
      / 'generation-1.json'
    ).read_text()
  )
  tokens = [
    sum(len(toy_vocabulary.encode(side)) for side in sides)
    for sides in zip(*toy_corpus.parallel('de', 'en'), strict=True)
  ]
  assert [side['tokens'] for side in meta['statistics']] == tokens
  first = meta['statistics'][0]
  assert first['language'] == 'de' and first['sentences'] == 50
  assert first['tokens_per_sentence'] == tokens[0] / 50
  assert first['unknown_rate'] == first['unknown'] / tokens[0]
  assert meta['vocabulary'] == toy_vocabulary.hash
  [file] = meta['fingerprint']['files']
  assert file[0] == 'parallel/de-en.tsv'
  assert metas[3].languages == ('de', 'en') and metas[3].examples == 50


def test_mixture_rates_are_stored(written):
  rates = cache_reader.TokenCache(written[0]).rates('corpus.mono', 'train')
  assert rates['corpus.mono.en'] == pytest.approx(200**0.7)
  assert list(rates) == [f'corpus.mono.{code}' for code in ('de', 'en', 'ru')]


def test_spans_of_any_size_hold_the_same_text(tmp_path, toy_vocabulary):
  """Lines longer than shards, blank ones at borders, no line feed at the end."""
  text = 'the cat\n\nthe dog sees a bird and a cat\n  \n\na child\nthe end'
  path = tmp_path / 'corpus/mono/en.txt'
  path.parent.mkdir(parents=True)
  path.write_bytes(b'\xef\xbb\xbf' + text.encode())
  corpus = corpus_directory.Corpus(tmp_path / 'corpus')
  expected = [
    (toy_vocabulary.encode(line.text), line.starts_document)
    for line in corpus.monolingual('en')
  ]
  for size in (1, 2, 3, 5, 8, 13, 64, 1000):
    cache = tmp_path / f'cache{size}'
    writing.write(cache, corpus, toy_vocabulary, shard_size=size)
    [task] = (
      cache_reader.TokenCache(cache).open('corpus.mono', 'train').values()
    )
    [side] = task.sides
    starts, stops = side.bounds(np.arange(len(expected)))
    texts = [ids.tolist() for ids in side.slices(starts, stops)]
    borders = task.shards.starts_document().tolist()
    assert list(zip(texts, borders, strict=True)) == expected
    across = side.slices(np.array([1]), np.array([side.num_tokens - 1]))
    assert across[0].tolist() == reading.tokens(side)[1:-1].tolist()


def test_empty_tokenisations_are_left_out(tmp_path, toy_vocabulary):
  """U+200B is no white space to the corpus, but nothing to SentencePiece."""
  corpus = writing.english(
    tmp_path / 'corpus', ['the cat', '\u200b', 'the dog']
  )
  [meta] = writing.write(
    tmp_path / 'cache', corpus, toy_vocabulary, shard_size=9
  )
  assert (meta.examples, meta.empty, meta.source_examples) == (2, 1, 3)


def test_a_task_without_any_token(tmp_path, toy_vocabulary):
  corpus = writing.english(tmp_path / 'corpus', ['\u200b'])
  with raises_error(errors.CorpusError, mentions=(1, 'corpus.mono.en')):
    writing.write(tmp_path / 'cache', corpus, toy_vocabulary)


def test_splits(tmp_path, toy_corpus, toy_vocabulary):
  metas = writing.write(
    tmp_path,
    toy_corpus,
    toy_vocabulary,
    mixtures=['corpus.mono'],
    splits=['validation', 'train'],
  )
  assert {(meta.task[-2:], meta.split, meta.examples) for meta in metas} == {
    ('de', 'train', 60),
    ('en', 'train', 200),
    ('ru', 'train', 100),
    ('de', 'validation', 20),
    ('en', 'validation', 20),
    ('ru', 'validation', 20),
  }
  with raises_error(errors.CacheError, got='test', mentions='corpus.mono'):
    cache_reader.TokenCache(tmp_path).rates('corpus.mono', 'test')


def test_unknown_mixture(tmp_path, toy_corpus, toy_vocabulary):
  with raises_error(errors.CorpusError, got='corpus.momo'):
    writing.write(
      tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.momo']
    )


def test_malformed_text_names_its_line(tmp_path, toy_vocabulary):
  writing.english(tmp_path / 'corpus', ['the cat'])
  path = tmp_path / 'corpus/parallel/de-en.tsv'
  path.parent.mkdir()
  path.write_text('eins\tone\nzwei\n')
  with raises_error(
    errors.CorpusError, where='de-en.tsv:2', mentions=('zwei', 1)
  ):
    writing.write(
      tmp_path / 'cache',
      corpus_directory.Corpus(tmp_path / 'corpus'),
      toy_vocabulary,
      mixtures=['corpus.parallel'],
    )


def test_another_vocabulary_is_refused(written, toy_corpus, toy_vocabulary):
  before = writing.files(written[0])
  with raises_error(
    errors.CacheError, mentions=('ffffffffffff', toy_vocabulary.hash[:12])
  ):
    writing.write(
      written[0], toy_corpus, writing.OtherVocabulary(toy_vocabulary)
    )
  assert writing.files(written[0]) == before


def test_a_second_writer_is_refused(tmp_path, toy_corpus, toy_vocabulary):
  with open(tmp_path / '.lock', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(errors.CacheError) as error:
      writing.write(tmp_path, toy_corpus, toy_vocabulary)
  assert error.value.status is errors.ExitStatus.FAILURE  # it may end
