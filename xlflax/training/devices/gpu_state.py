"""What NVIDIA's driver says of the cards that are here, by nvidia-smi."""

import shutil
import subprocess

_SECONDS = 20


def clocks() -> list[float]:
  """Returns the clock of each card, as a share of the highest it can have."""
  rows = _read('clocks.sm', 'clocks.max.sm')
  return [now / most for now, most in rows if most]


def memory_errors() -> list[int]:
  """Returns the errors of each card's memory that could not be corrected."""
  return [int(n) for (n,) in _read('ecc.errors.uncorrected.volatile.total')]


def _read(*fields: str) -> list[list[float]]:
  """Returns numbers of each card; 0 for what it has not.

  None where nvidia-smi does not tell them.
  """
  program = shutil.which('nvidia-smi')
  if not program:
    return []
  query = f'--query-gpu={",".join(fields)}'
  try:
    text = subprocess.run(
      [program, query, '--format=csv,noheader,nounits'],
      capture_output=True,
      text=True,
      timeout=_SECONDS,
      check=True,
    ).stdout
  except (OSError, subprocess.SubprocessError):
    return []
  rows = [
    [cell.strip() for cell in row.split(',')] for row in text.splitlines()
  ]
  return [
    [float(cell) if cell.isdigit() else 0.0 for cell in row]
    for row in rows
    if len(row) == len(fields)
  ]
