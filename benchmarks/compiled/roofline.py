"""Roofline model: minimum and expected duration of a training step."""

import dataclasses
from typing import Any

from benchmarks.compiled.programs import execution, kernels
from xlflax.training.devices import machine_topology

# Fraction of a link's rate that collectives attain. This is an assumption that,
# like those of kernels, only affects the expected figures.
_ATTAINED_LINK_RATE = 0.8


@dataclasses.dataclass(frozen=True)
class Times:
  """Durations of the parts of a training step, in seconds.

  All durations except `likely` are computed from data-sheet rates and are
  therefore lower bounds.

  Attributes:
    products: Duration in seconds of all matmuls at the peak rate.
    device: Duration in seconds of all kernels. Each kernel is limited by
      arithmetic, memory bandwidth or the rate at which instructions are issued.
    memory: Duration in seconds of all memory transfers at the peak bandwidth.
    inside: Duration in seconds of the collectives within nodes.
    outside: Duration in seconds of the collectives between nodes.
    waited: Duration in seconds of the copies and collectives that do not
      overlap with computation.
    likely: Expected total time of kernels and waiting in seconds, at the rates
      that are usually attained in practice.
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
    """Lower bound for the step time, in seconds."""
    return max(self.device + self.waited, self.memory)

  @property
  def expected(self) -> float:
    """Expected step time in seconds, at the rates that are usually attained."""
    return max(self.likely, self.bound)

  @property
  def limit(self) -> str:
    """Hardware resource that limits the step, such as 'memory bandwidth'."""
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
  """Returns the weighted mean of the durations of several training steps.

  Args:
    weighted: Pairs of a training step's weight and the durations of its parts.
      The weights sum to 1.
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
  """Computes the durations of a training step's parts.

  Args:
    machine: Topology with a known accelerator.
    run: Simulated execution of the step's program on one device.
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
  """Returns the throughput and utilization for given step durations.

  Args:
    machine: Topology with a known accelerator.
    step: Mean durations of the parts of a training step.
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
