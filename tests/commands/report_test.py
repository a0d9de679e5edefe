"""`xlflax report`."""

import re

from xlflax import cli


def test_the_command(tmp_path, capsys):
  for name in ('a', 'b'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'metrics.jsonl').write_text(
      '{"step": 1, "train": {"loss": 1.5}}\n'
    )
  out = tmp_path / 'out'
  words = ['report', f'First={tmp_path}/a', str(tmp_path / 'b')]
  assert cli.main([*words, f'--output={out}']) == 0
  assert capsys.readouterr().out.strip() == str(out / 'report.html')
  text = (out / 'report.html').read_text()
  cells = re.findall('<td[^>]*>(.*?)</td>', text)
  assert {'First', 'b'} <= set(cells)
  assert cli.main(['report', 'x=a', 'x=b', f'--output={out}']) == 2
  assert 'Two runs have the same name' in capsys.readouterr().err
  assert cli.main(['report', f'{tmp_path}/aa', f'--output={out}']) == 2
  assert 'no such model directory' in capsys.readouterr().err
