"""Tests of hooks, requests and signals in the training loop."""

import contextlib
import os
import signal
import threading
import types

import pytest

from tests.errors import assert_mentions
from tests.training import fake_run
from xlflax.storage import directory_lease
from xlflax.training import train_loop
from xlflax.training.distributed import goodput, hang_watchdog
from xlflax.training.hooks import hook_base, stop_request_hook, watchdog_hook
from xlflax.utils import errors

_LOSSES = [1 + n / 1024 for n in range(24)]


@pytest.fixture
def make_run(tmp_path, monkeypatch):
  """Returns a function that creates runs of 16 steps that save every 4 steps."""

  def make(**options):
    return fake_run.make_run(monkeypatch, tmp_path, _LOSSES, **options)

  return make


class _Counter(hook_base.Hook):
  """Hook that counts steps and records its calls.

  Args:
    requests: Mapping from steps to the request that the hook returns after the
      step.
  """

  def __init__(self, requests=None):
    self.count, self.calls = 0, []
    self._requests = requests or {}

  @contextlib.contextmanager
  def running(self, run):
    self.calls.append('open')
    yield
    self.calls.append('closed')

  def before_training(self, run):
    self.calls.append(('before_training', run.step, self.count))

  def after_step(self, run, step, output):
    self.count += 1
    request = self._requests.pop(step, None)
    if isinstance(request, BaseException):
      raise request
    return request

  def after_checkpoint(self, run, step):
    self.calls.append(('after_checkpoint', step))

  def after_rewind(self, run, from_step):
    self.calls.append(('after_rewind', from_step, run.step, self.count))

  def after_training(self, run):
    self.calls.append(('after_training', run.step))

  def state_dict(self):
    return {'count': self.count}

  def load_state_dict(self, state):
    self.count = state['count']


def test_methods_of_a_hook_are_called_in_order(make_run):
  hook = _Counter()
  result = train_loop.run_steps(make_run(hooks=[hook]))
  assert hook.calls == [
    'open',
    ('before_training', 0, 0),
    *(('after_checkpoint', step) for step in (4, 8, 12, 16)),
    ('after_checkpoint', 16),
    ('after_training', 16),
    'closed',
  ]
  assert result['finished'] and result['step'] == 16


def test_state_of_a_hook_is_restored_after_a_kill(make_run):
  saved = fake_run.Checkpoints()
  killed = _Counter({6: KeyboardInterrupt()})
  with pytest.raises(KeyboardInterrupt):
    train_loop.run_steps(make_run(saved=saved, hooks=[killed]))
  assert killed.calls[-1] == ('after_training', 6)
  hook = _Counter()
  train_loop.run_steps(make_run(saved=saved, hooks=[hook]))
  assert hook.calls[1] == ('before_training', 4, 4)
  assert hook.count == 16


@pytest.mark.parametrize(('steps', 'num_warnings'), [(12, 1), (16, 0)])
def test_checkpoint_after_the_last_step_causes_a_warning(
  make_run, caplog, steps, num_warnings
):
  saved = fake_run.Checkpoints()
  train_loop.run_steps(make_run(saved=saved))
  result = train_loop.run_steps(
    make_run(saved=saved, steps=steps, last_step=steps)
  )
  assert result['step'] == 16
  warnings = [
    r.getMessage() for r in caplog.records if r.levelname == 'WARNING'
  ]
  assert len(warnings) == num_warnings
  for warning in warnings:
    assert_mentions(warning, 16, 12, 'TRAIN_STEPS')


def test_hook_requests_a_save_and_a_stop(make_run):
  saved = fake_run.Checkpoints()
  hook = _Counter(
    {2: hook_base.Request(save=True), 6: hook_base.Request(stop=True)}
  )
  result = train_loop.run_steps(make_run(saved=saved, hooks=[hook]))
  assert sorted(saved.saved) == [2, 4, 6]
  assert not result['finished'] and result['step'] == 6


