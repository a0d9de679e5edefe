"""Tests of word alignment between two models, including invalid inputs."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.analysis import fakes
from tests.errors import assert_mentions, raises_error
from xlflax.analysis import alignment_study, model_refs
from xlflax.data.supervised.sources import example_source
from xlflax.similarity import alignment_maps, procrustes, vector_normalization
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_SERIES = (model_refs.ModelSeries('two', 'runs/a', 'runs/b'),)


def _study(
  tmp_path, *, text='der Hund ||| der Hund\n', gold='0-0 1-1\n', **settings
):
  (tmp_path / 'text').write_text(text)
  (tmp_path / 'gold').write_text(gold)
  return alignment_study.AlignmentStudy(
    **{
      'source': example_source.FileDataset(
        format='word_alignment',
        files={'de-de': (str(tmp_path / 'text'), str(tmp_path / 'gold'))},
      ),
      'series': _SERIES,
      'methods': ('argmax',),
    }
    | settings
  )


def _save(
  tmp_path,
  *,
  sign=1,
  layers=(0, 1, 2),
  first='runs/a@2',
  second='runs/b@2',
  pair='de-de',
):
  side = vector_normalization.Normalized(
    np.zeros((0, 16), np.float32), np.zeros((0, 16))
  )
  folder = tmp_path / f'maps{sign}{pair}'
  folder.mkdir()
  for layer in layers:
    alignment = procrustes.Alignment(sign * np.eye(16), side, side)
    about = {'first': first, 'second': second, 'pair': pair, 'layer': layer}
    (folder / f'{layer}.npz').write_bytes(
      alignment_maps.serialize_map(alignment_maps.SavedMap(alignment, about))
    )
  return str(folder)


def test_two_models_are_aligned_without_maps(eval_model, tmp_path):
  result = _study(tmp_path).run(fakes.FakeModels(eval_model=eval_model))
  assert not result.failures
  assert [row['aer'] for row in result.rows] == [0, 0, 0]
  assert result.files['two.2.de-de.argmax.txt'] == '0-0 1-1\n'


@pytest.mark.parametrize(
  'sign, first, second',
  [
    (1, 'runs/a@2', 'runs/b@2'),
    (-1, 'runs/a@2', 'runs/b@2'),
    (-1, 'runs/b@2', 'runs/a@2'),
  ],
)  # a map in the other direction
def test_alignment_uses_mapped_states(
  eval_model, tmp_path, sign, first, second
):
  """Negated vectors are least similar to their originals."""
  folder = _save(tmp_path, sign=sign, first=first, second=second)
  result = _study(tmp_path, maps=folder).run(
    fakes.FakeModels(eval_model=eval_model)
  )
  assert not result.failures
  links = result.files['two.2.de-de.argmax.txt']
  assert links == ('0-0 1-1\n' if sign > 0 else '0-1 1-0\n')


def test_maps_of_all_layers_are_required(eval_model, tmp_path):
  folder = _save(tmp_path, layers=(0, 2))
  result = _study(tmp_path, maps=folder).run(
    fakes.FakeModels(eval_model=eval_model)
  )
  assert_mentions(result.failures[0], 0, 2, 'runs/a@2', 'runs/b@2', 'de-de')


class _TwoSizes(fakes.FakeModels):
  """Models that differ by directory."""

  def __init__(self, eval_models, layers=None):
    super().__init__()
    self._subjects = eval_models
    self._depths = layers or {}

  def eval_model(self, ref):
    return self._subjects[ref.directory]

  def num_layers(self, ref):
    return self._depths.get(ref.directory, 3)


def test_models_of_different_sizes_are_failures(eval_model, tmp_path):
  other = dataclasses.replace(
    eval_model,
    model=eval_model.model.clone(
      config=dataclasses.replace(eval_model.model.config, hidden_dim=8)
    ),
  )
  eval_models = {'runs/a': eval_model, 'runs/b': other}
  result = _study(tmp_path).run(_TwoSizes(eval_models))
  assert_mentions(result.failures[0], 16, 8)
  assert_mentions(result.failures[0], '--maps')
  result = _study(tmp_path).run(_TwoSizes(eval_models, {'runs/b': 5}))
  assert_mentions(result.failures[0], 3, 5)


@pytest.mark.parametrize('series', [_SERIES, fakes.SERIES])
def test_non_finite_states_are_failures(eval_model, tmp_path, series):
  broken = dataclasses.replace(
    eval_model, params=jax.tree.map(lambda x: x * np.nan, eval_model.params)
  )
  result = _study(tmp_path, series=series).run(
    fakes.FakeModels(eval_model=broken)
  )
  assert result.failures
  assert not result.rows


def test_text_and_links_of_unequal_length_are_failures(eval_model, tmp_path):
  result = _study(tmp_path, gold='0-0 1-1\n0-0\n').run(
    fakes.FakeModels(eval_model=eval_model)
  )
  assert_mentions(result.failures[0], 1, 2)
  assert not result.rows


@pytest.mark.parametrize('methods', [(), ('itermax',)])
def test_unknown_methods_are_rejected(tmp_path, methods):
  with raises_error(errors.ConfigError, mentions='methods'):
    _study(tmp_path, methods=methods)
