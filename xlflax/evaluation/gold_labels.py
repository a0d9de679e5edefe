"""Checks for missing gold labels in test data, before fine-tuning."""

import dataclasses
from collections.abc import Iterable, Mapping

from xlflax.evaluation import eval_task
from xlflax.utils import name_suggestions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TestData:
  """Readable and unreadable languages of the test data, with label counts.

  Attributes:
    parts: Languages or files that can be read.
    unlabeled: Numbers of labeled examples and of all examples, by language or
      file. Only languages or files with unlabeled examples are included.
    failures: Languages or files that cannot be read, with the reason for each.
  """

  parts: tuple[str, ...] = ()
  unlabeled: Mapping[str, eval_task.LabelCount] = dataclasses.field(
    default_factory=dict
  )
  failures: tuple[eval_task.Failure, ...] = ()


def read_test_data(
  tasks: Iterable[eval_task.EvalTask], failures: eval_task.Failures
) -> TestData:
  """Reads the labeled examples of tasks and counts those with gold labels.

  Tasks without labeled examples are ignored.

  Args:
    tasks: Evaluation tasks for test sets.
    failures: Recorder that catches errors and records the languages or files
      that cannot be read.
  """
  parts = []
  unlabeled = {}
  for task in tasks:
    task_parts: tuple[str, ...] = ()
    with failures.guard():
      task_parts = task.labeled_parts()
    for part in task_parts:
      with failures.guard(part):
        count = task.count_gold_labels(part)
        parts.append(part)
        if count.num_labeled < count.num_examples:
          unlabeled[part] = count
  return TestData(
    parts=tuple(dict.fromkeys(parts)),
    unlabeled=unlabeled,
    failures=failures.collected(),
  )


def describe_unlabeled(data: Mapping[str, TestData]) -> str:
  """Returns a warning that lists test data without gold labels.

  Args:
    data: Test data by the name of the task.

  Returns:
    One line for all tasks. It is empty if all examples have gold labels.
  """
  descriptions = [
    f'{name} ({_format_counts(task_data.unlabeled)})'
    for name, task_data in data.items()
    if task_data.unlabeled
  ]
  if not descriptions:
    return ''
  return (
    f'Test examples without gold labels: {", ".join(descriptions)}. Their '
    'predictions are written, but they are not scored.'
  )


def describe_failures(data: Mapping[str, TestData]) -> str:
  """Returns a warning that lists test data that cannot be read.

  Args:
    data: Test data by the name of the task.

  Returns:
    One line for all tasks. It is empty if all test data can be read.
  """
  failures = [
    str(failure)
    for task_data in data.values()
    for failure in task_data.failures
  ]
  if not failures:
    return ''
  return 'Test data that cannot be read and will not be scored: ' + ' | '.join(
    failures
  )


def _format_counts(counts: Mapping[str, eval_task.LabelCount]) -> str:
  """Formats parts as 'de, fr (3 of 10 labeled)', shortened if there are many."""
  return name_suggestions.format_names(
    [
      f'{part} ({count.num_labeled:,} of {count.num_examples:,} labeled)'
      if count.num_labeled
      else part
      for part, count in counts.items()
    ]
  )
