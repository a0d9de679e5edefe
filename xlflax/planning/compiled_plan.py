"""Estimated memory, communication and step time of a run on a target machine."""

import functools
from typing import Any

import jax

from xlflax.planning import (
  communication_lower_bound,
  memory,
  recommendations,
  step_costs,
  step_plan,
  step_time,
)
from xlflax.training import train_state, training_setup
from xlflax.training.devices import machine_topology


def analyze_run(
  setup: training_setup.Setup,
  machine: machine_topology.DeviceTopology,
  *,
  is_compiled: bool,
) -> dict[str, Any]:
  """Analyzes the memory, communication and time of a run's steps.

  Args:
    setup: Model, vocabulary, settings and step functions of the run. Its
      devices are those of the target machine or CPU devices.
    machine: Machine for which costs are estimated.
    is_compiled: Whether the compiler of the target machine compiles the steps.
      If False, the CPU compiler compiles them.

  Returns:
    'machine', 'memory' and 'sharding' (bytes per device), 'steps' (each kind of
    step), 'collectives' (of the mean step), 'ideal_sent' (minimum number of
    bytes that a device sends), 'estimate' (None for CPUs), 'flops_per_step' and
    'warnings' and 'recommendations'.
  """
  mixture = setup.settings.objectives
  schedule = [mixture.active(i) for i in range(mixture.period)]
  cost_step = step_plan.compile_step if is_compiled else step_plan.estimate_step
  steps = [
    cost_step(setup, active, machine, schedule.count(active) / len(schedule))
    for active in dict.fromkeys(schedule)
  ]
  used = memory_per_device(setup, steps)
  return {
    'machine': {
      'devices': str(machine),
      'count': machine.count,
      'nodes': machine.nodes,
      'per_node': machine.per_node,
      'usable_memory': recommendations.usable_memory(machine),
    },
    'memory': used,
    'sharding': memory.sharded_state_bytes(setup.factory.abstract_sharded),
    'flops_per_step': sum(step.fraction * step.flops for step in steps),
    'steps': [_describe_step(setup, machine, step) for step in steps],
    'collectives': step_plan.mean_collectives(steps),
    'ideal_sent': communication_lower_bound.minimum_bytes_sent(setup),
    'estimate': _estimate(setup, machine, steps),
    'warnings': _warnings(setup, machine, used['total']),
    'recommendations': _recommendations(setup, machine, used['total'], steps),
  }


def _warnings(setup, machine, total) -> list[str]:
  """Returns the warnings about sharding, memory and unsupported dtypes."""
  boxed = jax.eval_shape(
    functools.partial(
      train_state.init_params, setup.model, setup.settings.objectives
    ),
    jax.eval_shape(lambda: jax.random.key(0)),
  )
  return [
    *recommendations.describe_sharding(setup, boxed),
    *recommendations.describe_memory_shortage(
      machine, total, accumulation=setup.settings.gradient_accumulation_steps
    ),
    *recommendations.describe_dtype_support(machine, setup.settings),
  ]


def _recommendations(setup, machine, total, steps) -> list[str]:
  """Returns the recommendations for the dtype, array shapes and batch size."""
  estimate = _estimate(setup, machine, steps)
  if estimate is None:
    return []
  return [
    *recommendations.recommend_bfloat16(machine, setup.settings),
    *dict.fromkeys(
      text
      for step in steps
      for text in recommendations.describe_misalignment(
        setup, machine, step.costs
      )
    ),
    *_advise_batch(setup, machine, total, steps, estimate),
  ]


def _advise_batch(setup, machine, total, steps, estimate) -> list[str]:
  """Returns the recommendation to increase the batch size, if any."""
  update_seconds = sum(
    step.fraction * row['seconds']
    for step in steps
    for row in describe_parts(setup, machine, step.costs)
    if row['phase'] == 'update'
  )
  return recommendations.advise_batch(
    machine,
    total=total,
    state=memory.bytes_per_device(setup.factory.abstract_sharded),
    seconds=estimate['seconds_per_step'],
    update_seconds=update_seconds,
  )


