"""Imported classifiers as objectives: losses, gradients and labels."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from tests.errors import raises_error
from tests.interop.huggingface import reference_models as reference
from tests.slow import mark_slow
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
  labeled_heads,
)
from xlflax.interop.huggingface.architectures import architecture_registry
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning import (
  sequence_classification,
  sequence_regression,
)
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.utils import errors

_LABELS = ('contradiction', 'entailment', 'neutral')
_IDS = np.random.default_rng(2).integers(5, reference.VOCAB, (4, 9))
_HEADS = {
  'XLMRobertaForSequenceClassification': 'classifier.out_proj',
  'XLMRobertaForQuestionAnswering': 'qa_outputs',
  'BertForSequenceClassification': 'classifier',
  'BertForTokenClassification': 'classifier',
  'ModernBertForSequenceClassificationmean': 'classifier',
  'EuroBertForSequenceClassificationlate': 'classifier',
}
# The quick tests include heads of the same types.
_SLOW = (
  'XLMRobertaForSequenceClassification',
  'BertForSequenceClassification',
  'EuroBertForSequenceClassificationlate',
)


def _named(model):
  if model.config.num_labels == len(_LABELS):
    model.config.id2label = dict(enumerate(_LABELS))
    model.config.label2id = {label: i for i, label in enumerate(_LABELS)}
  return model


@pytest.fixture(scope='module')
def imported(tmp_path_factory):
  @functools.cache
  def make(name):
    model = _named(reference.make_model(name))
    folder = tmp_path_factory.mktemp(name)
    reference.save_model(model, folder / 'hf')
    huggingface_import.convert_import(
      huggingface_import.check_import(folder / 'hf'), folder / 'ours'
    )
    return model, saved_run.load_run(folder / 'ours')

  return make


def _batch(name):
  """Returns inputs with labels for xlflax and transformers, unpadded."""
  ones = np.ones(_IDS.shape, np.int32)
  batch = {
    'token_ids': _IDS.astype(np.int32),
    'segment_ids': ones,
    'positions': np.cumsum(ones, 1, dtype=np.int32) - 1,
    'language_ids': 0 * ones,
  }
  if 'Question' in name:
    gold = {
      'start_positions': np.array([0, 3, 5, 8]),
      'end_positions': np.array([0, 4, 5, 8]),
    }
    batch |= {'context_mask': ones}
  elif 'Token' in name:
    gold = {'labels': np.arange(_IDS.size).reshape(_IDS.shape) % 4 - 1}
  else:
    gold = {'labels': np.array([2, 0, 1, 1])}
  theirs = {
    key: torch.tensor(np.where(value < 0, -100, value))
    for key, value in gold.items()
  }
  return batch | gold, theirs | {'input_ids': torch.tensor(_IDS)}


@pytest.mark.parametrize('name', mark_slow(_HEADS, _SLOW))
def test_loss_and_gradient_equal_transformers(imported, name):
  model, run = imported(name)
  (objective,) = run.objectives.values()
  batch, theirs = _batch(name)
  params = run.restore_params(0)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def loss_of(heads):
    output = objective(
      run.model,
      params | {'heads': heads},
      batch,
      objective_base.ObjectiveContext(
        vocabulary=run.vocabulary.spec,
        step=jnp.int32(0),
        train=False,
        rng=jax.random.key(0),
      ),
    )
    return objective_base.weighted_mean(output.loss), output.loss.weight

  (loss, weight), gradient = loss_of(params['heads'])
  want = model(**theirs).loss
  want.backward()
  linear = model.get_submodule(_HEADS[name])
  np.testing.assert_allclose(loss, want.item(), rtol=2e-5)
  np.testing.assert_allclose(
    gradient[objective.name]['output']['kernel'],
    linear.weight.grad.numpy().T,
    atol=2e-5,
    rtol=2e-4,
  )
  assert weight == (27 if 'Token' in name else 4)


@pytest.mark.parametrize('name', mark_slow(_HEADS, _SLOW))
def test_imported_objective_has_labels_and_head_type(imported, name):
  _, run = imported(name)
  (objective,) = run.objectives.values()
  assert objective.name in run.restore_params(0)['heads']
  if 'Question' not in name:
    assert objective.labels == _LABELS
  assert objective.head_type.value == {
    'XLMRobertaForSequence': 'dense',
    'BertForSequenceClassi': 'dense',
    'ModernBertForSequence': 'dense_norm',
    'EuroBertForSequenceCl': 'dense',
  }.get(name[:21], 'output')


def test_labels_are_exported(imported, tmp_path):
  _, run = imported('XLMRobertaForSequenceClassification')
  record = run.directory / huggingface_import.RECORD
  content = record.read_text()
  changed = run_directory.read_run_file(
    run.directory, huggingface_import.RECORD
  )
  # A model that was fine-tuned with xlflax has no such record.
  del changed['config']['id2label'], changed['config']['label2id']
  run_directory.write_run_file(
    run.directory, huggingface_import.RECORD, changed
  )
  try:
    folder_writer.write_folder(
      huggingface_export.check_export(run.directory), tmp_path / 'back'
    )
  finally:
    record.write_text(content)
  config = transformers.AutoConfig.from_pretrained(tmp_path / 'back')
  assert config.id2label == dict(enumerate(_LABELS))
  assert config.label2id == {label: i for i, label in enumerate(_LABELS)}


def test_missing_label_names_are_generated(tmp_path):
  reference.save_model(
    reference.make_model('BertForTokenClassification'), tmp_path / 'hf'
  )
  path = tmp_path / 'hf/config.json'
  config = json.loads(path.read_text())
  for key in ('id2label', 'label2id'):
    config.pop(key, None)
  path.write_text(json.dumps(config | {'num_labels': 3}))
  huggingface_import.convert_import(
    huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
  )
  (objective,) = saved_run.load_run(tmp_path / 'ours').objectives.values()
  assert objective.labels == ('LABEL_0', 'LABEL_1', 'LABEL_2')


def test_duplicate_labels_are_rejected(tmp_path):
  reference.save_model(
    reference.make_model('BertForTokenClassification'), tmp_path / 'hf'
  )
  path = tmp_path / 'hf/config.json'
  config = json.loads(path.read_text())
  path.write_text(
    json.dumps(config | {'id2label': {'0': 'A', '1': 'A', '2': 'B'}})
  )
  with raises_error(
    errors.ConfigError,
    got={'0': 'A', '1': 'A', '2': 'B'},
    mentions=('id2label', 3),
  ):
    huggingface_import.convert_import(
      huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
    )


def test_models_without_labeled_heads_have_no_objectives(tmp_path):
  reference.save_model(reference.make_model('BertModel'), tmp_path / 'hf')
  huggingface_import.convert_import(
    huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
  )
  assert saved_run.load_run(tmp_path / 'ours').objectives == {}


@pytest.mark.parametrize(
  'name',
  mark_slow(
    [
      'BertForSequenceClassification',
      'XLMRobertaForSequenceClassification',
      'ModernBertForSequenceClassificationmean',
    ],
    _SLOW,
  ),
)
def test_round_trip_keeps_the_head_of_a_reranker(name, tmp_path):
  kind, config_kind, options = reference.CLASSIFIERS[name]
  torch.manual_seed(0)
  model = getattr(transformers, kind)(
    getattr(transformers, config_kind)(**options | {'num_labels': 1})
  ).eval()
  model.config.sbert_ce_default_activation_function = 'torch.nn.Identity'
  reference.save_model(model, tmp_path / 'hf')
  huggingface_import.convert_import(
    huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
  )
  run = saved_run.load_run(tmp_path / 'ours')
  (objective,) = run.objectives.values()
  assert isinstance(objective, sequence_regression.SequenceRegression)
  batch, theirs = _batch(name)
  scores = objective.predict(
    run.model, run.restore_params(0), batch, run.vocabulary.spec
  )
  with torch.no_grad():
    expected = model(input_ids=theirs['input_ids']).logits
  assert scores.shape == (4, 1)
  np.testing.assert_allclose(scores, expected, atol=2e-5)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  config = transformers.AutoConfig.from_pretrained(tmp_path / 'back')
  assert config.num_labels == 1
  assert config.sbert_ce_default_activation_function == 'torch.nn.Identity'


@pytest.mark.parametrize(
  ('model_type', 'fields', 'expected'),
  [
    ('deberta-v2', {}, {'pooler_hidden_act': 'tanh'}),
    ('deberta-v2', {'pooling': 'mean'}, None),
    ('eurobert', {'activation': 'gelu'}, {'classifier_pooling': 'bos'}),
    (
      'eurobert',
      {'activation': 'gelu', 'pooling': 'mean'},
      {'classifier_pooling': 'mean'},
    ),
    ('eurobert', {}, None),
    ('bert', {}, {}),
  ],
)
def test_exported_options_of_heads(model_type, fields, expected):
  """Heads that config.json cannot describe are rejected."""
  objective = sequence_classification.SequenceClassification(
    labels=_LABELS, **fields
  )
  architecture = architecture_registry.find_architecture(model_type)
  if expected is None:
    with raises_error(errors.ConfigError, mentions='sequence_classification'):
      labeled_heads.style_options(architecture, None, objective, {})
  else:
    options = labeled_heads.style_options(architecture, None, objective, {})
    assert options == expected
