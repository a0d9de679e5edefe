"""`xlflax pretrain`: what it prints, runs, keeps and refuses."""

import json

import pytest

from xlflax import cli, examination
from xlflax.commands import pretrain
from xlflax.commands.pretrain import stages


@pytest.fixture
def corpus(tmp_path):
  root = tmp_path / 'corpus'
  for name in ('mono/en.txt', 'test/mono/en.txt'):
    (root / name).parent.mkdir(parents=True)
    (root / name).write_text('a line of text\n')
  return root


@pytest.fixture
def call(monkeypatch, corpus, tmp_path):
  """Runs the command; the others are noted, and end as they are told to."""
  monkeypatch.setattr('xlflax.foundation.logs.set_up', lambda *_, **__: None)
  own = cli.main
  out = tmp_path / 'out'

  def run(*words, ends=(), done=True):
    noted = []

    def main(words):
      noted.append([word for word in words if word != '--quiet'][0])
      return dict(ends).get(noted[-1], 0)

    monkeypatch.setattr(pretrain.cli, 'main', main)
    monkeypatch.setattr(stages, 'is_done', lambda *_: done)
    words = words or ('--steps=4',)
    status = own(['pretrain', str(corpus), f'--output={out}', *words])
    return status, noted

  run.out = out
  return run


_ALL = ['vocab', 'cache', 'train', 'evaluate']


@pytest.mark.parametrize('there', [False, True])
def test_a_folder_without_text_is_named_as_it_was_given(
  tmp_path, capsys, there
):
  given = tmp_path / 'corpsu'
  if there:
    given.mkdir()
  words = ['pretrain', str(given), '--steps=4', f'--output={tmp_path / "out"}']
  assert cli.main(words) == 2
  told = capsys.readouterr().err
  assert f'Where: {given}' in told and str(tmp_path / 'out') not in told


def test_all_commands_are_run(call, capsys):
  assert call() == (0, _ALL)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[1] for line in lines[1:]] == _ALL
  assert '--tasks=perplexity --split=test' in lines[-1]
  assert json.loads((call.out / 'pretrain.json').read_text())['asked'] == {
    'languages': None,
    'hours': None,
    'steps': 4,
    'vocabulary_size': None,
    'gin': [],
  }


def test_a_dry_run_only_prints(call, capsys):
  assert call('--steps=4', '--dry_run') == (0, [])
  assert not call.out.exists()
  assert capsys.readouterr().out.count('xlflax ') == 4


@pytest.mark.parametrize(
  'ends, words, status, last',
  [
    ({'vocab': 2}, (), 2, 'vocab'),
    ({'cache': 74}, (), 74, 'cache'),
    ({'cache': 130}, (), 130, 'cache'),
    ({'cache': 130}, ('--preemption_exit_code=75',), 75, 'cache'),
    ({'train': 75}, ('--preemption_exit_code=75',), 75, 'train'),
  ],
)
def test_the_status_is_that_of_the_command(call, ends, words, status, last):
  found, noted = call('--steps=4', *words, ends=ends)
  assert (found, noted[-1]) == (status, last)
  assert call('--steps=4', *words) == (0, _ALL)


def test_training_that_stopped_is_not_evaluated(call):
  found, noted = call(ends={}, done=False)
  assert found == 0 and 'evaluate' not in noted


def test_a_choice_is_kept(call, monkeypatch, capsys):
  call(ends={'cache': 74})
  monkeypatch.setattr(pretrain.choices, 'choose', None)
  assert call()[0] == 0
  status, noted = call('--steps=5')
  assert (status, noted) == (2, [])
  said = capsys.readouterr().err
  assert 'another command has begun' in said and "'steps': 5" in said


def test_a_vocabulary_that_failed_binds_to_nothing(call):
  assert call('--steps=4', '--vocabulary_size=999', ends={'vocab': 2})[0] == 2
  assert call('--steps=4', '--vocabulary_size=998')[0] == 0


@pytest.mark.parametrize(
  'words, part',
  [
    ((), 'none of --hours, --steps'),
    (('--steps=4', '--hours=1'), 'not allowed with'),
    (('--steps=4', '--languages=xx'), 'no text of a language'),
    (('--hours=0',), '--hours'),
  ],
)
def test_mistakes(call, capsys, corpus, words, part):
  arguments = words or ('--dry_run',)
  assert call(*arguments)[0] == 2
  assert part in capsys.readouterr().err


def _cut(out):
  file = out / 'pretrain.json'
  file.write_bytes(file.read_bytes()[:20])


def _flip(out):
  file = out / 'pretrain.json'
  text = file.read_text('utf-8')
  assert '"steps": 4' in text
  file.write_text(text.replace('"steps": 4', '"steps": 5'), 'utf-8')


@pytest.mark.parametrize(
  'damage', [_cut, _flip, lambda out: (out / 'pretrain.json').unlink()]
)
def test_a_damaged_choice_is_refused(call, capsys, damage):
  assert call()[0] == 0
  damage(call.out)
  assert call() == (2, [])
  said = capsys.readouterr().err
  assert 'What was chosen is damaged' in said
  assert said.count('\n') == 1
  assert examination.examine(call.out).is_whole is False
