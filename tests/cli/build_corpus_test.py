"""Tests of `xlflax build-corpus`, with fakes of apt-get and dpkg."""

import json
import os

import pytest

from tests.errors import raises_error
from xlflax import cli
from xlflax.data.corpus import corpus_directory
from xlflax.data.corpus_builders import libreoffice
from xlflax.data.seqio_tasks import corpus_export, task_registry
from xlflax.utils import errors


def _pages(folder, word):
  folder.mkdir(parents=True)
  for number in range(60):
    text = f'<p id="menu">no</p><div id="DisplayArea"><p id="1">{word} {number}'
    (folder / f'{number}.html').write_text(f'{text}</p></div>')


def test_corpus_is_built_from_html_pages(tmp_path, capsys):
  _pages(tmp_path / 'en', 'page')
  _pages(tmp_path / 'de', 'Seite')
  arguments = ['build-corpus', 'pages', f'--output={tmp_path / "corpus"}']
  arguments += [f'--folder={code}={tmp_path / code}' for code in ('en', 'de')]
  assert cli.main([*arguments, '--element=DisplayArea']) == 0
  printed = json.loads(capsys.readouterr().out)
  assert printed['de']['pairs']['train'] > 30
  corpus = corpus_directory.Corpus(tmp_path / 'corpus')
  pair = next(iter(corpus.parallel('en', 'de')))
  assert pair.source.split()[1] == pair.target.split()[1]
  with raises_error(
    errors.CorpusError, got=tmp_path / 'corpus', mentions='--output'
  ):
    cli.parse('build-corpus', arguments[1:])()


def test_corpus_is_built_from_gettext_catalogs(tmp_path, capsys):
  for code, word in (('de', 'Nachricht'), ('fi', 'viesti')):
    for number in range(60):
      path = tmp_path / code / f'{number}.po'
      path.parent.mkdir(exist_ok=True)
      path.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        f'msgid "_message {number}"\nmsgstr "{word} {number}"\n'
        + '\nmsgid "other"\nmsgstr ""\n'
        * (code == 'fi')
      )
  arguments = ['build-corpus', 'catalogs', f'--output={tmp_path / "corpus"}']
  arguments += [f'--folder={code}={tmp_path / code}' for code in ('de', 'fi')]
  assert cli.main(arguments) == 0
  report = json.loads(capsys.readouterr().out)
  assert {code: numbers['dropped'] for code, numbers in report.items()} == {
    'en': {},
    'de': {},
    'fi': {'no translation': 60},
  }
  corpus = corpus_directory.Corpus(tmp_path / 'corpus')
  assert next(iter(corpus.parallel('en', 'fi'))).target.split()[0] == 'viesti'


def _write_fake_command(folder, name, script):
  path = folder / name
  path.write_text(f'#!/bin/sh\n{script}\n')
  path.chmod(0o755)


def test_packages_are_fetched_and_unpacked_once(tmp_path, capsys, monkeypatch):
  programs = tmp_path / 'bin'
  programs.mkdir()
  for code in ('en', 'zh'):
    name = libreoffice.language_name(code)
    _pages(tmp_path / 'made' / name / 'text', code)
  _write_fake_command(
    programs,
    'apt-get',
    'echo "$2" >> ../fetched; touch "$2_4%3a7.4.7-1_all.deb"',
  )
  _write_fake_command(
    programs,
    'dpkg',
    f'[ -e "$2" ] || exit 2\n'  # a path relative to the working directory
    f'case "$2" in *en-us*) l=en-US;; *) l=zh-CN;; esac\n'
    f'mkdir -p "$3/usr/share/libreoffice/help"\n'
    f'cp -r "{tmp_path}/made/$l" "$3/usr/share/libreoffice/help/$l"',
  )
  monkeypatch.setenv('PATH', f'{programs}{os.pathsep}{os.environ["PATH"]}')
  monkeypatch.chdir(tmp_path)
  for output in ('a', 'b'):
    assert (
      cli.main(
        [
          'build-corpus',
          'libreoffice',
          '--languages=en,zh',
          '--packages=packages',
          f'--output={tmp_path / output}',
          '--mode=disjoint',
        ]
      )
      == 0
    )
  fetched = (tmp_path / 'fetched').read_text().split()
  assert fetched == ['libreoffice-help-en-us', 'libreoffice-help-zh-cn']
  notice = (tmp_path / 'a' / 'NOTICE').read_text()
  assert 'Mozilla Public License' in notice and '7.4.7' in notice
  corpus_directory.Corpus(tmp_path / 'a')


@pytest.mark.parametrize(
  ('code', 'name'),
  [
    ('pt-br', 'pt-BR'),
    ('pt_BR', 'pt-BR'),
    ('pt', 'pt'),
    ('por_Latn', 'pt'),
    ('zh', 'zh-CN'),
    ('zh_Hant', 'zh-TW'),
    ('zh-TW', 'zh-TW'),
    ('cmn_Hans', 'zh-CN'),
    ('en', 'en-US'),
    ('en_GB', 'en-GB'),
    ('eng', 'en-US'),
    ('slk', 'sk'),
    ('nb', 'nb'),
    ('de_AT', 'de'),
  ],
)
def test_language_names_of_packages(code, name):
  assert libreoffice.language_name(code) == name


