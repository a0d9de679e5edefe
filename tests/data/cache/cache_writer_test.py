"""Tests of the content of token caches and of rejected settings."""

import fcntl
import json

import numpy as np
import pytest

from tests.data.cache import reading, writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader
from xlflax.data.corpus import corpus_directory
from xlflax.utils import errors


def test_cache_contains_the_encoded_lines(
  complete_cache, toy_corpus, toy_vocabulary
):
  directory, metas = complete_cache
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
  assert len(english.meta.shards) == 4  # shards of 2,048 bytes of plain text
  assert [
    len(tasks[f'corpus.mono.{code}'].meta.shards) for code in ('de', 'ru')
  ] == [8, 13]  # shards of 8 examples of compressed text
  [side] = english.sides
  assert reading.tokens(side).dtype == np.uint16
  assert reading.tokens(side).tolist() == sum(expected, [])
  assert reading.lengths(side).tolist() == [len(ids) - 1 for ids in expected]
  assert english.shards.starts_document().tolist() == [
    line.starts_document for line in lines
  ]
  assert not list(directory.rglob('*.end'))


def test_meta_has_statistics_and_fingerprint(
  complete_cache, toy_corpus, toy_vocabulary
):
  directory, metas = complete_cache
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


def test_mixture_rates_are_stored(complete_cache):
  rates = cache_reader.TokenCache(complete_cache[0]).rates(
    'corpus.mono', 'train'
  )
  assert rates['corpus.mono.en'] == pytest.approx(200**0.7)
  assert list(rates) == [f'corpus.mono.{code}' for code in ('de', 'en', 'ru')]


def test_content_does_not_depend_on_the_shard_size(tmp_path, toy_vocabulary):
  """Covers lines longer than shards, blank lines and a missing final newline."""
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


def test_examples_without_tokens_are_dropped(tmp_path, toy_vocabulary):
  """SentencePiece encodes U+200B, which is not white space, as no tokens."""
  corpus = writing.english(
    tmp_path / 'corpus', ['the cat', '\u200b', 'the dog']
  )
  [meta] = writing.write(
    tmp_path / 'cache', corpus, toy_vocabulary, shard_size=9
  )
  assert (meta.examples, meta.empty, meta.source_examples) == (2, 1, 3)


def test_task_without_tokens_is_an_error(tmp_path, toy_vocabulary):
  corpus = writing.english(tmp_path / 'corpus', ['\u200b'])
  with raises_error(errors.CorpusError, mentions=(1, 'corpus.mono.en')):
    writing.write(tmp_path / 'cache', corpus, toy_vocabulary)


def test_several_splits_are_written(tmp_path, toy_corpus, toy_vocabulary):
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


def test_unknown_mixture_is_rejected(tmp_path, toy_corpus, toy_vocabulary):
  with raises_error(errors.CorpusError, got='corpus.momo'):
    writing.write(
      tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.momo']
    )


def test_malformed_text_is_reported_with_its_line(tmp_path, toy_vocabulary):
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


def test_different_vocabulary_is_rejected(
  complete_cache, toy_corpus, toy_vocabulary
):
  before = writing.files(complete_cache[0])
  with raises_error(
    errors.CacheError, mentions=('ffffffffffff', toy_vocabulary.hash[:12])
  ):
    writing.write(
      complete_cache[0], toy_corpus, writing.OtherVocabulary(toy_vocabulary)
    )
  assert writing.files(complete_cache[0]) == before


def test_concurrent_writer_is_rejected(tmp_path, toy_corpus, toy_vocabulary):
  with open(tmp_path / '.lock', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(errors.CacheError) as error:
      writing.write(tmp_path, toy_corpus, toy_vocabulary)
  # The command may be retried, because the other writer may finish.
  assert error.value.status is errors.ExitStatus.FAILURE
