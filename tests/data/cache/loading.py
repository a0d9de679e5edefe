"""Helpers to create datasets and to read rows of loaders."""

import numpy as np

from xlflax.data import dataset_config


def dataset(**settings) -> dataset_config.DatasetConfig:
  """Returns blocks of monolingual text, or pairs for a layout of pairs."""
  pairs = {
    k: settings.pop(k)
    for k in ('separator', 'positions', 'order', 'min_tokens', 'max_tokens')
    if k in settings
  }
  layout = settings.get('layout', 'blocks')
  kind = 'parallel' if layout in ('pairs', 'dual') else 'mono'
  return dataset_config.DatasetConfig(
    **{
      'name': 's',
      'mixture': f'corpus.{kind}',
      'layout': layout,
      'length': 16,
      'batch_size': 8,
      'alpha': 0.5,
      'pairs': dataset_config.PairOptions(**pairs),
    }
    | settings
  )


def assert_same(batch, other) -> None:
  """Asserts that two batches are equal, key for key."""
  assert list(batch) == list(other)
  for key, value in batch.items():
    np.testing.assert_array_equal(value, other[key], err_msg=key)


def epoch_rows(loader, task, batches) -> list[bytes]:
  """Returns the rows of one task as bytes, in order of use."""
  schedule = loader._schedule
  uses = []
  for step in range(batches):
    tasks, numbers = schedule.slots(step)
    tokens = loader.rows(step, 0, 8)['token_ids']
    uses += [
      (numbers[i], tokens[i].tobytes())
      for i in np.flatnonzero(tasks == schedule.tasks.index(task))
    ]
  return [row for _, row in sorted(uses)]
