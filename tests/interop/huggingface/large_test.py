"""A checkpoint of the size of XLM-R base: logits, memory and export."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import safetensors
import torch
import transformers

from tests.interop.huggingface import reference_models as reference
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.training.checkpointing import saved_run

_VOCAB = 250002
_MEASURE = """
import pathlib, sys
import jax
from xlflax.interop.huggingface import config_json, tensor_mapping
from xlflax.interop.huggingface.tensors import tensor_files, weights
folder = pathlib.Path(sys.argv[1])
jax.devices()
made = tensor_mapping.make_tensor_mapping(config_json.describe_model(folder), tensor_files.find_tensors(folder))
def peak():
  lines = open('/proc/self/status').read().splitlines()
  return int(next(l for l in lines if l.startswith('VmHWM')).split()[1]) * 1024
before = peak()
tree = weights.load_parameters(made)
target = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
print((peak() - before), target)
"""

_COMMAND = """
import sys
from xlflax import cli
assert cli.main(sys.argv[1:]) == 0
lines = open('/proc/self/status').read().splitlines()
print(next(l for l in lines if l.startswith('VmHWM')).split()[1])
"""


@pytest.fixture(scope='module')
def base(tmp_path_factory):
  folder = tmp_path_factory.mktemp('base')
  torch.manual_seed(0)
  model = transformers.XLMRobertaForMaskedLM(
    transformers.XLMRobertaConfig(
      vocab_size=_VOCAB,
      max_position_embeddings=514,
      type_vocab_size=1,
      layer_norm_eps=1e-5,
    )
  ).eval()
  model.save_pretrained(folder, max_shard_size='900MB')
  reference.write_tokenizer(folder, _VOCAB)
  return model, folder


@pytest.mark.slow
def test_logits_and_exported_tensors(base, tmp_path):
  model, folder = base
  run = saved_run.load_run(
    huggingface_import.convert_import(
      huggingface_import.check_import(folder), tmp_path / 'ours'
    )
  )
  ids = np.random.default_rng(0).integers(5, _VOCAB, (2, 40))
  mask = np.ones_like(ids)
  ids[1, 30:], mask[1, 30:] = 1, 0
  got = jax.jit(run.model.apply)(
    {'params': run.restore_params(0)['model']}, ids, segment_ids=mask
  )
  with torch.no_grad():
    want = model(torch.tensor(ids), torch.tensor(mask)).logits.numpy()
  error = np.abs(np.asarray(got) - want)[mask > 0].max()
  print(f'largest difference of logits {error:.2e}, of {np.abs(want).max()}')
  assert error < 2e-5
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  state = model.state_dict()
  with safetensors.safe_open(
    tmp_path / 'back/model.safetensors', 'numpy'
  ) as back:
    assert {n for n in state if 'decoder' not in n} == set(back.keys())
    for name in back.keys():
      np.testing.assert_array_equal(back.get_tensor(name), state[name])


@pytest.mark.slow
def test_import_memory_is_below_parameters_plus_a_shard(base):
  _, folder = base
  if not os.path.exists('/proc/self/status'):
    pytest.skip('the peak of memory is read from /proc')
  output = subprocess.run(
    [sys.executable, '-c', _MEASURE, str(folder)],
    text=True,
    check=True,
    stdout=subprocess.PIPE,
  ).stdout.split()
  peak, target = map(int, output[-2:])
  shard = max(p.stat().st_size for p in folder.glob('*.safetensors'))
  print(
    f'peak {peak / 1e9:.2f} GB: target {target / 1e9:.2f} GB, largest '
    f'shard {shard / 1e9:.2f} GB'
  )
  assert peak < target + 1.3 * shard


@pytest.mark.slow
def test_command_memory_is_below_parameters_plus_a_shard(base, tmp_path):
  """The checkpoint is one file; the memory of a dry run is subtracted."""
  if not os.path.exists('/proc/self/status'):
    pytest.skip('the peak of memory is read from /proc')
  model, _ = base
  folder = tmp_path / 'one_file'
  model.save_pretrained(folder)
  reference.write_tokenizer(folder, _VOCAB)
  (shard,) = (p.stat().st_size for p in folder.glob('*.safetensors'))

  def peak(*flags):
    return (
      int(
        subprocess.run(
          [
            sys.executable,
            '-c',
            _COMMAND,
            'convert',
            'from-hf',
            str(folder),
            '--output',
            str(tmp_path / 'ours'),
            *flags,
          ],
          text=True,
          check=True,
          stdout=subprocess.PIPE,
        ).stdout.split()[-1]
      )
      * 1024
    )

  program = peak('--dry_run')
  needed = peak() - program
  target = sum(p.numel() * 4 for p in model.parameters())
  print(
    f'peak {needed / 1e9:.2f} GB more than a dry run: target '
    f'{target / 1e9:.2f} GB, shard {shard / 1e9:.2f} GB'
  )
  assert needed < target + 1.3 * shard
