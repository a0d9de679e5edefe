"""How long a suite will take here: the rate of this machine, and a table."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import rich.table

from xlflax.foundation import console_tables
from xlflax.suites import reckoning
from xlflax.training.devices import devices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
  """How fast this machine is.

  Attributes:
    flops: a second, on all devices together.
    held: accelerators, or processors that are busy at once.
    program_seconds: to compile a step.
    basis: how it was found, in words.
  """

  flops: float
  held: float
  program_seconds: float = 0.0
  basis: str

  def hours(self, one: reckoning.Reckoned) -> float:
    """Device hours on accelerators, processor hours elsewhere.

    A program is compiled for each trial, and one for the evaluation.
    """
    programs = (one.trials + 1) * bool(one.left)
    seconds = one.left / self.flops + programs * self.program_seconds
    return seconds * self.held / 3600


def measure(found: Sequence[reckoning.Reckoned]) -> Rate:
  """The rate of the first trial's own steps; else that of matrix products."""
  peak = devices.peak_flops(jax.devices()[0])
  count = jax.device_count() if peak else len(os.sched_getaffinity(0))
  trainer = next((one.trainer for one in found if one.trainer), None)
  if trainer is None and peak:
    share = 0.4
    flops = peak * count * share
    return Rate(flops=flops, held=count, basis=f'{share:.0%} of the peak')
  if trainer is None:
    basis = 'a matrix product on this machine, just timed'
    return Rate(flops=devices.product_rate(), held=count, basis=basis)
  made = trainer.benchmark(steps=3)
  seconds = made['seconds_per_step']['median']
  return Rate(
    flops=made['model_flops_per_step'] / seconds,
    held=count if peak else made['cpu_seconds_per_step'] / seconds,
    program_seconds=made['compile_seconds'],
    basis='three training steps of the first trial, just timed',
  )


def show(found: Sequence[reckoning.Reckoned], rate: Rate, console: Any) -> None:
  """Prints what each task will cost, the sum, and how it was reckoned."""
  kind = 'processor' if jax.devices()[0].platform == 'cpu' else 'device'
  table = rich.table.Table(title='What is to be done', title_justify='left')
  for name in ('task', 'trials', 'steps', 'texts', f'{kind} hours'):
    table.add_column(name, justify='left' if name == 'task' else 'right')
  for one in found:
    numbers = (f'{x:,}' for x in (one.trials, one.steps, one.texts))
    cost = 'not known' if one.unknown else f'{rate.hours(one):.3f}'
    table.add_row(f'{one.model} {one.task}', *numbers, cost)
  total = sum(map(rate.hours, found))
  table.add_row('all', '', '', '', f'{total:.3f}', style='bold')
  console_tables.show(table, console)
  console.print(
    f'Reckoned from {rate.basis} ({rate.flops:.3g} FLOP/s), and the FLOPs of '
    'steps and texts; what is trained already is left out.'
  )
  for one in found:
    if one.unknown:
      console.print(f'Not known: {one.unknown}')
