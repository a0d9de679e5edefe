"""Measured beside planned: a profile of steps, kernel by kernel."""

import collections
import gzip
import json
import logging
import pathlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import rich.console
import rich.table

from xlflax.foundation import console_tables, errors
from xlflax.planning import report
from xlflax.planning.programs import (
  collectives,
  execution,
  hlo,
  kernels,
  pallas,
)
from xlflax.planning.targets import compilers, instructions
from xlflax.training import benchmark
from xlflax.training import settings as settings_lib
from xlflax.training.devices import accelerators, machines

_NAMES = ('name', 'module', 'phase', 'kind')
# Kernels that are launched as graphs have no names in a profile.
_NAMED = {'xla_gpu_enable_command_buffer': ''}
# Rows of the table.
_SHOWN = 20


def compare(settings: settings_lib.Settings, *, steps: int) -> dict[str, Any]:
  """Profiles steps on this machine's devices beside the plan of their program.

  Args:
    settings: as for training; batches are synthetic and nothing is written.
    steps: how many are profiled, after one that warms up.

  Returns:
    `rows` in 'kernels', seconds of one step of one device by the plan
    ('planned_seconds') and the profile ('measured_seconds'), of the host's
    clock ('step_seconds', median), and 'device'.

  Raises:
    ConfigError: the devices are not in the table of accelerators.
    TrainingError: the profile holds no kernel.
  """
  machine = machine_here(jax.devices())
  inputs = benchmark.make_inputs(settings)
  setup = inputs.setup
  with settings.partitioner.scope():
    step = setup.jitted_step(inputs.active)
    made = compilers.compile_step(
      machine,
      step,
      inputs.state,
      inputs.batches,
      executable=True,
      **(_NAMED if machine.platform == 'gpu' else {}),
    )
    state, output = made.program(inputs.state, inputs.batches)
    jax.block_until_ready(output)
    times = []
    with tempfile.TemporaryDirectory(prefix='xlflax-profile-') as folder:
      with jax.profiler.trace(folder):
        for _ in range(steps):
          start = time.perf_counter()
          state, output = made.program(state, inputs.batches)
          jax.block_until_ready((state, output))
          times.append(time.perf_counter() - start)
      profile = seconds_of(read_traces(pathlib.Path(folder)))
  check_profile(profile, steps, machine)
  planned = planned_run(machine, made)
  found = {name: seconds / steps for name, seconds in profile.items()}
  assert machine.accelerator is not None
  return {
    'device': str(machine),
    'steps': steps,
    'step_seconds': float(np.median(times)),
    'planned_seconds': planned.seconds,
    'measured_seconds': sum(found.values()),
    'kernels': rows(planned, found, machine.accelerator),
  }


def check_profile(
  profile: Mapping[str, float], steps: int, machine: machines.Machine
) -> None:
  """Raises TrainingError where the profile of some steps holds no kernel."""
  if not profile:
    raise errors.TrainingError(
      'The profile holds no kernel',
      got=f'{steps} steps on {machine}',
      where='the comparison with the plan',
      fix='let this user read performance counters '
      '(NVreg_RestrictProfilingToAdminUsers=0), or profile as root',
    )


def planned_run(
  machine: machines.Machine, made: compilers.Compiled
) -> execution.Run:
  """Returns what a device does in a compiled step, by the plan."""
  counted = instructions.cycles_of(machine, made.jaxpr)
  for warning in instructions.blindness(made.jaxpr, counted):
    logging.warning(warning)
  return execution.Execution(
    hlo.parse(made.text),
    kernels.compiled(machine.platform, pallas.flops_of(made.jaxpr), counted),
    collectives.Place(machine.count, machine.per_node),
    machine.accelerator,
  ).run()


