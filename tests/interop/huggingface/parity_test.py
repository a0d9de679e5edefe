"""Compares imported models with transformers.

In float32, logits are equal to 2e-5 and gradients of the masked LM loss to 1e-4.
The exported tensors equal the original tensors bit for bit.
"""

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
from transformers import core_model_loading

from tests.interop.huggingface import reference_models as reference
from tests.slow import mark_slow
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.models.heads import classification_heads
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

# The heads of all other models use the code of these heads. The tests of the
# other heads are slow tests.
_QUICK_CLASSIFIERS = (
  'BertForSequenceClassification',
  'BertModel',
  'DebertaV2ForSequenceClassification',
  'DistilBertForSequenceClassification',
  'EuroBertForSequenceClassificationlate',
  'GteForSequenceClassification',
  'JinaEmbeddingsV3ForSequenceClassification',
  'ModernBertForSequenceClassificationcls',
  'ModernBertForSequenceClassificationmean',
  'NomicBertForSequenceClassification',
  'XLMForSequenceClassification',
  'XLMRobertaForQuestionAnswering',
  'XLMRobertaForSequenceClassification',
  'XLMRobertaForTokenClassification',
  'XLMRobertaXLForSequenceClassification',
)
_SLOW_CLASSIFIERS = tuple(
  name for name in reference.CLASSIFIERS if name not in _QUICK_CLASSIFIERS
)
# The comparison of gradients takes ten CPU seconds per model, so the other
# architectures are compared by the states and heads of their classifiers.
_QUICK_MASKED_LMS = ('bert', 'modernbert')
_SLOW_MASKED_LMS = tuple(
  name for name in reference.MASKED_LMS if name not in _QUICK_MASKED_LMS
)

_AUTO = {
  'states': transformers.AutoModel,
  'masked_lm': transformers.AutoModelForMaskedLM,
  'pretraining': transformers.AutoModelForPreTraining,
  'sequence_classification': transformers.AutoModelForSequenceClassification,
  'token_classification': transformers.AutoModelForTokenClassification,
  'question_answering': transformers.AutoModelForQuestionAnswering,
}


@pytest.fixture(scope='module')
def imported(tmp_path_factory):
  """Fixture that returns a reference model, its folder and imported run."""

  @functools.cache
  def make(name, scan_layers=True):
    model = reference.make_model(name)
    folder = tmp_path_factory.mktemp(name)
    reference.save_model(model, folder / 'hf')
    languages = (
      ['en', 'de', 'fr'][: model.config.n_langs]
      if model.config.model_type == 'xlm'
      else None
    )
    huggingface_import.convert_import(
      huggingface_import.check_import(
        folder / 'hf', scan_layers=scan_layers, languages=languages
      ),
      folder / 'ours',
    )
    return model, folder, saved_run.load_run(folder / 'ours')

  return make


@functools.partial(jax.jit, static_argnums=(0, 1))
def _jitted(model, method, params, ids, more):
  return model.apply(
    {'params': params},
    ids,
    segment_ids=reference.PADDING,
    method=method,
    **more,
  )


def _apply(run, params, model, method='__call__'):
  return _jitted(
    run.model, method, params['model'], *reference.make_inputs(model)
  )


def _compared_positions(run):
  """Returns the mask of compared positions; XLM has zeros at padding."""
  if run.model.config.zero_padding_states:
    return np.ones_like(reference.PADDING, bool)
  return reference.PADDING > 0


def _labels():
  rng = np.random.default_rng(1)
  labels = rng.integers(5, reference.VOCAB, reference.PADDING.shape)
  return np.where(reference.PADDING, labels, -100)


def _check_masked_lm(model, run):
  """Compares logits and gradients, computed by one compiled function."""
  labels = _labels()

  @jax.jit
  def loss_of(params):
    def loss_fn(params):
      logits = _apply(run, params, model)
      losses = optax.softmax_cross_entropy_with_integer_labels(
        logits, np.maximum(labels, 0)
      )
      weights = (labels >= 0).astype(np.float32)
      return jnp.sum(losses * weights) / weights.sum(), logits

    return jax.value_and_grad(loss_fn, has_aux=True)(params)

  (loss, logits), grads = loss_of(run.restore_params(0))
  pretraining = type(model).__name__ == 'BertForPreTraining'
  more = (
    {'next_sentence_label': torch.zeros(3, dtype=torch.long)}
    if pretraining
    else {}
  )
  model.zero_grad()
  output = reference.run_model(model, labels=torch.tensor(labels), **more)
  want = (
    (output.prediction_logits if pretraining else output.logits)
    .detach()
    .numpy()
  )
  compared = _compared_positions(run)
  assert np.abs(want[compared]).max() > 1  # The logits are not near zero.
  np.testing.assert_allclose(
    np.asarray(logits)[compared], want[compared], atol=2e-5, rtol=2e-5
  )
  if pretraining:  # The loss is the sum of two losses.
    return
  np.testing.assert_allclose(loss, output.loss.item(), rtol=1e-5)
  output.loss.backward()
  _check_gradients(model, run, grads)