def memory_per_device(
  setup: training_setup.Setup, steps: list[step_plan.Step]
) -> dict[str, int]:
  """Returns the memory use of a device in bytes, by type of array and in total.

  The total is based on the step with the highest peak.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    steps: Costs of each kind of step that the run executes. The kinds differ in
      the objectives that they train.
  """
  largest = max(steps, key=lambda step: step.peak)
  replay = memory.replay_bytes(setup)
  return (
    memory.state_bytes(setup.factory.abstract_sharded)
    | {'batch': max(step.batch for step in steps)}
    | largest.memory
    | replay
    | {'total': largest.peak + sum(replay.values())}
  )


def update_fraction(setup: training_setup.Setup) -> float:
  """Returns the fraction of the train state that each device updates."""
  state = setup.factory.abstract_sharded
  complete = sum(
    leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)
  )
  return memory.bytes_per_device(state) / max(complete, 1)


def _estimate(setup, machine, steps) -> dict[str, Any] | None:
  """Returns the estimated mean time of a step, or None for CPUs."""
  if machine.accelerator is None:
    return None
  fraction = update_fraction(setup)
  times = [
    (
      step.fraction,
      step_time.estimate_time(
        step.costs, machine, step.collectives, update_fraction=fraction
      ),
    )
    for step in steps
  ]
  return step_time.describe_time(
    machine,
    step_time.mean_time(times),
    flops=sum(step.fraction * step.flops for step in steps),
    tokens=sum(step.fraction * step.tokens for step in steps),
  )


def _describe_step(setup, machine, step: step_plan.Step) -> dict[str, Any]:
  """Converts the costs of one kind of step to plain data."""
  largest = sorted(
    step.collectives.items(), key=lambda item: -item[0].sent * item[1]
  )
  return {
    'objectives': list(step.objectives),
    'fraction': step.fraction,
    'tokens': step.tokens,
    'flops': step.flops,
    'program_flops': step.costs.total('flops'),
    'program_bytes': step.costs.total('bytes'),
    'xla_costs': step.xla_costs,
    'memory': step.memory | {'total': step.peak},
    'compile_seconds': step.compile_seconds,
    'parts': describe_parts(setup, machine, step.costs),
    'largest_collectives': [
      {
        'kind': collective.kind,
        'dtype': collective.dtype,
        'shape': list(collective.shape),
        'bytes': collective.bytes,
        'sent': collective.sent,
        'count': count,
      }
      for collective, count in largest[:8]
    ],
  }


def describe_parts(
  setup, machine: machine_topology.DeviceTopology, costs: step_costs.StepCosts
) -> list[dict[str, Any]]:
  """Returns a step's costs by model part and phase, such as 'backward'.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    machine: Machine for which costs are estimated.
    costs: Operations in the step with their FLOPs and memory traffic, summed
      over all devices.

  Returns:
    A dictionary for each part and phase, slowest first, with the keys 'part',
    'phase', 'count' (number of operations), 'flops', 'bytes' and 'seconds'.
    FLOPs and bytes are sums over all devices. The seconds are the time on one
    device. The list is empty for CPUs.
  """
  if machine.accelerator is None:
    return []
  fraction = update_fraction(setup)
  rows: dict[tuple[str, str], dict[str, Any]] = {}
  for operation in costs.operations:
    row = rows.setdefault(
      (operation.part, operation.phase),
      {'part': operation.part, 'phase': operation.phase}
      | dict.fromkeys(('count', 'flops', 'bytes', 'seconds'), 0.0),
    )
    row['count'] += operation.count
    row['flops'] += operation.count * operation.flops
    row['bytes'] += operation.count * operation.bytes
    row['seconds'] += operation.count * step_time.operation_seconds(
      operation,
      machine.accelerator,
      devices=machine.count,
      update_fraction=fraction,
    )
  return sorted(rows.values(), key=lambda row: -row['seconds'])
