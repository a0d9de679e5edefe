"""Costs of a run's training steps for each set of objectives.

A step trains one or more objectives of the run's mixture.
"""

import collections
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.data import batch_keys
from xlflax.models import compile_targets
from xlflax.planning import (
  collectives,
  compilers,
  cpu_stand_in,
  memory,
  step_costs,
  traceable_attention,
)
from xlflax.training import training_setup
from xlflax.training.devices import machine_topology


@dataclasses.dataclass(frozen=True)
class Step:
  """Costs of a training step that trains a given set of objectives.

  Attributes:
    fraction: Fraction of the run's steps that train exactly the objectives in
      `objectives`.
    objectives: Names of the objectives that the step trains.
    costs: Operations in the step with their FLOPs and memory traffic, summed
      over all devices.
    collectives: Number of times that the step executes each collective on one
      device.
    batch: Size in bytes of a device's shard of the batches.
    memory: Bytes on one device by type of array, excluding the train state and
      the batch.
    peak: Peak number of bytes in use on one device.
    flops: Model FLOPs of the step, summed over all devices.
    tokens: Number of token positions in all batches, including padding.
    xla_costs: Numbers of FLOPs and bytes on one device, as counted by the
      compiler, with the keys 'flops' and 'bytes'. The compiler counts the body
      of a loop once, and does not count Pallas kernels.
    compile_seconds: Time in seconds that the target machine's compiler took.
      None if this compiler was not used.
  """

  fraction: float
  objectives: tuple[str, ...]
  costs: step_costs.StepCosts
  collectives: collectives.Counts
  batch: int
  memory: dict[str, int]
  peak: int
  flops: float
  tokens: int
  xla_costs: dict[str, float]
  compile_seconds: float | None = None


def compile_step(
  setup: training_setup.Setup,
  active,
  machine: machine_topology.DeviceTopology,
  fraction: float,
) -> Step:
  """Compiles a step with the target machine's compiler.

  Args:
    setup: Setup of the run on the target machine's devices.
    active: Objectives that the step trains, as indices into the objective
      mixture.
    machine: Machine for which costs are estimated.
    fraction: Fraction of the run's steps that train exactly the objectives in
      `active`.
  """
  batches = setup.abstract_batches(active)
  logging.info(
    'Compiling the step of %s for %s. This takes minutes for large models.',
    ', '.join(_objectives(setup, active)),
    machine,
  )
  with compilers.trace_for_machine(machine), setup.settings.partitioner.scope():
    compiled = compilers.compile_step(
      machine,
      setup.jitted_step(active),
      setup.factory.abstract_sharded,
      batches,
      **(
        compile_targets.deterministic_options()
        if setup.settings.sdc_check_every
        else {}
      ),
    )
    flops = setup.flops(active)
  used = compiled.memory
  return Step(
    fraction=fraction,
    objectives=_objectives(setup, active),
    costs=count_costs(compiled.jaxpr, machine),
    collectives=_collectives(compiled.text, machine),
    batch=memory.bytes_per_device(batches),
    memory={
      'arguments': used.arguments,
      'outputs': used.outputs,
      'temporary': used.temporary,
    },
    peak=used.peak,
    flops=flops,
    tokens=count_tokens(batches),
    xla_costs=compiled.costs,
    compile_seconds=compiled.seconds,
  )


