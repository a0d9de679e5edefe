"""How many seeds each condition of the page has.

Most have five. More were added where five left a claim open and runs are short.
"""

from collections.abc import Sequence

from studies.replication.conditions import Condition

FEWEST = 5
_OTHERS = {
  4: 'metaxlm/body metaxlm/both metaxlm/both_source metaxlm/dict metaxlm/emb '
  'metaxlm/freezing metaxlm/kd metaxlm/meta metaxlm/none metaxlm/none_equal '
  'metaxlm/shuffled_dict',
  8: 'veco/ca_mlm_tlm',
  10: 'ecs/default ecs/default_anchors ecs/default_long ecs/extra_anchors '
  'ecs/monolingual ecs/no_anchors ecs/other_domain ecs/sep_low ecs/sep_top '
  'ecs/unmasked ppa/few_pairs ppa/mlm ppa/ppa veco/ca_mlm veco/mlm '
  'veco/mlm_adjacent veco/mlm_sides veco/mlm_tlm veco/mlm_tlm_short',
  16: 'veco/ca_mlm_tlm_short veco/flowing',
}
_COUNTS = {
  name: count for count, names in _OTHERS.items() for name in names.split()
}


def of(condition: Condition) -> range:
  """The seeds of a condition."""
  return range(_COUNTS.get(condition.name, FEWEST))


def planned(conditions: Sequence[Condition]) -> list[tuple[Condition, int]]:
  """The runs of the page, a seed of all conditions before the next.

  Args:
    conditions: what is run, each after the one that it begins from.
  """
  most = max((len(of(one)) for one in conditions), default=0)
  return [
    (one, seed) for seed in range(most) for one in conditions if seed in of(one)
  ]
