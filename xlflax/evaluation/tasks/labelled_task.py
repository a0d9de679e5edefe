"""The base of tasks on labelled examples."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.sources import source as source_lib
from xlflax.data.labelled.sources import task_source
from xlflax.evaluation import base
from xlflax.foundation import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTask(base.EvalTask):
  """Base of tasks on labelled examples.

  Attributes:
    source: the examples.
    EXAMPLE: their class.
  """

  EXAMPLE: ClassVar[type[examples_lib.Example]]
  source: source_lib.ExampleSource

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any]:
    """Returns a function that selects the examples of SeqIO tasks."""

    def select_examples(
      mixture: str,
      split: str = 'test',
      languages: tuple[str, ...] | None = None,
      max_examples: int | None = None,
    ) -> task_source.TaskExamples:
      return task_source.TaskExamples(
        mixture=mixture,
        kind=cls.EXAMPLE.KIND,
        split=split,
        parts=languages,
        max_examples=max_examples,
      )

    return select_examples

  def file_name(self, part: str) -> str:
    """The name of the file with a part's predictions."""
    return f'{part}.{self.EXAMPLE.ENDING}'
