"""Tests that killed runs of stateful or alternating methods resume exactly."""

import dataclasses
import signal
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.end_to_end.conftest import kill, losses
from xlflax.training.checkpointing import checkpoint_reader

_STEPS, _EVERY = 46, 23  # an odd step, after which VECO uses another objective
_ENCODER, _ENCODER_DECODER = 'models/tiny.gin', 'models/tiny_transformer.gin'
_SIZES = dict(
  hidden_dim=16,
  mlp_dim=32,
  num_heads=2,
  max_position_embeddings=32,
  scan_layers=False,
)
_DEPTHS = {
  'EncoderConfig': ('num_layers',),
  'EncoderDecoderConfig': ('num_encoder_layers', 'num_decoder_layers'),
}
_SETTINGS = dict(
  LENGTH=16,
  PAIR_LENGTH=24,
  SIDE_LENGTH=16,
  BATCH_SIZE=8,
  PAIR_BATCH_SIZE=8,
  WARMUP_STEPS=2,
  LEARNING_RATE=1e-2,
)


@dataclasses.dataclass(frozen=True)
class _Method:
  """Gin file of a method, its tiny settings, and its initial run.

  Attributes:
    file: File in pretrain/.
    model: File in models/.
    settings: Macros of the file, from `_SETTINGS` or others.
    init: Name of the method whose run provides the initial parameters. If None,
      they are random.
  """

  file: str
  model: str
  settings: dict[str, object]
  init: str | None = None

  def flags(self, workspace) -> tuple[str, ...]:
    config = (
      'EncoderConfig' if self.model == _ENCODER else 'EncoderDecoderConfig'
    )
    sizes = _SIZES | {depth: 1 for depth in _DEPTHS[config]}
    settings = dict(self.settings)
    if self.init:
      settings['INIT_DIR'] = repr(str(workspace.root / f'whole_{self.init}'))
    return (
      f'--gin_file=pretrain/{self.file}',
      f'--gin_file={self.model}',
      *(f'--gin.{config}.{k}={v}' for k, v in sizes.items()),
      *(f'--gin.{k}={v}' for k, v in settings.items()),
      f'--gin.TRAIN_STEPS={_STEPS}',
      '--gin.trainer.Trainer.log_metrics_every=4',
      f'--gin.checkpoints.CheckpointOptions.save_interval_steps={_EVERY}',
      *workspace.inputs,
      workspace.cache,
    )


def _select_settings(*names, **settings):
  return {name: _SETTINGS[name] for name in names} | settings


_COMMON = ('BATCH_SIZE', 'WARMUP_STEPS', 'LEARNING_RATE')
_VECO = _select_settings(*_COMMON, 'LENGTH', 'PAIR_LENGTH', 'PAIR_BATCH_SIZE')
_METHODS = {
  'moco': _Method(  # 40 keys: the pointer wraps around every five steps
    'moco_tlm.gin',
    _ENCODER,
    _select_settings(
      'WARMUP_STEPS', 'LEARNING_RATE', 'PAIR_LENGTH', 'PAIR_BATCH_SIZE'
    )
    | dict(MIN_TOKENS=2, MAX_TOKENS=20, QUEUE_SIZE=40, MOMENTUM=0.9),
  ),
  'veco': _Method('veco.gin', _ENCODER, _VECO),
  'phase1': _Method('veco_phase1.gin', _ENCODER, _VECO, init='moco'),
  'phase2': _Method('veco_phase2.gin', _ENCODER, _VECO, init='phase1'),
  'muon': _Method(
    'mlm.gin',
    _ENCODER,
    _select_settings(*_COMMON, 'LENGTH')
    | dict(OPTIMIZER='@optimizers.Muon()', SCHEDULE='@schedules.WSD()'),
  ),
  'stable_adamw': _Method(
    'mlm.gin',
    _ENCODER,
    _select_settings(*_COMMON, 'LENGTH')
    | dict(OPTIMIZER='@optimizers.StableAdamW()'),
  ),
  'translation': _Method(
    'translation.gin',
    _ENCODER_DECODER,
    _select_settings(*_COMMON, 'SIDE_LENGTH'),
  ),
}


