"""Tests of analyses with synthetic states, and of invalid settings."""

import math

import numpy as np
import pytest

from tests.analysis import fakes
from tests.errors import assert_mentions, raises_error
from xlflax.analysis import (
  analysis_report,
  cka_study,
  model_refs,
  parallel_data,
  procrustes_study,
  sentence_study,
)
from xlflax.similarity import alignment_maps, cka
from xlflax.utils import errors


@pytest.fixture(autouse=True)
def _states():
  first, second = fakes.rotated()
  fakes.STATES |= {'en': first, 'fr': second}
  yield
  fakes.STATES.clear()


def _cka(**settings):
  return cka_study.CkaStudy(
    **{
      'source': fakes.Text(sizes={'en': 60, 'fr': 60}),
      'series': fakes.SERIES,
      'reader': fakes.FakeReader(),
    }
    | settings
  )


def _sentences(**settings):
  text = fakes.Text(sizes={'en': 60, 'fr': 60})
  return sentence_study.SentenceRetrievalStudy(
    **{
      'test': text,
      'train': text,
      'series': fakes.SERIES,
      'reader': fakes.FakeReader(),
    }
    | settings
  )


def _procrustes(**settings):
  return procrustes_study.ProcrustesStudy(
    **{
      'source': fakes.Text(sizes={'en': 60, 'fr': 60}),
      'series': fakes.SERIES,
      'reader': fakes.FakeReader(),
    }
    | settings
  )


def test_cka_of_fewer_sentences_than_dimensions_adds_a_note():
  result = _cka().run(fakes.FakeModels())
  rows = [dict(row, sentences=3, dimensions=4) for row in result.rows]
  assert result.rows[0]['dimensions'] > 1
  assert not result.notes
  [note] = _cka()._bias_notes(rows)
  assert_mentions(note, 'en-fr', 3, 4, '--estimator=debiased')
  assert _cka(estimator='debiased')._bias_notes(rows) == []


def test_cka_of_all_pairs_of_layers():
  result = _cka().run(fakes.FakeModels())
  assert len(result.rows) == 9 and not result.failures
  for row in result.rows:
    expected = cka.linear_cka(
      fakes.STATES['en'][row['first_layer']],
      fakes.STATES['fr'][row['second_layer']],
    )
    assert row['cka'] == pytest.approx(expected)
    assert (row['series'], row['pair'], row['step'], row['sentences']) == (
      'mine',
      'en-fr',
      2,
      60,
    )
  assert [
    row['cka']
    for row in result.rows
    if row['first_layer'] == row['second_layer']
  ] == pytest.approx([1, 1, 1])  # invariant to rotations
  assert set(result.pictures) == {'layers', 'matrix.en-fr'}
  assert result.tables[0].rows[0] == ['layer 0', '100.0']


def test_cka_of_a_constant_layer_is_nan():
  fakes.STATES['fr'][2] = 1
  result = _cka(compare='diagonal').run(fakes.FakeModels())
  assert [math.isnan(row['cka']) for row in result.rows] == [False, False, True]
  assert result.tables[0].rows[2] == ['layer 2', '–']
  [note] = result.notes
  assert_mentions(note, 'mine', 'en-fr', 2)


def test_cka_of_some_layers_on_the_diagonal():
  result = _cka(compare='diagonal', layers=(-1, 0)).run(fakes.FakeModels())
  assert [(row['first_layer'], row['second_layer']) for row in result.rows] == [
    (0, 0),
    (2, 2),
  ]
  assert set(result.pictures) == {'layers'}
  average = np.mean([row['cka'] for row in result.rows])
  assert result.tables[0].rows[-1] == ['average', f'{100 * average:.1f}']


def test_several_steps_are_plotted_as_curves():
  result = _cka(steps='all').run(fakes.FakeModels())
  assert {row['step'] for row in result.rows} == {1, 2}
  assert len(result.pictures['layers'].rows) == 3  # the last step only
  assert 'steps' in result.pictures


def test_retrieval_recovers_a_rotation():
  result = _sentences(train=fakes.Text(sizes={'en': 40, 'fr': 40})).run(
    fakes.FakeModels()
  )
  by_mapping = {
    name: [row['accuracy'] for row in result.rows if row['mapping'] == name]
    for name in ('none', 'procrustes')
  }
  assert by_mapping['procrustes'] == [1, 1, 1]
  assert max(by_mapping['none']) < 0.3
  assert result.rows[-1]['learned_from'] == 40
  assert set(result.pictures) == {'layers'} and len(result.tables) == 1


def test_retrieval_without_training_text_has_no_map():
  result = _sentences(train=None).run(fakes.FakeModels())
  assert {row['mapping'] for row in result.rows} == {'none'}
  other = fakes.Text(sizes={'en': 9, 'de': 9}, names=(('en', 'de'),))
  result = _sentences(train=other).run(fakes.FakeModels())
  assert {row['mapping'] for row in result.rows} == {'none'}
  [note] = result.notes
  assert_mentions(note, 'en-fr')


