"""Compares imported encoder-decoders with transformers.

In float32, logits are equal to 2e-5 and gradients of the loss to 1e-4. The
exported tensors equal the original tensors bit for bit.
"""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
import torch
import transformers

from tests.errors import raises_error
from tests.interop.huggingface import encoder_decoder_models as models
from tests.interop.huggingface import reference_models as reference
from tests.slow import mark_slow
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.models import decoding
from xlflax.objectives.finetuning import sequence_classification
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors


@pytest.fixture(scope='module')
def imported(tmp_path_factory):
  """Fixture that returns a reference model, its folder and imported run."""

  @functools.cache
  def make(name, scan_layers=True):
    model = models.make_model(name)
    folder = tmp_path_factory.mktemp(name)
    reference.save_model(model, folder / 'hf')
    huggingface_import.convert_import(
      huggingface_import.check_import(
        folder / 'hf', scan_layers=scan_layers, languages=['de', 'en']
      ),
      folder / 'ours',
    )
    return model, folder, saved_run.load_run(folder / 'ours')

  return make


def _check_logits_and_gradients(model, run):
  """Compares logits and gradients, computed by one compiled function."""
  source, target, labels = models.make_inputs()

  @jax.jit
  def loss_of(params):
    def loss_fn(params):
      logits = run.model.apply(
        {'params': params['model']},
        source,
        segment_ids=models.SOURCE,
        decoder_token_ids=target,
        decoder_segment_ids=models.TARGET,
      )
      losses = optax.softmax_cross_entropy_with_integer_labels(
        logits, np.maximum(labels, 0)
      )
      weights = (labels >= 0).astype(np.float32)
      return jnp.sum(losses * weights) / weights.sum(), logits

    return jax.value_and_grad(loss_fn, has_aux=True)(params)

  (loss, logits), grads = loss_of(run.restore_params(0))
  model.zero_grad()
  output = models.run_model(model)
  want = output.logits.detach().numpy()
  text = models.TARGET > 0
  assert np.abs(want[text]).max() > 0.3  # The logits are not near zero.
  np.testing.assert_allclose(
    np.asarray(logits)[text], want[text], atol=2e-5, rtol=2e-5
  )
  np.testing.assert_allclose(loss, output.loss.item(), rtol=1e-5)
  output.loss.backward()
  _check_gradients(model, run, grads)


def _check_gradients(model, run, grads):
  flat = {
    '/'.join(k.key for k in path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(grads)
  }
  parameters = dict(model.named_parameters())
  visited = set()
  for assignment in huggingface_export.check_export(run.directory).assignments:
    # This is a buffer in transformers.
    if assignment.tensor == 'final_logits_bias':
      continue
    value = flat[assignment.parameter]
    if assignment.layer is not None:
      value = value[assignment.layer]
    np.testing.assert_allclose(
      assignment.write(value),
      parameters[assignment.tensor].grad.numpy(),
      atol=1e-4,
      rtol=1e-4,
      err_msg=assignment.tensor,
    )
    visited.add(assignment.tensor)
  assert visited == set(parameters)


# Compiling the gradients of an encoder-decoder takes 15 CPU seconds.
@pytest.mark.parametrize(
  'name', mark_slow(models.MODELS, set(models.MODELS) - {'mbart'})
)
def test_logits_and_gradients_equal_transformers(imported, name):
  model, _, run = imported(name)
  _check_logits_and_gradients(model, run)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['mt5', 'umt5', 'mbart'])
def test_unrolled_layers_equal_transformers(imported, name):
  model, _, run = imported(name, scan_layers=False)
  assert 'layers_1' in run.restore_params(0)['model']['decoder']
  _check_logits_and_gradients(model, run)


def _assert_equal_tensors(first, second):
  first = safetensors.numpy.load_file(first / 'model.safetensors')
  second = safetensors.numpy.load_file(second / 'model.safetensors')
  assert first.keys() == second.keys()
  for key, value in first.items():
    np.testing.assert_array_equal(second[key], value, err_msg=key)