@pytest.mark.parametrize('step', [0, 6, 16])
def test_hook_that_stops_a_run_is_named(make_run, caplog, step):
  class _Stop(hook_base.Hook):
    def before_training(self, run):
      return hook_base.Request(stop=step == 0)

    def after_step(self, run, current_step, output):
      return hook_base.Request(stop=current_step == step)

  caplog.set_level('INFO')
  result = train_loop.run_steps(make_run(hooks=[_Counter(), _Stop()]))
  assert result['step'] == step
  assert result['finished'] == (step == 16)
  # A request after the last step has no effect.
  assert result.get('stopped_by') == (None if step == 16 else '_Stop')
  (line,) = [line for line in caplog.messages if f'step {step} of 16' in line]
  assert ('_Stop' in line) == (step < 16)


@pytest.mark.parametrize(('at', 'to'), [(6, 4), (3, 0)])
def test_hook_requests_a_rewind(make_run, at, to):
  """The state of the hook is also restored, even at the start of training."""
  hook = _Counter({at: hook_base.Request(rewind=True, reason='Test.')})
  run = make_run(hooks=[hook])
  train_loop.run_steps(run)
  assert ('after_rewind', at, to, to) in hook.calls
  assert hook.count == 16
  skipped = at - to
  trained = _LOSSES[:to] + _LOSSES[at : 16 + skipped]
  assert float(run.state.total) == sum(trained)
  assert fake_run.logged_steps(run.model_dir) == list(range(2, 17, 2))


def test_hook_rejects_a_checkpoint(make_run):
  class _Rejects(hook_base.Hook):
    def before_checkpoint(self, run):
      return run.step != 8

  saved = fake_run.Checkpoints()
  train_loop.run_steps(make_run(saved=saved, hooks=[_Rejects()]))
  assert sorted(saved.saved) == [4, 12, 16]


def test_hooks_require_different_state_keys(make_run):
  with pytest.raises(errors.ConfigError) as error:
    make_run(hooks=[_Counter(), _Counter()])
  assert_mentions(error.value, 'Trainer.hooks', 'state_key')


def test_hooks_with_empty_states_require_different_state_keys(make_run):
  class _EmptyState(hook_base.Hook):
    def state_dict(self):
      return {}

  with pytest.raises(errors.ConfigError) as error:
    make_run(hooks=[_EmptyState(), _EmptyState()])
  assert_mentions(error.value, 'Trainer.hooks', 'state_key')


def test_second_signal_waits_for_the_last_checkpoint(make_run):
  """Like Slurm, the hook sends SIGUSR1, and SIGTERM during the save."""

  class _Signals(hook_base.Hook):
    def after_step(self, run, step, output):
      os.kill(os.getpid(), signal.SIGUSR1)

    def before_checkpoint(self, run):
      os.kill(os.getpid(), signal.SIGTERM)
      return True

    def after_training(self, run):
      os.kill(os.getpid(), signal.SIGTERM)
      os.kill(os.getpid(), signal.SIGUSR1)

  def fatal(number, frame):
    name = signal.Signals(number).name
    raise AssertionError(f'{name} reached the handler of the caller')

  saved = fake_run.Checkpoints()
  before = [signal.signal(n, fatal) for n in (signal.SIGTERM, signal.SIGUSR1)]
  try:
    run = make_run(saved=saved, hooks=[_Signals()])
    run.add_hooks([stop_request_hook.StopRequestHook()])
    result = train_loop.run_steps(run)
    assert sorted(saved.saved) == [1]
    assert result['interrupted'] and not result['finished']
  finally:
    for number, handler in zip(
      (signal.SIGTERM, signal.SIGUSR1), before, strict=True
    ):
      signal.signal(number, handler)


@pytest.mark.parametrize('finished', [0, 4])
def test_signal_before_the_first_step_saves_no_checkpoint(make_run, finished):
  """Covers a new run and a resumed run."""

  class _Signal(hook_base.Hook):
    def before_training(self, run):
      os.kill(os.getpid(), signal.SIGTERM)

  saved = fake_run.Checkpoints()
  if finished:
    stop = _Counter({finished: hook_base.Request(stop=True)})
    train_loop.run_steps(make_run(saved=saved, hooks=[stop]))
  before = signal.signal(signal.SIGTERM, lambda number, frame: None)
  try:
    run = make_run(saved=saved, hooks=[_Signal()])
    run.add_hooks([stop_request_hook.StopRequestHook()])
    result = train_loop.run_steps(run)
  finally:
    signal.signal(signal.SIGTERM, before)
  assert result['interrupted'] and not result['finished']
  assert result['step'] == result['first_step'] == finished
  assert result['checkpoint'] == (finished or None)
  assert sorted(saved.saved) == ([finished] if finished else [])


