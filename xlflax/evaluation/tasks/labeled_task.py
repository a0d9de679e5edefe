"""Base class for tasks on labeled examples."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source, task_source
from xlflax.evaluation import eval_task
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledTask(eval_task.EvalTask):
  """Base class for evaluation tasks on labeled examples.

  Attributes:
    source: Source of the labeled examples.
    EXAMPLE: Class of the task's examples.
  """

  EXAMPLE: ClassVar[type[labeled_examples.Example]]
  source: example_source.ExampleSource

  def check_inputs(self, objectives):
    for part in self.source.languages():
      self.source.load(part)

  def labeled_parts(self):
    return self.source.languages()

  def missing_parts(self):
    return self.source.missing_languages()

  def count_gold_labels(self, part):
    examples = self.source.load(part)
    return eval_task.LabelCount(
      sum(not example.is_blind for example in examples), len(examples)
    )

  def check_gold_labels(self) -> None:
    """Checks that a metric can be computed for each language or file.

    Raises:
      CorpusError: If no example of a language or file has a gold label.
    """
    for part in self.source.languages():
      count = self.count_gold_labels(part)
      if not count.num_labeled:
        raise errors.CorpusError(
          f'The task {self.name!r} cannot compute a metric for {part!r}, '
          f'because none of the {count.num_examples} examples of the '
          f'{eval_task.describe_training_split(self.split)} has a gold label',
          where=part,
          fix='Pass labeled files (DEV_FILES or, for a test, TEST_FILES). If '
          'the files are labeled, check their format and columns (DEV_FORMAT '
          'and DEV_OPTIONS or, for a test, FORMAT and OPTIONS).',
        )

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any]:
    """Returns the function that creates a SeqIO example source from options."""

    def select_examples(
      mixture: str,
      split: str = 'test',
      languages: tuple[str, ...] | None = None,
      max_examples: int | None = None,
    ) -> task_source.SeqioDataset:
      return task_source.SeqioDataset(
        mixture=mixture,
        kind=cls.EXAMPLE.KIND,
        split=split,
        splits=languages,
        max_examples=max_examples,
      )

    return select_examples

  def file_name(self, part: str) -> str:
    """Returns the name of the prediction file for a language or file."""
    return f'{part}.{self.EXAMPLE.ENDING}'
