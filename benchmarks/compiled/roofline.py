"""Roofline: the step time that a data sheet allows, and an expected one."""

import dataclasses
from typing import Any

from benchmarks.compiled.programs import execution, kernels
from xlflax.training.devices import machine_topology

# Share of a link's rate that collectives attain: an assumption, for the
# expected figures only, as those of kernels.
_ATTAINED_LINK_RATE = 0.8


@dataclasses.dataclass(frozen=True)
class Times:
  """Seconds of one step at the data sheet's rates.

  Attributes:
    products: all products at the peak rate, and nothing else.
    device: kernels, each by what it needs more of.
    memory: all bytes at the memory's bandwidth, and nothing else.
    inside: collectives that stay within nodes.
    outside: those that do not.
    waited: of copies and collectives, beside which nothing computes.
    likely: kernels and waiting at the rates that are usually attained.
  """

  products: float
  device: float
  memory: float
  inside: float
  outside: float
  waited: float
  likely: float

  @property
  def bound(self) -> float:
    """Lower bound."""
    return max(self.device + self.waited, self.memory)

  @property
  def expected(self) -> float:
    return max(self.likely, self.bound)

  @property
  def limit(self) -> str:
    """The resource that bounds the step."""
    if self.waited > self.device:
      return (
        'links between nodes'
        if self.outside > self.inside
        else 'links within nodes'
      )
    return (
      'arithmetic' if self.products > self.device / 2 else 'memory bandwidth'
    )


def average_times(weighted: list[tuple[float, Times]]) -> Times:
  """Returns the mean of the times of kinds of step, by their shares."""
  return Times(
    *(
      sum(share * getattr(times, field.name) for share, times in weighted)
      for field in dataclasses.fields(Times)
    )
  )


def compute_times(
  machine: machine_topology.DeviceTopology,
  run: execution.Run,
  *,
  compiled: bool,
) -> Times:
  """Computes the times of a step.

  Args:
    machine: of accelerators.
    run: of the step's program on one device.
    compiled: whether the target's compiler has scheduled the program; else
      all communication is taken to overlap with computation.
  """
  accelerator = machine.accelerator
  assert accelerator is not None
  inside = outside = products = likely = size = 0.0
  for collective, number in run.exchanged.items():
    seconds = number * collective.seconds(accelerator)
    if collective.nodes > 1:
      outside += seconds
    else:
      inside += seconds
  for kernel, number in run.kernels.items():
    products += number * kernel.flops / (kernel.rate * accelerator.flops)
    likely += number * kernel.expected(accelerator)
    size += number * kernel.bytes
  waited = (
    run.waited + sum(run.exposed.values())
    if compiled
    else max(0.0, inside + outside - run.busy)
  )
  return Times(
    products=products,
    device=run.busy,
    memory=size / accelerator.bandwidth,
    inside=inside,
    outside=outside,
    waited=waited,
    likely=likely + waited / _ATTAINED_LINK_RATE,
  )


def compute_rates(
  machine: machine_topology.DeviceTopology,
  step: Times,
  *,
  flops: float,
  tokens: float,
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
    'expected_basis': (
      f'{kernels.ATTAINED_FLOPS:.0%} of the peak rate, '
      f'{kernels.ATTAINED_BANDWIDTH:.0%} of the bandwidth'
    ),
  }
