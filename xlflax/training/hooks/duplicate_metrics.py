"""Detection of metrics that both training and a user-defined hook write."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from xlflax.training.metric_writers import metric_writer
from xlflax.utils import errors, user_modules

# Groups whose values a resumed run reads.
_RESERVED_GROUPS = ('environment', 'restart')


class DuplicateMetricsCheck:
  """Compares the names of metrics that training and user-defined hooks write.

  Each name causes at most one warning.
  """

  def __init__(self):
    self._training_names: set[str] = set()
    # Class names of hooks by metric.
    self._hooks: dict[str, str] = {}
    self._reported: set[str] = set()

  def add_training_metrics(self, metrics: metric_writer.Metrics) -> None:
    """Records metrics that training writes."""
    self._training_names.update(metric_writer.flatten_metrics(metrics))
    self._warn(self._hooks.keys() & self._training_names)

  def add_hook_metrics(self, metrics: metric_writer.Metrics) -> None:
    """Records metrics that the hook that is being called writes."""
    names = metric_writer.flatten_metrics(metrics).keys() - self._hooks.keys()
    if names:
      cls = user_modules.find_calling_class()
      hook = cls.__name__ if cls else 'in `Trainer.hooks`'
      self._hooks.update(dict.fromkeys(names, hook))
      self._warn(names & self._training_names)

  def _warn(self, names: Iterable[str]) -> None:
    """Logs one warning for each hook that writes metrics of training."""
    names_by_hook: dict[str, list[str]] = {}
    for name in sorted(set(names) - self._reported):
      names_by_hook.setdefault(self._hooks[name], []).append(name)
      self._reported.add(name)
    for hook, duplicates in names_by_hook.items():
      logging.warning(
        'The hook %s writes metrics whose names training also uses: %s. Plots '
        'and metrics.jsonl therefore contain the values of both under the same '
        'name. Write the metrics of the hook to another group, for example '
        'with run.write_metrics(step, my_hook={%r: value}), which logs '
        'my_hook/%s (docs/extending.md#add-a-hook).',
        hook,
        ', '.join(duplicates),
        *[duplicates[0].partition('/')[2]] * 2,
      )


def check_groups(metrics: Mapping[str, Any]) -> None:
  """Checks that a user-defined hook does not write to a reserved group.

  Args:
    metrics: Mapping from each group to its values by name.

  Raises:
    ConfigError: If a group is reserved for values that a resumed run reads.
  """
  for group in _RESERVED_GROUPS:
    if group in metrics:
      raise errors.ConfigError(
        f'A hook cannot write metrics to the group `{group}`, because a '
        'resumed run reads the values that training writes to it',
        got=group,
        expected=f'a group other than {" and ".join(_RESERVED_GROUPS)}',
        where=user_modules.find_calling_line(),
        fix='Rename the group, for example '
        f'run.write_metrics(step, my_{group}={{…}}).',
      )
