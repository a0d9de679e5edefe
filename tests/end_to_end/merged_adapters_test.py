"""Tests of training, merging and exporting a LoRA adapter."""

import numpy as np
import pytest
import torch
import transformers

from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax import cli
from xlflax.config import gin_config
from xlflax.trainer import Trainer
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.training.initialization import adapter_merging

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_TAGS = {'der': 'DET', 'Hund': 'NOUN', 'die': 'DET', 'Katze': 'NOUN'}
_TOLERANCE = 1e-4


@pytest.fixture
def pretrained(run_of):
  directory, *_ = run_of(
    type_vocab_size=1, position_offset=1, max_position_embeddings=64
  )
  return directory


def _train_tagger(pretrained, directory):
  """Trains a LoRA adapter and the head of a tagger."""
  words = list(_TAGS)
  treebank = directory.parent / 'de.conll'
  treebank.write_text(
    '\n'.join(
      ''.join(
        f'{word}\t{_TAGS[word]}\n'
        for word in (words[i * k % 4] for k in range(1, 5))
      )
      for i in range(1, 17)
    )
  )
  gin_config.load_gin_files(
    ['finetune/tagging.gin', 'adapters/lora.gin'],
    ['schedules.Linear.warmup_steps=1'],
    macros={
      'MODEL_DIR': str(directory),
      'INIT_FROM': str(pretrained),
      'TRAIN_FILES': {'de': str(treebank)},
      'FORMAT': 'conll',
      'LENGTH': 16,
      'BATCH_SIZE': 8,
      'TRAIN_STEPS': 10,
      'RANK': 2,
      'LORA_ALPHA': 8.0,
      'LEARNING_RATE': 2e-2,
    },
  ).build(Trainer).train()


def _tagger_logits(directory, token_ids, *, zero_updates=False):
  """Returns the logits of a run's tagger, of shape [B, T, labels].

  Args:
    directory: Model directory of the run.
    token_ids: Token ids without padding, of shape [B, T].
    zero_updates: Whether to set the updates of LoRA adapters to zero.
  """
  run = saved_run.load_run(directory)
  params = run.restore_params(run.steps[-1])
  if zero_updates:
    named = param_tree.flatten_params(params)
    params = param_tree.unflatten_params(
      {
        name: np.zeros_like(leaf) if name.endswith('lora_b') else leaf
        for name, leaf in named.items()
      }
    )
  (objective,) = run.objectives.values()
  ones = np.ones(token_ids.shape, np.int32)
  batch = {
    'token_ids': token_ids.astype(np.int32),
    'segment_ids': ones,
    'positions': np.cumsum(ones, 1, dtype=np.int32) - 1,
    'language_ids': 0 * ones,
  }
  return np.asarray(
    objective.predict(run.model, params, batch, run.vocabulary.spec)
  )


def _assert_update_is_kept(logits, adapted, base):
  """Asserts that logits are those with the update, and not those of the base.

  B starts at zero, so the update is small after a few steps with a small
  learning rate. The first assertion requires an update that is much larger than
  the tolerance of the comparison.
  """
  assert np.abs(adapted - base).max() > 1000 * _TOLERANCE
  np.testing.assert_allclose(logits, adapted, atol=_TOLERANCE)


@pytest.mark.slow
def test_merged_export_contains_the_trained_update(
  pretrained, tmp_path, monkeypatch
):
  adapted, merged = tmp_path / 'adapted', tmp_path / 'merged'
  _train_tagger(pretrained, adapted)
  for command in (
    ['merge-adapters', adapted, f'--output={merged}'],
    ['to-hf', merged, f'--output={tmp_path / "hf"}'],
  ):
    assert cli.main(['convert', *map(str, command)]) == 0
  size = saved_run.load_run(adapted).vocabulary.spec.size
  token_ids = np.random.default_rng(0).integers(5, size, (4, 9))
  model = transformers.AutoModelForTokenClassification.from_pretrained(
    tmp_path / 'hf'
  ).eval()
  with torch.no_grad():
    exported = model(torch.tensor(token_ids)).logits.numpy()

  expected = _tagger_logits(adapted, token_ids)
  # The base has the head of the run, so that only the update differs.
  base = _tagger_logits(adapted, token_ids, zero_updates=True)
  _assert_update_is_kept(_tagger_logits(merged, token_ids), expected, base)
  _assert_update_is_kept(exported, expected, base)

  # The comparison notices a merge that drops the update.
  merge_lora = adapter_merging.merge_lora

  def drop_update(params, lora):
    named = param_tree.flatten_params(params)
    zeroed = {
      name: np.zeros_like(leaf) if name.endswith('lora_b') else leaf
      for name, leaf in named.items()
    }
    return merge_lora(param_tree.unflatten_params(zeroed), lora)

  monkeypatch.setattr(adapter_merging, 'merge_lora', drop_update)
  adapter_merging.merge_adapters(adapted, tmp_path / 'dropped')
  with pytest.raises(AssertionError):
    _assert_update_is_kept(
      _tagger_logits(tmp_path / 'dropped', token_ids), expected, base
    )
