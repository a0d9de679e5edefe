"""What tasks that score a fine-tuned head share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from xlflax import errors
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import source as source_lib
from xlflax.evaluation import base, row_predictions
from xlflax.objectives.finetuning import base as finetuning

_Example = TypeVar('_Example', bound=examples_lib.Example)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTask(base.EvalTask):
  """Base of tasks that score what a head says of labelled examples.

  Subclasses have `KIND`, `HEAD`, `AVERAGED` and `score_part`. A part that
  fails is reported; the others go on.

  Attributes:
    source: the examples.
    objective: name of the objective whose head is evaluated; its labels are
      those that it was trained with.
    KIND: class of the examples.
    HEAD: class of the objective.
    AVERAGED: metrics that have a mean over parts; None for all.
  """

  KIND: ClassVar[type[examples_lib.Example]]
  HEAD: ClassVar[type[finetuning.FineTuning]]
  AVERAGED: ClassVar[tuple[str, ...] | None] = None
  source: source_lib.ExampleSource
  objective: str

  def score_part(
    self,
    subject: base.Subject,
    objective: Any,
    part: str,
    examples: Sequence[Any],
    result: base.EvalResult,
    notes: list[str],
  ) -> None:
    """Adds a part's predictions and scores to the result.

    Args:
      subject: what is evaluated.
      objective: an instance of `HEAD`.
      part: of the source.
      examples: its examples, one at least, all of `KIND`.
      result: metrics, tables and files to add to.
      notes: to add to.
    """
    raise NotImplementedError

  def facts(self) -> tuple[str, ...]:
    """Notes that hold for all parts."""
    return ()

  def evaluate(self, subject: base.Subject) -> base.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    objective = row_predictions.objective_of(subject, self.objective, self.HEAD)
    result = base.EvalResult(metrics={}, tables={})
    failures = base.Failures(self.name)
    notes = list(self.facts())
    for part in self.source.languages():
      with failures.guard(part):
        self.score_part(
          subject,
          objective,
          part,
          of_kind(self.source.load(part), self.KIND, part),
          result,
          notes,
        )
    result.metrics.update(means(result.metrics, self.AVERAGED))
    return dataclasses.replace(
      result, notes=tuple(notes), failures=failures.collected()
    )


def of_kind(
  examples: Sequence, kind: type[_Example], part: str
) -> list[_Example]:
  """The examples of a part.

  Raises:
    CorpusError: there are none, they are of another kind, or one that is
      made of words has none.
  """
  wrong = [e for e in examples if not isinstance(e, kind)]
  if wrong or not examples:
    raise errors.CorpusError(
      f'There are no {kind.KIND} examples',
      where=f'part {part}',
      got=f'{wrong[0].KIND} examples' if wrong else 'no example',
    )
  empty = [e.id for e in examples if not getattr(e, 'words', True)]
  if empty:
    raise errors.CorpusError(
      'A sentence has no words', where=f'part {part}', got=f'example {empty[0]}'
    )
  return list(examples)


def means(
  metrics: Mapping[str, float], names: Sequence[str] | None = None
) -> dict[str, float]:
  """`<name>/mean` of metrics `<name>/<part>`.

  Args:
    metrics: of all parts.
    names: of the metrics; None for all.
  """
  if names is None:
    names = tuple(dict.fromkeys(key.split('/', 1)[0] for key in metrics))
  found = {
    name: [
      value for key, value in metrics.items() if key.startswith(f'{name}/')
    ]
    for name in names
  }
  return {
    f'{name}/mean': float(np.mean(values))
    for name, values in found.items()
    if values
  }
