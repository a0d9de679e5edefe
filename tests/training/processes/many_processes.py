"""A rendezvous of many light processes on this machine; prints what it took.

Arguments: port, number of processes, and the limit of open files, if any.
"""

import os
import resource
import sys
import time

from xlflax.foundation import errors
from xlflax.training.processes import cluster, rendezvous, statements

_CONFIGURATION = '\n'.join(f'SETTING_{i} = {i}' for i in range(300))


def _meet(port: str, number: int, processes: int) -> None:
  job = cluster.Job(
    coordinator=f'127.0.0.1:{port}',
    num_processes=processes,
    process_id=number,
    source='flags',
  )
  statement = statements.Statement(
    number, processes, f'host{number}', {'jax': '1'}, _CONFIGURATION
  )
  rendezvous.meet(job, statement, timeout_seconds=60)


def _fork(port: str, number: int, processes: int) -> int:
  child = os.fork()
  if not child:
    try:
      _meet(port, number, processes)
    except errors.ConfigError as error:
      print(error, flush=True)
      os._exit(1)
    os._exit(0)
  return child


def main(port: str, count: str, limit: str = '') -> int:
  processes = int(count)
  if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), int(limit)))
  start = time.monotonic()
  lead, *others = [_fork(port, i, processes) for i in range(processes)]
  _, status, of_lead = os.wait4(lead, 0)
  met = time.monotonic() - start
  statuses = [status, *(os.waitpid(child, 0)[1] for child in others)]
  of_all = resource.getrusage(resource.RUSAGE_CHILDREN)
  print(
    met, of_lead.ru_utime + of_lead.ru_stime, of_all.ru_utime + of_all.ru_stime
  )
  return int(any(statuses))


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