@pytest.fixture(scope='module')
def uninterrupted_run(workspace):
  """Fixture that returns the uninterrupted run of a method, cached."""

  def directory(name):
    path, method = workspace.root / f'whole_{name}', _METHODS[name]
    if not path.exists():
      if method.init:
        directory(method.init)
      workspace.run('train', *method.flags(workspace), f'--model_dir={path}')
    return path

  return directory


def _saved(model_dir, step):
  """Returns all arrays of a checkpoint by name."""
  values = {}
  with ocp.PyTreeCheckpointer() as checkpointer:
    for item in ('params', 'train'):
      tree = checkpointer.restore(
        checkpoint_reader.checkpoint_path(model_dir, step).absolute() / item
      )
      values |= {
        item + jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
      }
  return values


def _wait_for_checkpoint(process, model_dir):
  while process.poll() is None:
    if _EVERY in checkpoint_reader.finished_steps(model_dir):
      return
    time.sleep(0.002)
  raise AssertionError(process.communicate()[0])


def _objective_names(model_dir):
  """Returns the names of the objectives in the logged metrics of a run."""
  return {
    key.split('/')[0]
    for row in losses(model_dir).values()
    for key in row
    if '/' in key
  }


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  [
    'moco',
    pytest.param('phase2', marks=pytest.mark.slow),
    pytest.param('veco', marks=pytest.mark.slow),
    pytest.param('muon', marks=pytest.mark.slow),
    pytest.param('stable_adamw', marks=pytest.mark.slow),
    pytest.param('translation', marks=pytest.mark.slow),
  ],
)
def test_killed_run_ends_bit_identical(
  workspace, uninterrupted_run, tmp_path, name
):
  method, uninterrupted = _METHODS[name], uninterrupted_run(name)
  run = tmp_path / 'run'
  arguments = ('train', *method.flags(workspace), f'--model_dir={run}')
  process = workspace.start(*arguments)
  _wait_for_checkpoint(process, run)
  kill(process)
  assert process.returncode == -signal.SIGKILL
  # The kill came before the last checkpoint.
  assert checkpoint_reader.finished_steps(run) == [_EVERY]
  output = workspace.run(*arguments)
  assert f'Resuming from the checkpoint of step {_EVERY}.' in output
  ours, theirs = _saved(run, _STEPS), _saved(uninterrupted, _STEPS)
  assert ours.keys() == theirs.keys()
  for key, value in ours.items():
    np.testing.assert_array_equal(value, theirs[key], err_msg=key)
  assert losses(run) == losses(uninterrupted)


@pytest.mark.slow
def test_moco_checkpoints_contain_queue_and_key_encoder(uninterrupted_run):
  """The comparison of the killed run therefore covers this state."""
  at, end = (
    _saved(uninterrupted_run('moco'), step) for step in (_EVERY, _STEPS)
  )
  state = "train['objective_state']['moco']"
  assert int(at[f"{state}['pointer']"]) == _EVERY * 8 % 40
  assert int(end[f"{state}['pointer']"]) == _STEPS * 8 % 40
  keys = f"{state}['queue']['keys']"
  assert (at[keys] != end[keys]).any(axis=1).all()
  moved = [
    name
    for name in at
    if 'key_encoder' in name and (at[name] != end[name]).any()
  ]
  assert len(moved) > 15


@pytest.mark.slow
def test_veco_phases_train_both_objectives(uninterrupted_run):
  """Both types of steps are trained, and phase 2 starts from phase 1."""
  assert _objective_names(uninterrupted_run('veco')) == {
    'ca_mlm',
    'ca_mlm_pairs',
    'tlm',
  }
  assert _objective_names(uninterrupted_run('phase1')) == {
    'ca_mlm',
    'ca_mlm_pairs',
  }
  assert _objective_names(uninterrupted_run('phase2')) == {
    'ca_mlm',
    'ca_mlm_pairs',
    'tlm',
  }
  scratch, continued = (
    losses(uninterrupted_run(name))[4]['ca_mlm/loss']
    for name in ('veco', 'phase2')
  )
  assert continued < scratch - 0.2
