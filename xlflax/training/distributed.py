"""Joining the processes of a job."""

import jax

from xlflax import errors


def initialize(*, coordinator: str | None = None,
               num_processes: int | None = None,
               process_id: int | None = None,
               timeout_seconds: int = 300) -> None:
  """Joins the other processes of the job; does nothing for a single one.

  Must run before the first use of a device.

  Args:
    coordinator: 'host:port' of process 0; needs the two numbers below.
    num_processes: how many processes the job has.
    process_id: this one's number, from 0.
    timeout_seconds: how long to wait for the others.

  Raises:
    ConfigError: only some of the three are given, or the others did not come.
  """
  given = [v is not None for v in (coordinator, num_processes, process_id)]
  if not any(given):
    return
  if not all(given):
    raise errors.ConfigError(
        'A job of several processes is described incompletely',
        got=f'coordinator={coordinator}, num_processes={num_processes}, '
        f'process_id={process_id}',
        expected='all three of --coordinator, --num_processes, --process_id')
  if jax.config.jax_platforms == 'cpu':  # type: ignore[attr-defined]
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  try:
    jax.distributed.initialize(
        coordinator, num_processes, process_id,
        initialization_timeout=timeout_seconds)
  except RuntimeError as error:
    raise errors.ConfigError(
        'The processes of the job did not find each other',
        got=str(error).splitlines()[0],
        expected=f'{num_processes} processes within {timeout_seconds} s',
        where=f'process {process_id}, coordinator {coordinator}',
        fix='check that all processes run and reach the coordinator') from error


def is_lead() -> bool:
  """Whether this process writes logs and reports."""
  return jax.process_index() == 0
