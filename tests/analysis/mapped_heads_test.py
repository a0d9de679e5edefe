"""A head on states that another model has rotated."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.analysis import fakes
from tests.data.labelled_words import WordVocabulary
from tests.evaluation import one_hot_model
from xlflax import errors
from xlflax.analysis import (
    mapped_heads,
    maps,
    normalization,
    procrustes,
    transfer_study,
)
from xlflax.data.labelled import examples as examples_lib
from xlflax.evaluation import tagging
from xlflax.objectives.finetuning import token_classification

_LABELS = ('O', 'A', 'B', 'C')
_OBJECTIVE = token_classification.TokenClassification(labels=_LABELS)
_NAME = _OBJECTIVE.name
_VOCABULARY = WordVocabulary(('Ada', 'King', 'Rom'))


def _subjects():
  """(source, whose head reads rotated states, target, the rotation)."""
  turn = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0]
  head = one_hot_model.tagger(
      _VOCABULARY, _LABELS, {'Ada': 'A', 'King': 'B', 'Rom': 'C'})
  head['output']['kernel'] = (turn @ head['output']['kernel']).astype(
      np.float32)
  source = one_hot_model.subject_of(_OBJECTIVE, head, _VOCABULARY)
  target = dataclasses.replace(
      source, params={'model': {}}, objectives={})
  return source, target, turn


def _saved(matrix, **about):
  none = normalization.Normalized(
      np.zeros((0, 32), np.float32), np.zeros((0, 32)), 0.0)
  return maps.SavedMap(procrustes.Alignment(matrix, none, none), about, 2.0)


def _task():
  sentence = examples_lib.TaggedSentence(
      id='0', language='en', words=('Ada', 'King', 'Rom', 'Ada'),
      tags=('A', 'B', 'C', 'A'))
  return tagging.Tagging(source=one_hot_model.Held(
      parts=(('en', (sentence,)),)))


class _Models(fakes.FakeModels):
  """Two runs."""

  def __init__(self, source, target):
    super().__init__()
    self._two = {'source': source, 'target': target}

  def subject(self, ref):
    return self._two[ref.directory]


def test_states_are_mapped_as_arrays_are():
  random = np.random.default_rng(1)
  first = random.normal(size=(40, 5)) * 3 + 1
  second = random.normal(size=(40, 5)) + [1, 0, 2, 0, 0]
  saved = maps.SavedMap(procrustes.align(first, second, max_rounds=4), {}, 0.5)
  parameters = mapped_heads._parameters(saved)
  found = jax.jit(mapped_heads.map_states)(
      first.reshape(4, 10, 5).astype(np.float32), parameters)
  expected = saved.to_target(first) * 0.5 * np.linalg.norm(
      first, axis=-1, keepdims=True)
  np.testing.assert_allclose(found.reshape(40, 5), expected, atol=1e-4)
  assert np.isfinite(mapped_heads.map_states(
      np.zeros((1, 2, 5), np.float32), parameters)).all()


def test_a_head_works_through_the_map_only(tmp_path):
  source, target, turn = _subjects()
  (tmp_path / 'map.npz').write_bytes(maps.to_bytes(_saved(turn, layer=1)))
  found = transfer_study.TransferStudy(
      heads=(transfer_study.Head('source', str(tmp_path / 'map.npz')),),
      target='target', task=_task()).run(_Models(source, target))
  assert not found.failures
  scores = {(row['series'], row['pair']): row['value'] for row in found.rows}
  assert scores['mapped', 'en'] == 1
  assert scores['without a map', 'en'] < 1
  assert {row['layer'] for row in found.rows} == {1}
  assert set(found.pictures) == {'layers'}


def test_equal_heads_share_a_compiled_program():
  source, target, turn = _subjects()
  first, second = (mapped_heads.subject_of(
      source, target, _NAME, _saved(turn)).objectives[_NAME]
                   for _ in range(2))
  assert first == second and hash(first) == hash(second)
  assert isinstance(first, token_classification.TokenClassification)
  assert first != _OBJECTIVE


def test_maps_that_do_not_fit(tmp_path):
  source, target, turn = _subjects()
  with pytest.raises(errors.AnalysisError, match='other sizes'):
    mapped_heads.subject_of(source, target, _NAME, _saved(turn[:, :5]))
  with pytest.raises(errors.AnalysisError, match='no such head. Got: parsing'):
    mapped_heads.subject_of(source, target, 'parsing', None)
  (tmp_path / 'map.npz').write_bytes(maps.to_bytes(_saved(turn, layer=0)))
  found = transfer_study.TransferStudy(
      heads=(transfer_study.Head('source', str(tmp_path / 'map.npz')),),
      target='target', task=_task()).run(_Models(source, target))
  assert 'Got: 0. Expected: 1' in str(found.failures[0])
