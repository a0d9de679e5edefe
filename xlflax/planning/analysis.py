"""The plan for a described machine: each kind of step compiled and judged."""

import dataclasses
import functools
from typing import Any

import jax

from xlflax.planning import advice, ideal, memory, roofline
from xlflax.planning import steps as steps_lib
from xlflax.planning.programs import collectives
from xlflax.planning.targets import attention
from xlflax.training import setup as setup_lib
from xlflax.training import train_state
from xlflax.training.devices import machines

# Kernels that a plan names.
_COSTLIEST = 12
_NAMES = ('name', 'kind', 'module', 'phase')
_NOTHING = dict.fromkeys(('count', 'flops', 'bytes', 'seconds'), 0)


def make(
  setup: setup_lib.Setup,
  machine: machines.Machine,
  choice: attention.Choice | None,
) -> dict[str, Any]:
  """Returns memory, kernels, times and warnings on a described machine.

  Args:
    setup: of the run, on the machine's own devices or on stand-ins.
    machine: the machine to plan for.
    choice: of attention on it, for an estimate on stand-ins; None where the
      machine's own compiler compiles.

  Returns:
    'machine', 'memory' and 'sharding' (bytes per device), 'steps' (each kind
    of step), 'collectives' (a mean step's), 'ideal_sent' (bytes that a device
    would send at the least), 'roofline' (None for CPUs), 'flops_per_step',
    'warnings'; 'attention' of an estimate.
  """
  mixture = setup.settings.objectives
  schedule = [mixture.active(i) for i in range(mixture.period)]
  steps = []
  for active in dict.fromkeys(schedule):
    share = schedule.count(active) / len(schedule)
    steps.append(
      steps_lib.compiled(setup, active, machine, share)
      if choice is None
      else steps_lib.estimated(setup, active, machine, share, choice)
    )
  used = _memory(setup, steps)
  return {
    'machine': {
      'devices': str(machine),
      'count': machine.count,
      'nodes': machine.nodes,
      'per_node': machine.per_node,
    },
    'memory': used,
    'sharding': memory.split(setup.factory.abstract_sharded),
    'flops_per_step': sum(step.share * step.flops for step in steps),
    'steps': [_described(machine, step) for step in steps],
    'collectives': _kinds([(s.share, s.run) for s in steps]),
    'ideal_sent': ideal.sent(setup),
    'roofline': _roofline(machine, steps, compiled=choice is None),
    'warnings': _warnings(setup, machine, used['total'], steps),
  } | ({'attention': choice.backend} if choice else {})


def _warnings(setup, machine, total, steps) -> list[str]:
  boxed = jax.eval_shape(
    functools.partial(
      train_state.init_params, setup.model, setup.settings.objectives
    ),
    jax.eval_shape(lambda: jax.random.key(0)),
  )
  return [
    *advice.of_sharding(setup, boxed),
    *advice.of_memory(machine, total, accumulation=setup.settings.accumulation),
    *advice.of_machine(machine, setup.settings),
    *advice.of_loops(sum(step.run.unknown_loops for step in steps)),
    *dict.fromkeys(text for step in steps for text in step.warnings),
  ]


def _memory(setup, steps) -> dict[str, int]:
  """Returns bytes per device by kind, and the peak of the largest step."""
  largest = max(steps, key=lambda s: s.peak)
  replay = memory.of_replay(setup)
  return (
    memory.of_state(setup.factory.abstract_sharded)
    | {'batch': max(step.batch for step in steps)}
    | largest.memory
    | replay
    | {'total': largest.peak + sum(replay.values())}
  )


def _kinds(weighted) -> dict[str, dict[str, float]]:
  """Returns kind -> number, bytes and waiting in a mean step."""
  found: dict[str, dict[str, float]] = {}
  for share, run in weighted:
    for collective, number in run.exchanged.items():
      kind = found.setdefault(collective.kind, dict.fromkeys(_FIGURES, 0.0))
      count = share * number
      kind['count'] += count
      kind['bytes'] += count * collective.bytes
      kind['sent'] += count * collective.sent
      kind['sent_outside'] += count * collective.sent_outside
      kind['asynchronous'] += share * run.asynchronous[collective]
      kind['exposed_seconds'] += share * run.exposed[collective]
  return {kind: found[kind] for kind in collectives.KINDS if kind in found}


_FIGURES = 'count bytes sent sent_outside asynchronous exposed_seconds'.split()


def _roofline(machine, steps, *, compiled: bool) -> dict[str, Any] | None:
  if machine.accelerator is None:
    return None
  times = [
    (s.share, roofline.times(machine, s.run, compiled=compiled)) for s in steps
  ]
  return roofline.figures(
    machine,
    roofline.mean(times),
    flops=sum(s.share * s.flops for s in steps),
    tokens=sum(s.share * s.tokens for s in steps),
  )


def _described(machine, step: steps_lib.Step) -> dict[str, Any]:
  run = step.run
  most = sorted(run.exchanged.items(), key=lambda item: -item[0].sent * item[1])
  return {
    'objectives': list(step.names),
    'share': step.share,
    'tokens': step.tokens,
    'flops': step.flops,
    'program_flops': sum(k.flops * n for k, n in run.kernels.items()),
    'program_bytes': sum(k.bytes * n for k, n in run.kernels.items()),
    'memory': step.memory | {'total': step.peak},
    'compile_seconds': step.compile_seconds,
    'kernels': _groups(machine, run, *_NAMES)[:_COSTLIEST],
    'parts': _groups(machine, run, 'part', 'phase'),
    'modules': {
      f'{row["module"]}, {row["phase"]}': row['seconds']
      for row in _groups(machine, run, 'module', 'phase')
    },
    'windowed_loops': len(run.windowed),
    'collectives': _kinds([(1.0, run)]),
    'largest_collectives': [
      dataclasses.asdict(c)
      | {
        'count': n,
        'sent': c.sent,
        'asynchronous': run.asynchronous[c],
        'exposed_seconds': run.exposed[c],
      }
      for c, n in most
    ],
  }


def _groups(machine, run, *names: str) -> list[dict[str, Any]]:
  """Returns a row for kernels that are alike in `names`, the costliest first.

  Layers count together, whether a loop runs them or each has kernels.
  """
  found: dict[tuple[Any, ...], dict[str, Any]] = {}
  for k, n in run.kernels.items() if machine.accelerator else ():
    alike = {name: getattr(k, name) for name in names}
    row = found.setdefault(tuple(alike.values()), alike | _NOTHING)
    row['count'] += n
    row['flops'] += n * k.flops
    row['bytes'] += n * k.bytes
    row['seconds'] += n * k.seconds(machine.accelerator)
  return sorted(found.values(), key=lambda row: -row['seconds'])
