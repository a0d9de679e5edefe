"""A reader registers its format."""

from tests.errors import raises_error
from xlflax.data.labelled import examples, formats
from xlflax.data.labelled.readers import files
from xlflax.data.labelled.sources import source
from xlflax.foundation import errors


@formats.register_reader('test.words', example=examples.ClassifiedText, end='!')
def read_words(path, language, *, end='', paired_language=None):
  """One text a line."""
  return files.Reading(
    [
      examples.ClassifiedText(
        id=str(number),
        language=language,
        text=line + end,
        paired_language=paired_language,
      )
      for number, line in files.read_lines(path)
    ]
  )


def test_a_reader_of_ones_own(tmp_path):
  (tmp_path / 'a').write_text('x\n')
  path = str(tmp_path / 'a')
  (one,) = source.FileExamples(format='test.words', files={'fr-en': path}).load(
    'fr-en'
  )
  assert (one.text, one.language, one.paired_language) == ('x!', 'fr', 'en')
  assert formats.find_reader('test.words').example.KIND == 'classification'
  first, second = formats.read_files(
    'test.words', (path, path), 'fr', end='?'
  ).examples
  assert (first.id, second.id, second.text) == ('1', 'a:1', 'x?')
  assert read_words(path, 'fr').examples[0].text == 'x'


def test_names():
  assert {'tsv', 'uner', 'bucc'} <= set(formats.format_names())
  assert set(formats.format_names(formats.Takes.COLLECTIONS)) == {
    'bucc',
    'lines',
  }


def test_unknown_names_and_options():
  with raises_error(errors.ConfigError, got='tvs', mentions='conllu'):
    source.FileExamples(format='tvs', files={'fr': 'a'})
  with raises_error(errors.ConfigError, got='bucc'):
    source.FileExamples(format='bucc', files={'fr-en': 'a'})
  with raises_error(errors.ConfigError, got='sep', mentions='end'):
    formats.check_options('test.words', {'sep': ','})


def test_a_name_is_of_one_reader():
  with raises_error(
    errors.ConfigError,
    got='tests.data.labelled.formats_test.read_words',
    mentions='tsv',
  ):
    formats.register_reader('tsv', example=examples.ClassifiedText)(read_words)
