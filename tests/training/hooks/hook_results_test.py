"""Errors for hook methods of users that return invalid values."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import fake_run
from xlflax import training
from xlflax.objectives import objective_base
from xlflax.training import train_loop
from xlflax.utils import errors

_FILE = 'hook_results_test.py'


@pytest.fixture
def train(tmp_path, monkeypatch):
  """Trains for 16 steps with a hook. A checkpoint is saved every 4 steps."""

  def run(hook, *, saved=None, **fields):
    losses = [1.0] * 24
    return train_loop.run_steps(
      fake_run.make_run(
        monkeypatch, tmp_path, losses, hooks=[hook], saved=saved, **fields
      )
    )

  return run


def _make_hook(name, method):
  """Returns a hook whose method `name` is a function without `self`."""
  return type(
    '_Own',
    (training.Hook,),
    {name: lambda self, *arguments: method(*arguments)},
  )()


@pytest.mark.parametrize('value', [None, 0, 'yes', training.Request(save=True)])
def test_before_checkpoint_must_return_a_bool(train, value):
  saved = fake_run.Checkpoints()
  with raises_error(
    errors.ConfigError,
    got=value,
    status=errors.ExitStatus.MISTAKE,
    mentions=('_Own.before_checkpoint', 'return True', _FILE),
  ):
    train(_make_hook('before_checkpoint', lambda run: value), saved=saved)
  assert not saved.saved


@pytest.mark.parametrize('convert', [np.bool_, jnp.bool_])
def test_before_checkpoint_may_return_a_bool_of_numpy_or_jax(train, convert):
  saved = fake_run.Checkpoints()
  hook = _make_hook('before_checkpoint', lambda run: convert(run.step != 8))
  train(hook, saved=saved)
  assert sorted(saved.saved) == [4, 12, 16]


def test_a_run_whose_checkpoints_are_rejected_is_not_finished(train, caplog):
  result = train(_make_hook('before_checkpoint', lambda run: False))
  assert not result['finished'] and result['step'] == 16
  assert result['rejected_by'] == '_Own'
  [message] = [r.getMessage() for r in caplog.records if r.levelname != 'INFO']
  assert_mentions(message, '_Own.before_checkpoint', 'True')


def test_a_rejected_last_checkpoint_causes_a_warning(train, caplog):
  result = train(_make_hook('before_checkpoint', lambda run: run.step <= 12))
  assert result['finished'] and result['checkpoint'] == 12
  [message] = [r.getMessage() for r in caplog.records if r.levelname != 'INFO']
  assert_mentions(message, '_Own.before_checkpoint', 12, 16)


def test_a_checkpoint_that_is_rejected_in_between_causes_no_warning(
  train, caplog
):
  train(_make_hook('before_checkpoint', lambda run: run.step != 8))
  assert not [r for r in caplog.records if r.levelname != 'INFO']


@pytest.mark.parametrize(
  'value, got',
  [
    (True, 'True'),
    (False, 'False'),
    (training.Request, 'the class training.Request'),
    ({'stop': True}, "{'stop': True}"),
  ],
)
@pytest.mark.parametrize('method', ['after_step', 'before_training'])
def test_a_value_that_is_not_a_request(train, method, value, got):
  with raises_error(
    errors.ConfigError,
    got=got,
    mentions=(f'_Own.{method}', 'training.Request(stop=True)', _FILE),
  ):
    train(_make_hook(method, lambda *arguments: value))


@pytest.mark.parametrize(
  'method', ['after_checkpoint', 'after_training', 'after_rewind']
)
def test_request_of_a_method_without_requests_causes_a_warning(
  train, method, caplog
):
  class _Own(training.Hook):
    is_first = True

    def after_step(self, run, step, output):
      if step == 2 and self.is_first:
        self.is_first = False
        return training.Request(rewind=True, reason='Test.')
      return None

  setattr(_Own, method, lambda *arguments: training.Request(stop=True))
  train(_Own())
  assert any(
    f'_Own.{method}' in message and 'after_step' in message
    for message in caplog.messages
  )


def test_wrap_train_step_must_return_a_function(train):
  with raises_error(
    errors.ConfigError,
    got=None,
    mentions=('_Own.wrap_train_step', 'train_step', _FILE),
  ):
    train(_make_hook('wrap_train_step', lambda *arguments: None))


@pytest.mark.parametrize('value', [None, iter(())])
def test_running_must_return_a_context_manager(train, value):
  with raises_error(
    errors.ConfigError,
    got=repr(value),
    mentions=('_Own.running', '@contextlib.contextmanager', _FILE),
  ):
    train(_make_hook('running', lambda run: value))


class _Saves(training.Hook):
  """Hook whose state is set at a step."""

  def __init__(self, states):
    self.state, self.states = {}, states

  def after_step(self, run, step, output):
    self.state = self.states.get(step, self.state)

  def state_dict(self):
    return self.state

  def load_state_dict(self, state):
    self.state = state


@pytest.mark.parametrize(
  'state, got, key',
  [
    ({'best': jnp.float32(1)}, 'jax.Array', "['best']"),
    ({'best': np.float32(1)}, 'numpy.float32', "['best']"),
    ({'a': [1, {'b': np.ones(2)}]}, 'numpy.ndarray', "['a'][1]['b']"),
    ({'a': {1, 2}}, 'set', "['a']"),
    ({5: 1.0}, 'int', '5'),
    ({'a': types.MappingProxyType({'b': 1})}, 'mappingproxy', "['a']"),
    (jnp.ones([]), 'jax.Array', 'state_dict()'),
  ],
)
@pytest.mark.parametrize('step', [0, 3])
def test_a_state_that_is_not_json(train, state, got, key, step):
  saved = fake_run.Checkpoints()
  hook = _Saves({step: state})
  if step == 0:
    hook.state = state
  with raises_error(
    errors.ConfigError,
    status=errors.ExitStatus.MISTAKE,
    mentions=('_Saves.state_dict', got, _FILE),
  ) as caught:
    train(hook, saved=saved)
  assert key in str(caught.value)
  assert not saved.saved


def test_a_state_of_json_values(train):
  saved = fake_run.Checkpoints()
  state = {'a': [1, 2.5, None, True, 'x'], 'b': {'c': float('inf')}, 'd': (1,)}
  train(_Saves({1: state}), saved=saved)
  assert saved.meta(16)['hooks']['_Saves']['a'] == state['a']


class _Callback(training.Hook):
  """A hook with the method names of callbacks in Hugging Face transformers."""

  def on_step_end(self, run, step, output):
    raise AssertionError


def test_method_that_is_an_attribute_of_the_hook_is_called(train):
  steps = []
  hook = training.Hook()
  hook.after_step = lambda run, step, output: steps.append(step)
  train(hook)
  assert steps


def test_hook_that_overrides_no_method_is_rejected(train):
  with raises_error(
    errors.ConfigError,
    got='on_step_end',
    status=errors.ExitStatus.MISTAKE,
    mentions=('_Child', 'after_step', _FILE),
  ):
    train(type('_Child', (_Callback,), {})())


def test_a_state_that_is_never_loaded_causes_a_warning(train, caplog):
  train(_make_hook('state_dict', lambda: {'best': 1.0}))
  [message] = [r.getMessage() for r in caplog.records if r.levelname != 'INFO']
  assert_mentions(message, '_Own', 'load_state_dict')


@pytest.mark.parametrize(
  'metrics', [{'loss': [1.0]}, {'loss': 'low'}, 0.5, {'loss': jnp.ones(2)}]
)
def test_invalid_metrics_of_a_request(train, metrics):
  def after_step(run, step, output):
    return training.Request(save=True, metrics=metrics)

  with raises_error(
    errors.ConfigError, mentions=('_Own.after_step', 'metrics', _FILE)
  ):
    train(_make_hook('after_step', after_step))


def test_metrics_of_a_request_may_be_arrays(train):
  saved = fake_run.Checkpoints()

  def after_step(run, step, output):
    return training.Request(save=True, metrics={'loss': output.loss})

  train(_make_hook('after_step', after_step), saved=saved)
  assert saved.metrics[3] == {'loss': 1.0}
  assert type(saved.metrics[3]['loss']) is float


def test_an_error_of_a_request_must_be_an_exception(train):
  def after_step(run, step, output):
    return training.Request(error='diverged')

  with raises_error(
    errors.ConfigError, mentions=('_Own.after_step', 'error', _FILE)
  ):
    train(_make_hook('after_step', after_step))


@pytest.mark.parametrize(
  'arguments, metrics',
  [
    ((), {'my_norm': jnp.float32(1)}),
    ((), {'my_norm': 1.0}),
    (({'my_norm': 1.0},), {}),
    ((), {'norms': {'x': jnp.ones(2)}}),
    ((), {'norms': {'x': [1.0]}}),
    ((), {'norms': {1: 1.0}}),
  ],
)
def test_metrics_without_a_group_or_a_number(train, arguments, metrics, caplog):
  def after_step(run, step, output):
    run.write_metrics(step, *arguments, **metrics)

  with raises_error(
    errors.ConfigError,
    expected='run.write_metrics(step, GROUP={NAME: number})',
    mentions=(_FILE, '`run.write_metrics(step, *arguments, **metrics)`'),
  ):
    train(_make_hook('after_step', after_step))
  assert not [r for r in caplog.records if r.exc_info]


def test_metrics_may_be_arrays_of_one_number_and_text(train, tmp_path):
  def after_step(run, step, output):
    run.write_metrics(
      step, own={'a': output.loss, 'b': np.int32(2), 'c': 'text', 'd': None}
    )

  train(_make_hook('after_step', after_step))
  text = (tmp_path / 'metrics.jsonl').read_text()
  assert '"own": {"a": 1.0, "b": 2.0, "c": "text", "d": null}' in text


_MEAN = objective_base.WeightedMean(jnp.ones(2), jnp.ones(2))


@pytest.mark.parametrize(
  'use',
  [
    lambda run: _MEAN < 3.0,
    lambda run: float(_MEAN),
    lambda run: _MEAN - 1.0,
    lambda run: f'{_MEAN:.3f}',
    lambda run: run.write_metrics(run.step, own={'loss': _MEAN}),
    lambda run: training.Request(save=True, metrics={'loss': _MEAN}),
  ],
)
def test_a_weighted_mean_that_is_used_as_a_number_has_a_hint(train, use):
  with raises_error(
    errors.ConfigError,
    status=errors.ExitStatus.MISTAKE,
    mentions=(_FILE, 'WeightedMean'),
  ) as caught:
    train(_make_hook('after_step', lambda run, step, output: use(run)))
  assert_mentions(caught.value.fix, 'metric.total.sum() / metric.weight.sum()')


def test_another_exception_in_after_step_has_no_hint(train):
  with raises_error(errors.ConfigError, mentions=('_Own', _FILE)) as caught:
    train(_make_hook('after_step', lambda run, step, output: 1 + 'text'))
  assert caught.value.fix is None


def _make_step(train_step, use):
  """Returns a step function that passes the earlier state to a function."""

  def step(state, batches):
    new_state, output = train_step(state, batches)
    state.total.delete()
    use(state)
    return new_state, output

  return step


@pytest.mark.parametrize(
  'use, mentions',
  [
    (lambda state: float(state.total), ('run.state', 'jax.device_get')),
    (lambda state: 1 + 'text', ()),
  ],
)
def test_exception_in_a_wrapped_step_is_reported(train, use, mentions):
  hook = _make_hook(
    'wrap_train_step',
    lambda run, train_step, active: _make_step(train_step, use),
  )
  with raises_error(
    errors.ConfigError,
    status=errors.ExitStatus.MISTAKE,
    mentions=('_Own.wrap_train_step', _FILE),
  ) as caught:
    train(hook)
  if mentions:
    assert_mentions(caught.value.fix, *mentions)


def test_failure_of_a_device_in_a_wrapped_step_is_not_one_of_the_hook(train):
  def fail(state):
    raise jax.errors.JaxRuntimeError('INTERNAL: the device failed')

  hook = _make_hook(
    'wrap_train_step',
    lambda run, train_step, active: _make_step(train_step, fail),
  )
  with pytest.raises(jax.errors.JaxRuntimeError):
    train(hook)
