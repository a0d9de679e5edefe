"""Losses by objective and language as lines of the log."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from xlflax.training.metric_writers import metric_writer


class Terminal:
  """Logs a line for each objective at each report; lower losses are better."""

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs the losses of a report: cross-entropies are in nats."""
    for entry in iterate_losses(metrics.get('train', {})):
      parts = [f'{entry["objective"]} loss {entry["loss"]:.4f}']
      parts += [
        f'{name} {loss:.4f}' for name, loss in entry['by_language'].items()
      ]
      logging.info(
        'step %s | %s',
        f'{step:,}',
        ' | '.join(parts),
        extra={'fields': dict(step=step, **entry)},
      )

  def close(self) -> None:
    """Nothing is left to write."""


def iterate_losses(train: Mapping[str, float]) -> Iterator[dict[str, Any]]:
  """Yields {'objective', 'loss', 'by_language'} for each objective.

  Args:
    train: such as {'mlm/loss': 7.6, 'mlm/loss/en': 7.5}.
  """
  for name, value in train.items():
    objective, _, kind = name.partition('/')
    if kind == 'loss':
      start = f'{name}/'
      yield {
        'objective': objective,
        'loss': value,
        'by_language': {
          other.removeprefix(start): loss
          for other, loss in train.items()
          if other.startswith(start)
        },
      }
