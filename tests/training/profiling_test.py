"""Traces of some steps of a run."""

import jax.numpy as jnp
import pytest

from xlflax.foundation import errors
from xlflax.training import profiling


@pytest.mark.parametrize('text', ['5', '7:7', '9:3', 'a:b', '-1:3', '1:2:3'])
def test_other_forms_are_refused(text):
  with pytest.raises(errors.ConfigError, match='FIRST:LAST'):
    profiling.Steps.of(text)


def test_traces_the_steps_that_were_asked_for(tmp_path, monkeypatch):
  calls = []
  monkeypatch.setattr(
    profiling.jax.profiler, 'start_trace', lambda d: calls.append(('start', d))
  )
  monkeypatch.setattr(
    profiling.jax.profiler, 'stop_trace', lambda: calls.append('stop')
  )
  profiler = profiling.Profiler(
    profiling.Steps.of('2:4'), tmp_path, memory=True
  )
  for step in range(6):
    profiler.before(step)
    calls.append(step)
    profiler.after(step + 1, jnp.ones(1))
  profiler.close()
  start = ('start', str(tmp_path / 'profile'))
  assert calls == [0, 1, start, 2, 3, 'stop', 4, 5]


def test_a_stop_ends_the_trace(tmp_path, monkeypatch):
  ended = []
  monkeypatch.setattr(profiling.jax.profiler, 'start_trace', lambda d: None)
  monkeypatch.setattr(
    profiling.jax.profiler, 'stop_trace', lambda: ended.append(1)
  )
  profiler = profiling.Profiler(profiling.Steps.of('0:9'), tmp_path)
  profiler.before(0)
  profiler.close()
  profiler.close()
  assert ended == [1]


def test_steps_that_are_past_are_told_once(tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(profiling.jax.profiler, 'start_trace', None)
  profiler = profiling.Profiler(profiling.Steps.of('2:4'), tmp_path)
  for step in (500, 501):
    profiler.before(step)
    profiler.after(step + 1, jnp.ones(1))
  assert caplog.text.count('no trace of steps 2 to 4') == 1