def _gradients_as_saved(model):
  """Returns gradients by tensor name; some tensors combine several matrices."""
  outputs = {
    name: torch.zeros_like(p) if p.grad is None else p.grad
    for name, p in model.named_parameters(remove_duplicate=False)
  }
  if model.config.model_type in ('gte', 'jina_embeddings_v3', 'nomic_bert'):
    return core_model_loading.revert_weight_conversion(model, outputs)
  return outputs


def _check_gradients(model, run, grads):
  flat = {
    '/'.join(k.key for k in path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(grads)
  }
  parameters = _gradients_as_saved(model)
  visited = set()
  for assignment in huggingface_export.check_export(run.directory).assignments:
    value = flat[assignment.parameter]
    if assignment.layer is not None:
      value = value[assignment.layer]
    want = parameters[assignment.tensor].numpy()
    number, count = assignment.part
    want = np.split(want, count)[number] if count > 1 else want
    np.testing.assert_allclose(
      assignment.write(value),
      want,
      atol=1e-4,
      rtol=1e-4,
      err_msg=assignment.tensor,
    )
    visited.add(assignment.tensor)
  remaining = {
    name
    for name in parameters.keys() - visited
    if not any(
      part in name for part in ('decoder', 'pred_layer', 'vocab_projector')
    )
  }
  tied = {'lm_head.weight'} if run.model.config.tie_word_embeddings else set()
  assert remaining <= {'transformer.position_embeddings.weight'} | tied


@pytest.mark.parametrize(
  'name', mark_slow(reference.MASKED_LMS, slow=_SLOW_MASKED_LMS)
)
def test_masked_lms_equal_transformers(imported, name):
  model, _, run = imported(name)
  _check_masked_lm(model, run)


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', ['bert', 'xlm_roberta_xl', 'xlm', 'modernbert', 'eurobert']
)
def test_unrolled_layers_equal_transformers(imported, name):
  model, _, run = imported(name, scan_layers=False)
  assert 'layers_2' in run.restore_params(0)['model']
  _check_masked_lm(model, run)


@pytest.mark.parametrize(
  'name', mark_slow(reference.CLASSIFIERS, _SLOW_CLASSIFIERS)
)
def test_heads_equal_transformers(imported, name):
  model, _, run = imported(name)
  params = run.restore_params(0)
  states = _apply(run, params, model, method='encode')
  with torch.no_grad():
    output = reference.run_model(model)
  compared = _compared_positions(run)
  style = huggingface_import.head_style(run.directory)
  if name.endswith('Model'):
    got, want = [states[compared]], [output.last_hidden_state[compared]]
    if 'heads' in params:
      got.append(
        classification_heads.pool_first_position(
          params['heads']['pooler'], states
        )
      )
      want.append(output.pooler_output)
  elif 'SequenceClassification' in name:
    head = params['heads']['sequence_classification']
    got = [
      classification_heads.sequence_logits(
        head, states, mask=reference.PADDING, **style
      )
    ]
    want = [output.logits]
  elif 'TokenClassification' in name:
    head = params['heads']['token_classification']
    style.pop('pooling', None)
    got = [classification_heads.token_logits(head, states, **style)[compared]]
    want = [output.logits[compared]]
  else:
    head = params['heads']['question_answering']
    style.pop('pooling', None)
    logits = classification_heads.token_logits(head, states, **style)
    got = [logits[..., 0][compared], logits[..., 1][compared]]
    want = [output.start_logits[compared], output.end_logits[compared]]
  for ours, theirs in zip(got, want, strict=True):
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5, rtol=2e-5)


def test_next_sentence_logits_equal_transformers(imported):
  model, _, run = imported('bert_pretraining')
  params = run.restore_params(0)
  states = _apply(run, params, model, method='encode')
  head = params['heads']['next_sentence'] | params['heads']['pooler']
  with torch.no_grad():
    want = reference.run_model(model).seq_relationship_logits.numpy()
  np.testing.assert_allclose(
    classification_heads.sequence_logits(head, states), want, atol=2e-5
  )


