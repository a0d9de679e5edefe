"""Tests of the adapter benchmark."""

import pytest

from benchmarks import adapters
from xlflax.training import training_setup


def test_format_table_is_relative_to_full_training():
  figures = {
    method: {
      'trained': trained,
      'optimizer_bytes': 8 * trained,
      'step_bytes': 5e6,
      'peak_bytes': 7e6,
      'cpu_seconds': [seconds, seconds + 2, seconds + 1],
    }
    for method, trained, seconds in (('full', 10**6, 3.0), ('lora', 5000, 1.0))
  }
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in adapters.format_table(figures).splitlines()[2:]
  ]
  assert rows == [
    ['full', '1,000,000', '8.0', '5', '7', '4.00', '1.00'],
    ['lora', '5,000', '0.0', '5', '7', '2.00', '0.50'],
  ]


@pytest.mark.parametrize('method', adapters.METHODS)
def test_base_kernels_are_trained_only_by_full_training(method):
  trainer = adapters.make_trainer(
    method, model='tiny', vocabulary=300, batch=8, length=16
  )
  optimizer = training_setup.Setup(trainer).settings.optimizer
  kernel = 'model/layers/mlp/wi/kernel'
  assert optimizer.is_trainable(kernel) is (method == 'full')
