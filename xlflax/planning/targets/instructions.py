"""Cycles of a step's Pallas kernels, by the instructions of their device."""

from typing import Any

from xlflax.planning.programs import kernels, pallas
from xlflax.planning.targets import bundles, sass
from xlflax.training.devices import machines


def cycles_of(machine: machines.Machine, jaxpr: Any) -> kernels.ByResults:
  """Returns result types -> cycles of each kernel; empty if they are unknown.

  Args:
    machine: whose compilers are here.
    jaxpr: the traced step.
  """
  if machine.platform == 'tpu':
    return bundles.cycles_of(machine, jaxpr)
  chip = machine.accelerator and machine.accelerator.chip
  return sass.cycles_of(machine, jaxpr) if chip else {}


def missing(machine: machines.Machine, jaxpr: Any) -> list[str]:
  """Says why kernels of GPUs count by their products and bytes alone."""
  if machine.platform != 'gpu' or not any(pallas.equations(jaxpr)):
    return []
  lacks = [name for name in ('ptxas', 'nvdisasm') if not sass.tool(name)]
  return [
    f'Pallas kernels count by products and bytes, not by instructions: {name} '
    f'is missing (pip install {sass.PACKAGE}).'
    for name in lacks
  ]
