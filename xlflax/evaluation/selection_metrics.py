"""Metrics for selecting the best checkpoint or trial."""

import logging
from collections.abc import Sequence

from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics.metric import Better
from xlflax.evaluation.tasks import perplexity, pseudo_likelihood
from xlflax.utils import errors, logs, name_suggestions

# Metrics that do not depend on the model.
_BASELINES = (
  'majority',
  'chance',
  'right_branching',
  'left_branching',
  'first_stage_ndcg@10',
  'first_stage_mrr@10',
  'candidate_recall',
)


def check_exists(
  metric: str,
  tasks: Sequence[eval_task.EvalTask],
  *,
  where: str,
  requires_part: bool = False,
) -> None:
  """Checks that an evaluation task computes the metric for model selection.

  Args:
    metric: Metric in the format 'task/metric/part'.
    tasks: Evaluation tasks that run during training.
    where: Option or field that contains the metric, for the error message.
    requires_part: Whether the metric must end with a language, a file or
      'mean', even if the languages of the task are unknown.

  Raises:
    ConfigError: If no task computes the metric, or if the task has no text or
      examples in the metric's language.
  """
  task_name, _, suffix = metric.partition('/')
  metric_name, _, part = suffix.partition('/')
  suggestions = list(map(primary_metric, tasks))
  for task in tasks:
    if task.name != task_name or not metric_name:
      continue
    # Tasks whose languages are unknown may compute further metrics.
    parts = _task_languages(task)
    if not parts:
      if part or not requires_part:
        return
      continue
    declared_names = [declared.name for declared in task.computed_metrics()]
    if declared_names and metric_name not in declared_names:
      continue
    if part in (*parts, 'mean'):
      if metric_name == 'accuracy' and task.primary_metric == 'f1':
        logging.warning(
          '%s is high even if no entity is found, because most labels are O. '
          'Select by %s/f1/%s instead.',
          metric,
          task.name,
          part,
          extra=logs.ONCE,
        )
      return
  raise errors.ConfigError(
    'The metric that selects the best model is not computed by any evaluation '
    'task that runs during training',
    got=metric,
    where=where,
    expected='; '.join(map(list_metrics, tasks))
    or 'evaluation tasks during training',
    fix=name_suggestions.did_you_mean(metric, suggestions),
  )


def primary_metric(task: eval_task.EvalTask) -> str:
  """Returns the full name of a task's main metric, such as 'tagging/f1/de'.

  The metric is measured in the first language of the task.

  If the languages of the task are unknown, the mean is used: 'tagging/f1/mean'.
  """
  return f'{task.name}/{task.primary_metric}/{_first_part(task)}'


def list_metrics(task: eval_task.EvalTask) -> str:
  """Lists the metrics of a task that can be used to select a model.

  For example, the metrics of a classification task with development sets in two
  languages are `classification/{accuracy,macro_f1}/{en,fr,mean}`. The metric of
  a task that does not declare its metrics is listed as `METRIC`.
  """
  names = metric_names(task) or ['METRIC']
  parts = [*_task_languages(task), 'mean']
  return '/'.join((task.name, _format_choices(names), _format_choices(parts)))


def metric_names(
  task: eval_task.EvalTask | type[eval_task.EvalTask],
) -> list[str]:
  """Returns the names of a task's metrics that can be used to compare models.

  Args:
    task: Task or class of tasks. The settings of a task determine its metrics.
  """
  metrics = task.METRICS if isinstance(task, type) else task.computed_metrics()
  return [
    metric.name
    for metric in metrics
    if metric.better is not Better.NEITHER and metric.name not in _BASELINES
  ]


def _format_choices(choices: Sequence[str]) -> str:
  return choices[0] if len(choices) == 1 else f'{{{",".join(choices)}}}'


def _task_languages(task: eval_task.EvalTask) -> list[str]:
  """Returns the languages of a task's metrics, or [] if they are unknown."""
  source = getattr(task, 'source', None)
  if isinstance(source, example_source.ExampleSource):
    return list(source.languages())
  if isinstance(
    task, perplexity.Perplexity | pseudo_likelihood.PseudoPerplexity
  ):
    return list(task.source.languages_found())
  return []


def _first_part(task: eval_task.EvalTask) -> str:
  """Returns the first language of a task, or 'mean' if none is known."""
  return (_task_languages(task) or ['mean'])[0]
