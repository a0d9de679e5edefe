"""Estimated time of a training step, computed from achievable rates.

The rates are fractions of the data-sheet values that were measured on one H200:
large bfloat16 matmuls reach 719 of 989 TFLOP/s, and memory reaches 3.5 of 4.8
TB/s. The same fractions are assumed for all other devices. The other factors
come from the analysis of one step on the same H200
(docs/measured/compiled_steps.md).

The estimate is not a bound: it can be too high or too low.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlflax.planning import collectives
from xlflax.planning.step_costs import Kind, Operation, StepCosts
from xlflax.training.devices import accelerators, machine_topology

MATMUL_FRACTION = 719 / 989
MEMORY_FRACTION = 3.5 / 4.8
LINK_FRACTION = 0.8
# Rate of a GPU matmul with misaligned rows, relative to an aligned one.
MISALIGNED_FRACTION = 0.37
# Time of attention kernels relative to their FLOPs at the matmul rate. On an
# H200, kernels that compare the segments of all positions take about 2.5 times
# as long. Sequences with one segment need 11 % less time according to the
# instructions of the current kernels. The TPU factor was counted in the
# instructions of the compiled kernels with dropout and was not measured.
ATTENTION_FACTOR = {'gpu': 2.2, 'tpu': 15.0}
# Time between two kernels of a GPU.
LAUNCH_SECONDS = {'gpu': 1.5e-6, 'tpu': 0.0}
BASIS = (
  f'{MATMUL_FRACTION:.0%} of the data-sheet matmul rate and '
  f'{MEMORY_FRACTION:.0%} of the memory bandwidth, as measured on an H200'
)
KNOWN_ERROR = (
  'One step was measured: XLM-R base, 64 x 512 tokens on an H200, 75.2 ms. '
  'Earlier plans at data-sheet rates estimated 39.0 ms. The factors of this '
  'estimate were chosen for that step, except that the factor of attention '
  'was reduced because its kernels execute fewer instructions since then. The '
  'error for other models and devices is not known.'
)


@dataclasses.dataclass(frozen=True)
class StepTime:
  """Estimated time of one step on one device, in seconds.

  Attributes:
    matmuls: Time in seconds for matmuls, assuming that the rows of all arrays
      are a multiple of 16 bytes (aligned).
    misaligned: Additional time in seconds for matmuls with misaligned arrays.
    attention: Time in seconds for attention kernels.
    memory: Time in seconds for element-wise operations, reductions, gathers and
      the optimizer.
    launches: Time in seconds between kernels, in which the device is idle.
    communication: Time in seconds for collectives, including those that are
      hidden behind computation.
    exposed: Time in seconds for collectives that is not hidden behind
      computation.
  """

  matmuls: float
  misaligned: float
  attention: float
  memory: float
  launches: float
  communication: float
  exposed: float

  @property
  def total(self) -> float:
    """Duration of the step in seconds."""
    return self.computation + self.exposed

  @property
  def computation(self) -> float:
    """Duration of the step in seconds without exposed communication."""
    return (
      self.matmuls
      + self.misaligned
      + self.attention
      + self.memory
      + self.launches
    )

  @property
  def limit(self) -> str:
    """Name of the largest part of the step time, such as 'attention'."""
    parts = {
      'matmuls': self.matmuls + self.misaligned,
      'attention': self.attention,
      'memory bandwidth': self.memory,
      'kernel launches': self.launches,
      'communication': self.exposed,
    }
    return max(parts, key=lambda name: parts[name])


def operation_seconds(
  operation: Operation,
  accelerator: accelerators.Accelerator,
  *,
  devices: int = 1,
  update_fraction: float = 1.0,
  aligned: bool = False,
) -> float:
  """Estimates the time in seconds of an operation on one device.

  Args:
    operation: Operation to time. Its FLOPs and bytes are totals over all
      devices.
    accelerator: Type of the device.
    devices: Number of devices. All work except the update is divided equally
      among them.
    update_fraction: Fraction of the optimizer state that each device stores.
    aligned: Whether to assume that the rows of all arrays are a multiple of 16
      bytes.
  """
  fraction = update_fraction if operation.phase == 'update' else 1 / devices
  rate = accelerator.flops * MATMUL_FRACTION * operation.rate
  if operation.misaligned and accelerator.platform == 'gpu' and not aligned:
    rate *= MISALIGNED_FRACTION
  if operation.kind is Kind.ATTENTION:
    rate /= ATTENTION_FACTOR[accelerator.platform]
  memory = operation.bytes / (accelerator.bandwidth * MEMORY_FRACTION)
  return fraction * max(operation.flops / rate, memory)


def estimate_time(
  costs: StepCosts,
  machine: machine_topology.DeviceTopology,
  counts: collectives.Counts,
  *,
  update_fraction: float = 1.0,
) -> StepTime:
  """Estimates how long one step takes on the target machine.

  Args:
    costs: Operations in the step with their FLOPs and memory traffic, summed
      over all devices.
    machine: Target machine. The type of its accelerators must be known.
    counts: Number of times that a step executes each collective on one device.
    update_fraction: Fraction of the optimizer state that each device stores.
  """
  accelerator = machine.accelerator
  assert accelerator is not None

  def seconds(kind: Kind, *, aligned: bool = False) -> float:
    return sum(
      operation.count
      * operation_seconds(
        operation,
        accelerator,
        devices=machine.count,
        update_fraction=update_fraction,
        aligned=aligned,
      )
      for operation in costs.operations
      if operation.kind is kind
    )

  matmuls = seconds(Kind.MATMUL, aligned=True)
  communication = sum(
    number * collective.seconds(accelerator) / LINK_FRACTION
    for collective, number in counts.items()
  )
  time = StepTime(
    matmuls=matmuls,
    misaligned=seconds(Kind.MATMUL) - matmuls,
    attention=seconds(Kind.ATTENTION),
    memory=seconds(Kind.MEMORY),
    launches=sum(o.count for o in costs.operations)
    * LAUNCH_SECONDS[accelerator.platform],
    communication=communication,
    exposed=0.0,
  )
  exposed = max(0.0, communication - time.computation)
  return dataclasses.replace(time, exposed=exposed)


def mean_time(weighted: Sequence[tuple[float, StepTime]]) -> StepTime:
  """Averages the times of different kinds of steps, weighted by frequency.

  Args:
    weighted: Pairs (weight, step time), one for each kind of step. The weight
      is the fraction of the run's steps that are of this kind.
  """
  return StepTime(
    *(
      sum(weight * getattr(time, field.name) for weight, time in weighted)
      for field in dataclasses.fields(StepTime)
    )
  )


def describe_time(
  machine: machine_topology.DeviceTopology,
  time: StepTime,
  *,
  flops: float,
  tokens: float,
) -> dict[str, Any]:
  """Converts a step-time estimate to plain data for JSON and reports.

  Args:
    machine: Target machine for which the time was estimated.
    time: Estimated time of the average step.
    flops: Model FLOPs of a step, summed over all devices.
    tokens: Number of token positions in a step, summed over all devices.
  """
  assert machine.accelerator is not None
  peak = machine.accelerator.flops * machine.count
  return {
    'seconds_per_step': time.total,
    'tokens_per_second': tokens / time.total,
    'mfu': flops / time.total / peak,
    'parts': dataclasses.asdict(time)
    | {'hidden': time.communication - time.exposed},
    'limit': time.limit,
    'basis': BASIS,
    'known_error': KNOWN_ERROR,
  }
