"""What `xlflax serve` refuses, and what it hands to its server."""

import json

import pytest

from xlflax import cli
from xlflax.runs import server


@pytest.mark.parametrize(
  ('flags', 'told'),
  [
    ([], 'Either runs are shown, or one encoder is tried'),
    (['runs/a', '--encoder=runs/b'], 'Either runs are shown'),
    (['runs/a', '--texts=en=a.en'], '--encoder'),
    (['no_such_run'], 'Where: RUN.'),
    (['--encoder=no_such_run'], 'no_such_run'),
    (['runs/a', '--port=-1'], '--port is out of range'),
  ],
)
def test_what_cannot_be_served(flags, told, capsys):
  assert cli.main(['serve', *flags]) == 2
  captured = capsys.readouterr()
  assert told in captured.err and not captured.out


def test_the_page_of_a_run_is_served_on_this_machine(
  tmp_path, monkeypatch, capsys
):
  replies = []
  opened = server.open_server

  def once(answer, *, host, port):
    assert host == '127.0.0.1'
    replies.append(answer('/', {}))
    made = opened(answer, host=host, port=port)
    monkeypatch.setattr(made, 'serve_forever', lambda: None)
    return made

  monkeypatch.setattr(server, 'open_server', once)
  line = json.dumps({'step': 1, 'train': {'loss': 2.5}})
  (tmp_path / 'metrics.jsonl').write_text(line + '\n')
  assert cli.main(['serve', f'name={tmp_path}', '--port=0']) == 0
  assert capsys.readouterr().out.startswith('http://127.0.0.1:')
  (reply,) = replies
  assert '2.5000' in reply.body and 'name' in reply.body
