"""Metadata in the README.md of a published model."""

import pytest

from xlflax.interop.huggingface.cards import card_metadata
from xlflax.utils import errors


@pytest.mark.parametrize(
  'text, expected',
  [
    (
      '---\nlanguage:\n- en\n- "de"\nlicense: mit\ntags:\n- x\n---\n# A',
      {'license': 'mit', 'language': ['en', 'de']},
    ),
    ('---\nlicense: apache-2.0\nlanguage: multilingual\n---\n', None),
    ('# no metadata\nlicense: mit\n', {}),
    ('---\nlicense: mit\n', {}),
  ],
)
def test_read_card_metadata(tmp_path, text, expected):
  (tmp_path / 'README.md').write_text(text)
  if expected is None:
    expected = {'license': 'apache-2.0', 'language': ['multilingual']}
  assert card_metadata.read_card_metadata(tmp_path) == expected


def test_hub_languages_are_iso_codes():
  languages = card_metadata.hub_languages(
    ['de', 'zh_Hans', 'srp_Latn', 'pt-BR', 'x1', 'de']
  )
  assert languages == {
    'language': ['de', 'zh', 'sr', 'pt'],
    'language_bcp47': ['zh-Hans', 'sr-Latn', 'pt-BR'],
  }


def test_unknown_licenses_are_rejected():
  card_metadata.check_license('cc-by-nc-4.0')
  with pytest.raises(errors.ConfigError) as caught:
    card_metadata.check_license('apache2.0')
  assert 'apache-2.0' in caught.value.fix


def test_missing_readme_has_no_metadata(tmp_path):
  assert card_metadata.read_card_metadata(tmp_path) == {}