def test_hanging_restore_is_detected(make_run):
  """For example, the file system of the model directory does not respond."""
  ended, messages = threading.Event(), []

  def end(message):
    messages.append(message)
    ended.set()

  class _Blocked(fake_run.Checkpoints):
    def restore_last(self, factory):
      assert ended.wait(30)
      raise TimeoutError

  run = make_run(saved=_Blocked())
  hook = watchdog_hook.WatchdogHook(run.activities, 0)
  hook._watchdog = hang_watchdog.Watchdog(run.activities, 0.02, end=end)
  run.add_hooks([hook])
  with pytest.raises(TimeoutError):
    train_loop.run_steps(run)
  [message] = messages
  assert goodput.Activity.START.description in message


@pytest.mark.parametrize('save_interval_steps', [1, 100])
def test_run_without_its_lease_writes_nothing(
  tmp_path, make_run, save_interval_steps
):
  """The run writes no checkpoints and no metrics."""

  class _Lost(directory_lease.Lease):
    def check(self):
      raise errors.RunDirectoryError('taken over')

  saved = fake_run.Checkpoints()
  options = types.SimpleNamespace(
    save_interval_steps=save_interval_steps, metric_for_best_model=None
  )
  run = make_run(saved=saved, lease=_Lost(tmp_path), checkpoints=options)
  with pytest.raises(errors.RunDirectoryError, match='taken over'):
    train_loop.run_steps(run)
  assert not saved.saved and fake_run.logged_steps(tmp_path) == []


def test_activities_of_a_run_are_recorded(make_run):
  """Covers batches, steps, an evaluation and a checkpoint."""
  evaluation = types.SimpleNamespace(
    is_due=lambda step, _: step == 2, run=lambda *_: {}
  )
  run = make_run(last_step=2, evaluation=evaluation)
  activities, begin = [], run.activities.start

  def note(activity, detail=''):
    activities.append((activity, detail))
    begin(activity, detail)

  run.activities.start = note
  run.activities.progress = lambda: None
  train_loop.run_steps(run)
  at = goodput.Activity
  assert activities == [
    (at.BATCH, "of dataset 'mono'"),
    (at.COMPILATION, '(step 1)'),
    (at.BATCH, "of dataset 'mono'"),
    (at.STEP, '(step 2)'),
    (at.EVALUATION, 'step 2'),
    (at.SAVE, 'of step 2'),
  ]


def test_failed_write_is_raised_after_the_next_step(make_run):
  class _Full(fake_run.Checkpoints):
    def check(self):
      raise errors.CheckpointError('A checkpoint could not be written')

  hook = _Counter()
  with pytest.raises(errors.CheckpointError):
    train_loop.run_steps(make_run(saved=_Full(), hooks=[hook]))
  assert hook.count == 1


def _evaluated(make_run, saved, metric_for_best_model):
  run = make_run(
    saved=saved,
    evaluation=types.SimpleNamespace(
      is_due=lambda step, _: step == 1, run=lambda *_: {'f1': 0.25, 'mrr': 0.5}
    ),
    checkpoints=types.SimpleNamespace(
      save_interval_steps=100, metric_for_best_model=metric_for_best_model
    ),
  )
  return train_loop.run_steps(run)


@pytest.mark.parametrize(('best', 'steps'), [('f1', [1, 16]), (None, [16])])
def test_evaluated_checkpoint_is_saved_for_the_best_metric(
  make_run, best, steps
):
  saved = fake_run.Checkpoints()
  _evaluated(make_run, saved, best)
  assert sorted(saved.saved) == steps
  if best:
    assert saved.metrics[1] == {'f1': 0.25, 'mrr': 0.5}


def test_best_metric_must_be_evaluated(make_run):
  """The trained parameters are saved before the error is raised."""
  saved = fake_run.Checkpoints()
  with pytest.raises(errors.ConfigError) as error:
    _evaluated(make_run, saved, 'bleu')
  assert error.value.got == 'bleu'
  assert sorted(saved.saved) == [1]