def test_map_is_learned_and_saved(tmp_path):
  result = _procrustes(layers=(1,)).run(fakes.FakeModels())
  (row,) = result.rows
  assert row['accuracy_after'] == 1 and row['accuracy_before'] < 0.8
  assert row['cosine_after'] > 0.99 > row['cosine_before']
  assert (row['pairs'], row['held_out']) == (54, 6)
  analysis_report.write(tmp_path / 'out', result)
  saved = alignment_maps.load_map(tmp_path / 'out' / 'mine.en-fr.2.layer1.npz')
  assert saved.about['layer'] == 1 and saved.about['first'] == 'runs/mine@2'
  mapped = saved.alignment.map_source(fakes.STATES['en'][1])
  expected = saved.alignment.map_target(fakes.STATES['fr'][1])
  assert np.sum(mapped * expected, -1).min() > 0.97


@pytest.mark.parametrize('make', [_cka, _sentences, _procrustes])
def test_non_finite_states_are_failures(make):
  fakes.STATES['fr'][1, 50, 0] = np.nan
  result = make().run(fakes.FakeModels())
  assert result.failures
  assert result.failures[0].part == 'mine en-fr at step 2'


@pytest.mark.parametrize('make', [_cka, _sentences, _procrustes])
def test_unknown_layer_is_a_failure(make, tmp_path):
  result = make(layers=(3,)).run(fakes.FakeModels())
  assert_mentions(result.failures[0], 3, 0, 2)
  with raises_error(errors.AnalysisError, mentions=3):
    analysis_report.write(tmp_path, result)


@pytest.mark.parametrize(
  'make, field',
  [
    (_cka, 'source'),
    (_sentences, 'test'),
    (_sentences, 'train'),
    (_procrustes, 'source'),
  ],
)
def test_sides_of_unequal_length_are_failures(make, field):
  source = parallel_data.OrientedPairs(
    source=fakes.Text(sizes={'en': 5, 'fr': 4})
  )
  result = make(**{field: source}).run(fakes.FakeModels())
  assert not result.rows
  assert_mentions(result.failures[0], 5, 'en', 4, 'fr')


def test_failing_pair_does_not_affect_others():
  fakes.STATES['de'] = np.full((3, 60, 8), np.nan, np.float32)
  result = _cka(
    source=fakes.Text(
      sizes={'en': 60, 'fr': 60, 'de': 60}, names=(('en', 'de'), ('en', 'fr'))
    )
  ).run(fakes.FakeModels())
  assert {row['pair'] for row in result.rows} == {'en-fr'}
  assert [failure.part for failure in result.failures] == [
    'mine en-de at step 2'
  ]


def test_too_few_pairs_for_a_map_are_a_failure():
  result = _procrustes(source=fakes.Text(sizes={'en': 9, 'fr': 9})).run(
    fakes.FakeModels()
  )
  assert_mentions(result.failures[0], 9, 10)


@pytest.mark.parametrize('series', [(), fakes.SERIES * 2])
def test_series_require_unique_names(series):
  with raises_error(errors.ConfigError, mentions='--models'):
    _cka(series=series)


def test_models_of_different_widths_are_not_compared_unmapped():
  fakes.STATES['fr'] = fakes.STATES['fr'][..., :5]
  result = _sentences().run(fakes.FakeModels())
  assert not [row for row in result.rows if row['mapping'] == 'none']
  assert result.failures  # no orthogonal map


def test_word_level_requires_alignments():
  result = _procrustes(level='words').run(fakes.FakeModels())
  assert_mentions(result.failures[0], '--alignments=en-fr=FILE')


def test_pairs_are_oriented_and_limited():
  text = parallel_data.OrientedPairs(
    source=fakes.Text(
      sizes={'en': 3, 'fr': 3, 'de': 3}, names=(('fr', 'en'), ('de', 'fr'))
    ),
    max_pairs=2,
  )
  assert text.pairs() == (('en', 'fr'), ('de', 'fr'))
  assert text.load(('en', 'fr')) == (['en 0', 'en 1'], ['fr 0', 'fr 1'])


def test_model_series_and_references_are_parsed():
  series = model_refs.ModelSeries.parse(
    'bi=runs/{pair},other/{language}@untrained'
  )
  assert series.models(('en', 'ru')) == (
    model_refs.ModelRef('runs/en-ru', 'last'),
    model_refs.ModelRef('other/ru', 'untrained'),
  )
  assert model_refs.ModelRef.parse('a@b@10') == model_refs.ModelRef('a@b', 10)
  assert model_refs.ModelRef.parse('a@b') == model_refs.ModelRef('a@b', 'last')
  for text in ('runs/x', 'x=', '=x', 'x=a,', 'x=a,b,c'):
    with raises_error(errors.ConfigError, mentions='--models'):
      model_refs.ModelSeries.parse(text)
