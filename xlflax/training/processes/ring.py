"""The links of a job before its first step: a ring of its processes.

Every process sends one payload to the next at the same time, so that a job of
any size has used a link out of and into each process after one exchange. A sum
over all of them would only say that some link is slow, or hang without a name.
"""

import json
import logging
import math
import socket
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from xlflax.foundation import errors, leaving
from xlflax.training.processes import store

SLOW = 3.0  # times the median of the links of its kind, and
_LEAST = 0.005  # seconds
_KEY = 'xlflax/ring/'
_ROUNDS = 3  # of which the fastest counts
# What a process has of its exchange: 'seconds', None where it did not end,
# 'problem', 'host', and 'slice'.
Told = Mapping[str, Any]


class Link(NamedTuple):
  """A link of the ring.

  Attributes:
    first, second: numbers of the processes it leads from and to.
    seconds: of an exchange; infinite where it did not end.
    kind: within a host, a slice, or between slices.
  """

  first: int
  second: int
  seconds: float
  kind: str


def meet(
  *,
  report: Callable[[str], None],
  exchange: Callable[[], float] | None = None,
  client: Any = None,
  deadline: float = 60.0,
) -> list[Link]:
  """Tries the ring; process 0 names what is slow. All processes call it.

  Args:
    report: is told a line about the links of each kind.
    exchange: sends a payload to the next process and returns the seconds.
    client: of JAX's coordination service; None takes the process's own.
    deadline: seconds for the exchange, compilation included.

  Returns:
    All links on process 0, none on the others, or of a single process.

  Raises:
    TrainingError: links or processes did not finish, or numbers arrived wrong.
  """
  count = jax.process_count()
  if count == 1:
    return []
  client = client or store.own_client()
  size = 2**20 if jax.default_backend() == 'cpu' else 2**26
  told = _told(exchange or (lambda: _exchanged(size)), deadline)
  client.key_value_set(f'{_KEY}{jax.process_index()}', json.dumps(told))
  found: list[Link] = []
  if jax.process_index() == 0:
    heard = _heard(client, count, deadline)
    found = links(heard, count)
    _check(found, heard)
    _tell(found, heard, size, report)
  client.wait_at_barrier(f'{_KEY}end', int(3000 * deadline))
  client.key_value_delete(f'{_KEY}{jax.process_index()}')
  return found


def links(told: Mapping[int, Told], count: int) -> list[Link]:
  """The ring's links by what both ends of each have seen.

  A slow link keeps two processes waiting, and only those: the faster of its
  ends says what the link takes.

  Args:
    told: process -> what it told; some may be missing.
    count: of processes.
  """
  found = []
  for first in range(count):
    second = (first + 1) % count
    ends = [told.get(process, {}) for process in (first, second)]
    seconds = [end['seconds'] for end in ends if end.get('seconds') is not None]
    hosts, slices = ({end.get(x) for end in ends} for x in ('host', 'slice'))
    kind = 'within hosts' if len(hosts) == 1 else 'between hosts'
    kind = 'between slices' if len(slices) > 1 else kind
    found.append(Link(first, second, min(seconds, default=math.inf), kind))
  return found


def slow(found: list[Link]) -> list[Link]:
  """Links that take far longer than most of their kind."""
  return [
    link
    for link in found
    if link.seconds > max(SLOW * _median(found, link.kind), _LEAST)
  ]


def _median(found: list[Link], kind: str) -> float:
  return statistics.median(x.seconds for x in found if x.kind == kind)


def _told(exchange: Callable[[], float], deadline: float) -> Told:
  """What this process has of its exchange."""
  about: dict[str, Any] = {
    'host': socket.gethostname(),
    'slice': getattr(jax.local_devices()[0], 'slice_index', 0),
    'seconds': None,
    'problem': '',
  }
  try:
    made = leaving.in_time(exchange, deadline)
    return about | ({'seconds': made[0]} if made else {})
  except Exception as error:  # of whatever kind: process 0 names it
    return about | {'problem': errors.reason(error)[:200]}


