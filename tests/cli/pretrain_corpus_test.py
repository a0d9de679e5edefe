"""Tests of the linked corpus of `xlflax pretrain`."""

import json
import subprocess

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.cli.pretrain_corpus import LinkedCorpus
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.utils import errors


@pytest.fixture
def folder(tmp_path):
  """Record files by language, in one directory and in one per language."""
  root = tmp_path / 'my text'
  (root / 'fr').mkdir(parents=True)
  record = json.dumps({'text': 'one'}) + '\n'
  (root / 'fr/state.json').write_text('{}')
  for name in ('en.jsonl', 'fr/1.jsonl', 'fr/2.jsonl'):
    (root / name).write_text(record)
  (root / 'en-fr.tsv').write_text('one\tun\n')
  (root / 'README.md').write_text('not text')
  return root


def test_record_folder_is_linked_as_a_corpus(folder, tmp_path):
  source = LinkedCorpus.find(str(folder), None, str(tmp_path / 'out'))
  assert source.directory == f'{tmp_path}/out/corpus'
  corpus = Corpus(source.link(source.directory))
  assert corpus.monolingual_languages() == ('en', 'fr')
  assert corpus.parallel_pairs() == (('en', 'fr'),)
  assert [p.name for p in corpus.text_files('fr')] == [
    'fr.1.jsonl',
    'fr.2.jsonl',
  ]


def test_shell_commands_create_the_same_links(folder, tmp_path):
  source = LinkedCorpus.find(str(folder), None, str(tmp_path / 'an output'))
  subprocess.run(['sh', '-ec', '\n'.join(source.shell_commands())], check=True)
  by_shell = {p: p.resolve() for p in _links(tmp_path / 'an output')}
  source.link(source.directory)
  assert by_shell == {p: p.resolve() for p in _links(tmp_path / 'an output')}
  assert len(by_shell) == 4


def _links(root):
  return [path for path in root.rglob('*') if path.is_symlink()]


def test_corpus_directory_is_restricted_to_languages(tmp_path):
  root = tmp_path / 'corpus'
  for name in (
    'mono/de',
    'mono/en',
    'mono/ru',
    'test/mono/de',
    'valid/mono/ru',
  ):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / f'{name}.txt').write_text('one\n')
  for name in ('de-en', 'en-ru'):
    (root / 'parallel').mkdir(exist_ok=True)
    (root / f'parallel/{name}.tsv').write_text('one\ttwo\n')
  corpus_path = str(root)
  linked_corpus = LinkedCorpus.find(corpus_path, None, f'{tmp_path}/out')
  assert (linked_corpus.directory, linked_corpus.links) == (corpus_path, {})
  assert linked_corpus.link('elsewhere') == corpus_path and not list(
    linked_corpus.shell_commands()
  )
  (tmp_path / 'links/mono').mkdir(parents=True)
  (tmp_path / 'links/mono/ru.txt').symlink_to(root / 'mono/ru.txt')
  some = LinkedCorpus.find(corpus_path, 'en,de', f'{tmp_path}/out')
  corpus = Corpus(some.link(str(tmp_path / 'links')))
  assert corpus.languages == ('de', 'en')
  assert corpus.parallel_pairs() == (('de', 'en'),)
  assert corpus.splits('de') == ('train', 'test')
  with raises_error(errors.CorpusError, got='ger', where=corpus_path) as caught:
    LinkedCorpus.find(corpus_path, 'en,ger', f'{tmp_path}/out')
  assert_mentions(caught.value.fix, 'de')


def test_corpus_toml_is_linked(folder, tmp_path):
  (folder / 'corpus.toml').write_text("[[records]]\ntext = 'title'\n")
  source = LinkedCorpus.find(str(folder), 'en', f'{tmp_path}/out')
  assert sorted(source.links) == ['corpus.toml', 'mono/en.jsonl']


def test_existing_text_is_not_replaced_by_links(tmp_path):
  """Covers the directory of the text itself and that of another project."""
  for root, text in (
    (tmp_path / 'corpus', tmp_path / 'corpus'),
    (tmp_path / 'other/corpus', tmp_path / 'text'),
  ):
    for folder in (root, text):
      folder.mkdir(parents=True, exist_ok=True)
      (folder / 'en.txt').write_text('one\n')
      (folder / 'de.txt').write_text('eins\n')
    for languages in (None, 'en'):
      with raises_error(errors.RunDirectoryError, got=root / 'de.txt'):
        LinkedCorpus.find(str(text), languages, str(root.parent))
    assert (root / 'de.txt').read_text() == 'eins\n'


def test_nested_files_of_a_language_are_linked(tmp_path):
  names = ('de/train/0.txt', 'de/train/1.txt', 'de/more', 'de/.cache/x.txt')
  for name in names:
    (tmp_path / 'f' / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / 'f' / name).write_text('eins\n')
  (tmp_path / 'f/de/more').rename(tmp_path / 'f/de/more.txt')
  source = LinkedCorpus.find(str(tmp_path / 'f'), None, str(tmp_path / 'out'))
  assert list(source.links) == [
    'mono/de.more.txt',
    'mono/de.train.0.txt',
    'mono/de.train.1.txt',
  ]
  (tmp_path / 'f/de.more.txt').write_text('zwei\n')
  names = (tmp_path / 'f/de.more.txt', tmp_path / 'f/de/more.txt')
  with raises_error(errors.CorpusError, mentions=names):
    LinkedCorpus.find(str(tmp_path / 'f'), None, str(tmp_path / 'out'))
