"""Tests that NaN and infinite parameters are rejected."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.training import nonfinite_checks
from xlflax.utils import errors


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('dtype', [np.float32, np.float16, ml_dtypes.bfloat16])
def test_single_non_finite_value_is_rejected(value, dtype):
  values = np.ones((3, 5), dtype)
  nonfinite_checks.check_finite('w', values, where='file')
  values[2, 4] = value
  with pytest.raises(errors.CheckpointError) as error:
    nonfinite_checks.check_finite('w', values, where='file', fix='look')
  text = str(error.value)
  assert 'w contains NaN or infinity in 1 of 15 values' in text
  assert 'file' in text and 'look' in text


def test_arrays_are_checked_in_chunks(monkeypatch):
  monkeypatch.setattr(nonfinite_checks, '_CHUNK_SIZE', 4)
  values = np.zeros(10, np.float32)
  nonfinite_checks.check_finite('w', values, where='')
  values[[3, 9]] = np.inf
  with raises_error(errors.CheckpointError, mentions=(2, 10, 'NaN')):
    nonfinite_checks.check_finite('w', values, where='')
  nonfinite_checks.check_finite('ids', np.arange(9), where='')
  nonfinite_checks.check_finite('none', np.zeros((0, 3)), where='')


@pytest.mark.parametrize('on_host', [True, False])
def test_device_arrays_are_checked(monkeypatch, on_host):
  """Covers sharded arrays, checked on the host and on the devices."""
  if not on_host:
    monkeypatch.setattr(nonfinite_checks, '_is_on_host', lambda array: False)
  mesh = jax.sharding.Mesh(jax.devices()[:2], 'x')
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('x'))
  good = {
    'a': jax.device_put(jnp.ones(4), sharding),
    'b': jnp.ones((2, 2), jnp.bfloat16),
    'c': jnp.arange(3),
  }
  nonfinite_checks.check_arrays(good, where='run')
  bad = good | {'b': good['b'].at[1, 1].set(jnp.nan)}
  with raises_error(errors.CheckpointError, mentions='NaN'):
    nonfinite_checks.check_arrays(bad, where='run')
  non_finite = good['a'].at[3].set(jnp.inf)
  with raises_error(errors.CheckpointError, where='run'):
    nonfinite_checks.check_arrays({'a': non_finite}, where='run')
