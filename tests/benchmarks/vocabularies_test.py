"""Tests of the vocabulary benchmark."""

import json

from benchmarks import vocabularies


def test_vocabulary_benchmark_measures_each_choice_of_anchors(tmp_path, capsys):
  vocabularies.main(
    ['--lines=60', '--merges=50', f'--output={tmp_path / "figures.json"}']
  )
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert json.loads(capsys.readouterr().out) == figures
  entries = {name: row['entries'] for name, row in figures['anchors'].items()}
  # Special symbols, characters (a to z and the word mark) and merges.
  assert entries['joint'] == entries['separate'] == 7 + 27 + 50
  assert entries['none'] == 7 + 2 * (27 + 50)
  assert entries['separate'] < entries['shared'] < entries['none']
  assert all(
    row['encoded_tokens_per_cpu_second'] > 0
    for row in figures['anchors'].values()
  )
