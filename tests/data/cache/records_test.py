"""Tests that all record formats give the same token cache."""

import gzip
import pathlib

import pytest

from tests.data.cache import reading, writing
from tests.data.corpus import binary_records_test, record_reader_test
from xlflax.data.cache import cache_reader
from xlflax.data.corpus.corpus_directory import Corpus


def test_all_record_formats_give_the_same_shards(
  tmp_path, toy_corpus, toy_vocabulary
):
  documents: list[list[str]] = []
  for line in toy_corpus.monolingual('en'):
    if line.starts_document:
      documents.append([])
    documents[-1].append(line.text)
  texts = ['\n'.join(lines) for lines in documents]
  lines = '\n\n'.join(texts).encode()
  formats = {
    'txt': lambda rows: lines,
    'txt.gz': lambda rows: gzip.compress(lines),
  }
  shards, tokens = {}, {}
  writers = {
    **{name: _to_file(name, pack) for name, pack in formats.items()},
    **{name: _to_file(name, p) for name, p in record_reader_test.FORMS.items()},
    **binary_records_test.WRITERS,
  }
  for ending, write in writers.items():
    stem = tmp_path / ending / 'corpus/mono/en'
    stem.parent.mkdir(parents=True)
    try:
      write(stem, [{'text': text} for text in texts])
    except pytest.skip.Exception:  # library not installed
      continue
    cache = tmp_path / 'caches' / ending
    writing.write(cache, Corpus(stem.parents[1]), toy_vocabulary)
    tasks = cache_reader.TokenCache(cache).open('corpus.mono', 'train')
    [side] = tasks['corpus.mono.en'].sides
    tokens[ending] = reading.tokens(side).tolist()
    shards[ending] = _contents(cache)
  assert len(set(map(tuple, tokens.values()))) == 1
  plain = shards.pop('txt')  # sharded by bytes, the others by examples
  assert len(plain) > 1
  assert len(shards) >= 11
  assert len(set(map(tuple, shards.values()))) == 1


def _to_file(ending: str, pack):
  def write(stem: pathlib.Path, rows) -> None:
    stem.with_name(f'en.{ending}').write_bytes(pack(rows))

  return write


def _contents(cache: pathlib.Path) -> list[bytes]:
  """Returns the contents of the shards of a cache, ordered by name."""
  folder = cache / 'tasks/corpus.mono.en/train'
  return [
    path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and path.suffix != '.json' and '.lock' not in path.name
  ]
