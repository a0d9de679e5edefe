import pytest

from xlflax.commands.flags import language_files
from xlflax.foundation import errors


def test_files_by_language():
  found = language_files.parse(['fr=a.fr', 'en=b.en'], where='--input')
  assert found == {'fr': 'a.fr', 'en': 'b.en'}


@pytest.mark.parametrize('text', ['a.fr', 'fr=', '=a.fr'])
def test_a_file_without_language(text):
  with pytest.raises(errors.ConfigError, match='LANGUAGE=FILE.*--input'):
    language_files.parse([text], where='--input')


def test_a_language_twice():
  with pytest.raises(errors.ConfigError, match='en=b.*each language once'):
    language_files.parse(['en=a', 'en=b'], where='--input')
