"""Tests of suggestions for misspelled names."""

import pytest

from tests.errors import assert_mentions
from xlflax.utils import name_suggestions

_NAMES = ['--max_examples', '--model_dir', 'retrieval', 'Tagging']


def test_close_matches_tolerate_misspellings():
  assert name_suggestions.close_matches('--model-dir', _NAMES) == [
    '--model_dir'
  ]
  assert name_suggestions.close_matches('RETREIVAL', _NAMES) == ['retrieval']
  assert name_suggestions.close_matches('taging', _NAMES) == ['Tagging']
  assert name_suggestions.close_matches('xyz', _NAMES) == []


def test_names_with_the_same_prefix_are_suggested_first():
  names = ['--logs', '--gpus_per_node', '--cpus_per_task']
  matches = name_suggestions.close_matches('--gpus', names)
  assert matches[0] == '--gpus_per_node'


def test_suggestions_are_formatted_as_sentences():
  assert name_suggestions.did_you_mean('retreival', _NAMES) == (
    'Did you mean retrieval?'
  )
  assert name_suggestions.did_you_mean('xyz', _NAMES) is None
  assert name_suggestions.suggestion_or_hint('xyz', _NAMES, 'look.') == 'look.'
  assert name_suggestions.suggestion_or_hint('taging', _NAMES, 'look.') == (
    'Did you mean Tagging? look.'
  )


def test_languages_are_suggested_for_other_codes_and_names():
  codes = ['en', 'de', 'ja', 'swa', 'zh_CN', 'aa']
  for name, code in {
    'jp': 'ja',
    'deu': 'de',
    'de-AT': 'de',
    'German': 'de',
    'sw': 'swa',
    'uk': 'en',
    'zh_CM': 'zh_CN',
    'DE': 'de',
  }.items():
    assert (
      name_suggestions.suggest_language(name, codes) == f'Did you mean {code}?'
    ), name
  assert_mentions(
    name_suggestions.suggest_language('ge', ['de', 'en', 'ka']), 'ka', 'de'
  )
  assert name_suggestions.suggest_language('qx', codes) is None
  assert name_suggestions.suggest_language('sl', ['sk']) is None
  assert (
    name_suggestions.suggest_languages(['en', 'jp'], codes)
    == 'Did you mean ja?'
  )
  assert name_suggestions.suggest_languages(['jp', 'deu', 'qx'], codes) == (
    'Did you mean ja for jp, de for deu?'
  )
  assert name_suggestions.suggest_languages(['qx', 'qy'], codes) is None
  assert name_suggestions.suggest_languages(['en'], codes) is None


@pytest.mark.parametrize(
  ('got', 'code'),
  [
    ('jp', 'ja'),
    ('cz_CZ', 'cs'),
    ('UA', 'uk'),
    ('german', 'de'),
    ('ge', 'ka or de'),
    ('xx', None),
    ('l1', None),
  ],
)
def test_standard_codes_are_suggested_for_countries_and_names(got, code):
  expected = code and f'Did you mean {code}?'
  assert name_suggestions.suggest_standard_language(got) == expected


def test_only_plausible_codes_are_suggested():
  for code in ('de', 'ka'):
    suggestion = name_suggestions.suggest_standard_language(
      'ge', lambda candidate, code=code: candidate == code
    )
    assert suggestion == f'Did you mean {code}?'


def test_long_lists_of_choices_are_truncated():
  assert name_suggestions.format_choices(['b', 'a']) == 'one of a, b'
  text = name_suggestions.format_choices(f'n{i:02}' for i in range(23))
  assert text.endswith('n19 and 3 more')
