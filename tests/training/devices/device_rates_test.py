"""Tests of peak and measured FLOP rates of devices."""

import types

import pytest

from xlflax.training.devices import device_rates


@pytest.mark.parametrize(
  ('kind', 'peak'),
  [
    ('NVIDIA H200', 989e12),
    ('NVIDIA A100-SXM4-80GB', 312e12),
    ('TPU v5 lite', 197e12),
    ('TPU v5', 459e12),
    ('TPU v4', 275e12),
    ('NVIDIA L40S', 362e12),
    ('NVIDIA L4', 121e12),
    ('NVIDIA GB200', 2500e12),
    ('NVIDIA GH200 480GB', 989e12),
    ('NVIDIA H20', 148e12),
    ('NVIDIA B300 SXM6 AC', 2250e12),
    ('NVIDIA GeForce RTX 5090', 209.5e12),
    ('AMD Instinct MI300X', 1307e12),
    ('TPU7x', 1153.5e12),
    ('cpu', None),
  ],
)
def test_peak_flops_of_known_devices(kind, peak):
  assert (
    device_rates.peak_flops(types.SimpleNamespace(device_kind=kind)) == peak
  )


def test_matmul_rate_is_measured():
  assert device_rates.measure_matmul_rate(size=64, repeats=1) > 1e6
