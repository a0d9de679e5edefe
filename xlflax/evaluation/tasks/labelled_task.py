"""The base of tasks on labelled examples."""

import dataclasses
from typing import Any, ClassVar

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.sources import source as source_lib
from xlflax.data.labelled.sources import task_source
from xlflax.evaluation import base
from xlflax.evaluation import sources as sources_lib
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
  def arguments(cls, name: str, text: sources_lib.TextChoice) -> dict[str, Any]:
    """Examples of the SeqIO tasks that the command line names."""
    return {
      'source': task_source.TaskExamples(
        mixture=text.require('mixture', name),
        kind=cls.EXAMPLE.KIND,
        split=text.split,
        parts=text.languages,
        max_examples=text.max_examples,
      )
    }

  @classmethod
  def text_options(cls, name: str) -> tuple[str, ...]:
    """Returns the options that choose the SeqIO tasks and their examples."""
    return ('mixture', 'split', 'languages', 'max_examples')

  def file_name(self, part: str) -> str:
    """The name of the file with a part's predictions."""
    return f'{part}.{self.EXAMPLE.ENDING}'
