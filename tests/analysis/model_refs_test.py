"""Tests of model references, stored activations and alignment studies."""

import dataclasses

import numpy as np
import pytest

from tests.analysis import fakes
from tests.errors import assert_mentions, raises_error
from xlflax.analysis import (
  activation_cache,
  alignment_study,
  corpus_hidden_states,
  model_refs,
  parallel_data,
  procrustes_study,
)
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import sentence_embedding, text_sources
from xlflax.storage import manifests
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_LAST_CHECKPOINT = model_refs.ModelRef('run')


@pytest.fixture(scope='module')
def run(make_run, tmp_path_factory):
  return str(make_run(tmp_path_factory.mktemp('models') / 'run', (1, 3)))


@pytest.fixture
def stored_states(tmp_path):
  return activation_cache.SentenceReader(directory=str(tmp_path), block=8)


def _read(reader, *arguments):
  return np.concatenate(list(reader.blocks(*arguments)), axis=1)


def _embeddings(eval_model):
  return np.asarray(eval_model.params['model']['embeddings']['token'])


def test_models_resolves_and_loads_checkpoints(run, eval_model):
  run_models = model_refs.Models()
  last = model_refs.ModelRef(run)
  assert run_models.resolve(last) == model_refs.ModelRef(run, 3)
  assert run_models.num_layers(last) == 3
  np.testing.assert_allclose(
    _embeddings(run_models.eval_model(last)),
    _embeddings(eval_model) * 1.03,
    rtol=1e-6,
  )
  assert run_models.eval_model(last) is run_models.eval_model(
    model_refs.ModelRef(run, 3)
  )
  untrained_ref = model_refs.ModelRef(run, 'untrained')
  assert run_models.at_steps((last, untrained_ref), 'all') == [
    (model_refs.ModelRef(run, step), untrained_ref) for step in (1, 3)
  ]
  assert run_models.at_steps((untrained_ref, untrained_ref), 'all') == [
    (untrained_ref, untrained_ref)
  ]
  assert run_models.at_steps((last, untrained_ref), [1]) == [
    (model_refs.ModelRef(run, 1), untrained_ref)
  ]
  identities = [
    run_models.identity(ref)
    for ref in (last, model_refs.ModelRef(run, 1), untrained_ref)
  ]
  assert identities[0] != identities[1] != identities[2]
  assert model_refs.Models(seed=1).identity(untrained_ref) != identities[2]


def test_prompt_changes_the_identity_of_states(make_run, tmp_path):
  run = make_run(tmp_path / 'run', (1,))
  states = []
  for default in (None, 'passage'):
    embedding = sentence_embedding.SentenceEmbedding(
      prompts={'passage': 'passage: '}, default_prompt=default
    )
    sentence_embedding.write_sentence_encoding(run, embedding)
    states.append(
      model_refs.Models().identity(model_refs.ModelRef(str(run), 1))
    )
  assert states[0] != states[1]


def test_runs_of_different_lengths_share_common_steps(run, make_run, tmp_path):
  short = model_refs.ModelRef(str(make_run(tmp_path / 'short', (1, 2))))
  run_models = model_refs.Models()
  models = model_refs.ModelRef(run), short
  assert run_models.at_steps(models, 'last') == [
    (model_refs.ModelRef(run, 3), model_refs.ModelRef(short.directory, 2))
  ]
  assert [
    ref.step for refs in run_models.at_steps(models, 'all') for ref in refs
  ] == [1, 1]


@pytest.mark.parametrize(
  'ref, got',
  [
    (model_refs.ModelRef('nowhere'), 'nowhere'),
    (model_refs.ModelRef('RUN', 2), '2'),
  ],
)
def test_missing_models_are_rejected(run, ref, got):
  ref = model_refs.ModelRef(ref.directory.replace('RUN', run), ref.step)
  with raises_error(errors.XlflaxError, got=got):
    model_refs.Models().eval_model(ref)


def test_stored_states_equal_computed_states(
  eval_model, sentences, stored_states
):
  texts = sentences('de', 20)
  run_models = fakes.FakeModels(eval_model=eval_model)
  expected = np.concatenate(
    list(
      corpus_hidden_states.sentence_blocks(eval_model, texts, 'de', block=8)
    ),
    axis=1,
  )
  for _ in range(2):
    np.testing.assert_array_equal(
      _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'de'), expected
    )
  assert expected.shape == (3, 20, 16)
  uncached_reader = activation_cache.SentenceReader(block=8)
  np.testing.assert_array_equal(
    _read(uncached_reader, run_models, _LAST_CHECKPOINT, texts, 'de'), expected
  )


def test_interrupted_reading_is_resumed(
  eval_model, sentences, stored_states, tmp_path
):
  texts = sentences('de', 20)
  run_models = fakes.FakeModels(eval_model=eval_model)
  blocks = stored_states.blocks(run_models, _LAST_CHECKPOINT, texts, 'de')
  first = next(blocks)
  blocks.close()
  (folder,) = tmp_path.iterdir()
  assert {path.name for path in folder.iterdir()} == {
    'about.json',
    'digests.json',
    '00000.npz',
  }
  # The stored states are reused without recomputation.
  np.savez(folder / '00000.npz', states=first + 1)
  manifests.record_files(folder, manifests.Kind.STATES, ['00000.npz'])
  states = _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'de')
  np.testing.assert_array_equal(states[:, :8], first + 1)
  assert states.shape == (3, 20, 16)
  no_models = fakes.FakeModels()  # no model: all states are read from disk
  np.testing.assert_array_equal(
    _read(stored_states, no_models, _LAST_CHECKPOINT, texts, 'de'), states
  )
  # States of other languages are stored in a separate folder.
  _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'en')
  assert len(list(tmp_path.iterdir())) == 2