def test_package_that_links_to_another_language_is_rejected(
  tmp_path, monkeypatch
):
  _write_fake_command(tmp_path, 'apt-get', 'touch "$2_4_all.deb"')
  _write_fake_command(
    tmp_path,
    'dpkg',
    'mkdir -p "$3/usr/share/libreoffice/help"\n'
    'ln -s cs "$3/usr/share/libreoffice/help/sk"',
  )
  monkeypatch.setenv('PATH', f'{tmp_path}{os.pathsep}{os.environ["PATH"]}')
  with raises_error(errors.CorpusError, mentions=('sk', 'cs')):
    libreoffice.unpack_packages(['sk'], tmp_path / 'packages')


def test_missing_package_is_an_error(tmp_path, capsys, monkeypatch):
  _write_fake_command(
    tmp_path, 'apt-get', 'echo "E: Unable to locate" >&2; exit 100'
  )
  monkeypatch.setenv('PATH', f'{tmp_path}{os.pathsep}{os.environ["PATH"]}')
  command = ['build-corpus', 'libreoffice', '--languages=en,xx']
  assert cli.main([*command, f'--output={tmp_path / "corpus"}']) == 2
  error = capsys.readouterr().err
  assert 'Unable to locate' in error and 'apt-get update' in error


@pytest.mark.parametrize('folder', ['en', 'en=', '=x'])
def test_folder_without_a_language_is_rejected(folder):
  arguments = ['pages', f'--folder={folder}', '--output=x']
  with raises_error(errors.ConfigError, got=folder, where='--folder'):
    cli.parse('build-corpus', arguments)()


_SEQIO_TASKS = """
import seqio
import tensorflow as tf
from xlflax.data.seqio_tasks import preprocessors, task_registry

def split_tabs(lines):
  return lines.map(lambda t: {'text': tf.strings.regex_replace(t, r'\\|', '\\n')})

def pair(lines):
  def parse(line):
    columns = tf.strings.split(line, '\\t')
    return {'inputs': columns[0], 'targets': columns[1]}
  return lines.map(parse)

task_registry.add_monolingual_task(
  'export.zh', seqio.TextLineDataSource({'train': 'zh.txt', 'test': 'dev.txt'}),
  language='zh_CN', preprocessors=[split_tabs, preprocessors.split_lines])
task_registry.add_parallel_task(
  'export.en_zh', seqio.TextLineDataSource({'train': 'pairs.tsv'}),
  languages=('en', 'zh_CN'), preprocessors=[pair])
"""


@pytest.fixture
def seqio_tasks(tmp_path, monkeypatch):
  """Directory with a module that registers two tasks.

  Modules must have different names, because a process imports each name once.
  """
  (tmp_path / f'{tmp_path.name}.py').write_text(_SEQIO_TASKS)
  (tmp_path / 'zh.txt').write_text('a|  b\tb\nc||d\n')
  (tmp_path / 'dev.txt').write_text('e\n')
  (tmp_path / 'pairs.tsv').write_text('one\teins\n\tzwei\n three \tdrei\n')
  monkeypatch.chdir(tmp_path)
  yield tmp_path
  for name in ('export.zh', 'export.en_zh'):
    task_registry.remove_task(name)


def _export_arguments(folder, *options):
  """Returns the arguments of `build-corpus` that export the tasks."""
  return [
    'seqio',
    '--mixture=export.zh',
    '--mixture=export.en_zh',
    f'--task_module={folder.name}.py',
    '--output=corpus',
    *options,
  ]


def _export(folder, *options):
  """Exports the tasks and returns the exit status."""
  return cli.main(['build-corpus', *_export_arguments(folder, *options)])


def test_export_writes_documents_pairs_and_splits(seqio_tasks, capsys):
  """Languages can be renamed, and empty lines are dropped."""
  assert _export(seqio_tasks, '--rename_language=zh_CN=zh') == 0
  files = json.loads(capsys.readouterr().out)
  corpus = corpus_directory.Corpus(seqio_tasks / 'corpus')
  lines = [tuple(line) for line in corpus.monolingual('zh')]
  assert lines == [('a', True), ('b b', False), ('c', True), ('d', False)]
  assert [line.text for line in corpus.monolingual('zh', 'test')] == ['e']
  pairs = [(pair.source, pair.target) for pair in corpus.parallel('en', 'zh')]
  assert pairs == [('one', 'eins'), ('three', 'drei')]
  train = files['mono/zh.export.zh.txt.zst']
  assert (train['lines'], train['documents'], train['characters']) == (4, 2, 6)
  num_empty = [file['empty_examples'] for file in files.values()]
  assert num_empty == [0, 1, 0]  # The pair with an empty source.
  assert sorted(files) == [
    'mono/zh.export.zh.txt.zst',
    'parallel/en-zh.export.en_zh.tsv.zst',
    'test/mono/zh.export.zh.txt.zst',
  ]


