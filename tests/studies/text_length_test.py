"""The study of false drops, on two small texts."""

from studies.text_length import __main__ as study


def test_tables(tmp_path, capsys, monkeypatch):
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
  assert study.main([f'--data={tmp_path}']) == 0
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in capsys.readouterr().out.splitlines()
    if line.startswith('| en')
  ]
  assert rows[0][:6] == ['en', 'Latn', 'UDHR', '8', '0.0 %', '100.0 %']
  assert rows[1][:3] == ['en-de', '1', '0.0 %']
  assert len(rows) == 2
