"""How many tokens the runs of a condition read."""

from collections.abc import Mapping

from studies.replication import trainers
from studies.replication.conditions import Condition, Size, Taken
from xlflax.data.dataset_config import ExampleLayout

_TWO_SIDED = (ExampleLayout.SIDES, ExampleLayout.ADJACENT)


def count_tokens(
  condition: Condition, known: Mapping[str, Condition], size: Size
) -> int:
  """Tokens that a run reads, padding included, and those it begins from.

  What losses of one step share is counted once. Fine-tuning is not counted;
  neither is the training of a teacher.

  Args:
    condition: of the run.
    known: name -> condition, of what is begun from.
    size: of rows and batches.
  """
  before = 0
  if condition.begins_from and condition.taken is not Taken.TEACHER:
    before = count_tokens(known[condition.begins_from], known, size)
  if condition.untrained:
    return before
  datasets = {
    one.name: one
    for one in (
      trainers.dataset(loss, condition, size) for loss in condition.losses
    )
  }
  return before + condition.steps * sum(
    one.batch_size * one.length * (2 if one.layout in _TWO_SIDED else 1)
    for one in datasets.values()
  )
