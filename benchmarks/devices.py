"""Measures the compute, memory and network rates of this machine or job.

  python -m benchmarks.devices                       # GPUs, TPUs or CPUs
  python -m benchmarks.devices --matmul_size=1024    # quick, for a CPU

Reports the matmul rate and the memory bandwidth of one device per process, the
all-reduce bandwidth between all devices, and, for several processes, the time
for each link in a ring. The slowest process is reported for each measurement.
On GPUs, clocks and uncorrected memory errors are read from `nvidia-smi`.

For a job with several processes, start the same command once per process with
--coordinator_address=HOST:PORT, --num_processes and --process_id.
"""

import argparse
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from xlflax.training.devices import accelerators, machine_topology


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
  """Measures and prints the compute, memory and network rates of devices."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--matmul_size', type=int, help='Rows and columns of the matrices.')
  add('--dtype', default='bfloat16', help='Data type of the matrices.')
  add('--memory_mib', type=int, help='Size of the copied array in MiB.')
  add('--link_mib', type=int, help='Size of the all-reduced array in MiB.')
  add('--repeats', type=int, default=10, help='Number of timed repetitions.')
  add('--coordinator_address', help='Address HOST:PORT of process 0.')
  add('--num_processes', type=int, help='Number of processes in the job.')
  add('--process_id', type=int, help='Index of this process.')
  options = parser.parse_args(arguments)
  if options.coordinator_address:
    jax.distributed.initialize(
      options.coordinator_address, options.num_processes, options.process_id
    )
  is_cpu = jax.default_backend() == 'cpu'
  results = measure_devices(
    matmul_size=options.matmul_size or (1024 if is_cpu else 8192),
    dtype=options.dtype,
    memory_bytes=(options.memory_mib or (64 if is_cpu else 1024)) * 2**20,
    link_bytes=(options.link_mib or (16 if is_cpu else 256)) * 2**20,
    repeats=options.repeats,
  )
  if jax.process_index() == 0:
    print(json.dumps(results, indent=2))
  return results


def measure_devices(
  *,
  matmul_size: int,
  dtype: str,
  memory_bytes: int,
  link_bytes: int,
  repeats: int,
) -> dict[str, Any]:
  """Measures the compute, memory and network rates of the devices.

  All processes in a job must call this function together.

  Args:
    matmul_size: Number of rows and columns of the square matrices that are
      multiplied.
    dtype: Data type of the matrices that are multiplied.
    memory_bytes: Size of the copied array in bytes.
    link_bytes: Size of the all-reduced array in bytes.
    repeats: Number of timed repetitions of each measurement.

  Returns:
    A dictionary with the device kind and the number of devices. The entries
    'matmul' (FLOP/s), 'memory' and 'all_reduce' (bytes/s) contain the slowest
    process's rate, this process, and the fraction of the data-sheet rate if the
    device is known. 'links' contains the links in a ring of processes, and
    'gpus' the values read from `nvidia-smi`.
  """
  device = jax.devices()[0]
  results: dict[str, Any] = {
    'device': device.device_kind,
    'devices': jax.device_count(),
    'processes': jax.process_count(),
  }
  measurements: dict[str, Callable[[], float]] = {
    'matmul': lambda: measure_matmul_rate(matmul_size, dtype, repeats),
    'memory': lambda: measure_memory_bandwidth(memory_bytes, repeats),
  }
  if jax.device_count() > 1:
    measurements['all_reduce'] = lambda: measure_all_reduce_bandwidth(
      link_bytes, repeats
    )
  data_sheet = _data_sheet_rates(accelerators.find_by_kind(device.device_kind))
  for name, measure in measurements.items():
    rates = np.ravel(
      multihost_utils.process_allgather(np.float32(measure()))
    ).astype(float)
    results[name] = {
      'rate': float(rates.min()),
      'slowest_process': int(rates.argmin()),
    }
    if name in data_sheet:
      results[name]['data_sheet'] = data_sheet[name]
      results[name]['fraction'] = float(rates.min()) / data_sheet[name]
  if jax.process_count() > 1:
    results['links'] = measure_ring(link_bytes, repeats)
  if gpus := read_nvidia_smi():
    results['gpus'] = gpus
  return results


def _data_sheet_rates(
  accelerator: accelerators.Accelerator | None,
) -> dict[str, float]:
  """Returns a known accelerator's data-sheet rate for each measurement."""
  if accelerator is None:
    return {}
  devices = jax.devices()
  is_one_node = machine_topology.node_size(devices) == len(devices)
  return {
    'matmul': accelerator.flops,
    'memory': accelerator.bandwidth,
    'all_reduce': accelerator.inside if is_one_node else accelerator.outside,
  }


def measure_matmul_rate(size: int, dtype: str, repeats: int) -> float:
  """Returns the FLOP/s of square matmuls on one of this process's devices."""
  keys = jax.random.split(jax.random.key(0))
  lhs, rhs = (
    jax.random.normal(key, (size, size), dtype) / size**0.5 for key in keys
  )
  return 2 * size**3 / _seconds_per_call(lambda x: x @ rhs, lhs, repeats)


