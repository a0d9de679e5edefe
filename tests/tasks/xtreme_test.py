"""Tests of SeqIO tasks for XTREME's folder and treebanks."""

import pytest
import seqio

from tests.data.supervised import xtreme_files
from tests.errors import raises_error
from xlflax import cli
from xlflax.data.supervised.sources import task_source
from xlflax.data.supervised.sources import xtreme as tables
from xlflax.tasks import xtreme
from xlflax.utils import errors

_TREE = '\t'.join(('1', 'Да', 'да', 'PART', '_', '_', '0', 'root', '_', '_'))


@pytest.fixture
def folder(tmp_path):
  yield xtreme_files.write(tmp_path / 'download')
  for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
    for name in [
      n for n in registry.names() if n.startswith(('xtreme.', 'ud.'))
    ]:
      registry.remove(name)


def test_tasks_and_mixtures_are_registered(folder):
  registered = xtreme.register(folder)
  assert {
    'xtreme.xnli.ur',
    'xtreme.bucc2018.ru',
    'xtreme.tatoeba.ka',
    'xtreme.xnli',
    'xtreme.xquad',
  } <= set(registered.names)
  assert 'xtreme.xnli.fr' not in registered.names
  assert any(
    note.startswith('xnli: no test data for ar, bg')
    for note in registered.missing
  )
  splits = {
    name: set(seqio.TaskRegistry.get(f'xtreme.{name}').splits)
    for name in ('xnli.en', 'xnli.ur', 'xquad.en', 'xquad.th')
  }
  assert splits == {
    'xnli.en': {'train', 'validation', 'test'},
    'xnli.ur': {'validation', 'test'},
    'xquad.en': {'train', 'validation'},
    'xquad.th': {'test'},
  }


def test_tasks_equal_the_files(folder):
  xtreme.register(folder)
  for name, split in (('xnli', 'train'), ('udpos', 'test'), ('mlqa', 'test')):
    task = tables.TASKS[name]
    read = task_source.SeqioDataset(
      mixture=f'xtreme.{name}', kind=task.example.KIND, split=split
    )
    files = tables.xtreme_examples(folder, name, split)
    assert read.languages() == files.languages()
    for part in read.languages():
      assert read.load(part) == files.load(part)
  mined = task_source.SeqioBitextMining(mixture='xtreme.tatoeba')
  assert mined.load('ka-en') == tables.xtreme_examples(folder, 'tatoeba').load(
    'ka-en'
  )


def test_treebank_tasks_are_registered(tmp_path, folder):
  for name in (
    'UD_R-A/ru_a-ud-dev.conllu',
    'UD_R-B/ru_b-ud-dev.conllu',
    'UD_R-A/ru_a-ud-test.first9.conllu',
    'UD_R-A/other.conllu',
  ):
    path = tmp_path / 'trees' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TREE + '\n')
  names = xtreme.register_treebanks(str(tmp_path / 'trees')).names
  assert names == ('ud.tags.ru', 'ud.trees.ru', 'ud.tags', 'ud.trees')
  trees = task_source.SeqioDataset(
    mixture='ud.trees', kind='parsing', split='validation'
  ).load('ru')
  assert [e.id for e in trees] == ['0', 'ru_b-ud-dev.conllu:0']
  tags = task_source.SeqioDataset(mixture='ud.tags', kind='tagging')
  assert tags.load('ru')[0].tags == ('PART',)


def test_empty_folders_are_rejected(tmp_path):
  with raises_error(errors.CorpusError, mentions='XTREME'):
    xtreme.register(str(tmp_path))
  with raises_error(errors.CorpusError, mentions='UD_English-EWT/en_ewt'):
    xtreme.register_treebanks(str(tmp_path))


def test_tasks_command_lists_and_shows_xtreme(folder, capsys):
  assert cli.main(['tasks', 'list', 'xtreme.x*', f'--xtreme={folder}']) == 0
  listed = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert [
    'xtreme.xnli.ur',
    'classification',
    'ur',
    'validation',
    'test',
  ] in listed
  xtreme_names = [
    n
    for n in (*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names())
    if n.startswith('xtreme.')
  ]
  for name in xtreme_names:
    (
      seqio.MixtureRegistry
      if name in seqio.MixtureRegistry.names()
      else seqio.TaskRegistry
    ).remove(name)
  assert (
    cli.main(
      ['tasks', 'show', 'xtreme.udpos.en', f'--xtreme={folder}', '-n', '1']
    )
    == 0
  )
  assert "tags: ['DET', 'NOUN']" in capsys.readouterr().out
