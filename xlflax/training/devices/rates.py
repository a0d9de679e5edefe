"""What the devices of a job do, beside what their data sheets say.

A card that runs hot, a link that fell back to a slower one or a network that
NCCL does not find makes a job slow without a word. So a run on accelerators
begins with a few seconds of products, memory and sums over all processes.
"""

import functools
import logging
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

from xlflax.foundation import errors, leaving
from xlflax.training.devices import accelerators, devices, gpu_state, machines

SLOW = 0.5  # of the data sheet's rate
Measure = Callable[[], float]
MEASURES: dict[str, Measure] = {
  'products': lambda: devices.product_rate(8192, 'bfloat16', 10),
  'memory': devices.memory_rate,
  'links': devices.link_rate,
}


def meet(
  accelerator: accelerators.Accelerator | None,
  *,
  report: Callable[[str], None],
  measures: dict[str, Measure] = MEASURES,
  deadline: float = 120.0,
) -> dict[str, float]:
  """Measures the rates on all processes; tells the slowest process's.

  Args:
    accelerator: whose data sheet is told beside; None: none.
    report: is told a line about each rate, and about broken memory.
    measures: what is measured, in this order; 'links' between devices only.
    deadline: seconds for each.

  Returns:
    'products' -> FLOP/s, 'memory' and 'links' -> bytes/s.

  Raises:
    TrainingError: the devices did not finish in time.
  """
  found, expected = {}, _of_table(accelerator)
  for name, measure in measures.items():
    if name == 'links' and jax.device_count() == 1:
      continue
    made = leaving.in_time(functools.partial(_of_all, measure), deadline)
    if not made:
      raise errors.TrainingError(
        f'The {name} of the devices did not finish',
        got=f'nothing in {deadline:g} s',
        where='the first contact with this device',
        fix='look at devices and links (nvidia-smi, NCCL_DEBUG=INFO), or pass '
        '--trust_kernels',
        status=errors.ExitStatus.FAILURE,
      )
    (rates,) = made
    found[name] = float(rates.min())
    of = f' (process {rates.argmin()}, the slowest)' if len(rates) > 1 else ''
    _tell(name, found[name], of, expected.get(name), report)
  for card, count in enumerate(gpu_state.memory_errors()):
    if count:
      logging.warning('GPU %d: %d uncorrected errors of memory.', card, count)
  return found


def _of_all(measure: Measure) -> np.ndarray:
  """Rates [processes]."""
  rate = np.float32(measure())
  return np.ravel(multihost_utils.process_allgather(rate))


def _of_table(accelerator: accelerators.Accelerator | None) -> dict[str, float]:
  if accelerator is None:
    return {}
  here = jax.devices()
  within = machines.node_size(here) == len(here)
  return {
    'products': accelerator.flops,
    'memory': accelerator.bandwidth,
    'links': accelerator.inside if within else accelerator.outside,
  }


def _tell(name, rate, of, expected, report) -> None:
  unit, scale = ('TFLOP/s', 1e12) if name == 'products' else ('GB/s', 1e9)
  line = f'{name} {rate / scale:,.1f} {unit}{of}'
  if expected:
    line += (
      f', {rate / expected:.0%} of the data sheet ({expected / scale:,.1f})'
    )
  report(line)
  if expected and rate < SLOW * expected:
    logging.warning(
      'The devices are slow: %s. Look at clocks, temperature and other '
      'processes (nvidia-smi), and for links at NCCL_DEBUG=INFO.',
      line,
    )
