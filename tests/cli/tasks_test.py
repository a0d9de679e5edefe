"""Tests of `xlflax tasks`."""

import json

import pytest
import seqio

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data import task_errors
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import seqio_reader
from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
from xlflax.utils import errors


@pytest.fixture
def corpus(tmp_path):
  directory = tmp_path / 'corpus'
  lines = ['one two', 'two three', 'three four five']
  corpus_writer.write_monolingual(directory, 'en', [lines])
  corpus_writer.write_monolingual(directory, 'fi', [lines[:1]])
  corpus_writer.write_parallel(
    directory, ('en', 'fi'), [('one', 'yksi'), ('two', 'kaksi')]
  )
  yield directory
  for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
    for name in [n for n in registry.names() if n.startswith('corpus.')]:
      registry.remove(name)


def test_list_as_json(corpus, capsys):
  assert (
    cli.main(['tasks', 'list', 'corpus.*', f'--corpus={corpus}', '--json']) == 0
  )
  rows = {row['name']: row for row in json.loads(capsys.readouterr().out)}
  assert rows['corpus.parallel.en_fi'] == {
    'name': 'corpus.parallel.en_fi',
    'kind': 'task',
    'languages': ['en', 'fi'],
    'splits': ['train'],
  }
  assert rows['corpus.mono']['kind'] == 'mixture of 2'