@pytest.mark.parametrize(
  'name',
  mark_slow(
    [*reference.MASKED_LMS, *reference.CLASSIFIERS],
    slow=[
      *_SLOW_MASKED_LMS,
      *_SLOW_CLASSIFIERS,
      # Written by the same code as the masked LM or another head.
      'BertForSequenceClassification',
      'BertModel',
      'ModernBertForSequenceClassificationcls',
      'ModernBertForSequenceClassificationmean',
      'XLMRobertaForQuestionAnswering',
      'XLMRobertaForSequenceClassification',
    ],
  ),
)
def test_exported_tensors_equal_the_original(imported, tmp_path, name):
  _, folder, run = imported(name)
  checked = huggingface_export.check_export(run.directory)
  folder_writer.write_folder(checked, tmp_path / 'back')
  first = safetensors.numpy.load_file(folder / 'hf/model.safetensors')
  second = safetensors.numpy.load_file(tmp_path / 'back/model.safetensors')
  assert first.keys() == second.keys()
  for key, value in first.items():
    np.testing.assert_array_equal(second[key], value, err_msg=key)
  loaded, info = _AUTO[checked.task.value].from_pretrained(
    tmp_path / 'back', output_loading_info=True
  )
  assert not info['missing_keys'] and not info['unexpected_keys']
  assert not info['mismatched_keys']
  assert type(loaded) is type(imported(name)[0])
  before, after = imported(name)[0].config, loaded.config
  ignored = {'dtype', '_name_or_path', 'architectures', 'lang2id', 'id2lang'}
  for key, value in before.to_dict().items():
    if key not in ignored and value is not None:
      assert getattr(after, key) == value, key


def test_exported_tensors_of_unrolled_layers_equal_the_original(
  imported, tmp_path
):
  _, folder, run = imported('bert', scan_layers=False)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  first = safetensors.numpy.load_file(folder / 'hf/model.safetensors')
  second = safetensors.numpy.load_file(tmp_path / 'back/model.safetensors')
  assert first.keys() == second.keys()
  assert all(np.array_equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
  'name',
  mark_slow(
    ['modernbert', 'modernbert_biases', 'eurobert'],
    slow=['modernbert_biases', 'eurobert'],
  ),
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
  assert checked.architecture.model_type == model.config.model_type
  folder_writer.write_folder(checked, tmp_path / 'back')
  loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'back')
  with torch.no_grad():  # 'gelu_new' is exported under an equivalent name.
    np.testing.assert_allclose(
      reference.run_model(loaded).logits,
      reference.run_model(model).logits,
      atol=2e-5,
    )


@pytest.mark.parametrize(
  'name, changes, parts',
  [
    (
      'modernbert',
      dict(
        layer_types=[
          'full_attention',
          'sliding_attention',
          'full_attention',
          'full_attention',
          'sliding_attention',
        ],
        rope_parameters={
          'full_attention': dict(rope_type='yarn', rope_theta=3.0, factor=2.0)
        },
        mlp_dropout=0.5,
        classifier_pooling='last',
        hidden_activation='mish',
        shape=3,
      ),
      (
        'layer_types is',
        "rope_parameters[full_attention] is {'rope_type': 'yarn'",
        'mlp_dropout is 0.5',
        "classifier_pooling is 'last'",
        "hidden_activation is 'mish'",
        'shape = 3 is not an option',
      ),
    ),
    (
      'eurobert',
      dict(
        rope_parameters=dict(rope_type='yarn', factor=2.0),
        num_key_value_heads=4,
        pretraining_tp=2,
        hidden_act='mish',
      ),
      (
        "rope_parameters is {'rope_type': 'yarn'",
        'pretraining_tp is 2',
        'num_heads=6 and num_kv_heads=4',
        "hidden_act is 'mish'",
      ),
    ),
  ],
)
def test_unsupported_options_are_all_listed(
  imported, tmp_path, name, changes, parts
):
  _, folder, _ = imported(name)
  for path in (folder / 'hf').iterdir():
    (tmp_path / path.name).write_bytes(path.read_bytes())
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(tmp_path)
  for part in parts:
    assert part in str(caught.value), part


def test_missing_norm_has_a_scale_of_1(imported):
  """The first layer of ModernBERT has no attention norm."""
  _, _, run = imported('modernbert', scan_layers=False)
  norm = run.restore_params(0)['model']['layers_0']['attention_norm']
  np.testing.assert_array_equal(norm['scale'], np.ones(30))
