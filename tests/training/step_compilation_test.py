"""Tests of compiling the first step in advance."""

import jax
import numpy as np
import pytest

from tests.training import tiny
from tests.training.training_setup_test import make_settings
from xlflax.training import step_compilation, training_setup
from xlflax.utils import errors


@pytest.fixture
def compiled(monkeypatch):
  """Names of the programs that XLA compiled."""
  names: list[str] = []

  def heard(event, seconds, fun_name='', **_):
    if event.endswith('backend_compile_duration'):
      names.append(fun_name)

  jax.monitoring.register_event_duration_secs_listener(heard)
  yield names
  jax.monitoring.unregister_event_duration_listener(heard)


@pytest.mark.slow
def test_step_is_compiled_once(compiled):
  setup = training_setup.Setup(make_settings(partitioner=tiny.one_device()))
  with setup.settings.partitioner.scope():
    with step_compilation.StepCompiler(setup, 0) as compiler:
      compiler.wait_lowered()
      state = setup.initial_state()
    assert sum('step' in name for name in compiled) == 1
    batch = tiny.make_batch(rows=8, length=12)
    batch = {
      key: np.asarray(batch[key], leaf.dtype)
      for key, leaf in setup.abstract_batches((0,))['mono'].items()
    }
    batches = jax.device_put(
      {'mono': batch}, setup.settings.partitioner.batch_sharding
    )
    state, output = compiler.step_of((0,))(state, batches)
  assert int(state.step) == 1 and np.isfinite(output.loss)
  assert sum('step' in name for name in compiled) == 1


def test_finished_run_compiles_no_step(compiled):
  setup = training_setup.Setup(make_settings(partitioner=tiny.one_device()))
  with step_compilation.StepCompiler(setup, setup.settings.last_step):
    pass
  assert not [name for name in compiled if 'step' in name]


def test_compilation_errors_are_raised_by_the_step(monkeypatch):
  setup = training_setup.Setup(make_settings(partitioner=tiny.one_device()))

  def fail(active):
    raise errors.ConfigError('No batches')

  monkeypatch.setattr(setup, 'abstract_batches', fail)
  with step_compilation.StepCompiler(setup, 0) as compiler:
    compiler.wait_lowered()  # returns despite the error
  with pytest.raises(errors.ConfigError, match='No batches'):
    compiler.step_of((0,))