@pytest.mark.parametrize(
  'name', mark_slow(models.MODELS, set(models.MODELS) - {'t5', 'mbart'})
)
def test_exported_tensors_equal_the_original(imported, tmp_path, name):
  model, folder, run = imported(name)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  _assert_equal_tensors(folder / 'hf', tmp_path / 'back')
  loaded, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    tmp_path / 'back', output_loading_info=True
  )
  assert not info['missing_keys'] and not info['unexpected_keys']
  assert not info['mismatched_keys']
  assert type(loaded) is type(model)
  ignored = {'dtype', '_name_or_path', 'architectures'}
  for key, value in model.config.to_dict().items():
    if key not in ignored and value is not None:
      assert getattr(loaded.config, key) == value, key
  with torch.no_grad():
    np.testing.assert_array_equal(
      models.run_model(loaded).logits, models.run_model(model).logits
    )


@pytest.mark.slow
def test_exported_tensors_of_unrolled_layers_equal_the_original(
  imported, tmp_path
):
  _, folder, run = imported('umt5', scan_layers=False)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  _assert_equal_tensors(folder / 'hf', tmp_path / 'back')


@pytest.mark.parametrize(
  'name',
  mark_slow(['t5_v1_1', 'mt5', 'mbart', 'bart'], slow=['t5_v1_1', 'bart']),
)
def test_export_without_import_record(imported, tmp_path, name):
  """Without the record of config.json, the model determines the options."""
  model, _, run = imported(name)
  record = run.directory / huggingface_import.RECORD
  content = record.read_text()
  record.unlink()
  try:
    checked = huggingface_export.check_export(run.directory)
  finally:
    record.write_text(content)
  # mT5 has the architecture of T5 v1.1 and is identified by its tokenizer.
  assert checked.architecture.model_type == model.config.model_type
  folder_writer.write_folder(checked, tmp_path / 'back')
  loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / 'back')
  with torch.no_grad():
    np.testing.assert_array_equal(
      models.run_model(loaded).logits, models.run_model(model).logits
    )


@pytest.mark.parametrize('name', mark_slow(['mt5', 'mbart'], slow=['mt5']))
def test_greedy_decoding_equals_transformers(imported, name):
  model, _, run = imported(name)
  source, _, _ = models.make_inputs()
  spec = run.vocabulary.spec
  generated = decoding.generate(
    run.model,
    run.restore_params(0),
    {'token_ids': source, 'segment_ids': models.SOURCE},
    options=decoding.DecodingOptions(method='greedy', max_length=6),
    vocabulary=spec,
    decoder_start=np.full(3, spec.pad_id, np.int32),
  )
  with torch.no_grad():
    want = model.generate(
      input_ids=torch.tensor(source),
      attention_mask=torch.tensor(models.SOURCE),
      num_beams=1,
      do_sample=False,
      max_new_tokens=6,
      min_new_tokens=6,
      decoder_start_token_id=spec.pad_id,
      forced_eos_token_id=None,
      eos_token_id=None,
      pad_token_id=spec.pad_id,
    ).numpy()[:, 1:]
  tokens = np.asarray(generated.token_ids)[:, 0]
  ended = np.cumsum(tokens == spec.eos_id, axis=1) > 0
  assert not ended.all()
  np.testing.assert_array_equal(tokens[~ended], want[~ended])


def test_unsupported_options_are_all_listed(imported, tmp_path):
  _, folder, _ = imported('mbart')
  for path in (folder / 'hf').iterdir():
    (tmp_path / path.name).write_bytes(path.read_bytes())
  path = tmp_path / 'config.json'
  path.write_text(
    json.dumps(
      json.loads(path.read_text())
      | dict(
        decoder_ffn_dim=7,
        decoder_attention_heads=3,
        encoder_layerdrop=0.1,
        tie_word_embeddings=False,
        activation_function='mish',
        shape=3,
      )
    )
  )
  tensors = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  del tensors['model.encoder.layers.0.fc1.bias']
  safetensors.numpy.save_file(
    tensors | {'extra': np.zeros(2, 'f')}, tmp_path / 'model.safetensors'
  )
  reference.write_tokenizer(tmp_path, 60)
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(tmp_path)
  for part in (
    'decoder_ffn_dim is 7',
    'decoder_attention_heads is 3',
    'encoder_layerdrop is 0.1',
    'tie_word_embeddings is False',
    "activation_function is 'mish'",
    'shape = 3 is not an option',
    'model.encoder.layers.0.fc1.bias',
    'is missing',
    'extra [2] is not part of',
    '60 tokens',
  ):
    assert part in str(caught.value), part


