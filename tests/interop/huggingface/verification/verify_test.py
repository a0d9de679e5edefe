"""What an exporter could do wrong is found before a folder appears."""

import dataclasses

import numpy as np
import pytest

from tests.interop.huggingface.exporting_test import run_of
from xlflax.foundation import errors
from xlflax.interop.huggingface import exporting, folder_writing
from xlflax.interop.huggingface.tokenizers import sentencepiece_files

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_QUERY = 'encoder.layer.1.attention.self.query.weight'
_KEY = 'encoder.layer.1.attention.self.key.weight'


def _swapped(tensors):
  tensors[_QUERY], tensors[_KEY] = tensors[_KEY], tensors[_QUERY]


def _shifted(tensors):
  name = 'embeddings.position_embeddings.weight'
  tensors[name] = np.roll(tensors[name], 1, axis=0)


def _each(word, change):
  def mutate(tensors):
    for name in tensors:
      if name.endswith(word):
        tensors[name] = np.ascontiguousarray(change(tensors[name]))

  return mutate


# What is wrong -> (a change of the tensors, changed options).
_MUTATIONS = {
  'activation': (None, {'hidden_act': 'relu'}),
  'epsilon': (None, {'layer_norm_eps': 0.5}),
  'transposed': (_each(_QUERY, lambda x: x.T), {}),
  'swapped': (_swapped, {}),
  'positions': (_shifted, {}),
  'scale': (_each('layer.0.output.LayerNorm.weight', lambda x: x * 2), {}),
  'bias': (_each('layer.1.intermediate.dense.bias', np.zeros_like), {}),
  'token_type': (
    _each(
      'token_type_embeddings.weight',
      lambda x: x + np.arange(16, dtype=np.float32),
    ),
    {},
  ),
  'output_bias': (_each('lm_head.bias', lambda x: x[::-1]), {}),
}


@pytest.mark.parametrize('name', _MUTATIONS)
def test_a_wrong_folder_is_not_published(run_of, tmp_path, monkeypatch, name):
  mutate, options = _MUTATIONS[name]
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  checked = exporting.check(directory, model_type='roberta')
  checked = dataclasses.replace(checked, options=checked.options | options)
  values = folder_writing._values

  def wrong(checked):
    order = list(values(checked))
    tensors = {name.removeprefix('roberta.'): value for name, value in order}
    before = dict(tensors)
    if mutate:
      mutate(tensors)
      assert any(tensors[n] is not before[n] for n in before)
    yield from zip((n for n, _ in order), tensors.values(), strict=True)

  monkeypatch.setattr(folder_writing, '_values', wrong)
  with pytest.raises(errors.CheckpointError) as caught:
    folder_writing.convert(checked, tmp_path / 'out')
  assert 'computes something else' in caught.value.what
  assert not (tmp_path / 'out').exists()


def _next_unknown(vocabulary, convert=sentencepiece_files.convert):
  files = convert(vocabulary)
  content = files['tokenizer_config.json']
  wrong = content.replace(b'"pad_token": "<pad>"', b'"pad_token": "<unk>"')
  assert wrong != content
  return files | {'tokenizer_config.json': wrong}


@pytest.mark.parametrize(
  ('place', 'name', 'wrong'),
  [(sentencepiece_files, 'convert', _next_unknown)],
  ids=['padding'],
)
def test_a_wrong_tokenizer_is_not_published(
  run_of, tmp_path, monkeypatch, place, name, wrong
):
  directory, *_ = run_of()
  monkeypatch.setattr(place, name, wrong)
  with pytest.raises(errors.VocabularyError, match='gives other ids'):
    folder_writing.convert(exporting.check(directory), tmp_path / 'out')
  assert not (tmp_path / 'out').exists()