def test_interrupted_export_keeps_complete_files(seqio_tasks):
  """Only incomplete files are written again."""
  pairs = (seqio_tasks / 'pairs.tsv').read_text()
  (seqio_tasks / 'pairs.tsv').unlink()
  assert _export(seqio_tasks) == 2
  mono = seqio_tasks / 'corpus/mono/zh_CN.export.zh.txt.zst'
  modification_time = mono.stat().st_mtime_ns
  assert not list((seqio_tasks / 'corpus').rglob('*.tsv*'))
  with raises_error(errors.CorpusError, where='corpus', mentions='seqio'):
    corpus_directory.Corpus(seqio_tasks / 'corpus')
  (seqio_tasks / 'pairs.tsv').write_text(pairs)
  assert _export(seqio_tasks) == 0
  assert mono.stat().st_mtime_ns == modification_time
  corpus = corpus_directory.Corpus(seqio_tasks / 'corpus')
  assert corpus.parallel_pairs() == (('en', 'zh_CN'),)


def test_export_interrupted_in_its_first_file_is_restarted(
  seqio_tasks, monkeypatch
):
  with monkeypatch.context() as patched:
    patched.setattr(corpus_export, '_write_file', _interrupt)
    assert _export(seqio_tasks) == errors.ExitStatus.INTERRUPTED
  assert (seqio_tasks / 'corpus/mono').is_dir()
  assert _export(seqio_tasks) == 0


def _interrupt(output, file, max_examples):
  del max_examples
  (output / file.path).parent.mkdir(parents=True)
  raise KeyboardInterrupt


def test_export_with_different_settings_is_rejected(seqio_tasks):
  assert _export(seqio_tasks, '--max_examples=1', '--splits=train') == 0
  corpus = seqio_tasks / 'corpus'
  lines = corpus_directory.Corpus(corpus).monolingual('zh_CN')
  assert [line.text for line in lines] == ['a']
  assert not (corpus / 'test').exists()
  with raises_error(
    errors.CorpusError, mentions=('max_examples=None', 'max_examples=1')
  ):
    cli.parse('build-corpus', _export_arguments(seqio_tasks))()
  assert _export(seqio_tasks, '--overwrite') == 0
  lines = corpus_directory.Corpus(corpus).monolingual('zh_CN')
  assert [line.text for line in lines] == ['a', 'b b', 'c', 'd']


@pytest.mark.parametrize(
  ('options', 'fields'),
  [
    (['--splits=dev'], {'got': 'dev'}),
    (['--splits=validation'], {'got': 'validation', 'mentions': '--splits'}),
    (
      ['--rename_language=fr=en'],
      {'got': 'fr', 'mentions': '--rename_language'},
    ),
    (['--rename_language=zh_CN=z-h'], {'got': 'z-h'}),
  ],
)
def test_invalid_export_options_are_rejected(seqio_tasks, options, fields):
  with raises_error(errors.CorpusError, **fields):
    cli.parse('build-corpus', _export_arguments(seqio_tasks, *options))()
  assert not list((seqio_tasks / 'corpus').glob('*/*'))


def test_export_does_not_replace_other_files(seqio_tasks):
  (seqio_tasks / 'corpus/mono').mkdir(parents=True)
  (seqio_tasks / 'corpus/mono/zh.txt').write_text('own\n')
  with raises_error(errors.CorpusError, mentions='--output'):
    cli.parse('build-corpus', _export_arguments(seqio_tasks))()
  assert (seqio_tasks / 'corpus/mono/zh.txt').read_text() == 'own\n'


def test_modules_may_use_the_tasks_of_a_corpus(tmp_path, monkeypatch, capsys):
  """With `--corpus`, its tasks are registered before the modules."""
  (tmp_path / 'text/mono').mkdir(parents=True)
  (tmp_path / 'text/mono/de.txt').write_text('eins\nzwei\n')
  (tmp_path / f'{tmp_path.name}.py').write_text(
    'from xlflax.data.seqio_tasks import task_registry\n'
    "task_registry.add_mixture('export.de', ['corpus.mono.de'])\n"
  )
  monkeypatch.chdir(tmp_path)
  arguments = ['build-corpus', 'seqio', '--mixture=export.de', '--output=out']
  arguments.append(f'--task_module={tmp_path.name}.py')
  try:
    assert cli.main([*arguments, '--corpus=text']) == 0
  finally:
    for name in ('export.de', 'corpus.mono', 'corpus.mono.de'):
      task_registry.remove_task(name)
  files = json.loads(capsys.readouterr().out)
  assert [file['lines'] for file in files.values()] == [2]
