"""The cost of one kind of step, compiled by its target or estimated."""

import dataclasses
from typing import Any

import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.models import targets
from xlflax.planning import findings, memory
from xlflax.planning.programs import (
  activations,
  collectives,
  execution,
  fusing,
  hlo,
  kernels,
  pallas,
  rewriting,
)
from xlflax.planning.targets import attention, compilers, instructions, program
from xlflax.training import setup as setup_lib
from xlflax.training.devices import machines


@dataclasses.dataclass(frozen=True)
class Step:
  """The cost of one kind of step on one device.

  Attributes:
    share: of all steps.
    names: of the objectives that it trains.
    run: its kernels and collectives.
    batch: bytes of a device's part of the batches.
    memory: bytes besides state and batch, by kind.
    peak: bytes of all at their most.
    flops: model FLOPs, of all devices.
    tokens: positions of all batches, padding included.
    warnings: what its program shows.
    compile_seconds: of the target's compiler; None for an estimate.
  """

  share: float
  names: tuple[str, ...]
  run: execution.Run
  batch: int
  memory: dict[str, int]
  peak: int
  flops: float
  tokens: int
  warnings: tuple[str, ...] = ()
  compile_seconds: float | None = None


def compiled(
  setup: setup_lib.Setup, active, machine: machines.Machine, share: float
) -> Step:
  """Compiles a step by the machine's own compiler and reads its program."""
  batches = setup.abstract_batches(active)
  with compilers.tracing(machine), setup.settings.partitioner.scope():
    made = compilers.compile_step(
      machine,
      setup.jitted_step(active),
      setup.factory.abstract_sharded,
      batches,
      **(targets.repeatable_options() if setup.settings.replay_every else {}),
    )
    flops = setup.flops(active)
  module = hlo.parse(made.text)
  counted = instructions.cycles_of(machine, made.jaxpr)
  reader = kernels.compiled(
    machine.platform, pallas.flops_of(made.jaxpr), counted
  )
  run = _execution(module, reader, machine).run()
  return Step(
    share=share,
    names=_names(setup, active),
    run=run,
    batch=memory.per_device(batches),
    memory={
      'arguments': made.memory.arguments,
      'outputs': made.memory.outputs,
      'temporary': made.memory.temporary,
    },
    peak=made.memory.peak,
    flops=flops,
    tokens=_tokens(batches),
    warnings=(
      *instructions.blindness(made.jaxpr, counted),
      *findings.of_program(module, run, setup, machine),
    ),
    compile_seconds=made.seconds,
  )


def estimated(
  setup: setup_lib.Setup,
  active,
  machine: machines.Machine,
  share: float,
  choice: attention.Choice,
) -> Step:
  """Reads the partitioned program that the CPU's compiler makes.

  Args:
    setup: of the run, on devices that stand in for the machine's, with plain
      attention.
    active: the entries that the step trains.
    machine: the machine to plan for.
    share: of all steps.
    choice: of attention on the machine.
  """
  batches = setup.abstract_batches(active)
  with compilers.tracing(machine, by='cpu'), setup.settings.partitioner.scope():
    made = program.compiled(
      setup.jitted_step(active), setup.factory.abstract_sharded, batches
    )
    flops = setup.flops(active)
  module = made.module
  if not choice.keeps_scores:
    module = rewriting.without_scores(module, attention.lengths(setup.settings))
  used = {
    'gradients': memory.per_device(setup.factory.abstract_sharded.params),
    'activations': int(activations.kept(module)),
    'workspace': int(memory.workspace(module)),
  }
  if machine.accelerator is None:  # a CPU's own compiler is right for CPUs
    used = {'temporary': made.temporary}
  batch = memory.per_device(batches)
  state = sum(memory.of_state(setup.factory.abstract_sharded).values())
  return Step(
    share=share,
    names=_names(setup, active),
    run=_execution(module, fusing.reader(machine.platform), machine).run(),
    batch=batch,
    memory=used,
    peak=state + batch + sum(used.values()),
    flops=flops,
    tokens=_tokens(batches),
  )


def _execution(module, reader, machine) -> execution.Execution:
  place = collectives.Place(machine.count, machine.per_node)
  return execution.Execution(module, reader, place, machine.accelerator)


def _names(setup: setup_lib.Setup, active) -> tuple[str, ...]:
  entries = setup.settings.objectives.entries
  return tuple(entries[i].objective.name for i in active)


def _tokens(batches: dict[str, Any]) -> int:
  return sum(
    int(np.prod(leaf.shape))
    for batch in batches.values()
    for key, leaf in batch.items()
    if key.removeprefix(batch_lib.PAIRED) == batch_lib.SEGMENT_IDS
  )
