"""Averages over languages, tasks and seeds, and the transfer gap.

Source: Hu et al. (2020), XTREME, section 5 and tables 2 and 3.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation.metrics import metric_checks

ENGLISH = 'en'


def macro_average(values: Sequence[float]) -> float:
  """The mean of languages, tasks or runs.

  Raises:
    CorpusError: there are none.
  """
  metric_checks.not_empty(values, what='scores')
  return float(np.mean(values))


def transfer_gap(
  scores: Mapping[str, float], *, source: str = ENGLISH
) -> float | None:
  """The source language's score minus the mean of the others'.

  XTREME's table 3 takes exact match, not the mean with F1, for question
  answering. None without the source language or without others.
  """
  target_scores = [
    score for language, score in scores.items() if language != source
  ]
  if source not in scores or not target_scores:
    return None
  return scores[source] - macro_average(target_scores)


def xtreme_average(scores: Mapping[str, float]) -> dict[str, float]:
  """XTREME's overall score and those of its groups.

  Args:
    scores: task -> its score over all languages (English included, where the
      task has it), the mean of its metrics (F1 and exact match of
      questions). Tasks that XTREME lacks don't count.

  Returns:
    group -> mean of its tasks, 'all' -> mean of the nine tasks (not of the
    groups). A mean of which a task is missing is left out. Where there is a
    task that XTREME-R alone has, they are its means, 'R all' and so on.
  """
  of_r = {name: task.group for name, task in xtreme_tasks.R_TASKS.items()}
  of_r |= {name: group for name, (group, _) in xtreme_tasks.RANKED.items()}
  groups_by_task = {
    name: task.group for name, task in xtreme_tasks.TASKS.items()
  }
  is_r = any(name in scores for name in set(of_r) - set(groups_by_task))
  prefix, kinds = ('R ', of_r) if is_r else ('', groups_by_task)
  groups: dict[str, list[str]] = {}
  for name, group in kinds.items():
    groups.setdefault(group, []).append(name)
  return {
    prefix + name: macro_average([scores[task] for task in members])
    for name, members in (*groups.items(), ('all', list(kinds)))
    if all(task in scores for task in members)
  }
