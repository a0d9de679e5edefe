"""Warnings about attributes of hooks that a resumed run does not restore."""

import collections
import dataclasses
import functools
import threading

import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import fake_run
from xlflax import training
from xlflax.training import train_loop
from xlflax.training.hooks import non_finite_hook, unsaved_state


@pytest.fixture
def warnings_of(tmp_path, monkeypatch, caplog):
  """Trains with a hook for 16 steps, with a checkpoint every 4 steps."""

  def run(hook, **options):
    caplog.clear()
    train_loop.run_steps(
      fake_run.make_run(
        monkeypatch, tmp_path, [1.0] * 24, hooks=[hook], **options
      )
    )
    return [r.getMessage() for r in caplog.records if r.levelname != 'INFO']

  return run


@dataclasses.dataclass(kw_only=True)
class _EarlyStopping(training.Hook):
  patience: int = 100
  best: float = dataclasses.field(default=1e9, init=False)
  bad_steps: int = dataclasses.field(default=0, init=False)

  def after_step(self, run, step, output):
    if output.loss < self.best:
      self.best, self.bad_steps = float(output.loss), 0
    else:
      self.bad_steps += 1


class _SavesNothing(_EarlyStopping):
  def state_dict(self):
    return None


class _SavesAttributes(_EarlyStopping):
  def state_dict(self):
    return {'best': self.best, 'bad_steps': self.bad_steps}

  def load_state_dict(self, state):
    self.best, self.bad_steps = state['best'], state['bad_steps']


def test_changed_attributes_cause_one_warning_per_process(warnings_of):
  saved = fake_run.Checkpoints()
  for last_step in 8, 16:
    [message] = warnings_of(_EarlyStopping(), saved=saved, last_step=last_step)
    assert_mentions(
      message, '_EarlyStopping', 'best', 'bad_steps', 'load_state_dict'
    )
    assert 'patience' not in message


@pytest.mark.parametrize('cls', [_SavesNothing, _SavesAttributes])
def test_hooks_that_define_a_state_cause_no_warning(warnings_of, cls):
  assert not warnings_of(cls())


class _Quiet(training.Hook):
  """Hook whose attributes are set before training or are not plain values."""

  def __init__(self):
    self.limit, self.missing, self.thread = 3, float('nan'), None
    self.table = list(range(2000))
    self.array = np.zeros(3)
    self.ambiguous = np.float32(0)

  @functools.cached_property
  def scale(self):
    return 2 * self.limit

  def before_training(self, run):
    self.start = run.step

  def after_step(self, run, step, output):
    assert self.scale
    self.thread = threading.current_thread()
    self.table = [*self.table, step]
    self.array = self.array + 1
    self.ambiguous = np.ones(2)


def test_other_attributes_cause_no_warning(warnings_of):
  assert not warnings_of(_Quiet())


@pytest.mark.parametrize(
  'before, after',
  [
    (None, 2.5),
    (0, jnp.float32(1)),
    (jnp.float32(0), jnp.float32(1)),
    (np.float32(0), np.float32(1)),
    ('', 'en'),
    ([], [1.0] * 2000),
    ({'en': 0}, {'en': 1}),
    (collections.deque([1], maxlen=1), collections.deque([2], maxlen=1)),
    ((1, [2]), (1, [3])),
  ],
)
def test_plain_values_are_compared(caplog, before, after):
  hook = training.Hook()
  hook.value = before
  check = unsaved_state.UnsavedStateCheck()
  check.record_initial_values([hook])
  check.warn_of_changes()
  assert not caplog.records
  hook.value = after
  check.warn_of_changes()
  check.warn_of_changes()
  [record] = caplog.records
  assert_mentions(record.getMessage(), 'value')


def test_a_list_that_grows_in_place_is_a_change(caplog):
  hook = training.Hook()
  hook.losses = []
  check = unsaved_state.UnsavedStateCheck()
  check.record_initial_values([hook])
  hook.losses.append(1.0)
  check.warn_of_changes()
  assert_mentions(caplog.text, 'losses')


class _Incomparable(float):
  def __ne__(self, other):
    raise TypeError


class _Slots:
  __slots__ = ()
  state_dict = training.Hook.state_dict


class _DerivedFromXlflax(non_finite_hook.NonFiniteHook):
  pass


@pytest.mark.parametrize(
  'hook', [_Slots(), _DerivedFromXlflax(), _EarlyStopping()]
)
def test_hooks_that_cannot_be_compared_are_not_checked(caplog, hook):
  if hasattr(hook, '__dict__'):
    hook.value = _Incomparable(1)
  check = unsaved_state.UnsavedStateCheck()
  check.record_initial_values([hook])
  if hasattr(hook, '__dict__'):
    hook.value = _Incomparable(2)
  check.warn_of_changes()
  assert not caplog.records
