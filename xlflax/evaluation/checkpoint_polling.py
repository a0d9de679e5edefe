"""The polling loop of `evaluate --continuous`, which follows a running job."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

_LOG = logging.getLogger(__name__)
_Found = TypeVar('_Found')


def open_run(
  model_dir: str | os.PathLike[str],
  *,
  poll_seconds: float,
  timeout_seconds: float | None,
) -> saved_run.SavedRun:
  """Opens a run as soon as training has created its directory.

  Args:
    model_dir: the run's directory.
    poll_seconds: how long to wait between two looks.
    timeout_seconds: how long to wait in all; None waits without end.

  Raises:
    RunDirectoryError: the directory is still no run when the time is up.
    VocabularyError: its vocabulary is still missing then.
  """
  problem: errors.XlflaxError | None = None

  def look() -> saved_run.SavedRun | None:
    nonlocal problem
    try:
      return saved_run.open_run(model_dir)
    except (errors.RunDirectoryError, errors.VocabularyError) as error:
      problem = error
      return None

  run = _poll(look, poll_seconds, timeout_seconds)
  if run is None:
    assert problem is not None
    raise problem
  return run


def new_checkpoints(
  run: saved_run.SavedRun,
  seen: set[int | str],
  *,
  poll_seconds: float,
  timeout_seconds: float | None,
) -> Iterator[list[int]]:
  """Yields the steps of new checkpoints until training has finished.

  Args:
    run: the run that is followed.
    seen: Steps that were evaluated already.
    poll_seconds: how long to wait between two looks.
    timeout_seconds: how long to wait for a new checkpoint; None waits without
      end.
  """

  seen = set(seen)

  def look() -> list[int] | None:
    finished = run.is_finished()  # asked first: no checkpoint follows it
    new = [step for step in run.steps if step not in seen]
    return new if new or finished else None

  while new := _poll(look, poll_seconds, timeout_seconds):
    yield new
    seen.update(new)
  if new is None:
    _LOG.warning(
      'No new checkpoint in %s for %g seconds: watching ends.',
      run.directory,
      timeout_seconds,
    )


def _poll(
  look: Callable[[], _Found | None],
  poll_seconds: float,
  timeout_seconds: float | None,
) -> _Found | None:
  """Calls `look` until it returns something; None when the time is up."""
  start = time.monotonic()
  while (result := look()) is None:
    waited = time.monotonic() - start
    if timeout_seconds is not None and waited >= timeout_seconds:
      return None
    time.sleep(poll_seconds)
  return result
