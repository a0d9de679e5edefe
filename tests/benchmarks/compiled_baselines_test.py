"""Tests of the baselines' compiled steps and of the table that compares them."""

import json
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import compiled_baselines
from benchmarks.baselines import jax_steps

_OURS = {'milliseconds': 40.0, 'mfu': 0.6, 'peak_gib': 15.5, 'waited': 0.0}


def _two_steps(step):
  """Returns the losses of two steps on random parameters and tokens."""
  rng = np.random.default_rng(0)

  def filled(leaf):
    if leaf.dtype == jnp.int32:
      return jnp.zeros(leaf.shape, leaf.dtype)
    return jnp.asarray(rng.normal(0, 0.02, leaf.shape), leaf.dtype)

  params, moments, count = jax.tree.map(filled, step.state)
  state = params, jax.tree.map(jnp.zeros_like, moments), count
  batch = {
    name: jnp.asarray(rng.integers(1, 8, leaf.shape), leaf.dtype)
    for name, leaf in step.batch.items()
  }
  losses = []
  for _ in range(2):
    state, loss = step.jitted(state, batch)
    losses.append(float(loss))
  return losses


@pytest.mark.slow
def test_plain_flax_step_has_the_expected_initial_loss():
  sizes = jax_steps.EncoderSizes(40, 1, 16, 2, 32, 4, 8, 2)
  step = jax_steps.make_plain_flax_step(tuple(jax.devices()[:1]), sizes)
  assert step.tokens == 4 * 8
  first, second = _two_steps(step)
  assert first == pytest.approx(np.log(40), rel=0.05) and np.isfinite(second)


@pytest.mark.slow
def test_t5x_step_has_finite_losses():
  """Requires a T5X checkout at the path in the environment variable T5X."""
  if 'T5X' not in os.environ:
    pytest.skip('T5X is not in the environment; docs/t5x.md')
  sizes = jax_steps.T5Sizes(40, 1, 16, 2, 32, 4, 8, 6)
  devices = tuple(jax.devices()[:1])
  with jax.numpy_rank_promotion('allow'):  # The layers of T5X require it.
    step = jax_steps.make_t5x_step(
      pathlib.Path(os.environ['T5X']), devices, sizes
    )
    losses = _two_steps(step)
  assert step.tokens == 4 * (8 + 6)
  assert all(np.isfinite(losses))


def test_missing_t5x_checkout_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError, match='not a checkout'):
    jax_steps.make_t5x_step(
      tmp_path, tuple(jax.devices()[:1]), jax_steps.T5Sizes()
    )


def test_format_table_of_baselines():
  text = compiled_baselines.format_table(
    {
      'plain_flax@gpu:H200:1': _OURS | {'milliseconds': 80.0},
      't5x@gpu:H200:8': _OURS,
    },
    {'xlmr-base@gpu:H200:1': _OURS},
  )
  assert text.splitlines()[2:] == [
    '| xlflax, xlmr-base | gpu:H200:1 | 40.0 | 60.0% | 15.5 | 0.0% |',
    '| plain_flax | gpu:H200:1 | 80.0 | 30.0% | 15.5 | 0.0% |',
    '| t5x | gpu:H200:8 | 40.0 | - | 15.5 | 0.0% |',
  ]


def test_record_contains_only_known_baselines():
  record = json.loads(compiled_baselines.RECORD.read_text())
  assert record
  assert record.keys() <= {
    f'{name}@{devices}' for name, devices in compiled_baselines.DEVICES.items()
  }
  for entry in record.values():
    assert _OURS.keys() - entry.keys() == {'mfu'}


def test_page_has_the_markers():
  page = (
    pathlib.Path(compiled_baselines.__file__).parents[1]
    / 'docs/measured/compiled_steps.md'
  )
  text = page.read_text(encoding='utf-8')
  assert text.count('<!-- baselines -->') == 1
  assert text.count('<!-- end of baselines -->') == 1
