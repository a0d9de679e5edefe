"""The plan for a described machine: each kind of step compiled and measured."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.planning import (
  activations,
  advice,
  attention,
  collectives,
  kernels,
  loops,
  memory,
  program,
  rewriting,
  roofline,
)
from xlflax.training import machines
from xlflax.training import setup as setup_lib
from xlflax.training import state as state_lib

# Steps over which the shares of the kinds of step are taken.
_SCHEDULE = 256


@dataclasses.dataclass(frozen=True)
class Step:
  """The cost of one kind of step.

  Attributes:
    share: of all steps.
    names: of the objectives that it trains.
    exchanged: the collectives of a device.
    unknown_loops: loops whose number of iterations is not known.
    work: totals of `kernels.measure`.
    batch: bytes of a device's part of the batches.
    activations: what the forward pass keeps, bytes.
    workspace: `memory.workspace`.
    temporary: bytes that XLA:CPU needs besides arguments and results.
    flops: model FLOPs, of all devices.
    tokens: positions of all batches, padding included.
  """

  share: float
  names: tuple[str, ...]
  exchanged: collectives.Counts
  unknown_loops: int
  work: loops.Counts
  batch: int
  activations: float
  workspace: float
  temporary: int
  flops: float
  tokens: int


def make(
  setup: setup_lib.Setup, machine: machines.Machine, choice: attention.Choice
) -> dict[str, Any]:
  """Returns memory, collectives, times and warnings on a described machine.

  Args:
    setup: of the run, on devices that stand in for the machine's.
    machine: the machine to plan for.
    choice: of attention on it; the setup itself has plain attention.

  Returns:
    'machine', 'memory' and 'sharding' (bytes per device), 'steps' (each kind
    of step), 'collectives' (a mean step's), 'roofline' (None for CPUs),
    'attention', 'flops_per_step', 'warnings'.
  """
  schedule = [setup.settings.objectives.active(i) for i in range(_SCHEDULE)]
  with program.on(machine):
    steps = [
      _step(setup, active, machine, choice, schedule.count(active) / _SCHEDULE)
      for active in dict.fromkeys(schedule)
    ]
  used = _memory(setup, steps, machine)
  boxed = jax.eval_shape(
    functools.partial(
      state_lib.init_params, setup.model, setup.settings.objectives
    ),
    jax.eval_shape(lambda: jax.random.key(0)),
  )
  return {
    'machine': {
      'devices': str(machine),
      'count': machine.count,
      'nodes': machine.nodes,
      'per_node': machine.per_node,
    },
    'memory': used,
    'sharding': memory.split(setup.factory.abstract_sharded),
    'attention': choice.backend,
    'flops_per_step': sum(step.share * step.flops for step in steps),
    'steps': [_described(step) for step in steps],
    'collectives': _kinds([(s.share, s.exchanged) for s in steps]),
    'roofline': _roofline(machine, steps),
    'warnings': [
      *advice.of_sharding(setup, boxed),
      *advice.of_memory(
        machine, used['total'], accumulation=setup.settings.accumulation
      ),
      *advice.of_machine(machine, setup.settings),
      *([choice.advice] if choice.advice else []),
      *advice.of_loops(sum(step.unknown_loops for step in steps)),
    ],
  }


def _step(setup: setup_lib.Setup, active, machine, choice, share) -> Step:
  settings = setup.settings
  batches = setup.abstract_batches(active)
  with settings.partitioner.scope():
    compiled = program.compiled(
      setup.jitted_step(active), setup.factory.abstract_sharded, batches
    )
  module = compiled.module
  exchanged, unknown = collectives.count(
    module, devices=machine.count, per_node=machine.per_node
  )
  if not choice.keeps_scores:
    module = rewriting.without_scores(
      module, {stream.length for stream in settings.streams}
    )
  return Step(
    share=share,
    exchanged=exchanged,
    unknown_loops=unknown,
    names=tuple(settings.objectives.entries[i].objective.name for i in active),
    work=loops.Walk(module, kernels.measure(machine.accelerator)).total(),
    batch=memory.per_device(batches),
    activations=activations.kept(module),
    workspace=memory.workspace(module),
    temporary=compiled.temporary,
    flops=setup.flops(active),
    tokens=sum(
      int(np.prod(leaf.shape))
      for batch in batches.values()
      for key, leaf in batch.items()
      if key.removeprefix(batch_lib.PAIRED) == batch_lib.SEGMENT_IDS
    ),
  )


def _memory(setup, steps, machine) -> dict[str, int]:
  """Returns bytes per device and their total.

  On a CPU XLA's own figure of temporary memory is right. For others it is
  stated, but what counts are gradients, activations and workspace.
  """
  state = setup.factory.abstract_sharded
  used = memory.of_state(state)
  largest = max(steps, key=lambda s: s.activations + s.workspace)
  used |= {
    'batch': max(step.batch for step in steps),
    'gradients': used['parameters'],
    'activations': int(largest.activations),
    'workspace': int(largest.workspace),
    'temporary': max(step.temporary for step in steps),
  }
  left_out = (
    ('gradients', 'activations', 'workspace')
    if machine.accelerator is None
    else ('temporary',)
  )
  return used | {
    'total': sum(size for name, size in used.items() if name not in left_out)
  }


def _kinds(weighted) -> dict[str, dict[str, float]]:
  """Returns kind -> number, bytes of arrays and bytes sent in a mean step."""
  found: dict[str, dict[str, float]] = {}
  for share, exchanged in weighted:
    for collective, number in exchanged.items():
      kind = found.setdefault(
        collective.kind, {'count': 0, 'bytes': 0, 'sent': 0, 'sent_outside': 0}
      )
      kind['count'] += share * number
      kind['bytes'] += share * number * collective.bytes
      kind['sent'] += share * number * collective.sent
      kind['sent_outside'] += share * number * collective.sent_outside
  return {kind: found[kind] for kind in collectives.KINDS if kind in found}


def _roofline(machine, steps) -> dict[str, Any] | None:
  if machine.accelerator is None:
    return None
  first, *others = [
    (s.share, roofline.times(machine, s.work, s.exchanged)) for s in steps
  ]
  return roofline.figures(
    machine,
    first[1].mean_with(others),
    flops=sum(s.share * s.flops for s in steps),
    tokens=sum(s.share * s.tokens for s in steps),
  )


def _described(step: Step) -> dict[str, Any]:
  most = sorted(
    step.exchanged.items(), key=lambda item: -item[0].sent * item[1]
  )[:12]
  return {
    'objectives': list(step.names),
    'share': step.share,
    'tokens': step.tokens,
    'flops': step.flops,
    'work': dict(step.work),
    'activations': int(step.activations),
    'temporary': step.temporary,
    'collectives': _kinds([(1.0, step.exchanged)]),
    'largest_collectives': [
      dataclasses.asdict(c) | {'count': n, 'sent': c.sent} for c, n in most
    ],
  }
