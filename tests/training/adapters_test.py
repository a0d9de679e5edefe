"""Tests of training adapters."""

import dataclasses
import pathlib
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.config import gin_config
from xlflax.integrity import verification
from xlflax.interop.huggingface.tensors import saved_parameters
from xlflax.models import adapter_config
from xlflax.trainer import Trainer
from xlflax.training import param_tree, training_setup
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  saved_run,
)
from xlflax.training.initialization import averaging
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
_TAGS = {'der': 'DET', 'Hund': 'NOUN', 'die': 'DET', 'Katze': 'NOUN'}


@pytest.fixture(scope='module')
def pretrained(make_run, tmp_path_factory) -> str:
  return str(make_run(tmp_path_factory.mktemp('runs') / 'pretrained', [10]))


@pytest.fixture(scope='module')
def treebank(tmp_path_factory) -> str:
  tagged_words = list(_TAGS)
  path = tmp_path_factory.mktemp('treebank') / 'de.conll'
  path.write_text(
    '\n'.join(
      ''.join(
        f'{word}\t{_TAGS[word]}\n'
        for word in (tagged_words[(i * k + i) % 4] for k in range(1, 5))
      )
      for i in range(1, 17)
    )
  )
  return str(path)


@pytest.fixture(scope='module')
def make_trainer(treebank):
  """Returns a function that creates trainers of a tagger with a LoRA adapter."""

  def make(model_dir, init_from, steps=4, files=(), bindings=(), **macros):
    return gin_config.load_gin_files(
      ['finetune/tagging.gin', 'adapters/lora.gin', *files],
      [f'{name}={value!r}' for name, value in macros.items()]
      + [
        'checkpoints.CheckpointOptions.save_interval_steps=2',
        'schedules.Linear.warmup_steps=1',
        *bindings,
      ],
      macros={
        'MODEL_DIR': str(model_dir),
        'INIT_FROM': str(init_from),
        'TRAIN_FILES': {'de': treebank},
        'FORMAT': 'conll',
        'LENGTH': 16,
        'BATCH_SIZE': 8,
        'TRAIN_STEPS': steps,
      },
    ).build(Trainer)

  return make


@pytest.fixture(scope='module')
def run(make_trainer, pretrained, tmp_path_factory) -> pathlib.Path:
  directory = tmp_path_factory.mktemp('lora')
  make_trainer(directory, pretrained, RANK=2, LORA_ALPHA=8.0).train()
  return directory


def _saved(directory, step=4):
  return param_tree.flatten_params(
    saved_run.load_run(directory).restore_params(step)
  )


def test_only_the_adapter_and_the_head_are_trained(run, pretrained):
  before = _saved(pretrained, 10)
  after = _saved(run)
  lora = {n for n in after if adapter_config.adapter_name(n) == 'task'}
  heads = {n for n in after if n.startswith('heads/')}
  assert len(lora) == 4  # A and B of the queries and values of both layers.
  assert heads
  assert after.keys() - before.keys() == lora | heads
  for name, leaf in before.items():
    np.testing.assert_array_equal(after[name], leaf)
  for name in lora:
    if name.endswith('lora_b'):
      assert np.abs(after[name]).max() > 0, name


def test_optimizer_has_no_state_of_the_frozen_base(run):
  checkpoint = checkpoint_reader.checkpoint_path(run, 4)
  shapes = checkpoint_reader.saved_shapes(checkpoint, 'train')
  moments = [n for n, s in shapes.items() if s and '/model/' in n]
  assert moments
  assert all(adapter_config.adapter_name(name) for name in moments)


@pytest.mark.slow
def test_resumed_run_is_bit_identical(run, make_trainer, pretrained, tmp_path):
  for stop in (2, None):
    bindings = [f'trainer.Trainer.stop_after_steps={stop}']
    make_trainer(
      tmp_path, pretrained, bindings=bindings, RANK=2, LORA_ALPHA=8.0
    ).train()
  tiny.assert_trees_equal(_saved(tmp_path), _saved(run))


@pytest.mark.slow
def test_task_adapter_is_trained_on_a_frozen_adapter(
  run, make_trainer, tmp_path
):
  make_trainer(tmp_path, run, ADAPTER='second', RANK=3).train()
  before, after = _saved(run), _saved(tmp_path)
  names = {
    a.name: a for a in saved_run.load_run(tmp_path).model.config.adapters
  }
  assert names['task'].frozen
  assert names['task'].alpha == 8.0
  assert not names['second'].frozen
  for name, leaf in before.items():
    if not name.startswith('heads/'):
      np.testing.assert_array_equal(after[name], leaf)
  second = [n for n in after if adapter_config.adapter_name(n) == 'second']
  assert len(second) == 4


def test_duplicate_adapter_name_is_rejected(run, make_trainer, tmp_path):
  with pytest.raises(errors.ConfigError):
    make_trainer(tmp_path, run)


@pytest.mark.slow
def test_frozen_adapter_must_be_in_the_checkpoint(
  make_trainer, pretrained, tmp_path
):
  trainer = make_trainer(
    tmp_path, pretrained, bindings=['adapter_config.LoRA.frozen=True']
  )
  with pytest.raises(errors.CheckpointError) as raised:
    trainer.train()
  assert_mentions(raised.value, 'Trainer.init_from')