def test_list_includes_public_tasks(capsys):
  assert cli.main(['tasks', 'list', '*']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split() == ['name', 'kind', 'languages', 'splits']
  assert any(line.startswith('wiki40b.sv ') for line in lines)
  assert cli.main(['tasks', 'list', 'nothing*']) == 2


def test_corpus_option_is_suggested_only_if_missing(corpus):
  with pytest.raises(errors.CorpusError) as without_corpus:
    cli.parse('tasks', ['list', 'nothing*'])()
  with pytest.raises(errors.CorpusError) as with_corpus:
    cli.parse('tasks', ['list', 'nothing*', f'--corpus={corpus}'])()
  assert '--corpus' in without_corpus.value.fix
  assert '--corpus' not in with_corpus.value.fix


def test_list_without_a_pattern_has_one_line_for_each_family(corpus, capsys):
  assert cli.main(['tasks', 'list', f'--corpus={corpus}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) < 60
  assert lines[0].split() == ['family', 'kind', 'tasks', 'languages', 'splits']
  rows = {line.split()[0]: line.split()[1:] for line in lines[1:] if line}
  assert rows['corpus.mono'] == ['task', '2', '2', 'train']
  assert rows['corpus.parallel'] == ['task', '1', '2', 'train']
  assert rows['wiki40b'][:3] == ['task', '41', '41']
  assert rows['ecs.wiki'][0] == 'mixture'


def test_show_prints_every_step_and_decoded_text(corpus, tmp_path, capsys):
  train_vocabulary(Corpus(corpus), tmp_path / 'v', size=27)
  assert (
    cli.main(
      [
        'tasks',
        'show',
        'corpus.mono.en',
        f'--corpus={corpus}',
        f'--vocabulary={tmp_path / "v"}',
        '-n',
        '2',
      ]
    )
    == 0
  )
  out = capsys.readouterr().out
  assert '0. source: TextSource\n  [0] starts_document: True\n' in out
  assert "text: 'two three'" in out
  assert '3. tokenize' in out
  assert "decoded: 'one two'" in out
  assert 'four' not in out


def test_show_without_a_vocabulary_stops_before_tokenization(corpus, capsys):
  assert (
    cli.main(['tasks', 'show', 'corpus.parallel.en_fi', f'--corpus={corpus}'])
    == 0
  )
  out = capsys.readouterr().out
  assert "targets: 'kaksi'" in out
  assert '--vocabulary=DIR' in out


def test_commands_in_messages_contain_the_option_that_registers_a_task():
  assert task_errors.show_command('wiki40b.sv') == (
    'xlflax tasks show wiki40b.sv'
  )
  error = task_errors.no_text_error('corpus.mono.en', 'test')
  assert '`xlflax tasks show corpus.mono.en --corpus=DIR`' in str(error.fix)


def test_show_prints_a_mixture(corpus, capsys):
  assert cli.main(['tasks', 'show', 'corpus.mono', f'--corpus={corpus}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[1].split() == ['corpus.mono.en', 'en', '3', '2.158', '68.3%']


def test_unknown_names_are_rejected_with_a_suggestion(corpus, capsys):
  assert (
    cli.main(['tasks', 'show', 'corpus.mono.ne', f'--corpus={corpus}']) == 2
  )
  assert 'corpus.mono.en' in capsys.readouterr().err


def test_task_modules_show_raw_sources(tmp_path, monkeypatch, capsys):
  (tmp_path / 'shown_tasks.py').write_text(
    'import seqio\n'
    'from xlflax.data.seqio_tasks import task_registry as task_registry\n'
    'task_registry.add_monolingual_task("shown", seqio.TextLineDataSource('
    '{"train": "x.txt"}), language="en", preprocessors=[lambda d: d.map('
    'lambda t: {"text": t})])\n'
  )
  (tmp_path / 'x.txt').write_text('one\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  assert cli.main(['tasks', 'show', 'shown', '--task_module=shown_tasks']) == 0
  assert "text: 'one'" in capsys.readouterr().out
  seqio.TaskRegistry.remove('shown')


def test_failed_preprocessor_suggests_a_command_other_than_the_failed_one(
  tmp_path, monkeypatch
):
  (tmp_path / 'cell_tasks.py').write_text(
    'import seqio\n'
    'import tensorflow as tf\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'def cell(lines):\n'
    '  return lines.map(lambda x: {"text": tf.strings.split(x, "\\t")[7]})\n'
    'task_registry.add_monolingual_task("cells", seqio.TextLineDataSource('
    '{"train": "x.tsv"}), language="en", preprocessors=[cell])\n'
  )
  (tmp_path / 'x.tsv').write_text('one\ttwo\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  option = '--task_module=cell_tasks.py'
  try:
    with raises_error(errors.CorpusError, mentions=('cells', '7')) as shown:
      cli.parse('tasks', ['show', 'cells', option])()
    with raises_error(errors.CorpusError, mentions=('cells', '7')) as read:
      list(seqio_reader.read_texts('cells'))
  finally:
    seqio.TaskRegistry.remove('cells')
  assert 'tasks show' not in shown.value.fix
  assert f'`xlflax tasks show cells {option}`' in read.value.fix


def test_show_warns_of_identical_splits(tmp_path, monkeypatch, capsys):
  (tmp_path / 'equal_tasks.py').write_text(
    'import seqio\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'task_registry.add_monolingual_task("equal", seqio.TextLineDataSource('
    '{"train": "x.txt", "validation": "x.txt", "test": "y.txt"}), '
    'language="en", preprocessors=[lambda d: d.map(lambda t: {"text": t})])\n'
  )
  (tmp_path / 'x.txt').write_text('one\ntwo\nthree\nfour\nfive\n')
  (tmp_path / 'y.txt').write_text('six\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  assert cli.main(['tasks', 'show', 'equal', '--task_module=equal_tasks']) == 0
  [warning] = [
    line for line in capsys.readouterr().err.splitlines() if ' W ' in line
  ]
  assert_mentions(warning, 'equal', 'train', 'validation')
  seqio.TaskRegistry.remove('equal')


def test_missing_feature_is_reported_with_the_task(
  tmp_path, monkeypatch, capsys
):
  (tmp_path / 'unnamed_tasks.py').write_text(
    'import seqio\n'
    'from xlflax.data.seqio_tasks import preprocessors, task_registry\n'
    'task_registry.add_monolingual_task("unnamed", seqio.TextLineDataSource('
    '{"train": "x.txt"}), language="en", '
    'preprocessors=[preprocessors.split_lines])\n'
  )
  (tmp_path / 'x.txt').write_text('one\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  command = ['tasks', 'show', 'unnamed', '--task_module=unnamed_tasks']
  assert cli.main(command) == 2
  captured = capsys.readouterr()
  assert "'one'" in captured.out
  assert_mentions(captured.err, 'unnamed', 'split_lines', 'text')
  assert 'Traceback' not in captured.err
  seqio.TaskRegistry.remove('unnamed')


@pytest.mark.parametrize('option', ['--vocabulary=v', '--num_examples=2'])
def test_options_of_examples_are_rejected_for_a_mixture(corpus, option):
  command = ['show', 'corpus.mono', f'--corpus={corpus}', option]
  with pytest.raises(errors.ConfigError) as caught:
    cli.parse('tasks', command)()
  assert_mentions(caught.value.fix, 'corpus.mono.en', 'corpus.mono.fi')


@pytest.mark.parametrize(
  'arguments',
  [
    ['--output=out'],
    ['--input=in', '--output=out'],
    ['sib200', '--output=out'],
    ['sib200', '--input=in'],
  ],
)
def test_incomplete_conversions_are_rejected(arguments):
  with pytest.raises(errors.ConfigError):
    cli.parse('tasks', ['convert', *arguments])
