"""Defective exports are rejected before the output folder is created.

The planted defects are detected by importing the folder again, without
transformers. Defects that export and import have in common are detected by
transformers.
"""

import dataclasses
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.interop.huggingface.tokenizers import (
  post_processor,
  sentencepiece_files,
)
from xlflax.interop.huggingface.verification import model_checks
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives.finetuning import sequence_classification
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints, objective_config
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_QUERY = 'encoder.layer.1.attention.self.query.weight'
_KEY = 'encoder.layer.1.attention.self.key.weight'


@pytest.fixture
def without_transformers(monkeypatch):
  monkeypatch.setitem(sys.modules, 'transformers', None)
  assert not model_checks.is_transformers_installed()


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


# Defect -> (function that changes the tensors, changed options).
_MUTATIONS = {
  'activation': (None, {'hidden_act': 'relu'}),
  'epsilon': (None, {'layer_norm_eps': 0.5}),
  'pad_id': (None, {'pad_token_id': 3}),
  'another_pad_id': (None, {'pad_token_id': 1}),
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
def test_incorrect_export_is_rejected(
  run_of, tmp_path, monkeypatch, without_transformers, name
):
  mutate, options = _MUTATIONS[name]
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  checked = huggingface_export.check_export(directory, model_type='roberta')
  checked = dataclasses.replace(checked, options=checked.options | options)
  values = folder_writer._tensor_values

  def wrong(checked):
    order = list(values(checked))
    tensors = {name.removeprefix('roberta.'): value for name, value in order}
    before = dict(tensors)
    if mutate:
      mutate(tensors)
      assert any(tensors[n] is not before[n] for n in before)
    yield from zip((n for n, _ in order), tensors.values(), strict=True)

  monkeypatch.setattr(folder_writer, '_tensor_values', wrong)
  with pytest.raises(model_checks.ConversionMismatchError):
    folder_writer.write_folder(checked, tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def _renamed(first, second):
  def mutate(tensors):
    tensors[first], tensors[second] = tensors[second], tensors[first]

  return mutate


_CROSS = 'decoder.layers.0.encoder_attn.{}_proj.weight'
_T5 = 'decoder.block.0.layer.{}.SelfAttention.{}.weight'
# Model family -> defect -> changes of a translation model, as in `_MUTATIONS`.
_SEQ2SEQ = {
  'pre_ln': {
    'forgotten_scale': (None, {'scale_embedding': True}),
    'activation': (None, {'activation_function': 'relu'}),
    'cross': (_renamed(_CROSS.format('q'), _CROSS.format('k')), {}),
    'norm': (_each('decoder.layer_norm.weight', lambda x: x * 2), {}),
  },
  't5': {
    'forgotten_scale': (None, {'scale_decoder_outputs': False}),
    'activation': (None, {'feed_forward_proj': 'gated-silu'}),
    'swapped': (_renamed(_T5.format(0, 'q'), _T5.format(0, 'k')), {}),
    'buckets': (_each('relative_attention_bias.weight', np.flipud), {}),
  },
}


@pytest.mark.parametrize(
  ('family', 'name'),
  [(family, name) for family in _SEQ2SEQ for name in _SEQ2SEQ[family]],
)
def test_incorrect_translation_model_is_rejected(
  run_of, tmp_path, monkeypatch, without_transformers, family, name
):
  directory, *_ = run_of(
    encoder_decoder.EncoderDecoder(
      encoder_decoder_config.EncoderDecoderConfig(
        family=family,
        num_encoder_layers=1,
        num_decoder_layers=1,
        hidden_dim=16,
        mlp_dim=32,
        num_heads=2,
        max_position_embeddings=24,
        initializer_range=0.5,
      )
    )
  )
  mutate, options = _SEQ2SEQ[family][name]
  checked = huggingface_export.check_export(directory)
  wrong = dataclasses.replace(checked, options=checked.options | options)
  assert wrong.options != checked.options or mutate
  values = folder_writer._tensor_values

  def changed(checked):
    order = [name for name, _ in values(checked)]
    tensors = {n.removeprefix('model.'): v for n, v in values(checked)}
    if mutate:
      mutate(tensors)
    yield from zip(order, tensors.values(), strict=True)

  monkeypatch.setattr(folder_writer, '_tensor_values', changed)
  with pytest.raises(model_checks.ConversionMismatchError):
    folder_writer.write_folder(wrong, tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_missing_tensor_is_rejected(run_of, tmp_path, monkeypatch):
  find = tensor_files.find_tensors
  lacking = 'layer.1.output.dense.weight'
  monkeypatch.setattr(
    tensor_files,
    'find_tensors',
    lambda folder: {
      name: tensor
      for name, tensor in find(folder).items()
      if not name.endswith(lacking)
    },
  )
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  with pytest.raises(model_checks.ConversionMismatchError) as caught:
    folder_writer.write_folder(
      huggingface_export.check_export(directory, model_type='roberta'),
      tmp_path / 'out',
    )
  assert lacking in caught.value.got
  assert not (tmp_path / 'out').exists()


def _next_unknown(
  vocabulary, convert=sentencepiece_files.convert_sentencepiece
):
  files = convert(vocabulary)
  content = files['tokenizer_config.json']
  wrong = content.replace(b'"pad_token": "<pad>"', b'"pad_token": "<unk>"')
  assert wrong != content
  return files | {'tokenizer_config.json': wrong}


def _without_normalizer(
  vocabulary, convert=sentencepiece_files.convert_sentencepiece
):
  files = convert(vocabulary)
  tokenizer_config = json.loads(files['tokenizer.json'])
  assert tokenizer_config.pop('normalizer')
  return files | {
    'tokenizer.json': json.dumps(
      tokenizer_config | {'normalizer': None}
    ).encode()
  }


@pytest.mark.parametrize('wrong', [_next_unknown, _without_normalizer])
def test_incorrect_tokenizer_is_rejected(run_of, tmp_path, monkeypatch, wrong):
  directory, *_ = run_of()
  monkeypatch.setattr(sentencepiece_files, 'convert_sentencepiece', wrong)
  with pytest.raises(errors.VocabularyError) as caught:
    folder_writer.write_folder(
      huggingface_export.check_export(directory), tmp_path / 'out'
    )
  assert caught.value.where.endswith(post_processor.FILE)
  assert not (tmp_path / 'out').exists()


def test_incorrect_pair_template_is_rejected(run_of, tmp_path, monkeypatch):
  directory, *_ = run_of(type_vocab_size=2)
  monkeypatch.setattr(
    post_processor, 'match_run_template', lambda *args, **kwargs: False
  )
  with pytest.raises(errors.VocabularyError) as caught:
    folder_writer.write_folder(
      huggingface_export.check_export(directory), tmp_path / 'out'
    )
  assert caught.value.where.endswith(post_processor.FILE)


def _fine_tuned(run_of, **settings):
  """Writes a run with a classification head like that of XLM-R."""
  model_and_more = run_of(type_vocab_size=1, position_offset=2)
  directory, _, params = model_and_more
  rng = np.random.default_rng(3)
  head = {
    name: {
      'kernel': rng.normal(size=(16, size)).astype(np.float32),
      'bias': rng.normal(size=size).astype(np.float32),
    }
    for name, size in (('dense', 16), ('output', 3))
  }
  objective = sequence_classification.SequenceClassification(
    labels=('a', 'b', 'c'), **settings
  )
  objective_config.write_objectives(directory, [objective])
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  heads = {objective.name: head}
  saved.save(
    train_state.TrainState(
      step=jnp.int32(4),
      params={'model': params, 'heads': heads},
      opt_state=(),
      ema=(),
      objective_state={},
    ),
    {},
  )
  saved.close()
  return directory


def test_correct_classification_head_is_exported(run_of, tmp_path):
  directory = _fine_tuned(run_of)
  checked = huggingface_export.check_export(directory, model_type='xlm-roberta')
  assert folder_writer.write_folder(checked, tmp_path / 'out') == []
  name = 'XLMRobertaForSequenceClassification'
  assert checked.options['architectures'] == [name]


@pytest.mark.parametrize(
  'settings', [{'activation': 'relu'}, {'pooling': 'mean'}, {'layer': 1}]
)
def test_incompatible_classification_head_is_rejected(
  run_of, tmp_path, without_transformers, settings
):
  directory = _fine_tuned(run_of, **settings)
  checked = huggingface_export.check_export(directory, model_type='xlm-roberta')
  with pytest.raises(model_checks.ConversionMismatchError) as caught:
    folder_writer.write_folder(checked, tmp_path / 'out')
  assert_mentions(caught.value.what, 'label logits')


def _swap_on_import(monkeypatch):
  """Swaps the queries and keys of a layer whenever tensors are read."""
  find = tensor_files.find_tensors

  def swapped(folder):
    tensors = find(folder)
    names = {
      end: next(name for name in tensors if name.endswith(end))
      for end in (_QUERY, _KEY)
    }
    query, key = names[_QUERY], names[_KEY]
    return tensors | {query: tensors[key], key: tensors[query]}

  monkeypatch.setattr(tensor_files, 'find_tensors', swapped)


def _swap_on_export(monkeypatch):
  """Swaps the queries and keys of a layer in the files of an export."""
  values = folder_writer._tensor_values

  def swapped(checked):
    tensors = dict(values(checked))
    names = list(tensors)
    _renamed(f'roberta.{_QUERY}', f'roberta.{_KEY}')(tensors)
    yield from ((name, tensors[name]) for name in names)

  monkeypatch.setattr(folder_writer, '_tensor_values', swapped)


def test_transformers_detects_common_defects_of_export_and_import(
  run_of, tmp_path, monkeypatch
):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  checked = huggingface_export.check_export(directory, model_type='roberta')
  _swap_on_export(monkeypatch)
  _swap_on_import(monkeypatch)
  with pytest.raises(model_checks.ConversionMismatchError) as caught:
    folder_writer.write_folder(checked, tmp_path / 'out')
  assert 'transformers' in caught.value.what
  assert not (tmp_path / 'out').exists()
  monkeypatch.setitem(sys.modules, 'transformers', None)
  # The defects cancel out without transformers.
  folder_writer.write_folder(checked, tmp_path / 'out')


def test_incorrect_import_is_removed(run_of, tmp_path, monkeypatch):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  folder = tmp_path / 'hf'
  folder_writer.write_folder(
    huggingface_export.check_export(directory, model_type='roberta'), folder
  )
  with monkeypatch.context() as patch:
    _swap_on_import(patch)
    wrong = huggingface_import.check_import(folder)
    with pytest.raises(model_checks.ConversionMismatchError):
      huggingface_import.convert_import(wrong, tmp_path / 'wrong')
  assert not (tmp_path / 'wrong').exists()
  monkeypatch.setitem(sys.modules, 'transformers', None)
  huggingface_import.convert_import(
    huggingface_import.check_import(folder), tmp_path / 'right'
  )
  record = json.loads(
    (tmp_path / 'right' / huggingface_import.RECORD).read_text()
  )
  assert len(record['not_compared']) == 1
