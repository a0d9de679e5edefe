"""Tests of the check for languages with identical files."""

import pytest

from tests.errors import assert_mentions
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
  example_source,
  identical_files,
)

_TEXT = 'en\ta dog\tyes\nde\tein Hund\tno\n'
_COLUMNS = {'text': 1, 'label': 2}


@pytest.fixture
def write(tmp_path):
  def write(name, text=_TEXT):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)

  return write


def _source(files, format='tsv', columns=_COLUMNS, **fields):
  options = {} if columns is None else {'columns': columns}
  return example_source.FileDataset(
    format=format, files=files, options=options, **fields
  )


def _describe(*sources):
  return list(identical_files.describe_identical_files(sources))


def test_all_languages_with_identical_files_are_in_one_message(write):
  path = write('a')
  files = {'en': path, 'fr': path, 'de': write('b'), 'sw': write('c', 'x\ty')}
  [message] = _describe(_source(files))
  assert_mentions(message, 'en', 'fr', 'de', path, files['de'])
  assert 'sw' not in message.split()


def test_files_of_equal_size_are_compared_by_content(write):
  assert not _describe(
    _source({'en': write('a'), 'fr': write('b', _TEXT.replace('dog', 'cat'))})
  )


def test_one_of_several_files_is_identical(write):
  files = {
    'en': (write('a'), write('b', 'x\ty\tno\n')),
    'fr': [write('c', 'z\ty\tno\n'), write('d')],
  }
  [message] = _describe(_source(files))
  assert_mentions(message, files['en'][0], files['fr'][1])
  assert files['en'][1] not in message


def test_missing_files_with_the_same_path_are_reported():
  [message] = _describe(_source({'en': 'gs://b/x.tsv', 'fr': 'gs://b/x.tsv'}))
  assert_mentions(message, 'gs://b/x.tsv')
  assert not _describe(_source({'en': 'gs://b/x.tsv', 'fr': 'missing'}))


def test_sources_are_compared_separately_unless_they_are_concatenated(write):
  sources = _source({'en': write('a')}), _source({'fr': write('b')})
  assert not _describe(*sources)
  combined = concatenated_source.ConcatDataset(sources=sources)
  assert len(_describe(combined)) == 1
  translated = concatenated_source.TranslatedDataset(source=combined)
  assert len(_describe(translated)) == 1


def test_translations_of_a_code_switched_source_are_compared(write):
  english = _source({'en': write('en', 'x\ty\tno\n')})
  translations = _source({'fr': write('a'), 'de': write('b')})
  [message] = _describe(
    code_switched_source.CodeSwitched(
      english=english, translations=translations
    )
  )
  assert_mentions(message, 'fr', 'de')


@pytest.mark.parametrize(
  'fields',
  [
    {'columns': {'language': 0, **_COLUMNS}},
    # The columns of the texts are different.
    {'language_options': {'fr': {'columns': {'text': 0, 'label': 2}}}},
  ],
)
def test_one_file_may_contain_several_languages(write, fields):
  path = write('a')
  assert not _describe(_source({'en': path, 'fr': path}, **fields))


def test_language_pairs_may_share_one_side(write):
  source, target = write('en'), write('de', 'other')
  links = write('links', '0-0\n')
  files = {
    'en-de': (source, target, links),
    'en-fr': (source, write('fr', 'third'), links),
  }
  assert not _describe(_source(files, format='word_alignment', columns=None))
  files['en-fr'] = (source, target, links)
  assert (
    len(_describe(_source(files, format='word_alignment', columns=None))) == 1
  )
