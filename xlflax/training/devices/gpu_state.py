"""What NVIDIA's driver says of the cards that are here, by nvidia-smi."""

import shutil
import subprocess
from typing import NamedTuple

_FIELDS = (
  'index',
  'clocks.sm',
  'clocks.max.sm',
  'ecc.mode.current',
  'ecc.errors.uncorrected.volatile.total',
)
_SECONDS = 20


class State(NamedTuple):
  """A card.

  Attributes:
    index: its number on this machine.
    clock: of its multiprocessors, in MHz.
    most: that it can have.
    ecc: whether memory is checked.
    errors: that could not be corrected, since the driver was loaded.
  """

  index: int
  clock: float
  most: float
  ecc: bool
  errors: int

  def problem(self) -> str:
    """Says what is wrong with the card; '' if nothing is."""
    if self.errors:
      return f'GPU {self.index} has {self.errors} uncorrected memory errors'
    return ''


def read() -> list[State]:
  """Returns the state of each card; none where nvidia-smi does not tell it."""
  program = shutil.which('nvidia-smi')
  if not program:
    return []
  query = f'--query-gpu={",".join(_FIELDS)}'
  try:
    done = subprocess.run(
      [program, query, '--format=csv,noheader,nounits'],
      capture_output=True,
      text=True,
      timeout=_SECONDS,
      check=True,
    )
  except (OSError, subprocess.SubprocessError):
    return []
  rows = [
    [cell.strip() for cell in line.split(',')]
    for line in done.stdout.splitlines()
  ]
  return [_of(row) for row in rows if len(row) == len(_FIELDS)]


def _of(row: list[str]) -> State:
  """Of a line of nvidia-smi, which writes '[N/A]' for what a card has not."""
  index, clock, most, ecc, errors = row
  numbers = (float(x) if x.isdigit() else 0.0 for x in (clock, most))
  return State(
    int(index), *numbers, ecc == 'Enabled', int(errors) if errors.isdigit() else 0
  )
