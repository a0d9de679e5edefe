"""Token counts of training runs."""

from collections.abc import Mapping

from studies.replication import trainers
from studies.replication.conditions import Condition, Initialization, Size
from xlflax.data.dataset_config import ExampleLayout

_TWO_SIDED_LAYOUTS = (ExampleLayout.DUAL, ExampleLayout.INTERLEAVED)


def count_tokens(
  condition: Condition, conditions_by_name: Mapping[str, Condition], size: Size
) -> int:
  """Counts the tokens read by a run and by the run that initializes it.

  Padding is included.

  If several losses in a step read the same tokens, these tokens are counted
  once. Fine-tuning and teacher training are not counted.

  Args:
    condition: Training configuration (condition) of the run.
    conditions_by_name: Map from name to condition. It contains all conditions
      whose runs initialize other runs.
    size: Sizes and training settings of the study, which include the sequence
      length and the batch size.
  """
  initial_tokens = 0
  if condition.begins_from and condition.taken is not Initialization.TEACHER:
    initial_tokens = count_tokens(
      conditions_by_name[condition.begins_from], conditions_by_name, size
    )
  if condition.untrained:
    return initial_tokens

  datasets = {}
  for loss in condition.losses:
    dataset = trainers.build_dataset(loss, condition, size)
    datasets[dataset.name] = dataset
  tokens_per_step = sum(
    dataset.batch_size
    * dataset.length
    * (2 if dataset.layout in _TWO_SIDED_LAYOUTS else 1)
    for dataset in datasets.values()
  )
  return initial_tokens + condition.steps * tokens_per_step
