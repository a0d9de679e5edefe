"""Where the text of a pretraining lies, and the commands on it."""

import argparse
import json
import shlex
import subprocess

import pytest

from xlflax.commands.pretrain import choices, stages
from xlflax.data.corpus.directory import Corpus
from xlflax.foundation import errors

_CHOICE = choices.Choice(
  told='#',
  entries=500,
  gin_files=['pretrain/mlm.gin', 'recipes/small.gin'],
  steps=9,
  tasks='perplexity',
  split='validation',
)


@pytest.fixture
def folder(tmp_path):
  """Files of records by language, in a folder and in folders of its own."""
  root = tmp_path / 'my text'
  (root / 'fr').mkdir(parents=True)
  record = json.dumps({'text': 'one'}) + '\n'
  (root / 'fr/state.json').write_text('{}')
  for name in ('en.jsonl', 'fr/1.jsonl', 'fr/2.jsonl'):
    (root / name).write_text(record)
  (root / 'en-fr.tsv').write_text('one\tun\n')
  (root / 'README.md').write_text('not text')
  return root


def test_a_folder_becomes_a_corpus(folder, tmp_path):
  source = stages.Source.of(str(folder), None, str(tmp_path / 'out'))
  assert source.directory == f'{tmp_path}/out/corpus'
  corpus = Corpus(source.link(source.directory))
  assert corpus.monolingual_languages() == ('en', 'fr')
  assert corpus.parallel_pairs() == (('en', 'fr'),)
  assert [p.name for p in corpus.text_files('fr')] == [
    'fr.1.jsonl',
    'fr.2.jsonl',
  ]


def test_shell_commands_make_the_same_links(folder, tmp_path):
  source = stages.Source.of(str(folder), None, str(tmp_path / 'an output'))
  subprocess.run(['sh', '-ec', '\n'.join(source.shell())], check=True)
  by_shell = {p: p.resolve() for p in _links(tmp_path / 'an output')}
  source.link(source.directory)
  assert by_shell == {p: p.resolve() for p in _links(tmp_path / 'an output')}
  assert len(by_shell) == 4


def _links(root):
  return [path for path in root.rglob('*') if path.is_symlink()]


def test_languages_of_a_corpus_directory(tmp_path):
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
  given = str(root)
  whole = stages.Source.of(given, None, f'{tmp_path}/out')
  assert (whole.directory, whole.links) == (given, {})
  assert whole.link('elsewhere') == given and not list(whole.shell())
  (tmp_path / 'links/mono').mkdir(parents=True)
  (tmp_path / 'links/mono/ru.txt').symlink_to(root / 'mono/ru.txt')
  some = stages.Source.of(given, 'en,de', f'{tmp_path}/out')
  corpus = Corpus(some.link(str(tmp_path / 'links')))
  assert corpus.languages == ('de', 'en')
  assert corpus.parallel_pairs() == (('de', 'en'),)
  assert corpus.splits('de') == ('train', 'test')
  with pytest.raises(errors.CorpusError, match='no text of a language') as told:
    stages.Source.of(given, 'en,ger', f'{tmp_path}/out')
  assert 'did you mean de' in str(told.value)


def test_a_description_is_linked(folder, tmp_path):
  (folder / 'corpus.toml').write_text("[[records]]\ntext = 'title'\n")
  source = stages.Source.of(str(folder), 'en', f'{tmp_path}/out')
  assert sorted(source.links) == ['corpus.toml', 'mono/en.jsonl']


def test_commands(tmp_path):
  args = argparse.Namespace(
    output='out',
    gin_file=['my.gin'],
    gin_search_paths=['a'],
    gin_bindings=["NAME='x y'"],
    preemption_exit_code=75,
  )
  source = stages.Source('corpus', {})
  assert list(map(shlex.join, stages.commands(args, source, _CHOICE))) == [
    'xlflax vocab --corpus=corpus --output=out/vocabulary --size=500',
    'xlflax cache --corpus=corpus --vocabulary=out/vocabulary '
    '--output=out/cache',
    'xlflax train --gin_file=pretrain/mlm.gin --gin_file=recipes/small.gin '
    '--gin_file=my.gin --gin_search_paths=a --corpus=corpus '
    '--vocabulary=out/vocabulary --cache=out/cache --model_dir=out/model '
    '--gin.TRAIN_STEPS=9 '
    + shlex.quote("--gin.NAME='x y'")
    + ' --preemption_exit_code=75',
    'xlflax evaluate --model_dir=out/model --corpus=corpus '
    '--tasks=perplexity --split=validation --random_init_baseline',
  ]
  args.preemption_exit_code = 0
  choice = _CHOICE._replace(tasks='')
  made = stages.commands(args, source, choice)
  assert [words[1] for words in made] == ['vocab', 'cache', 'train']
  assert '--preemption_exit_code' not in shlex.join(made[2])


def test_training_that_stopped_is_not_done(tmp_path):
  assert stages.is_done(['xlflax', 'cache'], str(tmp_path))
  assert not stages.is_done(['xlflax', 'train'], str(tmp_path))


def test_text_where_the_links_would_be_is_not_lost(tmp_path):
  """The folder of the text itself, and one of another project."""
  for root, given in (
    (tmp_path / 'corpus', tmp_path / 'corpus'),
    (tmp_path / 'other/corpus', tmp_path / 'text'),
  ):
    for folder in (root, given):
      folder.mkdir(parents=True, exist_ok=True)
      (folder / 'en.txt').write_text('one\n')
      (folder / 'de.txt').write_text('eins\n')
    for languages in (None, 'en'):
      with pytest.raises(errors.RunDirectoryError, match='files of its own'):
        stages.Source.of(str(given), languages, str(root.parent))
    assert (root / 'de.txt').read_text() == 'eins\n'


def test_files_in_folders_below_a_language(tmp_path):
  names = ('de/train/0.txt', 'de/train/1.txt', 'de/more', 'de/.cache/x.txt')
  for name in names:
    (tmp_path / 'f' / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / 'f' / name).write_text('eins\n')
  (tmp_path / 'f/de/more').rename(tmp_path / 'f/de/more.txt')
  source = stages.Source.of(str(tmp_path / 'f'), None, str(tmp_path / 'out'))
  assert list(source.links) == [
    'mono/de.more.txt',
    'mono/de.train.0.txt',
    'mono/de.train.1.txt',
  ]
  (tmp_path / 'f/de.more.txt').write_text('zwei\n')
  with pytest.raises(errors.CorpusError, match='Two files would have one name'):
    stages.Source.of(str(tmp_path / 'f'), None, str(tmp_path / 'out'))
