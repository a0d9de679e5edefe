"""Mean scores over languages, tasks and seeds, and the transfer gap.

Sources: Hu et al. (2020), XTREME, section 5 and tables 2 and 3; ImaniGooghari
et al. (2023), Glot500, section 4.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation.metrics import metric_checks

ENGLISH = 'en'


def macro_average(values: Sequence[float]) -> float:
  """Returns the unweighted mean of scores.

  Raises:
    CorpusError: If there are no scores.
  """
  metric_checks.not_empty(values, what='scores')
  return float(np.mean(values))


def transfer_gap(
  scores: Mapping[str, float], *, source: str = ENGLISH
) -> float | None:
  """Returns the source language's score minus the other languages' mean score.

  For question answering, XTREME's table 3 uses exact match instead of the mean
  of exact match and F1.

  Args:
    scores: Mapping from language codes to scores.
    source: Language of the fine-tuning data.

  Returns:
    The gap, or None if the source language or all other languages are missing.
  """
  target_scores = [
    score for language, score in scores.items() if language != source
  ]
  if source not in scores or not target_scores:
    return None
  return scores[source] - macro_average(target_scores)


def head_tail_averages(
  scores: Mapping[str, float], head_languages: Collection[str]
) -> dict[str, float]:
  """Computes mean scores over head (high-resource), tail and all languages.

  Glot500 (ImaniGooghari et al., 2023, section 4) reports these means, where the
  head languages are those of XLM-R. A language with another script than the
  head language, such as Serbian in Latin script, is a tail language.

  Args:
    scores: Mapping from language codes to scores.
    head_languages: Codes of the head languages. Spelling variants of a code are
      accepted.

  Returns:
    The means 'head', 'tail' and 'all'. A mean over no language is omitted.
  """
  groups = group_head_tail(scores, head_languages)
  return {
    name: macro_average([scores[language] for language in languages])
    for name, languages in groups.items()
    if languages
  }


def group_head_tail(
  languages: Iterable[str], head_languages: Collection[str]
) -> dict[str, list[str]]:
  """Divides languages into head (high-resource) and tail languages.

  Args:
    languages: Language codes.
    head_languages: Codes of the head languages. Spelling variants of a code are
      accepted.

  Returns:
    The languages in the groups 'head', 'tail' and 'all'.
  """
  head = {language_codes.normalize_code(code) for code in head_languages}
  groups: dict[str, list[str]] = {'head': [], 'tail': [], 'all': []}
  for language in languages:
    is_head = language_codes.normalize_code(language) in head
    groups['head' if is_head else 'tail'].append(language)
    groups['all'].append(language)
  return groups


def xtreme_average(scores: Mapping[str, float]) -> dict[str, float]:
  """Computes the XTREME average and the average of each XTREME task group.

  Args:
    scores: Mapping from the name of each task to its score over all languages
      (including English if the task has it), as the mean of the task's metrics
      (F1 and exact match for question answering). Tasks that are not part of
      XTREME are ignored.

  Returns:
    Mean over the tasks of each group by group name, and the mean over all nine
    tasks (not over the groups) as 'all'. A mean is omitted if one of its tasks
    is missing. If `scores` contains a task that only XTREME-R has, the means
    are those of XTREME-R, with names such as 'R all'.
  """
  xtreme_groups = {
    name: task.group for name, task in xtreme_tasks.TASKS.items()
  }
  xtreme_r_groups = {
    name: task.group for name, task in xtreme_tasks.R_TASKS.items()
  } | {name: group for name, (group, _) in xtreme_tasks.RANKED.items()}
  is_xtreme_r = any(
    name in scores for name in set(xtreme_r_groups) - set(xtreme_groups)
  )
  prefix = 'R ' if is_xtreme_r else ''
  group_by_task = xtreme_r_groups if is_xtreme_r else xtreme_groups

  tasks_by_group: dict[str, list[str]] = {}
  for name, group in group_by_task.items():
    tasks_by_group.setdefault(group, []).append(name)
  return {
    prefix + group: macro_average([scores[task] for task in tasks])
    for group, tasks in (*tasks_by_group.items(), ('all', list(group_by_task)))
    if all(task in scores for task in tasks)
  }
