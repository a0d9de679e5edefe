"""Import and export of LoRA adapters in the format of PEFT."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import torch
from flax import linen as nn

from tests.errors import raises_error
from tests.interop.huggingface import reference_models as reference
from tests.slow import mark_slow
from xlflax import cli
from xlflax.interop.huggingface import huggingface_import, peft_adapters
from xlflax.models import adapter_config, model_params
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.training.initialization import adapter_merging
from xlflax.utils import errors

peft = pytest.importorskip('peft')

_TARGETS = {
  'bert': ['query', 'value', 'intermediate.dense'],
  'xlm_roberta': ['query', 'value'],
  'modernbert': ['Wqkv', 'Wi'],  # These tensors combine several projections.
  'deberta': ['query_proj', 'key_proj'],
}
# Each test of a model takes more than ten CPU seconds.
_IMPORTED = mark_slow(_TARGETS, set(_TARGETS) - {'modernbert'})
_EXPORTED = mark_slow(_TARGETS, set(_TARGETS) - {'bert'})
_CLASSIFIERS = mark_slow(
  (
    'XLMRobertaForSequenceClassification',
    'BertForSequenceClassification',
    'ModernBertForSequenceClassificationcls',
    'XLMRobertaForTokenClassification',
  ),
  (
    'BertForSequenceClassification',
    'ModernBertForSequenceClassificationcls',
    'XLMRobertaForTokenClassification',
  ),
)
_LORA = adapter_config.LoRA(
  name='task', rank=2, alpha=3.0, target_modules=('query', 'output', 'wi')
)


@pytest.fixture(scope='module')
def bases(tmp_path_factory):
  """Fixture that returns a reference model, its folder and imported run."""
  models = {}

  def make(name):
    if name not in models:
      folder = tmp_path_factory.mktemp(name)
      model = reference.make_model(name)
      reference.save_model(model, folder / 'hf')
      huggingface_import.convert_import(
        huggingface_import.check_import(folder / 'hf'), folder / 'run'
      )
      models[name] = model, folder / 'hf', folder / 'run'
    return models[name]

  return make


def _theirs(model) -> np.ndarray:
  with torch.no_grad():
    return reference.run_model(model.eval()).logits.numpy()


def _ours(directory, model) -> np.ndarray:
  run = saved_run.load_run(directory)
  params = run.restore_params(run.steps[-1])['model']
  ids, more = reference.make_inputs(model)
  return np.asarray(
    run.model.apply(
      {'params': params},
      jnp.asarray(ids),
      segment_ids=jnp.asarray(reference.PADDING, jnp.int32),
      **more,
    )
  )


def _assert_same_logits(actual, expected):
  text = np.asarray(reference.PADDING, bool)
  np.testing.assert_allclose(actual[text], expected[text], rtol=1e-5, atol=1e-5)


def _save_peft(name, bases, folder, **options):
  """Writes a random adapter of PEFT and returns the adapted model."""
  model, hf, _ = bases(name)
  config = peft.LoraConfig(
    **{'r': 3, 'lora_alpha': 6, 'target_modules': _TARGETS[name]} | options
  )
  adapted = peft.get_peft_model(type(model).from_pretrained(hf), config)
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for parameter_name, parameter in adapted.named_parameters():
      if 'lora_' in parameter_name:
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise * 0.1)
  adapted.save_pretrained(folder)
  return adapted


def _write_adapted(base, output, *adapters):
  """Writes a run with random adapters."""
  run = saved_run.load_run(base)
  model = run.model.clone(
    config=dataclasses.replace(run.model.config, adapters=adapters)
  )
  params = nn.unbox(model_params.init_params(model, jax.random.key(0)))
  rng = np.random.default_rng(0)
  adapted = {
    name: rng.normal(0, 0.1, leaf.shape).astype(np.float32)
    for name, leaf in param_tree.flatten_params({'model': params}).items()
    if adapter_config.adapter_name(name)
  }
  base_params = param_tree.flatten_params(run.restore_params(run.steps[-1]))
  adapter_merging.write_run(
    run,
    output,
    param_tree.unflatten_params(base_params | adapted),
    adapters=adapters,
    step=0,
    record={},
  )
  return output


def _convert(*arguments):
  assert cli.main(['convert', *map(str, arguments)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize('name', _IMPORTED)
def test_imported_adapter_computes_the_same_logits(name, bases, tmp_path):
  model, _, base = bases(name)
  adapted = _save_peft(name, bases, tmp_path / 'peft')
  expected = _theirs(adapted)
  assert np.abs(expected - _theirs(model)).max() > 1e-2
  _convert(
    'from-peft',
    tmp_path / 'peft',
    f'--model_dir={base}',
    f'--output={tmp_path / "run"}',
    '--adapter=imported',
  )
  (adapter,) = saved_run.load_run(tmp_path / 'run').model.config.adapters
  assert (adapter.name, adapter.rank, adapter.alpha) == ('imported', 3, 6)
  _assert_same_logits(_ours(tmp_path / 'run', model), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
  'options',
  [
    {'use_rslora': True},
    pytest.param(
      {
        'rank_pattern': {'query': 5},
        'alpha_pattern': {r'layer\.1\.attention\.self\.value': 1},
      },
      marks=pytest.mark.slow,
    ),
    pytest.param({'layers_to_transform': [1]}, marks=pytest.mark.slow),
    {'task_type': 'FEATURE_EXTRACTION'},
  ],
)
def test_lora_options_are_imported(options, bases, tmp_path):
  model, _, base = bases('bert')
  adapted = _save_peft('bert', bases, tmp_path / 'peft', **options)
  peft_adapters.import_adapter(tmp_path / 'peft', base, tmp_path / 'run')
  _assert_same_logits(_ours(tmp_path / 'run', model), _theirs(adapted))


@pytest.mark.parametrize('name', _EXPORTED)
def test_exported_adapter_computes_the_same_logits(name, bases, tmp_path):
  model, hf, base = bases(name)
  run = _write_adapted(base, tmp_path / 'run', _LORA)
  expected = _ours(run, model)
  assert np.abs(expected - _theirs(model)).max() > 1e-2
  _convert('to-peft', run, f'--output={tmp_path / "peft"}')
  loaded = peft.PeftModel.from_pretrained(
    type(model).from_pretrained(hf), tmp_path / 'peft'
  )
  _assert_same_logits(_theirs(loaded), expected)

  # The merged run and its export give the same logits.
  _convert('merge-adapters', run, f'--output={tmp_path / "merged"}')
  assert saved_run.load_run(tmp_path / 'merged').model.config.adapters is None
  _assert_same_logits(_ours(tmp_path / 'merged', model), expected)
  _convert('to-hf', tmp_path / 'merged', f'--output={tmp_path / "hf"}')
  exported = type(model).from_pretrained(tmp_path / 'hf')
  _assert_same_logits(_theirs(exported), expected)

  # The exported adapter is imported again.
  peft_adapters.import_adapter(tmp_path / 'peft', base, tmp_path / 'again')
  _assert_same_logits(_ours(tmp_path / 'again', model), expected)


@pytest.mark.slow
@pytest.mark.parametrize('name', _CLASSIFIERS)
def test_classification_head_is_exported(name, bases, tmp_path):
  model, hf, base = bases(name)
  run = _write_adapted(base, tmp_path / 'run', _LORA)
  _convert('to-peft', run, f'--output={tmp_path / "peft"}')
  _convert('merge-adapters', run, f'--output={tmp_path / "merged"}')
  _convert('to-hf', tmp_path / 'merged', f'--output={tmp_path / "hf"}')
  expected = _theirs(type(model).from_pretrained(tmp_path / 'hf'))
  fresh = type(model).from_pretrained(hf)
  with torch.no_grad():
    for parameter in fresh.classifier.parameters():
      parameter.zero_()
  loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / 'peft')
  np.testing.assert_allclose(_theirs(loaded), expected, rtol=1e-5, atol=1e-5)

  # The head replaces that of the base when the adapter is imported.
  loaded.save_pretrained(tmp_path / 'changed')
  file = tmp_path / 'changed/adapter_model.safetensors'
  tensors = safetensors.numpy.load_file(file)
  bias = next(
    n for n in tensors if 'classifier' in n and n.endswith('bias')
    and 'dense' not in n
  )  # fmt: skip
  tensors[bias] = tensors[bias] + 1
  safetensors.numpy.save_file(tensors, file, metadata={'format': 'pt'})
  peft_adapters.import_adapter(tmp_path / 'changed', base, tmp_path / 'again')
  (head,) = (
    saved_run.load_run(tmp_path / 'again').restore_params(0)['heads'].values()
  )
  np.testing.assert_array_equal(head['output']['bias'], tensors[bias])


@pytest.mark.slow
def test_single_adapters_can_be_merged_or_exported(bases, tmp_path):
  model, _, base = bases('bert')
  language = adapter_config.LoRA(name='sw', rank=1, frozen=True)
  run = _write_adapted(base, tmp_path / 'run', language, _LORA)
  _convert(
    'merge-adapters', run, f'--output={tmp_path / "merged"}', '--adapter=sw'
  )
  merged = saved_run.load_run(tmp_path / 'merged')
  assert [a.name for a in merged.model.config.adapters] == ['task']
  _assert_same_logits(_ours(tmp_path / 'merged', model), _ours(run, model))
  with pytest.raises(errors.ConfigError):
    peft_adapters.export_adapter(run, tmp_path / 'peft')
  adapter = peft_adapters.export_adapter(run, tmp_path / 'peft', name='task')
  assert adapter == _LORA


def test_run_without_adapters_is_rejected(bases, tmp_path):
  _, _, run = bases('bert')
  with raises_error(errors.ConfigError, got=run, mentions='to-hf'):
    peft_adapters.export_adapter(run, tmp_path / 'peft')
  assert not (tmp_path / 'peft').exists()


def test_export_of_a_run_with_adapters_is_rejected(bases, tmp_path):
  run = _write_adapted(bases('bert')[2], tmp_path / 'run', _LORA)
  assert cli.main(['convert', 'to-hf', str(run), '--output=hf']) == 2


@pytest.mark.slow
def test_replace_adapter(bases, tmp_path):
  model, _, base = bases('bert')
  task = dataclasses.replace(_LORA, name='task')
  first = _write_adapted(
    base, tmp_path / 'first', dataclasses.replace(_LORA, name='en'), task
  )
  second = _write_adapted(
    base, tmp_path / 'second', task, dataclasses.replace(_LORA, name='sw')
  )
  _convert(
    'replace-adapter',
    first,
    '--adapter=en',
    f'--source={second}',
    '--source_adapter=sw',
    f'--output={tmp_path / "replaced"}',
  )

  def named(directory):
    return param_tree.flatten_params(
      saved_run.load_run(directory).restore_params(0)
    )

  before, other, after = map(named, (first, second, tmp_path / 'replaced'))
  for name, value in after.items():
    if adapter_config.adapter_name(name) == 'en':
      expected = other[name.replace('adapters_en', 'adapters_sw')]
    else:
      expected = before[name]
    np.testing.assert_array_equal(value, expected)
  with pytest.raises(errors.ConfigError):
    adapter_merging.replace_adapter(first, base, tmp_path / 'failed', name='en')
  assert not (tmp_path / 'failed').exists()


@pytest.fixture
def folder(bases, tmp_path):
  """Fixture that changes the configuration of a PEFT folder."""
  _save_peft('bert', bases, tmp_path / 'peft')
  file = tmp_path / 'peft/adapter_config.json'

  def change(**options):
    file.write_text(json.dumps(json.loads(file.read_text()) | options))
    return tmp_path / 'peft'

  return change


@pytest.mark.parametrize(
  'options',
  [
    {'peft_type': 'IA3'},
    {'use_dora': True},
    {'bias': 'all'},
    {'r': 'many'},
    {'lora_alpha': -1},
    {'alpha_pattern': {'(': 1}},
    {'alpha_pattern': ['query']},
  ],
)
def test_unsupported_options_are_rejected(options, folder, bases, tmp_path):
  with pytest.raises(errors.ConfigError):
    peft_adapters.import_adapter(
      folder(**options), bases('bert')[2], tmp_path / 'run'
    )
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('base', ['modernbert', 'xlm_roberta'])
def test_adapters_of_other_models_are_rejected(base, folder, bases, tmp_path):
  path = folder()
  if base == 'xlm_roberta':  # The same modules, with another width.
    file = path / 'adapter_model.safetensors'
    tensors = safetensors.numpy.load_file(file)
    tensors = {
      name: value[:, :-1].copy() if 'lora_A' in name else value
      for name, value in tensors.items()
    }
    safetensors.numpy.save_file(tensors, file, metadata={'format': 'pt'})
    base = 'bert'
  with pytest.raises(errors.CheckpointError):
    peft_adapters.import_adapter(path, bases(base)[2], tmp_path / 'run')


def test_missing_weights_are_rejected(folder, bases, tmp_path):
  path = folder()
  (path / 'adapter_model.safetensors').unlink()
  with pytest.raises(errors.CheckpointError):
    peft_adapters.import_adapter(path, bases('bert')[2], tmp_path / 'run')
  shutil.rmtree(path)
  with pytest.raises(errors.XlflaxError):
    peft_adapters.import_adapter(path, bases('bert')[2], tmp_path / 'run')


def test_import_of_an_adapter_as_a_model_is_rejected(folder):
  with pytest.raises(errors.ConfigError) as raised:
    huggingface_import.check_import(folder())
  assert raised.value.got == 'adapter_config.json'


def test_git_lfs_pointers_are_rejected(folder, bases, tmp_path):
  path = folder()
  (path / 'adapter_model.safetensors').write_text(
    'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n'
  )
  with pytest.raises(errors.CheckpointError):
    peft_adapters.import_adapter(path, bases('bert')[2], tmp_path / 'run')
