"""Tests of lexicon induction from vector files and from a tiny model."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from tests.analysis import fakes
from tests.errors import raises_error
from xlflax.analysis import (
  analysis_report,
  lexicon_induction_study,
  text_files,
  word_vectors,
)
from xlflax.evaluation import eval_task, text_sources
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


def _write_vectors(path, word_list, vectors):
  lines = [f'{len(word_list)} {vectors.shape[1]}'] + [
    word + ' ' + ' '.join(map(str, row))
    for word, row in zip(word_list, vectors.tolist(), strict=True)
  ]
  path.write_text('\n'.join(lines) + '\n')


@pytest.fixture
def vectors(tmp_path):
  """Files en.vec and fr.vec, whose rows are rotated and words prefixed with x."""
  random = np.random.default_rng(1)
  rows = random.normal(size=(50, 6)).astype(np.float32)
  rotation = np.linalg.qr(random.normal(size=(6, 6)))[0]
  word_list = [f'w{i}' for i in range(50)]
  _write_vectors(tmp_path / 'en.vec', word_list, rows)
  _write_vectors(
    tmp_path / 'fr.vec', ['x' + w for w in word_list], rows @ rotation
  )
  return {'en': str(tmp_path / 'en.vec'), 'fr': str(tmp_path / 'fr.vec')}


def _dictionary(path, pairs, separator):
  path.write_text(''.join(f'{a}{separator}{b}\n' for a, b in pairs))
  return {'en-fr': str(path)}


@pytest.mark.parametrize('separator', ['\t', ' '])
def test_procrustes_recovers_a_rotation_of_word_vectors(
  tmp_path, vectors, separator
):
  result = lexicon_induction_study.LexiconInductionStudy(
    vectors=vectors,
    train=_dictionary(
      tmp_path / 'train', [(f'w{i}', f'xw{i}') for i in range(30)], separator
    ),
    test=_dictionary(
      tmp_path / 'test', [(f'w{i}', f'xw{i}') for i in range(30, 55)], separator
    ),
  ).run(fakes.FakeModels())
  assert not result.failures and len(result.rows) == 4
  for row in result.rows:
    assert (row['series'], row['representation'], row['layer']) == (
      'vectors',
      'vectors',
      None,
    )
    assert (row['queries'], row['coverage']) == (20, 0.8)
    if row['mapping'] == 'procrustes':
      assert row['precision@1'] == 1 and row['learned_from'] == 30
    else:
      assert row['precision@1'] < 0.5
  assert set(result.pictures) == {'embeddings'}
  analysis_report.write(tmp_path / 'out', result)
  assert 'vectors,en-fr,' in (tmp_path / 'out' / 'words.csv').read_text()


def test_dictionary_without_known_words_is_a_failure(tmp_path, vectors):
  pairs = _dictionary(tmp_path / 'd', [('foo', 'bar')], '\t')
  result = lexicon_induction_study.LexiconInductionStudy(
    vectors=vectors, train=pairs, test=pairs
  ).run(fakes.FakeModels())
  assert result.failures
  assert not result.rows


@pytest.mark.slow
def test_study_covers_layers_and_embeddings_of_a_model(
  tmp_path, eval_model, sentences
):
  files = {}
  for language in ('de', 'en'):
    files[language] = str(tmp_path / f'{language}.txt')
    (tmp_path / f'{language}.txt').write_text(
      '\n'.join(sentences(language, 20)) + '\n'
    )
  entries = [
    ('Hund', 'dog'),
    ('Katze', 'cat'),
    ('Milch', 'milk'),
    ('1', '1'),
    ('2', '2'),
    ('3', '3'),
  ]
  (tmp_path / 'd').write_text(''.join(f'{a}\t{b}\n' for a, b in entries))
  dictionary = {'de-en': str(tmp_path / 'd')}
  study = lexicon_induction_study.LexiconInductionStudy(
    series=fakes.SERIES,
    train=dictionary,
    test=dictionary,
    layers=(0, -1),
    text=text_files.TextFiles(files=files),
    directory=str(tmp_path / 's'),
  )
  result = study.run(fakes.FakeModels(eval_model=eval_model))
  rows = [
    row
    for row in result.rows
    if row['score'] == 'csls' and row['mapping'] == 'procrustes'
  ]
  assert [(row['representation'], row['layer']) for row in rows] == [
    ('embeddings', None),
    ('layers', 0),
    ('layers', 2),
  ]
  assert all(0 < row['queries'] <= 6 for row in rows)
  assert rows[-1]['coverage'] == 1  # every word of the dictionary occurs
  archives = [np.load(path) for path in (tmp_path / 's').glob('words.*.npz')]
  assert {
    json.loads(str(archive['about']))['language'] for archive in archives
  } == {'de', 'en'}
  assert {json.loads(str(archive['about']))['run'] for archive in archives} == {
    'runs/mine@2'
  }
  repeated = study.run(fakes.FakeModels(eval_model=eval_model))
  assert repeated.rows == result.rows


def test_restricted_vectors_have_the_words_of_the_embeddings(
  tmp_path, eval_model
):
  """Compares the number of words with the single-token words of the model."""
  spec = eval_model.vocabulary
  words_by_language = {
    language: [
      word
      for word in dictionary
      if len(spec.encode(word, language=language)) == 1
    ]
    for language, dictionary in (
      ('de', ('1', '2', '3', '4', '5')),
      ('en', ('1', '2', '3', '4', '5')),
    )
  }
  assert len(words_by_language['de']) > 2
  rng = np.random.default_rng(0)
  vectors = {}
  for language, single_tokens in words_by_language.items():
    listed = [*single_tokens, 'unknownword', 'otherunknownword']
    vectors[language] = str(tmp_path / f'{language}.vec')
    _write_vectors(
      tmp_path / f'{language}.vec', listed, rng.normal(size=(len(listed), 4))
    )
  (tmp_path / 'd').write_text(''.join(f'{w}\t{w}\n' for w in '12345'))
  dictionary = {'de-en': str(tmp_path / 'd')}
  study = lexicon_induction_study.LexiconInductionStudy(
    series=fakes.SERIES,
    train=dictionary,
    test=dictionary,
    vectors=vectors,
    restrict_vectors=True,
  )
  result = study.run(fakes.FakeModels(eval_model=eval_model))
  assert not result.failures
  sizes = {
    (row['series'], row['representation']): (
      row['source_words'],
      row['target_words'],
    )
    for row in result.rows
  }
  series = fakes.SERIES[0].name
  expected = (len(words_by_language['de']), len(words_by_language['en']))
  assert sizes['vectors', 'vectors'] == tuple(n + 2 for n in expected)
  assert sizes[series, 'vectors of the same words'] == expected
  assert sizes[series, 'embeddings'] == expected


def test_frequent_words_are_ordered_by_frequency():
  texts = ['The dog sees the Cat.', 'the cat sleeps']
  assert word_vectors.frequent_words(texts, 'en') == (
    'the',
    'cat',
    'dog',
    'sees',
    'sleeps',
  )
  assert word_vectors.frequent_words(
    texts, 'en', {'Cat', 'mouse'}, max_words=3
  ) == ('Cat', 'the', 'dog')


def test_non_finite_embeddings_and_states_are_failures(
  tmp_path, eval_model, sentences
):
  for language in ('de', 'en'):
    (tmp_path / language).write_text('\n'.join(sentences(language, 9)))
  (tmp_path / 'd').write_text('1\t1\n2\t2\n')
  nan_model = dataclasses.replace(
    eval_model, params=jax.tree.map(lambda x: x * np.nan, eval_model.params)
  )
  result = lexicon_induction_study.LexiconInductionStudy(
    series=fakes.SERIES,
    train={'de-en': str(tmp_path / 'd')},
    test={'de-en': str(tmp_path / 'd')},
    text=text_files.TextFiles(
      files={x: str(tmp_path / x) for x in ('de', 'en')}
    ),
  ).run(fakes.FakeModels(eval_model=nan_model))
  assert not result.rows
  assert [failure.part for failure in result.failures] == [
    f'mine de-en at step 2, {kind}' for kind in ('embeddings', 'layers')
  ]


def test_streamed_text_matches_loaded_text(tmp_path, corpus):
  """Compares lines, digests and fingerprints."""
  lines = ['a b', 'ü "quoted"', '中文']
  (tmp_path / 'x').write_text('\n'.join([*lines[:1], '', *lines[1:]]))
  text = text_files.TextFiles(files={'en': str(tmp_path / 'x')})
  assert next(text_files.lines_of(text, 'en')) == 'a b'
  assert text.load('en') == lines
  assert text_files.digest(text.lines('en')) == (
    eval_task.settings_hash(lines),
    3,
  )
  same = text_files.TextFiles(files={'en': str(tmp_path / 'x')}, max_lines=3)
  other = text_files.TextFiles(files={'en': str(tmp_path / 'x')}, max_lines=2)
  assert text.fingerprint() == same.fingerprint() != other.fingerprint()
  held_out_lines = text_files.CorpusLines(
    directory=corpus, split='test', max_lines=5
  )
  assert held_out_lines.languages_found() == ('de', 'en', 'ja')
  assert held_out_lines.load('de') == text_sources.CorpusText(
    directory=corpus, max_lines=5
  ).load('de')


@pytest.mark.parametrize(
  'settings, mentioned',
  [
    ({'train': {}, 'test': {'a-b': 'x'}}, 'a-b'),
    ({'train': {'en-fr': 'x'}, 'test': {'en-fr': 'x'}}, ('en', '--vec')),
    ({'train': {}, 'test': {}, 'vectors': {}}, '--models'),
  ],
)
def test_invalid_settings_are_rejected(settings, mentioned):
  with raises_error(errors.ConfigError, mentions=mentioned):
    lexicon_induction_study.LexiconInductionStudy(
      **{'vectors': {'en': 'x'}} | settings
    )


def test_missing_dictionary_is_an_error():
  study = lexicon_induction_study.LexiconInductionStudy(
    series=fakes.SERIES, train={'en-fr': 'nowhere'}, test={'en-fr': 'x'}
  )
  with raises_error(errors.CorpusError, mentions='en-fr=nowhere'):
    study.run(fakes.FakeModels())
