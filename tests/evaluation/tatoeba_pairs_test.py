import pytest

from tests.data.shifted_pairs import shifted_pairs
from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import tatoeba_pairs
from xlflax.utils import errors


def _tatoeba(directory, files):
  for name, lines in files.items():
    (directory / name).write_text(''.join(f'{x}\n' for x in lines), 'utf-8')
  return str(directory)


@pytest.fixture
def tatoeba(tmp_path):
  return _tatoeba(
    tmp_path,
    {
      'tatoeba.deu-eng.deu': ['Hallo', 'Ja '],
      'tatoeba.deu-eng.eng': ['Hello', 'Yes'],
      'tatoeba.swh-eng.swh': ['Jambo'],
      'tatoeba.swh-eng.eng': ['Hi'],
      'README': ['nothing'],
    },
  )


def test_tatoeba_pairs_have_two_letter_codes(tatoeba):
  source = tatoeba_pairs.Tatoeba(directory=tatoeba)
  assert source.pairs() == (('de', 'en'), ('sw', 'en'))
  assert source.load(('de', 'en')) == (['Hallo', 'Ja'], ['Hello', 'Yes'])


def test_tatoeba_pairs_are_limited(tatoeba):
  source = tatoeba_pairs.Tatoeba(directory=tatoeba, max_pairs=1)
  assert source.load(('de', 'en')) == (['Hallo'], ['Hello'])
  assert source.load(('sw', 'en')) == (['Jambo'], ['Hi'])


@pytest.mark.parametrize('languages', [('sw',), ('swh',)])
def test_tatoeba_languages_can_be_selected(tatoeba, languages):
  source = tatoeba_pairs.Tatoeba(directory=tatoeba, languages=languages)
  assert source.pairs() == (('sw', 'en'),)


def test_missing_tatoeba_languages_are_rejected(tatoeba):
  source = tatoeba_pairs.Tatoeba(directory=tatoeba, languages=('de', 'tur'))
  with raises_error(errors.CorpusError, got='tr', mentions=('de-en', 'sw-en')):
    source.pairs()


def test_parent_of_the_tatoeba_folder_has_a_hint(tmp_path):
  (tmp_path / 'data').mkdir()
  _tatoeba(tmp_path / 'data', {'tatoeba.deu-eng.deu': ['a']})
  source = tatoeba_pairs.Tatoeba(directory=str(tmp_path))
  with raises_error(
    errors.CorpusError, got=tmp_path, fix=f'Did you mean {tmp_path}/data?'
  ):
    source.pairs()


def test_tatoeba_files_of_different_length_are_rejected(tmp_path):
  source = tatoeba_pairs.Tatoeba(
    directory=_tatoeba(
      tmp_path,
      {'tatoeba.deu-eng.deu': ['a', 'b'], 'tatoeba.deu-eng.eng': ['c']},
    )
  )
  with raises_error(errors.CorpusError, mentions=(2, 1)):
    source.load(('de', 'en'))


def test_shifted_tatoeba_lines_cause_a_warning(tmp_path, caplog):
  first, second = zip(*shifted_pairs(lines=1), strict=True)
  directory = _tatoeba(
    tmp_path, {'tatoeba.eng-deu.eng': first, 'tatoeba.eng-deu.deu': second}
  )
  tatoeba_pairs.Tatoeba(directory=directory).load(('en', 'de'))
  [record] = caplog.records
  assert_mentions(record.getMessage(), directory, 'en-de', '1 line')


def test_missing_tatoeba_translations_are_rejected(tmp_path):
  source = tatoeba_pairs.Tatoeba(
    directory=_tatoeba(tmp_path, {'tatoeba.deu-eng.deu': ['a']})
  )
  with raises_error(errors.CorpusError, mentions='deu-eng.eng'):
    source.load(('de', 'en'))


def test_empty_tatoeba_file_is_rejected(tmp_path):
  source = tatoeba_pairs.Tatoeba(
    directory=_tatoeba(
      tmp_path, {'tatoeba.deu-eng.deu': [], 'tatoeba.deu-eng.eng': []}
    )
  )
  with raises_error(errors.CorpusError, mentions='tatoeba.deu-eng.deu'):
    source.load(('de', 'en'))


def test_invalid_utf8_in_tatoeba_file_is_located(tmp_path):
  directory = _tatoeba(tmp_path, {'tatoeba.deu-eng.eng': ['a']})
  (tmp_path / 'tatoeba.deu-eng.deu').write_bytes(b'\xff\n')
  source = tatoeba_pairs.Tatoeba(directory=directory)
  with raises_error(
    errors.CorpusError, where='tatoeba.deu-eng.deu:1', mentions='UTF-8'
  ):
    source.load(('de', 'en'))


@pytest.mark.parametrize('name', ['nothing', '.'])
def test_folder_without_tatoeba_files_is_rejected(tmp_path, name):
  source = tatoeba_pairs.Tatoeba(directory=str(tmp_path / name))
  with raises_error(errors.CorpusError, mentions=tmp_path / name):
    source.pairs()


def test_byte_order_marks_are_removed(tmp_path):
  source = tatoeba_pairs.Tatoeba(
    directory=_tatoeba(
      tmp_path,
      {
        'tatoeba.deu-eng.deu': ['\ufeffHallo', 'Ja\u2028nein'],
        'tatoeba.deu-eng.eng': ['\ufeffHello', 'Yes'],
      },
    )
  )
  assert source.load(('de', 'en')) == (
    ['Hallo', 'Ja\u2028nein'],
    ['Hello', 'Yes'],
  )


def test_fingerprint_of_incomplete_files(tmp_path):
  source = tatoeba_pairs.Tatoeba(
    directory=_tatoeba(tmp_path, {'tatoeba.deu-eng.deu': ['a']})
  )
  broken = source.fingerprint()
  _tatoeba(tmp_path, {'tatoeba.deu-eng.eng': ['b']})
  assert source.fingerprint() != broken


def test_scripts_of_a_language_are_separate_pairs(tmp_path):
  """FLORES+ and Glot500 have Uzbek, Chinese and Kashmiri in two scripts."""
  names = [
    f'flores.{code}-eng_Latn.{side}'
    for code in ('zho_Hans', 'zho_Hant', 'kas_Deva')
    for side in (code, 'eng_Latn')
  ]
  (tmp_path / 'flores').mkdir()
  _tatoeba(tmp_path / 'flores', {name: [name] for name in names})
  source = tatoeba_pairs.Tatoeba(directory=str(tmp_path), name='flores/flores')
  assert source.pairs() == (('ks_Deva', 'en'), ('zh', 'en'), ('zh_Hant', 'en'))
  assert source.load(('zh_Hant', 'en'))[0] == [
    'flores.zho_Hant-eng_Latn.zho_Hant'
  ]
