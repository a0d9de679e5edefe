"""A training run without devices: batches are losses, checkpoints in memory."""

import contextlib
import json
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.training import tiny
from xlflax.training import train_step, training_run
from xlflax.training.checkpointing import checkpoints
from xlflax.training.hooks import (
  checkpoint_hook,
  evaluation_hook,
  metrics_logging,
  non_finite_hook,
  run_lease_hook,
  step_time_logging,
)
from xlflax.training.optimization import optimizers


class State(NamedTuple):
  """A train state.

  Attributes:
    step: Number of completed steps.
    total: Sum of the values of all batches that were trained on.
  """

  step: jax.Array
  total: jax.Array

  @property
  def params(self):
    return {'model': {}, 'heads': {}}


class Checkpoints:
  """Checkpoints in memory by step. Their arrays are copies."""

  def __init__(self):
    self.saved, self.metrics, self.is_writing = {}, {}, False

  def save(self, state, meta, metrics=None):
    self.saved[int(state.step)] = (np.array(state.total), json.dumps(meta))
    self.metrics[int(state.step)] = metrics

  def restore_last(self, factory):
    del factory
    if not self.saved:
      return None
    step = max(self.saved)
    total, meta = self.saved[step]
    state = State(jnp.int32(step), jnp.asarray(total))
    return checkpoints.Restored(step, state, json.loads(meta))

  def meta(self, step):
    return json.loads(self.saved[step][1])

  def describe_last(self):
    return ''

  def wait(self):
    pass

  def check(self):
    pass

  def close(self):
    pass

  @property
  def last_step(self):
    return max(self.saved, default=None)


class _Feed:
  """Batches that are their own losses."""

  def __init__(self, loader, *, first_step, **_):
    self._losses = iter(loader[first_step:])

  def next(self):
    return next(self._losses)

  def close(self):
    pass


class _Compiler(contextlib.nullcontext):
  """Step functions that need no compilation."""

  def __init__(self, setup, first):
    super().__init__()
    self._steps = set()

  def wait_lowered(self):
    pass

  def is_compiled(self, active):
    return active in self._steps

  def step_of(self, active):
    self._steps.add(active)
    return _train_step


def output(loss, *, finite=True):
  """Returns the output of a step."""
  unit = jnp.float32(1)
  return train_step.StepOutput(
    {}, jnp.float32(loss), unit, jnp.asarray(finite), unit, unit
  )


def _train_step(state, batches):
  loss = batches['mono']
  state = State(state.step + 1, state.total + np.float32(loss))
  return state, output(loss)


class _Progress:
  """No lines on the terminal."""

  def report(self, step, loss, tokens_per_step):
    return {}


def make_run(
  monkeypatch, directory, losses, *, saved=None, hooks=(), lease=None, **fields
) -> training_run.TrainingRun:
  """Returns a run of 16 steps that reports every 2 and saves every 4 steps.

  Args:
    monkeypatch: Fixture of pytest.
    directory: Run directory.
    losses: Loss of each batch.
    saved: Store with the checkpoints that earlier processes of the run saved.
    hooks: Hooks that run before those for metrics and checkpoints.
    lease: Lease of the run directory.
    **fields: Fields of the trainer.
  """
  saved = Checkpoints() if saved is None else saved
  monkeypatch.setattr(training_run.prefetch, 'Prefetcher', _Feed)
  monkeypatch.setattr(training_run.checkpoints, 'Checkpoints', lambda *_: saved)
  monkeypatch.setattr(training_run.step_compilation, 'StepCompiler', _Compiler)
  trainer = types.SimpleNamespace(
    **{
      'steps': 16,
      'last_step': 16,
      'log_metrics_every': 2,
      'trackers': (),
      'checkpoints': types.SimpleNamespace(
        save_interval_steps=4, metric_for_best_model=None
      ),
      'evaluation': None,
      'objectives': tiny.make_mixture(),
      'optimizer': optimizers.AdamW(learning_rate=0.1),
      'non_finite': train_step.NonFinitePolicy.STOP,
      'max_consecutive_skips': 10,
      'seed': 0,
      'prefetch': 1,
      'partitioner': types.SimpleNamespace(batch_sharding=None),
    }
    | fields
  )
  setup = types.SimpleNamespace(
    settings=trainer,
    model_dir=directory,
    description={},
    factory=None,
    model=tiny.make_model(),
    spec=tiny.SPEC,
    datasets_of=lambda active: ['mono'],
    initial_state=lambda **_: State(jnp.int32(0), jnp.float32(0)),
  )
  run = training_run.TrainingRun(setup, {'mono': losses}, {}, lease=lease)
  times = step_time_logging.StepTimeHook(run.clock)
  metrics_hook = metrics_logging.MetricsHook(_Progress(), times)
  monkeypatch.setattr(metrics_hook, 'before_training', lambda run: None)
  run.add_hooks([run_lease_hook.RunLeaseHook(), *hooks])
  run.add_hooks([non_finite_hook.NonFiniteHook(), times, metrics_hook])
  if trainer.evaluation:
    run.add_hooks([evaluation_hook.EvaluationHook(trainer.evaluation)])
  run.add_hooks([checkpoint_hook.CheckpointHook()])
  return run


def logged_steps(directory) -> list[int]:
  """Returns the steps of the lines of `metrics.jsonl`."""
  lines = (directory / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line)['step'] for line in lines]
