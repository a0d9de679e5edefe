"""Tests of the registry of file formats."""

from tests.errors import raises_error
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source
from xlflax.utils import errors


@file_formats.register_reader(
  'test.words', example=labeled_examples.ClassifiedText, end='!'
)
def read_words(path, language, *, end='', paired_language=None):
  """Reads one text per line."""
  return file_reading.Reading(
    [
      labeled_examples.ClassifiedText(
        id=str(number),
        language=language,
        text=line + end,
        paired_language=paired_language,
      )
      for number, line in file_reading.read_lines(path)
    ]
  )


def test_user_defined_reader(tmp_path):
  (tmp_path / 'a').write_text('x\n')
  path = str(tmp_path / 'a')
  (loaded,) = example_source.FileDataset(
    format='test.words', files={'fr-en': path}
  ).load('fr-en')
  assert (loaded.text, loaded.language, loaded.paired_language) == (
    'x!',
    'fr',
    'en',
  )
  assert file_formats.find_reader('test.words').example.KIND == 'classification'
  first, second = file_formats.read_files(
    'test.words', (path, path), 'fr', end='?'
  ).examples
  assert (first.id, second.id, second.text) == ('1', 'a:1', 'x?')
  assert read_words(path, 'fr').examples[0].text == 'x'


def test_format_names_can_be_filtered():
  assert {'tsv', 'uner', 'bucc'} <= set(file_formats.format_names())
  assert set(file_formats.format_names(file_formats.Takes.COLLECTIONS)) == {
    'bucc',
    'lines',
  }


def test_unknown_formats_and_options_are_rejected():
  with raises_error(errors.ConfigError, got='tvs', mentions='conllu'):
    example_source.FileDataset(format='tvs', files={'fr': 'a'})
  with raises_error(errors.ConfigError, got='bucc'):
    example_source.FileDataset(format='bucc', files={'fr-en': 'a'})
  with raises_error(errors.ConfigError, got='sep', mentions='end'):
    file_formats.check_options('test.words', {'sep': ','})


def test_duplicate_format_names_are_rejected():
  with raises_error(
    errors.ConfigError,
    got='tests.data.supervised.file_formats_test.read_words',
    mentions='tsv',
  ):
    file_formats.register_reader(
      'tsv', example=labeled_examples.ClassifiedText
    )(read_words)