def estimate_step(
  setup: training_setup.Setup,
  active,
  machine: machine_topology.DeviceTopology,
  fraction: float,
) -> Step:
  """Estimates a step's costs without the target machine's compiler.

  The step is traced for the machine. If the machine has several devices, the
  CPU compiler partitions the step with plain attention to find its collectives.

  Args:
    setup: Setup of the run on CPU devices that stand in for the machine's
      devices.
    active: Objectives that the step trains, as indices into the objective
      mixture.
    machine: Machine for which costs are estimated.
    fraction: Fraction of the run's steps that train exactly the objectives in
      `active`.
  """
  batches = setup.abstract_batches(active)
  state = setup.factory.abstract_sharded
  traceable = training_setup.Setup(
    traceable_attention.with_traceable_attention(setup.settings, machine)
  )
  with (
    compilers.trace_for_machine(machine, by='cpu'),
    setup.settings.partitioner.scope(),
  ):
    jaxpr = traceable.jitted_step(active).trace(state, batches).jaxpr.jaxpr
    flops = traceable.flops(active)
  costs = count_costs(jaxpr, machine)
  counts: collectives.Counts = collections.Counter()
  temporary, xla_costs = int(costs.peak_bytes / machine.count), {}
  if machine.count > 1 or machine.accelerator is None:
    logging.info(
      'Partitioning the step of %s over %s CPU devices to find its '
      'collectives. This takes minutes for large models.',
      ', '.join(_objectives(setup, active)),
      f'{machine.count:,}',
    )
    compiled, text = _compile_on_cpu(setup, active, machine)
    counts = _collectives(text, machine)
    xla_costs = compilers.cost_analysis(compiled)
    if machine.accelerator is None:  # The machine consists of CPUs.
      analysis = compiled.memory_analysis()
      temporary = getattr(analysis, 'temp_size_in_bytes', 0)
  batch = memory.bytes_per_device(batches)
  return Step(
    fraction=fraction,
    objectives=_objectives(setup, active),
    costs=costs,
    collectives=counts,
    batch=batch,
    memory={'temporary': temporary},
    peak=sum(memory.state_bytes(state).values()) + batch + temporary,
    flops=flops,
    tokens=count_tokens(batches),
    xla_costs=xla_costs,
  )


def count_costs(
  jaxpr: Any, machine: machine_topology.DeviceTopology
) -> step_costs.StepCosts:
  """Counts the operations of a step on a machine's devices.

  Args:
    jaxpr: Traced step.
    machine: Machine for which costs are estimated.
  """
  # On several GPUs, XLA adds the biases of queries, keys and values in separate
  # kernels (docs/measured/compiled_steps.md).
  target = compilers.target_of(machine)
  return step_costs.count_costs(
    jaxpr,
    has_bias_epilogues=target.has_bias_epilogues and machine.count == 1,
    has_accumulation=target.has_bias_epilogues,
  )


def _compile_on_cpu(setup, active, machine) -> tuple[Any, str]:
  """Returns the step compiled without kernels, and its partitioned HLO."""
  plain = training_setup.Setup(
    traceable_attention.with_plain_attention(setup.settings)
  )
  state = plain.factory.abstract_sharded
  with (
    compilers.trace_for_machine(machine, by='cpu', has_kernels=False),
    plain.settings.partitioner.scope(),
  ):
    lowered = plain.jitted_step(active).lower(
      state, plain.abstract_batches(active)
    )
    return cpu_stand_in.compile_partitioned(lowered)


def mean_collectives(steps: Sequence[Step]) -> dict[str, dict[str, float]]:
  """Returns the mean number and size of collectives per step, by kind."""
  mean: dict[str, dict[str, float]] = {}
  for step in steps:
    for kind, row in collectives.summarize_collectives(
      step.collectives
    ).items():
      total = mean.setdefault(kind, dict.fromkeys(row, 0.0))
      for name, value in row.items():
        total[name] += step.fraction * value
  return {kind: mean[kind] for kind in collectives.KINDS if kind in mean}


def _collectives(
  text: str, machine: machine_topology.DeviceTopology
) -> collectives.Counts:
  """Returns the collectives in the HLO of a program."""
  return collectives.find_collectives(
    text, devices=machine.count, per_node=machine.per_node
  )


def _objectives(setup: training_setup.Setup, active) -> tuple[str, ...]:
  """Returns the names of the objectives of a step."""
  names = setup.settings.objectives.metric_prefixes
  return tuple(names[i] for i in active)


def count_tokens(batches: dict[str, Any]) -> int:
  """Returns the number of token positions in batches, including padding."""
  return sum(
    int(np.prod(leaf.shape))
    for batch in batches.values()
    for key, leaf in batch.items()
    if key.removeprefix(batch_keys.PAIRED) == batch_keys.SEGMENT_IDS
  )