@pytest.mark.parametrize('name, prefix', [('t5', ''), ('mbart', 'model.')])
def test_duplicates_of_the_shared_embedding_table(
  imported, tmp_path, name, prefix
):
  """Other versions store the table under several or different names."""
  _, folder, _ = imported(name)
  for path in (folder / 'hf').iterdir():
    (tmp_path / path.name).write_bytes(path.read_bytes())
  file = tmp_path / 'model.safetensors'
  tensors = safetensors.numpy.load_file(file)
  table = tensors.pop(f'{prefix}shared.weight')
  copies = {
    f'{prefix}{side}.embed_tokens.weight': table
    for side in ('encoder', 'decoder')
  } | {'lm_head.weight': table}
  safetensors.numpy.save_file(
    tensors | copies | {f'{prefix}shared.weight': table}, file
  )
  checked = huggingface_import.check_import(tmp_path)
  assert checked.plan.skipped == dict.fromkeys(
    copies, f'duplicate of {prefix}shared.weight'
  )
  assert checked.config.tie_word_embeddings
  safetensors.numpy.save_file(
    tensors | {f'{prefix}decoder.embed_tokens.weight': table}, file
  )
  assert (
    len(huggingface_import.check_import(tmp_path).plan.assignments)
    == len(tensors) + 1
  )
  safetensors.numpy.save_file(
    tensors
    | copies
    | {
      f'{prefix}shared.weight': table,
      f'{prefix}encoder.embed_tokens.weight': table + 1,
    },
    file,
  )
  with raises_error(
    errors.CheckpointError, mentions=f'{prefix}encoder.embed_tokens.weight'
  ):
    huggingface_import.convert_import(
      huggingface_import.check_import(tmp_path), tmp_path / 'ours'
    )


@pytest.mark.slow
@pytest.mark.parametrize('name', mark_slow(['bart', 'mbart'], slow=['bart']))
def test_decoder_states_of_heads_equal_transformers(imported, name):
  """Transformers shifts the tokens for the decoder itself.

  BART's classifier reads the state at the last EOS of the encoder's tokens.
  """
  model, _, run = imported(name)
  spec = run.vocabulary.spec
  ids = np.where(models.SOURCE > 0, models.make_inputs()[0], spec.pad_id)
  last = models.SOURCE.sum(1) - 1
  ids[np.arange(3), last] = spec.eos_id
  with torch.no_grad():
    states = model.model(
      input_ids=torch.tensor(ids), attention_mask=torch.tensor(models.SOURCE)
    ).last_hidden_state.numpy()
  head = {'kernel': np.eye(30, 3, dtype=np.float32)}
  params = run.restore_params(0) | {'heads': {'classes': {'output': head}}}
  batch = {'token_ids': ids, 'segment_ids': models.SOURCE}
  objective = sequence_classification.SequenceClassification(
    name='classes', labels=('a', 'b', 'c'), head_type='output'
  )
  decoder_states = objective.states(run.model, params, batch, spec)
  text = models.SOURCE > 0
  np.testing.assert_allclose(
    np.asarray(decoder_states)[text], states[text], atol=2e-5, rtol=2e-5
  )
  np.testing.assert_allclose(
    objective.predict(run.model, params, batch, spec),
    states[np.arange(3), last, :3],
    atol=2e-5,
    rtol=2e-5,
  )
  encoder = dataclasses.replace(objective, states_from='encoder')
  np.testing.assert_allclose(
    encoder.predict(run.model, params, batch, spec),
    run.model.apply(
      {'params': params['model']},
      ids,
      segment_ids=models.SOURCE,
      method='encode',
    )[:, 0, :3],
    atol=1e-6,
  )
