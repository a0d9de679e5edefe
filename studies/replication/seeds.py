"""Random seeds for each training configuration of the replication study.

Most configurations (conditions) have five seeds. More seeds were added for
short runs if the result of testing a claim with five seeds was inconclusive.
"""

from collections.abc import Sequence

from studies.replication.conditions import Condition

DEFAULT_COUNT = 5
# Number of seeds by condition, where it differs from `DEFAULT_COUNT`.
_COUNTS = {
  'metaxlm/body': 4,
  'metaxlm/both': 4,
  'metaxlm/both_source': 4,
  'metaxlm/dict': 4,
  'metaxlm/emb': 4,
  'metaxlm/freezing': 4,
  'metaxlm/kd': 4,
  'metaxlm/meta': 4,
  'metaxlm/none': 4,
  'metaxlm/none_equal': 4,
  'metaxlm/shuffled_dict': 4,
  'veco/ca_mlm_tlm': 8,
  'ecs/default': 10,
  'ecs/default_anchors': 10,
  'ecs/default_long': 10,
  'ecs/extra_anchors': 10,
  'ecs/monolingual': 10,
  'ecs/no_anchors': 10,
  'ecs/other_domain': 10,
  'ecs/sep_low': 10,
  'ecs/sep_top': 10,
  'ecs/unmasked': 10,
  'ppa/few_pairs': 10,
  'ppa/mlm': 10,
  'ppa/ppa': 10,
  'veco/ca_mlm': 10,
  'veco/mlm': 10,
  'veco/mlm_adjacent': 10,
  'veco/mlm_sides': 10,
  'veco/mlm_tlm': 10,
  'veco/mlm_tlm_short': 10,
  'veco/ca_mlm_tlm_short': 16,
  'veco/flowing': 16,
}


def seed_range(condition: Condition) -> range:
  """Returns the random seeds for a training configuration (condition)."""
  return range(_COUNTS.get(condition.name, DEFAULT_COUNT))


def plan_runs(conditions: Sequence[Condition]) -> list[tuple[Condition, int]]:
  """Returns a training configuration and a seed for each published run.

  All conditions are run with one seed before any is run with the next seed.

  Args:
    conditions: Conditions to run. A condition follows the condition whose run
      provides its initial parameters.
  """
  num_seeds = max(
    (len(seed_range(condition)) for condition in conditions), default=0
  )
  return [
    (condition, seed)
    for seed in range(num_seeds)
    for condition in conditions
    if seed in seed_range(condition)
  ]