def measure_memory_bandwidth(size: int, repeats: int) -> float:
  """Returns the bytes/s that one device reads and writes in total.

  Args:
    size: Size of the array in bytes.
    repeats: Number of timed repetitions.
  """
  array = jnp.zeros(size // 4, jnp.float32)
  return 2 * array.nbytes / _seconds_per_call(lambda x: x + 1, array, repeats)


def measure_all_reduce_bandwidth(size: int, repeats: int) -> float:
  """Returns the bytes/s that each device sends during an all-reduce.

  All processes in a job must call this together.

  Args:
    size: Size of each device's array in bytes.
    repeats: Number of timed repetitions.
  """
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('all',))
  spec = jax.sharding.PartitionSpec('all')
  all_reduce = jax.shard_map(
    lambda x: jax.lax.psum(x, 'all') / mesh.size,
    mesh=mesh,
    in_specs=spec,
    out_specs=spec,
    check_vma=False,
  )
  sharding = jax.sharding.NamedSharding(mesh, spec)
  array = jnp.ones(size // 4 * mesh.size, jnp.float32, device=sharding)
  sent = 2 * (mesh.size - 1) / mesh.size * size
  return sent / _seconds_per_call(all_reduce, array, repeats)


def _seconds_per_call(
  function: Callable[[jax.Array], jax.Array], array: jax.Array, repeats: int
) -> float:
  """Returns the seconds per function call in a loop on the device."""
  loop = jax.jit(
    lambda x: jax.lax.fori_loop(0, repeats, lambda _, y: function(y), x)
  )
  loop(array).block_until_ready()
  start = time.perf_counter()
  loop(array).block_until_ready()
  return (time.perf_counter() - start) / repeats


def measure_ring(size: int, repeats: int) -> list[dict[str, Any]]:
  """Measures the transfer time of each link in a ring of processes.

  Every process sends data to the next process in the ring. A slow link delays
  exactly the two processes that it connects. The smaller of the times measured
  by these two processes is therefore taken as the link's time.

  Args:
    size: Number of bytes that each process sends.
    repeats: Number of timed exchanges around the ring. The time of the fastest
      exchange is reported.

  Returns:
    One entry per link, with 'from' and 'to' (process and host) and 'seconds'.
  """
  first_devices = {d.process_index: d for d in reversed(jax.devices())}
  count, process_index = len(first_devices), jax.process_index()
  mesh = jax.sharding.Mesh(
    np.array([first_devices[process] for process in range(count)]), ('all',)
  )
  spec = jax.sharding.PartitionSpec('all')
  pairs = [(process, (process + 1) % count) for process in range(count)]
  shift = jax.jit(
    jax.shard_map(
      lambda x: jax.lax.ppermute(x, 'all', pairs),
      mesh=mesh,
      in_specs=spec,
      out_specs=spec,
    )
  )
  sent = jax.make_array_from_single_device_arrays(
    (count, size),
    jax.sharding.NamedSharding(mesh, spec),
    [
      jax.device_put(
        np.full((1, size), process_index % 251, np.uint8),
        mesh.devices[process_index],
      )
    ],
  )
  jax.block_until_ready(shift(sent))  # Compiles and opens the connections.
  seconds = []
  for _ in range(repeats):
    start = time.perf_counter()
    received = jax.block_until_ready(shift(sent))
    seconds.append(time.perf_counter() - start)
  if np.any(
    np.asarray(received.addressable_data(0))
    != (process_index - 1) % count % 251
  ):
    raise ValueError(
      f'Process {process_index} received bytes that differ from those '
      'that were sent.'
    )
  gathered = np.ravel(
    multihost_utils.process_allgather(np.float32(min(seconds)))
  )
  name = np.frombuffer(socket.gethostname().encode().ljust(64)[:64], np.uint8)
  hosts = [
    bytes(row).decode().strip()
    for row in multihost_utils.process_allgather(name)
  ]
  return link_times([float(s) for s in gathered], hosts)


def link_times(
  seconds: Sequence[float], hosts: Sequence[str]
) -> list[dict[str, Any]]:
  """Computes the transfer time of each link between two processes of a ring.

  It is the lower of the times that the two processes have measured.
  """
  count = len(seconds)
  return [
    {
      'from': f'process {first} on {hosts[first]}',
      'to': f'process {second} on {hosts[second]}',
      'seconds': min(seconds[first], seconds[second]),
    }
    for first, second in ((i, (i + 1) % count) for i in range(count))
  ]


def read_nvidia_smi() -> list[dict[str, float]]:
  """Returns clock rates and memory error counts of the GPUs on this machine.

  The list is empty if `nvidia-smi` is not installed or fails. A value that
  `nvidia-smi` does not report is 0.
  """
  program = shutil.which('nvidia-smi')
  if not program:
    return []
  fields = {
    'clock_mhz': 'clocks.sm',
    'max_clock_mhz': 'clocks.max.sm',
    'uncorrected_memory_errors': 'ecc.errors.uncorrected.volatile.total',
  }
  try:
    text = subprocess.run(
      [
        program,
        f'--query-gpu={",".join(fields.values())}',
        '--format=csv,noheader,nounits',
      ],
      capture_output=True,
      text=True,
      timeout=20,
      check=True,
    ).stdout
  except (OSError, subprocess.SubprocessError):
    return []
  rows = [
    [cell.strip() for cell in line.split(',')] for line in text.splitlines()
  ]
  return [
    {
      name: float(cell) if cell.isdigit() else 0.0
      for name, cell in zip(fields, row, strict=True)
    }
    for row in rows
    if len(row) == len(fields)
  ]


if __name__ == '__main__':
  main()
