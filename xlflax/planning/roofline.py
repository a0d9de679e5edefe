"""Roofline: the step time that a data sheet allows, and an expected one."""

import dataclasses
from typing import Any

from xlflax.planning import collectives, kernels
from xlflax.training import machines

# Of what the data sheet allows, what good kernels and networks reach: an
# assumption, for the expected figures only.
ATTAINED = 0.7


@dataclasses.dataclass(frozen=True)
class Times:
  """Seconds of one step at the data sheet's rates.

  Attributes:
    products: all matrix products at the peak rate, and nothing else.
    device: products and traffic of the device's memory, each kernel by what
      it needs more of.
    inside: collectives that stay within nodes.
    outside: those that do not.
  """

  products: float
  device: float
  inside: float
  outside: float

  @property
  def communication(self) -> float:
    return self.inside + self.outside

  @property
  def bound(self) -> float:
    """Lower bound: all communication overlaps with computation."""
    return max(self.device, self.communication)

  @property
  def expected(self) -> float:
    return self.bound / ATTAINED

  @property
  def limit(self) -> str:
    """The resource that bounds the step."""
    if self.communication > self.device:
      return (
        'links between nodes'
        if self.outside > self.inside
        else ('links within nodes')
      )
    return (
      'arithmetic' if self.products > self.device / 2 else ('memory bandwidth')
    )

  def mean_with(self, others: list[tuple[float, 'Times']]) -> 'Times':
    """Weighted mean: (share, times) of each kind of step; self has the rest."""
    rest = 1 - sum(share for share, _ in others)
    return Times(
      *(
        rest * getattr(self, f.name)
        + sum(share * getattr(other, f.name) for share, other in others)
        for f in dataclasses.fields(self)
      )
    )


def times(
  machine: machines.Machine, work, exchanged: collectives.Counts
) -> Times:
  """Computes the times of a step.

  Args:
    machine: of accelerators.
    work: totals of `kernels.measure` on that accelerator.
    exchanged: the collectives of a device.
  """
  accelerator = machine.accelerator
  assert accelerator is not None
  inside = outside = 0.0
  for collective, number in exchanged.items():
    seconds = number * collective.seconds(accelerator)
    if collective.nodes > 1:
      outside += seconds
    else:
      inside += seconds
  return Times(
    work[kernels.PRODUCTS] / accelerator.flops,
    work[kernels.SECONDS],
    inside,
    outside,
  )


def figures(
  machine: machines.Machine, step: Times, *, flops: float, tokens: float
) -> dict[str, Any]:
  """Returns the rates of steps that take these times.

  Args:
    machine: of accelerators.
    step: of the mean step.
    flops: model FLOPs of a step, all devices together.
    tokens: positions of a step's batches, all devices together.
  """
  assert machine.accelerator is not None
  peak = machine.accelerator.flops * machine.count

  def rates(seconds: float) -> dict[str, float]:
    return {
      'seconds_per_step': seconds,
      'tokens_per_second': tokens / seconds,
      'mfu': flops / seconds / peak,
    }

  return {
    'seconds': dataclasses.asdict(step),
    'limit': step.limit,
    'bound': rates(step.bound),
    'expected': rates(step.expected),
  }