def _heard(client, count: int, deadline: float) -> dict[int, Told]:
  """What the processes told; those that tell nothing in time are left out."""
  until = time.monotonic() + deadline
  while True:
    told = {
      int(key.rpartition('/')[2]): json.loads(value)
      for key, value in client.key_value_dir_get(_KEY)
    }
    if len(told) == count or time.monotonic() > until:
      return told
    time.sleep(0.05)


def _check(found: list[Link], told: Mapping[int, Told]) -> None:
  """Raises where an exchange did not end."""
  silent = [x.first for x in found if x.first not in told]
  stuck = [p for p, one in told.items() if one['seconds'] is None]
  if not silent and not stuck:
    return
  dead = [_name(x, told) for x in found if math.isinf(x.seconds) and not silent]
  got = [f'nothing from process {p}' for p in silent]
  got += [f'no exchange from {name}' for name in dead]
  got += [
    f'process {p} on {told[p]["host"]}: {told[p]["problem"] or "did not end"}'
    for p in stuck
    if told[p]['problem'] or not (dead or silent)
  ]
  raise errors.TrainingError(
    'The processes of the job cannot reach each other',
    got='; '.join(got),
    expected='an exchange of each process with the next one',
    where='the ring before the first step',
    fix='look at these hosts and links (NCCL_DEBUG=INFO, nvidia-smi), leave '
    'them out of the job, or pass --trust_kernels',
    status=errors.ExitStatus.FAILURE,
  )


def _tell(found: list[Link], told, size: int, report) -> None:
  for kind in dict.fromkeys(link.kind for link in found):
    worst = max((x for x in found if x.kind == kind), key=lambda x: x.seconds)
    report(
      f'links {kind}, {size / 2**20:.0f} MiB to the next process: '
      f'{size / _median(found, kind) / 1e9:,.2f} GB/s; the slowest '
      f'{_name(worst, told)}, {size / worst.seconds / 1e9:,.2f} GB/s'
    )
  for link in slow(found):
    logging.warning(
      'The link from %s takes %.1f times as long as most %s: every step waits '
      'for it. Look at its network or leave these hosts out.',
      _name(link, told),
      link.seconds / _median(found, link.kind),
      link.kind,
    )


def _name(link: Link, told: Mapping[int, Told]) -> str:
  return ' to '.join(
    f'process {process} on {told.get(process, {}).get("host", "?")}'
    for process in link[:2]
  )


def _exchanged(size: int) -> float:
  """Seconds until this process has sent and received `size` bytes."""
  firsts = {device.process_index: device for device in reversed(jax.devices())}
  count, own = len(firsts), jax.process_index()
  mesh = jax.sharding.Mesh(
    np.array([firsts[p] for p in range(count)]), ('all',)
  )
  spec = jax.sharding.PartitionSpec('all')
  pairs = [(p, (p + 1) % count) for p in range(count)]
  shift = jax.jit(
    jax.shard_map(
      lambda x: jax.lax.ppermute(x, 'all', pairs),
      mesh=mesh,
      in_specs=spec,
      out_specs=spec,
    )
  )
  sharding = jax.sharding.NamedSharding(mesh, spec)
  row = np.full((1, size), own % 251, np.uint8)
  sent = jax.make_array_from_single_device_arrays(
    (count, size), sharding, [jax.device_put(row, firsts[own])]
  )
  jax.block_until_ready(shift(sent))  # compiles, and opens the connections
  seconds = []
  for _ in range(_ROUNDS):
    start = time.perf_counter()
    received = jax.block_until_ready(shift(sent))
    seconds.append(time.perf_counter() - start)
  if np.any(
    np.asarray(received.addressable_data(0)) != (own - 1) % count % 251
  ):
    raise ValueError('the bytes that arrived are not those that were sent')
  return min(seconds)
