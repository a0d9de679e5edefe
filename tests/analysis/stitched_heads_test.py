"""Tests of task heads that read mapped states of another model."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.analysis import fakes
from tests.data.labeled_words import WordVocabulary
from tests.errors import assert_mentions, raises_error
from tests.evaluation import one_hot_model
from xlflax.analysis import stitched_heads, transfer_checks, transfer_study
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation.tasks import tagging_task
from xlflax.objectives.finetuning import token_classification
from xlflax.similarity import alignment_maps, procrustes, vector_normalization
from xlflax.utils import errors

_LABELS = ('O', 'A', 'B', 'C')
_OBJECTIVE = token_classification.TokenClassification(labels=_LABELS)
_NAME = _OBJECTIVE.name


class _Vocabulary(WordVocabulary):
  """Word vocabulary that can also encode sentences."""

  def encode_each(self, texts, language_ids):
    del language_ids
    return self.encode_batch(texts)


class _Model(one_hot_model.OneHot):
  """Model whose layers all have the same states times the parameter `scale`."""

  depth: int = 1

  @property
  def config(self):
    return types.SimpleNamespace(
      **vars(super().config) | {'num_layers': self.depth}
    )

  def encode(self, token_ids, **inputs):
    states = super().encode(token_ids, **inputs)
    return states * self.get_variable('params', 'scale', 1.0)

  def encode_layers(self, token_ids, **inputs):
    return jnp.stack([self.encode(token_ids, **inputs)] * (self.depth + 1))


_VOCABULARY = _Vocabulary(('Ada', 'King', 'Rom'))


def _make_models():
  """Returns a source that reads rotated states, a target and the rotation."""
  rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0]
  head = one_hot_model.tagger(
    _VOCABULARY, _LABELS, {'Ada': 'A', 'King': 'B', 'Rom': 'C'}
  )
  head['output']['kernel'] = (rotation @ head['output']['kernel']).astype(
    np.float32
  )
  source = dataclasses.replace(
    one_hot_model.make_eval_model(_OBJECTIVE, head, _VOCABULARY), model=_Model()
  )
  target = dataclasses.replace(source, params={'model': {}}, objectives={})
  return source, target, rotation


def _saved(matrix, **about):
  none = vector_normalization.Normalized(
    np.zeros((0, 32), np.float32), np.zeros((0, 32))
  )
  return alignment_maps.SavedMap(
    procrustes.Alignment(matrix, none, none), about, 2.0
  )


def _task():
  sentence = labeled_examples.TaggedSentence(
    id='0',
    language='en',
    words=('Ada', 'King', 'Rom', 'Ada'),
    tags=('A', 'B', 'C', 'A'),
  )
  return tagging_task.Tagging(
    source=one_hot_model.Held(parts=(('en', (sentence,)),))
  )


class _Models(fakes.FakeModels):
  """Models `source` and `target`."""

  def __init__(self, source, target):
    super().__init__()
    self._two = {'source': source, 'target': target}

  def eval_model(self, ref):
    return self._two[ref.directory]


def _to_target(alignment, states):
  """Maps states in float64 and undoes the centering of the target."""
  mapped = alignment.map_source(states).astype(np.float64)
  for mean in alignment.target.means[::-1]:
    along = mapped @ mean
    root = np.sqrt(np.maximum(along**2 + 1 - mean @ mean, 0))
    mapped = mean[None] + (root - along)[:, None] * mapped
  return mapped


def test_map_states_matches_the_alignment():
  random = np.random.default_rng(1)
  first = random.normal(size=(40, 5)) * 3 + 1
  second = random.normal(size=(40, 5)) + [1, 0, 2, 0, 0]
  saved = alignment_maps.SavedMap(
    procrustes.fit_alignment(first, second, max_rounds=4), {}, 0.5
  )
  parameters = stitched_heads._parameters(saved)
  mapped = jax.jit(stitched_heads.map_states)(
    first.reshape(4, 10, 5).astype(np.float32), parameters
  )
  lengths = np.linalg.norm(first, axis=-1, keepdims=True)
  expected = _to_target(saved.alignment, first) * 0.5 * lengths
  np.testing.assert_allclose(mapped.reshape(40, 5), expected, atol=1e-4)
  assert np.isfinite(
    stitched_heads.map_states(np.zeros((1, 2, 5), np.float32), parameters)
  ).all()


def test_map_of_states_to_themselves_is_the_identity():
  states = np.random.default_rng(0).normal(size=(50, 4)) + [1, 0, 2, 0]
  saved = alignment_maps.SavedMap(procrustes.fit_alignment(states, states), {})
  mapped = stitched_heads.map_states(states, stitched_heads._parameters(saved))
  np.testing.assert_allclose(mapped, states, atol=1e-4)


def _study(tmp_path, saved, **settings):
  (tmp_path / 'map.npz').write_bytes(alignment_maps.serialize_map(saved))
  return transfer_study.HeadTransferStudy(
    **{
      'heads': (transfer_study.Head('source', str(tmp_path / 'map.npz')),),
      'target': 'target',
      'task': _task(),
    }
    | settings
  )


@pytest.mark.parametrize('back', [False, True])
def test_head_requires_the_map_to_read_target_states(tmp_path, back):
  """Covers maps that were learned in either direction."""
  source, target, rotation = _make_models()
  models = [f'{name}@2' for name in ('target', 'source')[:: -1 if back else 1]]
  saved = _saved(
    rotation.T if back else rotation, layer=1, first=models[0], second=models[1]
  )
  result = _study(tmp_path, saved).run(_Models(source, target))
  assert not result.failures and not result.notes
  scores = {(row['series'], row['pair']): row['value'] for row in result.rows}
  assert scores['mapped', 'en'] == 1
  assert scores['without a map', 'en'] < 1
  assert {row['layer'] for row in result.rows} == {1}
  assert set(result.pictures) == {'layers'}


def test_equal_heads_share_a_compiled_program():
  source, target, rotation = _make_models()
  first, second = (
    stitched_heads.stitch_eval_model(
      source, target, _NAME, _saved(rotation)
    ).objectives[_NAME]
    for _ in range(2)
  )
  assert first == second and hash(first) == hash(second)
  assert isinstance(first, token_classification.TokenClassification)
  assert first != _OBJECTIVE


def test_incompatible_maps_are_rejected_or_noted(tmp_path):
  source, target, rotation = _make_models()
  with raises_error(errors.AnalysisError, got='(32, 5)'):
    stitched_heads.stitch_eval_model(
      source, target, _NAME, _saved(rotation[:, :5])
    )
  with raises_error(errors.AnalysisError, got='parsing'):
    stitched_heads.stitch_eval_model(source, target, 'parsing', None)
  result = _study(tmp_path, _saved(rotation, layer=0)).run(
    _Models(source, target)
  )
  assert_mentions(result.failures[0], 0, 1)
  result = _study(tmp_path, _saved(rotation, first='a@1', second='b@1')).run(
    _Models(source, target)
  )
  assert result.rows
  assert_mentions(result.notes[0], 'a@1', 'b@1', 'target@2', 'source@2')


@pytest.mark.parametrize(
  'broken, values',
  [
    ('target', ('target@2', 1, 'en')),
    ('source', ('source@2', 1, 'en')),
    ('head', ('head',)),
    ('map', ('map',)),
  ],
)
def test_non_finite_states_heads_and_maps_are_failures(
  tmp_path, broken, values
):
  source, target, rotation = _make_models()
  nan = {'scale': np.float32(np.nan)}
  if broken == 'target':
    target = dataclasses.replace(target, params={'model': nan})
  elif broken == 'source':
    source = dataclasses.replace(source, params=source.params | {'model': nan})
  elif broken == 'head':
    source = dataclasses.replace(
      source,
      params=source.params
      | {'heads': jax.tree.map(lambda x: x * np.nan, source.params['heads'])},
    )
  else:
    rotation = rotation * np.nan
  result = _study(tmp_path, _saved(rotation)).run(_Models(source, target))
  assert not result.rows
  assert_mentions(result.failures[0], *values)


def test_layer_of_deeper_and_shallower_targets(tmp_path):
  source, target, rotation = _make_models()
  deep = dataclasses.replace(target, model=_Model(depth=3))
  stitched = stitched_heads.stitch_eval_model(source, deep, _NAME, None)
  assert stitched.objectives[_NAME].layer == 1  # the last layer of the source
  stitched = _study(tmp_path, _saved(rotation)).run(
    _Models(source, dataclasses.replace(target, model=_Model(depth=0)))
  )
  assert_mentions(stitched.failures[0], 1, 'target@2', 0)


def test_failing_language_does_not_affect_others(tmp_path):
  source, target, rotation = _make_models()
  broken = errors.CorpusError('There is no such file')
  task = dataclasses.replace(
    _task(),
    source=one_hot_model.Held(parts=(('fr', broken), *_task().source.parts)),
  )
  result = _study(tmp_path, _saved(rotation), task=task).run(
    _Models(source, target)
  )
  assert {row['pair'] for row in result.rows} == {'en'}
  assert [failure.part for failure in result.failures] == [
    f'source, {series}, fr'
    for series in ('mapped', 'without a map', 'source model')
  ]


def _map_of_languages(**about) -> alignment_maps.SavedMap:
  """Returns a map that doubles vectors of one dimension."""
  none = np.zeros((0, 1))
  alignment = procrustes.Alignment(np.eye(1), none, none)
  return alignment_maps.SavedMap(alignment, about, 2.0)


@pytest.mark.parametrize(
  'first, second, pair, language, scale',
  [
    ('a', 'b', 'en-fr', 'en', 2.0),
    ('b', 'a', 'en-fr', 'en', 0.5),
    # The language determines the direction if both models are the same.
    ('a', 'a', 'en-fr', 'en', 2.0),
    ('a', 'a', 'en-fr', 'fr', 0.5),
    ('a', 'a', 'fr-en', 'fr', 2.0),
  ],
)
def test_maps_are_oriented_toward_the_model_with_the_head(
  first, second, pair, language, scale
):
  saved = _map_of_languages(first=first, second=second, pair=pair)
  oriented, note = transfer_checks.orient_map(
    saved, target='a', source='b', languages=[language]
  )
  assert oriented.scale == scale
  assert note is None


@pytest.mark.parametrize('languages', [['de'], ['en', 'fr'], ['en', 'de'], []])
def test_languages_that_do_not_determine_the_direction_are_rejected(languages):
  saved = _map_of_languages(first='a', second='a', pair='en-fr')
  got = ', '.join(languages)
  mentions = ('--test', 'en', 'fr')
  with raises_error(errors.AnalysisError, got=got, mentions=mentions):
    transfer_checks.orient_map(
      saved, target='a', source='a', languages=languages
    )
