"""Tests of the study of dropped lines on two small texts."""

from studies.text_length import __main__ as study


def test_tables_are_printed(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(study, 'read_django', lambda: [('th', ['ไทย' * 30] * 2)])
  (tmp_path / 'udhr').mkdir()
  (tmp_path / 'ntrex').mkdir()
  (tmp_path / 'udhr/languages.tsv').write_text(
    'key\tbcp47\neng\ten\nnone\txx1\n'
  )
  lines = [
    ' '.join(f'word{i}x{j}' for j in range(20)) if i % 4 else 'title'
    for i in range(8)
  ]
  (tmp_path / 'udhr/eng.txt').write_text('\n'.join(lines))
  (tmp_path / 'udhr/none.txt').write_text('a')
  (tmp_path / 'ntrex/en-de.tsv').write_text('1\t2\n')
  (tmp_path / 'tatoeba').mkdir()
  (tmp_path / 'tatoeba/tatoeba.deu-eng.deu').write_text('Ja.\n12\nNew York\n')
  (tmp_path / 'tatoeba/tatoeba.deu-eng.eng').write_text('Yes\n12\nNew York\n')
  (tmp_path / 'bible').mkdir()
  (tmp_path / 'bible/en.tsv').write_text('GEN.1.1\tAnd\nGEN.1.2\tThere\n')
  (tmp_path / 'bible/fr.tsv').write_text('GEN.1.2\tQue\n')
  assert study.main([f'--data={tmp_path}']) == 0
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in capsys.readouterr().out.splitlines()
  ]
  mono = {row[2]: row for row in rows if len(row) == 10}
  assert mono['UDHR'][:6] == ['en', 'Latn', 'UDHR', '8', '0.0 %', '100.0 %']
  # One of three lines has no letters.
  assert mono['Tatoeba'][3:7] == ['3', '0.0 %', '–', '33.3 %']
  pairs = {row[0]: row[1:5] for row in rows if len(row) == 6}
  assert pairs['NTREX'] == ['en-de', '1', '0.0 %', '0.0 %']
  assert pairs['Tatoeba'] == ['en-deu', '3', '33.3 %', '0.0 %']
  assert pairs['Bible'] == ['en-fr', '1', '100.0 %', '0.0 %']
