"""Tests of profiling a range of steps."""

import jax.numpy as jnp
import pytest

from xlflax.training.hooks import profiler_hook
from xlflax.utils import errors


@pytest.mark.parametrize('text', ['5', '7:7', '9:3', 'a:b', '-1:3', '1:2:3'])
def test_invalid_step_ranges_are_rejected(text):
  with pytest.raises(errors.ConfigError, match='FIRST:LAST'):
    profiler_hook.Steps.of(text)


def test_requested_steps_are_traced(tmp_path, monkeypatch):
  calls = []
  monkeypatch.setattr(
    profiler_hook.jax.profiler,
    'start_trace',
    lambda d: calls.append(('start', d)),
  )
  monkeypatch.setattr(
    profiler_hook.jax.profiler, 'stop_trace', lambda: calls.append('stop')
  )
  hook = profiler_hook.ProfilerHook(
    profiler_hook.Steps.of('2:4'), tmp_path, memory=True
  )
  for step in range(6):
    hook.start(step)
    calls.append(step)
    hook.stop(step + 1, jnp.ones(1))
  hook.close()
  start = ('start', str(tmp_path / 'profile'))
  assert calls == [0, 1, start, 2, 3, 'stop', 4, 5]


def test_close_stops_the_trace_once(tmp_path, monkeypatch):
  ended = []
  monkeypatch.setattr(profiler_hook.jax.profiler, 'start_trace', lambda d: None)
  monkeypatch.setattr(
    profiler_hook.jax.profiler, 'stop_trace', lambda: ended.append(1)
  )
  hook = profiler_hook.ProfilerHook(profiler_hook.Steps.of('0:9'), tmp_path)
  hook.start(0)
  hook.close()
  hook.close()
  assert ended == [1]


def test_past_steps_are_reported_once(tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(profiler_hook.jax.profiler, 'start_trace', None)
  hook = profiler_hook.ProfilerHook(profiler_hook.Steps.of('2:4'), tmp_path)
  for step in (500, 501):
    hook.start(step)
    hook.stop(step + 1, jnp.ones(1))
  assert len([r for r in caplog.records if r.levelname == 'WARNING']) == 1