@pytest.mark.slow
def test_unused_adapter_of_the_checkpoint_is_an_error(
  run, make_trainer, pretrained, tmp_path
):
  trainer = make_trainer(
    tmp_path, run, bindings=[f'pretrained.load_model.model_dir={pretrained!r}'],
    ADAPTER='other',
  )  # fmt: skip
  with pytest.raises(errors.CheckpointError):
    trainer.train()


def test_user_patterns_of_trainable_parameters_take_precedence(
  make_trainer, pretrained, tmp_path
):
  trainer = make_trainer(
    tmp_path,
    pretrained,
    bindings=["optimizers.AdamW.trainable=('/adapters_', 'norm')"],
  )
  optimizer = training_setup.Setup(trainer).settings.optimizer
  assert optimizer.is_trainable('model/layers/mlp_norm/scale')
  assert not optimizer.is_trainable('heads/tagging/output/kernel')


def test_adapters_are_a_separate_checkpoint_item(run):
  checkpoint = checkpoint_reader.checkpoint_path(run, 4)
  metadata = ocp.StandardCheckpointHandler().metadata
  names = {
    item: set(param_tree.flatten_params(metadata(checkpoint / item).tree))
    for item in ('params', 'adapters')
  }
  assert names['adapters']
  assert all(map(adapter_config.adapter_name, names['adapters']))
  assert not any(map(adapter_config.adapter_name, names['params']))
  shapes = checkpoint_reader.saved_shapes(checkpoint)
  assert set(shapes) == names['params'] | names['adapters'] == set(_saved(run))


def test_reader_reads_parameters_of_all_items(run):
  checkpoint = checkpoint_reader.checkpoint_path(run, 4)
  reader = saved_parameters.Reader(checkpoint)
  reader.verify()
  for name, leaf in _saved(run).items():
    np.testing.assert_array_equal(reader(name), leaf)


def test_average_contains_adapters(run, tmp_path):
  averaging.average_checkpoints({str(run): [2, 4]}, tmp_path / 'mean')
  first, last, mean = _saved(run, 2), _saved(run), _saved(tmp_path / 'mean')
  name = 'model/layers/attention/query/adapters_task/lora_b'
  np.testing.assert_allclose(
    mean[name], (first[name] + last[name]) / 2, rtol=1e-6
  )


@pytest.fixture
def damaged(run, tmp_path) -> pathlib.Path:
  """A copy of the run without the adapters of step 4."""
  directory = tmp_path / 'damaged'
  shutil.copytree(run, directory)
  shutil.rmtree(directory / 'checkpoints/4/adapters')
  return directory


def test_missing_adapters_are_detected(damaged):
  for step, valid in ((2, True), (4, False)):
    checkpoint = checkpoint_reader.checkpoint_path(damaged, step)
    assert checkpoint_reader.is_valid(checkpoint) is valid
  findings = verification.verify_directory(damaged).findings
  invalid = {finding.item for finding in findings if not finding.is_valid}
  assert invalid == {'checkpoint 4'}


@pytest.mark.slow
def test_run_resumes_from_the_checkpoint_before_missing_adapters(
  damaged, run, make_trainer, pretrained
):
  make_trainer(damaged, pretrained, RANK=2, LORA_ALPHA=8.0).train()
  tiny.assert_trees_equal(_saved(damaged), _saved(run))


def test_checkpoint_identity_depends_on_adapters(run, tmp_path):
  shutil.copytree(run / 'checkpoints', tmp_path / 'checkpoints')
  checkpoint = tmp_path / 'checkpoints/4'
  before = checkpoint_items.checkpoint_identity(checkpoint)
  (checkpoint / 'adapters/digests.json').write_text('{}')
  assert checkpoint_items.checkpoint_identity(checkpoint) != before


@pytest.mark.slow
def test_bottleneck_adapter_is_trained_on_a_frozen_lora(
  run, treebank, tmp_path
):
  gin_config.load_gin_files(
    ['finetune/tagging.gin', 'adapters/mad_x.gin'],
    ["ADAPTER='mad_x'", 'INVERTIBLE=True', 'schedules.Linear.warmup_steps=1'],
    macros={
      'MODEL_DIR': str(tmp_path),
      'INIT_FROM': str(run),
      'TRAIN_FILES': {'de': treebank},
      'FORMAT': 'conll',
      'LENGTH': 16,
      'BATCH_SIZE': 8,
      'TRAIN_STEPS': 3,
    },
  ).build(Trainer).train()
  before, after = _saved(run), _saved(tmp_path, 3)
  names = {n for n in after if adapter_config.adapter_name(n) == 'mad_x'}
  assert {n.split('/')[1] for n in names} == {'adapters_mad_x', 'layers'}
  changed = {n for n in after if n in before and (after[n] != before[n]).any()}
  assert all(name.startswith('heads/') for name in changed)
  for name in names:
    if name.endswith('up/kernel'):
      assert np.abs(after[name]).max() > 0, name


@pytest.mark.slow
def test_random_base_model_is_reported(
  make_trainer, pretrained, tmp_path, caplog
):
  trainer = dataclasses.replace(
    make_trainer(tmp_path, pretrained), init_from=None
  )
  training_setup.Setup(trainer).initial_state()
  assert 'random parameters' in caplog.text