def test_damaged_states_are_rejected(
  eval_model, sentences, stored_states, tmp_path
):
  texts = sentences('de', 9)
  run_models = fakes.FakeModels(eval_model=eval_model)
  _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'de')
  next(tmp_path.glob('*/00001.npz')).write_bytes(b'PK broken')
  with raises_error(errors.AnalysisError, where='00001.npz'):
    _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'de')
  [first] = tmp_path.glob('*/00000.npz')
  # The new content does not match the recorded digest.
  np.savez(first, states=np.zeros((3, 8, 16), np.float32))
  with raises_error(errors.AnalysisError, where='00000.npz'):
    _read(stored_states, run_models, _LAST_CHECKPOINT, texts, 'de')
  for path in tmp_path.glob('*/*.npz'):
    path.unlink()
  assert _read(
    stored_states, run_models, _LAST_CHECKPOINT, texts, 'de'
  ).shape == (3, 9, 16)


def _tsv(tmp_path, sentences, count):
  path = tmp_path / 'de-en.tsv'
  path.write_text(
    ''.join(
      f'{a}\t{b}\n'
      for a, b in zip(
        sentences('de', count), sentences('en', count), strict=True
      )
    )
  )
  return str(path)


def test_links_are_written_for_text_without_gold_links(
  eval_model, sentences, tmp_path
):
  study = alignment_study.AlignmentStudy(
    source=alignment_study.UnlinkedFiles(
      files={'de-en': _tsv(tmp_path, sentences, 6)}, max_sentences=4
    ),
    series=fakes.SERIES,
    methods=('argmax',),
    layer=0,
  )
  result = study.run(fakes.FakeModels(eval_model=eval_model))
  assert not result.failures and not result.pictures and not result.tables
  lines = result.files['mine.2.de-en.argmax.txt'].splitlines()
  assert len(lines) == 4
  assert all(
    0 <= int(i) < 7
    for line in lines
    for link in line.split()
    for i in link.split('-')
  )


def test_gold_links_are_scored(eval_model, tmp_path):
  (tmp_path / 'text').write_text('der Hund ||| der Hund\n')
  (tmp_path / 'gold').write_text('0-0 1-1\n')
  study = alignment_study.AlignmentStudy(
    source=example_source.FileDataset(
      format='word_alignment',
      files={'de-de': (str(tmp_path / 'text'), str(tmp_path / 'gold'))},
    ),
    series=fakes.SERIES,
    methods=('argmax',),
    steps='all',
  )
  result = study.run(fakes.FakeModels(eval_model=eval_model))
  assert result.files['mine.2.de-de.argmax.txt'] == '0-0 1-1\n'
  assert [row['aer'] for row in result.rows] == [0] * 6
  assert set(result.pictures) == {'layers', 'steps'}
  wrong = alignment_study.AlignmentStudy(
    source=study.source, series=fakes.SERIES, layer=3
  ).run(fakes.FakeModels(eval_model=eval_model))
  assert_mentions(wrong.failures[0], 3)


def test_map_of_words_in_context(eval_model, sentences, tmp_path):
  """Maps a language to itself, for which the map is the identity."""
  tsv = tmp_path / 'de-de.tsv'
  tsv.write_text(''.join(f'{a}\t{a}\n' for a in sentences('de', 12)))
  links = tmp_path / 'links'
  links.write_text('0-0 1-1\n' * 11 + '0-0\n')
  study = procrustes_study.ProcrustesStudy(
    source=parallel_data.OrientedPairs(
      source=text_sources.ParallelFiles(files={'de-de': str(tsv)}), pivot='de'
    ),
    series=fakes.SERIES,
    links={'de-de': str(links)},
    level='words',
    layers=(1,),
  )
  result = study.run(fakes.FakeModels(eval_model=eval_model))
  assert not result.failures
  (row,) = result.rows
  assert (row['pairs'], row['held_out'], row['level']) == (21, 2, 'words')
  assert row['cosine_after'] == pytest.approx(1, abs=1e-4)
  links.write_text('0-0 1-1\n' * 11 + '0-0 99-1\n')
  (failure,) = study.run(fakes.FakeModels(eval_model=eval_model)).failures
  assert_mentions(failure, 99)
  reversed_study = dataclasses.replace(study, links={'en-de': str(links)})
  links.write_text('0-1 2-0\n')
  (result,) = reversed_study._read_links(('de', 'en'), 1)
  assert sorted(result.tolist()) == [[0, 2], [1, 0]]
  links.write_text('0-0\n')
  for count in (1, 13):
    links.write_text('0-0\n' * count)
    other = study.run(fakes.FakeModels(eval_model=eval_model))
    assert_mentions(other.failures[0], count, 12)
  limited_study = dataclasses.replace(
    study, source=dataclasses.replace(study.source, max_pairs=1)
  )
  # Only the links of the first pair are read.
  assert len(limited_study._read_links(('de', 'de'), 1)) == 1


def test_multiway_files_give_pairs_with_the_first_language(tmp_path):
  for language, lines in (('en', 'a\nb\n'), ('fr', 'c\nd\n'), ('ru', 'e\n')):
    (tmp_path / language).write_text(lines)
  source = parallel_data.OrientedPairs(
    source=parallel_data.MultiwayFiles(
      files={x: str(tmp_path / x) for x in ('en', 'fr', 'ru')}
    )
  )
  assert source.pairs() == (('en', 'fr'), ('en', 'ru'))
  assert source.load(('en', 'fr')) == (['a', 'b'], ['c', 'd'])
  with raises_error(errors.CorpusError, where='en-ru', mentions=(2, 1)):
    source.load(('en', 'ru'))
