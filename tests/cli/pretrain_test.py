"""Tests of `xlflax pretrain`: commands, exit codes and recorded settings."""

import json
import shlex

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli, integrity
from xlflax.cli import options as cli_options
from xlflax.cli import pretrain
from xlflax.cli.pretrain_corpus import LinkedCorpus
from xlflax.cli.pretrain_settings import PretrainSettings
from xlflax.utils import errors


@pytest.fixture
def corpus(tmp_path):
  root = tmp_path / 'corpus'
  for name in ('mono/en.txt', 'test/mono/en.txt'):
    (root / name).parent.mkdir(parents=True)
    (root / name).write_text('a line of text\n')
  return root


@pytest.fixture
def call(monkeypatch, corpus, tmp_path):
  """Function that runs the command with fakes of its subcommands.

  `ends` maps the name of a subcommand to its status or to an exception. Returns
  the status and the names of the subcommands that were called.
  """
  out = tmp_path / 'out'

  def run(*flags, ends=(), done=True):
    names = []

    def run_command(command):
      names.append(command[1])
      end = dict(ends).get(command[1], 0)
      if isinstance(end, BaseException):
        raise end
      return end

    monkeypatch.setattr(pretrain, 'run_command', run_command)
    monkeypatch.setattr(pretrain, 'is_finished', lambda *_: done)
    flags = flags or ('--steps=4',)
    status = cli.main(['pretrain', str(corpus), f'--output={out}', *flags])
    return status, names

  run.out = out
  return run


_ALL = ['vocab', 'cache', 'train', 'evaluate']


@pytest.mark.parametrize('exists', [False, True])
def test_directory_without_text_is_an_error(tmp_path, exists):
  corpus = tmp_path / 'corpsu'
  if exists:
    corpus.mkdir()
  arguments = [str(corpus), '--steps=4', f'--output={tmp_path / "out"}']
  run = cli.parse('pretrain', arguments)
  with raises_error(errors.CorpusError, where=corpus) as caught:
    run()
  assert str(tmp_path / 'out') not in str(caught.value)


def test_all_commands_are_run(call, capsys):
  assert call() == (0, _ALL)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[1] for line in lines[1:]] == _ALL
  assert '--tasks=perplexity --split=test' in lines[-1]
  assert json.loads((call.out / 'pretrain.json').read_text())['options'] == {
    'languages': None,
    'hours': None,
    'steps': 4,
    'vocabulary_size': None,
    'gin': [],
  }


def test_dry_run_only_prints_commands(call, capsys):
  assert call('--steps=4', '--dry_run') == (0, [])
  assert not call.out.exists()
  assert capsys.readouterr().out.count('xlflax ') == 4


@pytest.mark.parametrize(
  ('ends', 'flags', 'status', 'last'),
  [
    ({'vocab': errors.ConfigError('no')}, (), 2, 'vocab'),
    ({'cache': 74}, (), 74, 'cache'),
    ({'cache': KeyboardInterrupt()}, (), 130, 'cache'),
    (
      {'cache': KeyboardInterrupt()},
      ('--preemption_exit_code=75',),
      75,
      'cache',
    ),
    ({'train': 75}, ('--preemption_exit_code=75',), 75, 'train'),
  ],
)
def test_exit_code_of_a_failed_command_is_returned(
  call, ends, flags, status, last
):
  exit_code, names = call('--steps=4', *flags, ends=ends)
  assert (exit_code, names[-1]) == (status, last)
  assert call('--steps=4', *flags) == (0, _ALL)


def test_stopped_training_is_not_evaluated(call):
  status, names = call(ends={}, done=False)
  assert status == 0 and 'evaluate' not in names


def test_recorded_settings_are_reused(call, monkeypatch, capsys):
  call(ends={'cache': 74})
  monkeypatch.setattr(pretrain.pretrain_settings, 'select_settings', None)
  assert call()[0] == 0
  assert call('--steps=5') == (2, [])
  assert_mentions(capsys.readouterr().err, "'steps': 5", "'steps': 4")


def test_settings_may_change_after_a_failed_vocabulary(call):
  assert call('--steps=4', '--vocabulary_size=999', ends={'vocab': 2})[0] == 2
  assert call('--steps=4', '--vocabulary_size=998')[0] == 0


@pytest.mark.parametrize(
  ('flags', 'mentions'),
  [
    (['--dry_run'], ('--hours', '--steps')),
    (['--steps=4', '--hours=1'], ('--hours', '--steps')),
    (['--steps=4', '--languages=xx'], 'xx'),
    (['--hours=0'], '--hours'),
  ],
)
def test_invalid_options_are_rejected(corpus, tmp_path, flags, mentions):
  output = f'--output={tmp_path / "out"}'
  with raises_error(errors.XlflaxError, mentions=mentions, status=2):
    cli.parse('pretrain', [str(corpus), output, *flags])()


def test_corpus_without_monolingual_text_is_rejected(tmp_path):
  (tmp_path / 'corpus/parallel').mkdir(parents=True)
  (tmp_path / 'corpus/parallel/de-en.tsv').write_text('ein\tone\n' * 9)
  output = f'--output={tmp_path / "out"}'
  arguments = [str(tmp_path / 'corpus'), output, '--steps=4', '--dry_run']
  with raises_error(errors.CorpusError, where=tmp_path / 'corpus'):
    cli.parse('pretrain', arguments)()


def test_build_commands():
  options = pretrain.PretrainOptions(
    corpus='corpus',
    output='out',
    steps=9,
    gin=cli_options.GinOptions(
      gin_file=('my.gin',),
      gin_search_paths=('a',),
      gin_bindings=("NAME='x y'",),
    ),
    preemption_exit_code=75,
  )
  settings = PretrainSettings(
    summary='#',
    vocabulary_size=500,
    gin_files=['pretrain/mlm.gin', 'recipes/small.gin'],
    steps=9,
    tasks='perplexity',
    split='validation',
  )
  commands = pretrain.build_commands(
    options, LinkedCorpus('corpus', {}), settings
  )
  assert list(map(shlex.join, commands)) == [
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


def test_build_commands_without_held_out_text_and_exit_code():
  options = pretrain.PretrainOptions(corpus='corpus', output='out', steps=9)
  settings = PretrainSettings(
    summary='#', vocabulary_size=5, gin_files=[], steps=9, tasks='', split=''
  )
  commands = pretrain.build_commands(
    options, LinkedCorpus('corpus', {}), settings
  )
  assert [command[1] for command in commands] == ['vocab', 'cache', 'train']
  assert '--preemption_exit_code' not in shlex.join(commands[2])


def test_stopped_training_is_not_finished(tmp_path):
  assert pretrain.is_finished(['xlflax', 'cache'], str(tmp_path))
  assert not pretrain.is_finished(['xlflax', 'train'], str(tmp_path))


def _truncate(out):
  file = out / 'pretrain.json'
  file.write_bytes(file.read_bytes()[:20])


def _flip_bit(out):
  file = out / 'pretrain.json'
  text = file.read_text('utf-8')
  assert '"steps": 4' in text
  file.write_text(text.replace('"steps": 4', '"steps": 5'), 'utf-8')


@pytest.mark.parametrize(
  'damage', [_truncate, _flip_bit, lambda out: (out / 'pretrain.json').unlink()]
)
def test_damaged_settings_are_rejected(call, capsys, damage):
  assert call()[0] == 0
  damage(call.out)
  assert call() == (2, [])
  assert_mentions(capsys.readouterr().err, 'xlflax verify')
  assert integrity.verify_directory(call.out).is_valid is False