def machine_here(devices: list[Any]) -> machines.Machine:
  """Describes devices that are here.

  Raises:
    ConfigError: they are CPUs, or not in the table of accelerators.
  """
  kind = devices[0].device_kind
  accelerator = accelerators.of_kind(kind)
  if devices[0].platform == 'cpu' or accelerator is None:
    raise errors.ConfigError(
      'There is no plan to measure against on these devices',
      got=f'{len(devices)} x {kind}',
      expected='GPUs or TPUs among '
      + ', '.join(a.name for a in accelerators.TABLE),
      where='xlflax benchmark --against_plan',
      fix='run it where such a device is; without one, `xlflax train '
      '--dry_run --devices=gpu:H200:1` plans',
    )
  return machines.Machine(
    platform=accelerator.platform,
    accelerator=accelerator,
    count=len(devices),
    per_node=machines.node_size(devices),
  )


def read_traces(folder: pathlib.Path) -> list[dict[str, Any]]:
  """Reads the events that JAX's profiler wrote."""
  events: list[dict[str, Any]] = []
  for path in sorted(folder.rglob('*.trace.json.gz')):
    with gzip.open(path, 'rt', encoding='utf-8') as file:
      events += json.load(file)['traceEvents']
  return events


def seconds_of(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
  """Returns instruction -> seconds on the first device, of all steps.

  Args:
    events: of Chrome's trace format. A device is a process whose name has
      '/device:' in it; a GPU's kernels name their instruction in 'hlo_op', and
      a TPU's are the events of the thread 'XLA Ops'.
  """
  events = list(events)
  named = {
    (e['name'], e['pid'], e.get('tid') if e['name'] == 'thread_name' else None):
      e['args']['name']
    for e in events
    if e.get('ph') == 'M' and e['name'] in ('process_name', 'thread_name')
  }  # fmt: skip
  devices = sorted(
    (text, pid)
    for (kind, pid, _), text in named.items()
    if kind == 'process_name' and '/device:' in text and 'CPU' not in text
  )
  found: collections.Counter[str] = collections.Counter()
  for event in events if devices else ():
    if event.get('ph') != 'X' or event['pid'] != devices[0][1]:
      continue
    thread = named.get(('thread_name', event['pid'], event['tid']), '')
    name = event.get('args', {}).get('hlo_op') or (
      event['name'] if thread == 'XLA Ops' else ''
    )
    if name:
      found[name] += event['dur'] / 1e6  # type: ignore[assignment]
  return dict(found)


def rows(
  planned: execution.Run,
  measured: Mapping[str, float],
  accelerator: accelerators.Accelerator,
) -> list[dict[str, Any]]:
  """Returns a row for each kernel of the plan or the profile.

  Args:
    planned: the run of one step.
    measured: instruction -> seconds of one step.
    accelerator: of the plan's rates.

  Returns:
    'name', 'module', 'phase', 'kind', 'count', 'planned' and 'measured'
    (seconds, 0 where it has none), those that take longest first.
  """
  nothing = dict(module='', phase='', kind='not planned', count=0, planned=0.0)
  found = {name: {'name': name, **nothing} for name in measured} | {
    k.name: {name: getattr(k, name) for name in _NAMES}
    | {'count': n, 'planned': n * k.seconds(accelerator)}
    for k, n in planned.kernels.items()
  }
  made = [
    row | {'measured': measured.get(name, 0.0)} for name, row in found.items()
  ]
  return sorted(made, key=lambda row: -max(row['measured'], row['planned']))


def show(
  result: dict[str, Any], console: rich.console.Console | None = None
) -> None:
  """Prints what `compare` returns."""
  console = console or rich.console.Console()
  table = console_tables.made(
    ('kernel', 'module', 'phase', 'kind'),
    ('count', 'planned', 'measured', 'of the plan'),
    title=f'A step on {result["device"]}: planned '
    f'{report.milliseconds(result["planned_seconds"])}, kernels '
    f'{report.milliseconds(result["measured_seconds"])}, clock '
    f'{report.milliseconds(result["step_seconds"])}',
  )
  for row in result['kernels'][:_SHOWN]:
    share = row['planned'] / row['measured'] if row['measured'] else None
    table.add_row(
      row['name'],
      row['module'],
      row['phase'],
      row['kind'],
      f'{row["count"]:,}',
      report.milliseconds(row['planned']),
      report.milliseconds(row['measured']),
      '-' if share is None else f'{share:.0%}',
    )
  console_tables.show(table, console)
