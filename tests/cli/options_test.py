"""Tests of option types that several commands share."""

import pytest

from tests.errors import raises_error
from xlflax.cli import options
from xlflax.utils import errors


def test_parse_language_paths():
  paths = options.parse_language_paths(['fr=a.fr', 'en=b.en'], option='--input')
  assert paths == {'fr': 'a.fr', 'en': 'b.en'}


@pytest.mark.parametrize(
  'items', [['a.fr'], ['fr='], ['=a.fr'], ['en=a', 'en=b'], ['fr=a.fr,sw=b.sw']]
)
def test_invalid_language_paths_are_rejected(items):
  with raises_error(errors.ConfigError, got=items[-1], where='--input'):
    options.parse_language_paths(items, option='--input')
