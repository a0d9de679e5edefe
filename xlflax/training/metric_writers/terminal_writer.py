"""Metric writer that logs the losses by objective and language."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from xlflax.training.metric_writers import metric_writer


class Terminal:
  """Metric writer that logs the losses of all objectives at each report."""

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs a report's losses. Cross-entropies are in nats."""
    for losses in iterate_losses(metrics.get('train', {})):
      parts = [f'{losses["objective"]} loss {losses["loss"]:.4f}']
      parts += [
        f'{name} {loss:.4f}' for name, loss in losses['by_language'].items()
      ]
      logging.info(
        'step %s | %s',
        f'{step:,}',
        ' | '.join(parts),
        extra={'fields': dict(step=step, **losses)},
      )

  def close(self) -> None:
    """Does nothing, because lines are logged immediately."""


def iterate_losses(train: Mapping[str, float]) -> Iterator[dict[str, Any]]:
  """Yields the loss of each objective, with its losses by language.

  Each element is a dictionary with the keys 'objective', 'loss' and
  'by_language'.

  Args:
    train: Training metrics by name, such as {'mlm/loss': 7.6, 'mlm/loss/en':
      7.5}.
  """
  for name, value in train.items():
    objective, _, kind = name.partition('/')
    if kind == 'loss':
      prefix = f'{name}/'
      yield {
        'objective': objective,
        'loss': value,
        'by_language': {
          metric_name.removeprefix(prefix): loss
          for metric_name, loss in train.items()
          if metric_name.startswith(prefix)
        },
      }
