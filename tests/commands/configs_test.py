"""`xlflax configs`."""

import json

from xlflax import cli


def test_list(capsys):
  assert cli.main(['configs', 'list', 'models/t*']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert any(line.startswith('models/tiny.gin ') for line in lines)
  assert all(line.startswith('models/t') for line in lines)
  assert cli.main(['configs', 'list', '--json']) == 0
  assert (
    'Small encoder' in json.loads(capsys.readouterr().out)['models/small.gin']
  )


def test_show(capsys):
  assert cli.main(['configs', 'show', 'pretrain/mlm.gin']) == 0
  out = capsys.readouterr().out
  for part in (
    'Often overridden: MONO',
    '  pretrain/mlm.gin\n    pretrain/base.gin',
    'required\n  MODEL, MODEL_DIR, VOCABULARY, TRAIN_STEPS',
    'MASK_RATIO    = 0.15',
  ):
    assert part in out
  assert cli.main(['configs', 'show', 'pretrain/mlm.gin', '--json']) == 0
  shown = json.loads(capsys.readouterr().out)
  assert shown['includes'] == {'pretrain/base.gin': {}}
  assert shown['macros']['MONO'] == "'corpus.mono'"


def test_mistakes(capsys):
  assert cli.main(['configs', 'show', 'models/smal.gin']) == 2
  assert 'models/small.gin' in capsys.readouterr().err
  assert cli.main(['configs', 'list', 'nope/*']) == 2
  assert "Got: nope/*. Expected: such as 'pretrain/*'" in (
    capsys.readouterr().err
  )
