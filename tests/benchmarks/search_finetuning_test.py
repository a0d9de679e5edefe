"""Tests of the search fine-tuning benchmark."""

from benchmarks import search_finetuning


def _setting(tmp_path, **fields):
  return search_finetuning.Setting(
    model='m', data=str(tmp_path), work=str(tmp_path), **fields
  )


def test_write_pairs_uses_each_english_text_once(tmp_path):
  (tmp_path / 'bible').mkdir()
  (tmp_path / 'ntrex').mkdir()
  for code in ('en', 'fr', 'de'):
    (tmp_path / 'bible' / f'{code}.tsv').write_text(f'A\t{code} a\nB\t{code}\n')
  for code in ('fr', 'de'):
    (tmp_path / 'ntrex' / f'en-{code}.tsv').write_text(f'news\tnews {code}\n')
  setting = _setting(tmp_path, languages='fr,de', steps=1, pairs=3)
  search_finetuning.write_pairs(setting, 0)
  lines = setting.pairs_file(0).read_text().splitlines()
  first, second = zip(*(line.split('\t') for line in lines), strict=True)
  assert sorted(first) == ['en', 'en a', 'news']
  assert all(text.split()[0] in ('fr', 'de', 'news') for text in second)


def test_format_table_compares_implementations_per_seed(tmp_path):
  results = {
    f'{implementation} 0': {
      'seconds': seconds,
      'losses': [2.0, loss],
      'accuracy': {'fr': 0.5, 'de': score},
    }
    for implementation, seconds, loss, score in zip(
      search_finetuning.IMPLEMENTATIONS,
      (10, 20),
      (1.0, 1.5),
      (0.5, 0.25),
      strict=True,
    )
  }
  setting = _setting(tmp_path, languages='fr,de')
  table_lines = search_finetuning.format_table(setting, results).splitlines()
  assert (
    table_lines[2]
    == '| xlflax | 0 | 2.0000 | 1.5000 | 50.0 | 50.0 | 50.0 | 10 |'
  )
  assert table_lines[-1] == (
    'Seed 0: maximum difference of a loss 0.5000, difference of accuracy '
    '+12.50 points, ratio of CPU seconds 0.50'
  )
