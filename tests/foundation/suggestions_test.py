"""Names that resemble a misspelt one."""

from xlflax.foundation import suggestions

_NAMES = ['--max_examples', '--model_dir', 'retrieval', 'Tagging']


def test_close_names():
  assert suggestions.close_matches('--model-dir', _NAMES) == ['--model_dir']
  assert suggestions.close_matches('RETREIVAL', _NAMES) == ['retrieval']
  assert suggestions.close_matches('taging', _NAMES) == ['Tagging']
  assert suggestions.close_matches('xyz', _NAMES) == []


def test_sentences():
  assert suggestions.did_you_mean('retreival', _NAMES) == (
    'did you mean retrieval?'
  )
  assert suggestions.did_you_mean('xyz', _NAMES) is None
  assert suggestions.or_else('xyz', _NAMES, 'look.') == 'look.'
  assert suggestions.or_else('taging', _NAMES, 'look.') == (
    'did you mean Tagging? look.'
  )


def test_languages_are_meant_by_other_codes_and_names():
  codes = ['en', 'de', 'ja', 'swa', 'zh_CN', 'aa']
  for got, meant in {
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
      suggestions.suggest_language(got, codes) == f'did you mean {meant}?'
    ), got
  assert suggestions.suggest_language('qx', codes) is None
  assert (
    suggestions.suggest_languages(['en', 'jp'], codes) == 'did you mean ja?'
  )
  assert suggestions.suggest_languages(['jp', 'deu', 'qx'], codes) == (
    'jp: did you mean ja?; deu: did you mean de?'
  )
  assert suggestions.suggest_languages(['qx', 'qy'], codes) is None
  assert suggestions.suggest_languages(['en'], codes) is None


def test_long_lists_are_cut():
  assert suggestions.some_of(['b', 'a']) == 'one of a, b'
  text = suggestions.some_of(f'n{i:02}' for i in range(23))
  assert text.endswith('n19 and 3 more')
