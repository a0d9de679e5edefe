"""Tests of the number of steps in flight and of finished steps."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.training import dispatch_queue


class _Array:
  """Array that becomes ready when it is waited for, or at a given time."""

  def __init__(self, clock, ready_at):
    self._clock, self._at = clock, ready_at

  def is_ready(self):
    return self._clock.now >= self._at

  def block_until_ready(self):
    self._clock.now = max(self._clock.now, self._at)
    return self


class _Clock:
  now = 0.0

  def __call__(self):
    return self.now


def _run(seconds: float, steps: int):
  """Returns the maximum of steps in flight, the finished steps and the time."""
  clock, reports, max_in_flight = _Clock(), [], 0
  flight = dispatch_queue.DispatchQueue(reports.append, clock)
  for step in range(steps):
    flight.make_room()
    flight.add(step + 1, _Array(clock, (step + 1) * seconds))
    max_in_flight = max(max_in_flight, step + 1 - flight.finished)
    clock.now += 1e-6
  flight.finish()
  return max_in_flight, reports, clock.now


def test_two_long_steps_are_in_flight():
  max_in_flight, reports, elapsed = _run(2.0, 10)
  assert max_in_flight == 2 and elapsed == 20
  assert reports == list(range(1, 11))


def test_more_short_steps_are_in_flight():
  max_in_flight, reports, _ = _run(0.05, 200)
  assert max_in_flight == 20  # a second of work
  assert reports[-1] == 200
  assert _run(0.001, 2000)[0] == 32


def test_dispatch_of_real_steps_is_limited():
  """On CPUs, JAX dispatches up to 32 calls ahead of a slow device."""

  @jax.jit
  def step(x):
    return jax.pure_callback(
      lambda y: (time.sleep(0.15), np.asarray(y) + 1)[1],
      jax.ShapeDtypeStruct((), jnp.float32),
      x,
    )

  reports = []
  flight, x = dispatch_queue.DispatchQueue(reports.append), jnp.float32(0)
  step(x).block_until_ready()
  flight._seconds_per_step = 2.0
  for number in range(5):
    flight.make_room()
    x = step(x)
    flight.add(number + 1, x)
    assert number + 1 - flight.finished <= 2
    flight._seconds_per_step = 2.0
  flight.finish()
  assert reports[-1] == 5 and float(x) == 5
