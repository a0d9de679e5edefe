"""Tests of `xlflax mine-hard-negatives` with a tiny model."""

import json

from xlflax import cli

pytest_plugins = ['tests.finetuning.fixtures']


def test_hard_negatives_are_documents_of_the_pairs(make_run, tmp_path, capsys):
  run = make_run(tmp_path / 'run', [1])
  texts = [f'{word} Hund {word}' for word in ('der', 'die', 'kleine', 'und')]
  (tmp_path / 'pairs.tsv').write_text(
    ''.join(f'{text}\t{text} Katze\n' for text in texts)
  )
  output = tmp_path / 'triples.jsonl'
  arguments = ['mine-hard-negatives', f'--model_dir={run}', '--language=de']
  arguments += ['--max_score_ratio=1']
  arguments += [f'--pairs={tmp_path / "pairs.tsv"}', f'--output={output}']
  assert cli.main([*arguments, '--compilation_cache=']) == 0
  lines = [json.loads(line) for line in output.read_text().splitlines()]
  assert f'{len(lines)} lines' in capsys.readouterr().out and lines
  for line in lines:
    (negative,) = line['negatives']
    assert negative != line['positive'] and negative.endswith('Katze')
