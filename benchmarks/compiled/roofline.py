"""Roofline model: minimum step time at data-sheet rates, and expected time."""

import dataclasses
from typing import Any

from benchmarks.compiled.programs import execution, kernels
from xlflax.training.devices import machine_topology

# Fraction of a link's rate that collectives attain. This is an assumption that,
# like those of kernels, only affects the expected figures.
_ATTAINED_LINK_RATE = 0.8


@dataclasses.dataclass(frozen=True)
class Times:
  """Seconds per step at data-sheet rates, except `likely`.

  Attributes:
    products: Time of all matmuls at the peak rate.
    device: Time of all kernels, each limited by its scarcest resource.
    memory: Time to transfer all bytes at the memory bandwidth.
    inside: Time of collectives within nodes.
    outside: Time of collectives between nodes.
    waited: Time of copies and collectives that do not overlap with computation.
    likely: Time of kernels and waiting, at the rates that are usually attained.
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
    """Lower bound for the step time."""
    return max(self.device + self.waited, self.memory)

  @property
  def expected(self) -> float:
    """Expected step time at the rates that are usually attained."""
    return max(self.likely, self.bound)

  @property
  def limit(self) -> str:
    """Resource that limits the step."""
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
  """Returns the weighted mean of several steps' times.

  Args:
    weighted: Pairs of a weight and a step's times. The weights sum to 1.
  """
  return Times(
    *(
      sum(weight * getattr(times, field.name) for weight, times in weighted)
      for field in dataclasses.fields(Times)
    )
  )


def compute_times(
  machine: machine_topology.DeviceTopology,
  run: execution.Run,
  *,
  compiled: bool,
) -> Times:
  """Computes a step's times at data-sheet and usually attained rates.

  Args:
    machine: Topology with a known accelerator.
    run: Execution of the step's program on one device.
    compiled: Whether the target's compiler has scheduled the program. If False,
      all communication is assumed to overlap with computation.
  """
  accelerator = machine.accelerator
  assert accelerator is not None
  inside = outside = products = attained = num_bytes = 0.0
  for collective, count in run.exchanged.items():
    seconds = count * collective.seconds(accelerator)
    if collective.nodes > 1:
      outside += seconds
    else:
      inside += seconds
  for kernel, count in run.kernels.items():
    products += count * kernel.flops / (kernel.rate * accelerator.flops)
    attained += count * kernel.expected(accelerator)
    num_bytes += count * kernel.bytes
  waited = (
    run.waited + sum(run.exposed.values())
    if compiled
    else max(0.0, inside + outside - run.busy)
  )
  return Times(
    products=products,
    device=run.busy,
    memory=num_bytes / accelerator.bandwidth,
    inside=inside,
    outside=outside,
    waited=waited,
    likely=attained + waited / _ATTAINED_LINK_RATE,
  )


def compute_rates(
  machine: machine_topology.DeviceTopology,
  step: Times,
  *,
  flops: float,
  tokens: float,
) -> dict[str, Any]:
  """Returns the throughput and utilization that a step's times imply.

  Args:
    machine: Topology with a known accelerator.
    step: Times of the mean step.
    flops: Number of model FLOPs per step, summed over all devices.
    tokens: Number of tokens in a step's batches, summed over all devices.
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
