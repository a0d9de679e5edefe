"""Tests of file names and fingerprints of corpus directories."""

import os
import pathlib
import shutil

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_files import Kind
from xlflax.utils import errors


@pytest.mark.parametrize(
  'name, kind, languages',
  [
    ('en.txt', Kind.MONOLINGUAL, ('en',)),
    ('en.news.2020.txt.gz', Kind.MONOLINGUAL, ('en',)),
    ('zh_Hans.txt.zst', Kind.MONOLINGUAL, ('zh_Hans',)),
    ('de-en.tsv', Kind.PARALLEL, ('de', 'en')),
    ('gsw-sr_Latn_RS.part1.tsv.zst', Kind.PARALLEL, ('gsw', 'sr_Latn_RS')),
    ('de-en.tsv', Kind.DICTIONARY, ('de', 'en')),
  ],
)
def test_parse_name_returns_the_languages(name, kind, languages):
  parsed = corpus_files.parse_name(pathlib.Path('x') / name, kind, 'train')
  assert parsed.languages == languages


@pytest.mark.parametrize(
  'name, kind',
  [
    ('english.txt', Kind.MONOLINGUAL),
    ('en.txt.bz2', Kind.MONOLINGUAL),
    ('de-en.txt', Kind.MONOLINGUAL),
    ('de_en.tsv', Kind.PARALLEL),
    ('zh-Hans-en.tsv', Kind.PARALLEL),
    ('de-en.tsv.gz', Kind.DICTIONARY),
  ],
)
def test_unknown_names_are_rejected_with_valid_examples(name, kind):
  with pytest.raises(errors.CorpusError) as caught:
    corpus_files.parse_name(pathlib.Path('dir') / name, kind, 'train')
  message = str(caught.value)
  assert_mentions(message, name)
  assert_mentions(message, 'en', 'zh_Hans')
  assert_mentions(message, f'dir/{name}')


@pytest.mark.parametrize(
  'name, kind, converted',
  [
    ('en.csv', Kind.MONOLINGUAL, 'en.txt'),
    ('de-en.csv', Kind.PARALLEL, 'de-en.tsv'),
    ('de-en.part.csv.gz', Kind.PARALLEL, 'de-en.part.tsv'),
    ('de-en.csv', Kind.DICTIONARY, 'de-en.tsv'),
  ],
)
def test_csv_files_must_be_converted(name, kind, converted):
  with raises_error(
    errors.CorpusError, got=name, where=f'dir/{name}'
  ) as caught:
    corpus_files.parse_name(pathlib.Path('dir') / name, kind, 'train')
  assert_mentions(caught.value.fix, 'csv', f'dir/{converted}')


def test_pair_of_identical_languages_is_rejected():
  with raises_error(errors.CorpusError, got='en-en.tsv', where='en-en.tsv'):
    corpus_files.parse_name(pathlib.Path('en-en.tsv'), Kind.PARALLEL, 'train')


@pytest.mark.parametrize('size', [10, 4 << 20, 9 << 20])
def test_fingerprint_depends_on_content_and_not_on_time(tmp_path, size):
  path = tmp_path / 'en.txt'
  path.write_bytes(b'a' * size)
  os.utime(path, ns=(1, 1))
  before = corpus_files.fingerprint_file(path, tmp_path)
  shutil.copy(path, tmp_path / 'copy')
  (tmp_path / 'copy').replace(path)
  assert corpus_files.fingerprint_file(path, tmp_path) == before
  for offset in (0, size - 1):
    with path.open('r+b') as file:
      file.seek(offset)
      file.write(b'b')
    os.utime(path, ns=(1, 1))
    assert corpus_files.fingerprint_file(path, tmp_path) != before
    path.write_bytes(b'a' * size)
  assert corpus_files.fingerprint_file(path, tmp_path) == before


def test_fingerprint_contains_path_and_size(tmp_path):
  path = tmp_path / 'mono' / 'en.txt'
  path.parent.mkdir()
  path.write_text('a\n')
  before = corpus_files.fingerprint_file(path, tmp_path)
  assert (before.path, before.size) == ('mono/en.txt', 2)
  path.write_text('ab\n')
  assert corpus_files.fingerprint_file(path, tmp_path) != before
