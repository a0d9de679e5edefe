"""Base class of tasks on labeled examples."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source, task_source
from xlflax.evaluation import eval_task
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledTask(eval_task.EvalTask):
  """Base of tasks on labeled examples.

  Attributes:
    source: Source of the examples.
    EXAMPLE: Class of the examples.
  """

  EXAMPLE: ClassVar[type[labeled_examples.Example]]
  source: example_source.ExampleSource

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any]:
    """Returns a function that selects the examples of SeqIO tasks."""

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
    """Returns the name of the file with a part's predictions."""
    return f'{part}.{self.EXAMPLE.ENDING}'
