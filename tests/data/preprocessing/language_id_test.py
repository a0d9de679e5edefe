"""Tests of language identification of lines in the context of their file."""

import numpy as np
import pytest

from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.preprocessing import language_id, pipeline, text_filters
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.preprocessing.text_processing import TextProcessing

pytest.importorskip('py3langid')

_SHORT = (
  'Save as|Page style|OK then|New folder|Insert row|Undo typing|File name|'
  'Text grid|Edit points|Chart type|Table border|Font size|Cell range|'
  'Print preview|Line spacing|Auto fill|Sort order|Merge cells'
).split('|')
_LONG = [
  'The committee has not yet decided what to do about the matter.',
  'Each page that you open is shown in a window of its own.',
  'They sold the house to the family which had lived there for years.',
  'Choose the name of the file and the folder where it should be saved.',
]
_GERMAN = [
  'Der Ausschuss hat noch nicht beschlossen, was zu tun ist.',
  'Wählen Sie den Namen der Datei und den Ordner, in dem sie liegt.',
  'Das Haus wurde an die Familie verkauft, die dort lange wohnte.',
  'Jede Seite wird in einem eigenen Fenster gezeigt.',
]
_FILE = (_SHORT + _LONG) * 3
_KEEP = TextFilters(min_language_probability=0.5)


def _filter_texts(texts, file, language='en'):
  prior = language_id.expected_languages(language, file)
  return [
    text
    for text in texts
    if text_filters.find_drop_reason((text,), (language,), _KEEP, (prior,))
    is None
  ]


def test_identify_language():
  assert {'en', 'de', 'zh'} <= language_id.supported_languages()
  assert language_id.identify_language(_LONG[0])[0] == 'en'


def test_short_lines_are_kept_in_the_context_of_their_file():
  """Individually, most of them are not identified as English."""
  individual_results = [language_id.identify_language(text) for text in _SHORT]
  assert (
    sum(code == 'en' and p >= 0.5 for code, p in individual_results)
    < len(_SHORT) / 2
  )
  assert _filter_texts(_FILE, _FILE) == _FILE


@pytest.mark.parametrize('copies', [0, 1, 20])
def test_lines_of_another_language_are_dropped(copies):
  """From one German line to a majority of German lines."""
  mixed = _FILE + (_GERMAN * copies or _GERMAN[:1])
  assert not set(_filter_texts(mixed, mixed)) & set(_GERMAN)
  assert set(_LONG) <= set(_filter_texts(mixed, mixed))


def test_file_of_another_language_is_dropped():
  assert not _filter_texts(_GERMAN * 10, _GERMAN * 10)
  assert _filter_texts(_GERMAN, _GERMAN * 10, language='de') == _GERMAN


def test_language_of_the_file_name_is_the_prior():
  assert _filter_texts(_SHORT + _GERMAN, ()) == _SHORT
  assert language_id.expected_languages('gsw') is None
  assert (
    text_filters.find_drop_reason(('Grüezi mitenand',), ('gsw',), _KEEP) is None
  )


def test_prior_combines_file_name_and_content():
  prior = language_id.expected_languages('en_GB', _LONG * 5 + _GERMAN * 15)
  assert prior.language == 'en'
  assert (
    prior.shares.sum() == pytest.approx(1, rel=1e-4) and prior.shares.min() > 0
  )
  code = list(language_id.language_labels())
  english, german = (prior.shares[code.index(x)] for x in ('en', 'de'))
  # The file name adds as much to English as the content adds to German.
  assert english == pytest.approx(german, abs=0.03)
  assert english + german == pytest.approx(0.7, abs=0.03)


def test_line_probability_follows_bayes_rule():
  prior = language_id.expected_languages('en', _LONG)
  posterior = language_id.language_likelihoods('File name') * prior.shares
  expected = (
    posterior[list(language_id.language_labels()).index('en')] / posterior.sum()
  )
  assert prior.accepts('File name', expected - 1e-6)
  assert not prior.accepts('File name', expected + 1e-6)


def test_prior_is_estimated_from_a_sample_of_the_file(tmp_path, monkeypatch):
  """Covers periodic text and both sides of pairs."""
  monkeypatch.setattr(language_id, '_SAMPLE_LINES', 20)
  pairs = list(zip(_FILE, _GERMAN * 20, strict=False))
  corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  corpus_writer.write_monolingual(
    tmp_path, 'en', [[_LONG[0], _GERMAN[0]] * 100]
  )
  mono, parallel = Corpus(tmp_path).files
  assert [prior.language for prior in language_id.file_priors(parallel)] == [
    'en',
    'de',
  ]
  (prior,) = language_id.file_priors(mono)
  expected = language_id.expected_languages('en', [_LONG[0], _GERMAN[0]] * 100)
  np.testing.assert_allclose(prior.shares, expected.shares, atol=0.05)


@pytest.mark.slow
def test_language_filter_does_not_depend_on_processes_or_shards(tmp_path):
  text = _SHORT * 60 + _LONG * 5 + _GERMAN * 4
  for name in ('a', 'b'):
    corpus_writer.write_monolingual(tmp_path / 'in', 'en', [text], name=name)
  pairs = list(zip(_FILE, _GERMAN * 20, strict=False)) + [
    (_GERMAN[0], _GERMAN[1])
  ]
  corpus_writer.write_parallel(tmp_path / 'in', ('en', 'de'), pairs)
  outputs = []
  for name, options in (
    ('one', [{}]),
    ('two', [{'num_processes': 2}]),
    ('shares', [{'shard': (1, 2)}, {'shard': (0, 2)}]),
  ):
    done = [
      prepared
      for option in options
      for prepared in pipeline.preprocess_corpus(
        Corpus(tmp_path / 'in'),
        tmp_path / name,
        processing=TextProcessing(),
        filters=_KEEP,
        **option,
      )
    ]
    dropped = {p.path: p.dropped for p in done}
    assert dropped == {
      'mono/en.a.txt': {'another language': 16},
      'mono/en.b.txt': {'another language': 16},
      'parallel/en-de.tsv': {'another language': 1},
    }
    outputs.append({p: (tmp_path / name / p).read_bytes() for p in dropped})
  assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize(
  'code, is_supported',
  [
    ('tk', True),
    ('tk_Latn', True),
    ('tk_Cyrl', False),
    ('ug_Arab', True),
    ('ug_Latn', False),
    ('sr_Latn', True),
    ('uz_Cyrl', True),
    ('zh_TW', True),
    ('tlh', False),
  ],
)
def test_scripts_without_training_text_are_not_supported(code, is_supported):
  assert language_id.is_supported(code) == is_supported
  assert (language_id.expected_languages(code) is not None) == is_supported
