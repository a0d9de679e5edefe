import pytest

from xlflax import errors
from xlflax.evaluation import file_pairs


def test_columns_and_aligned_files(tmp_path):
  (tmp_path / 'a.tsv').write_text('1\tcat\t猫\n2\tdog\t犬\n')
  (tmp_path / 'x.de').write_text('Katze\n')
  (tmp_path / 'x.ru').write_text('кошка\n')
  source = file_pairs.FilePairs(
    columns=(1, 2),
    files={
      'en-ja': str(tmp_path / 'a.tsv'),
      'de-ru': (str(tmp_path / 'x.de'), str(tmp_path / 'x.ru')),
    },
  )
  assert source.pairs() == (('en', 'ja'), ('de', 'ru'))
  assert source.load(('en', 'ja')) == (['cat', 'dog'], ['猫', '犬'])
  assert source.load(('de', 'ru')) == (['Katze'], ['кошка'])
  before = source.fingerprint()
  (tmp_path / 'x.ru').write_text('кот\n')
  assert source.fingerprint() != before


def test_max_pairs(tmp_path):
  (tmp_path / 'a.tsv').write_text('cat\tchat\ndog\tchien\n')
  source = file_pairs.FilePairs(
    files={'en-fr': str(tmp_path / 'a.tsv')}, max_pairs=1
  )
  assert source.load(('en', 'fr')) == (['cat'], ['chat'])


def test_names_of_pairs():
  with pytest.raises(
    errors.ConfigError, match='Got: en. Expected: two codes such as en-ja'
  ):
    file_pairs.FilePairs(files={'en': 'a.tsv'})
