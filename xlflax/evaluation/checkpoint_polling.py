"""Polling for new checkpoints, as in `xlflax evaluate --continuous`."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

_LOG = logging.getLogger(__name__)
_Result = TypeVar('_Result')


def load_run(
  model_dir: str | os.PathLike[str],
  *,
  poll_seconds: float,
  timeout_seconds: float | None,
) -> saved_run.SavedRun:
  """Opens a run as soon as training has created its directory.

  Args:
    model_dir: Run directory.
    poll_seconds: Number of seconds between attempts to open the run.
    timeout_seconds: Maximum number of seconds to wait. If None, the wait is
      unlimited.

  Raises:
    RunDirectoryError: If the directory does not contain a run before the
      timeout.
    VocabularyError: If the vocabulary is still missing after the timeout.
  """
  last_error: errors.XlflaxError | None = None

  def try_open() -> saved_run.SavedRun | None:
    nonlocal last_error
    try:
      return saved_run.load_run(model_dir)
    except (errors.RunDirectoryError, errors.VocabularyError) as error:
      last_error = error
      return None

  run = _poll(try_open, poll_seconds, timeout_seconds)
  if run is None:
    assert last_error is not None
    raise last_error
  return run


def new_checkpoints(
  run: saved_run.SavedRun,
  evaluated_steps: set[int | str],
  *,
  poll_seconds: float,
  timeout_seconds: float | None,
) -> Iterator[list[int]]:
  """Yields the steps of new checkpoints until training has finished.

  Args:
    run: Run to poll for new checkpoints.
    evaluated_steps: Steps that have already been evaluated.
    poll_seconds: Number of seconds between two polls.
    timeout_seconds: Maximum number of seconds to wait for a new checkpoint. If
      None, the wait is unlimited.
  """
  yielded_steps = set(evaluated_steps)

  def find_new_steps() -> list[int] | None:
    # A finished run writes no further checkpoints. The flag is therefore read
    # before the steps are listed, so that the last checkpoint is not missed.
    is_finished = run.is_finished()
    steps = [step for step in run.steps if step not in yielded_steps]
    return steps if steps or is_finished else None

  while new_steps := _poll(find_new_steps, poll_seconds, timeout_seconds):
    yield new_steps
    yielded_steps.update(new_steps)

  if new_steps is None:
    _LOG.warning(
      'No new checkpoint in %s for %g seconds. Stopping.',
      run.directory,
      timeout_seconds,
    )


def _poll(
  function: Callable[[], _Result | None],
  poll_seconds: float,
  timeout_seconds: float | None,
) -> _Result | None:
  """Calls a function until it returns a result. Returns None at the timeout."""
  start = time.monotonic()
  while (result := function()) is None:
    elapsed = time.monotonic() - start
    if timeout_seconds is not None and elapsed >= timeout_seconds:
      return None
    time.sleep(poll_seconds)
  return result
