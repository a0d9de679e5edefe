"""Flags of commands that run as several processes, and how they join."""

import argparse
from collections.abc import Sequence

from xlflax.configuration import config
from xlflax.training.processes import cluster

_PLATFORMS = ('cpu', 'gpu', 'tpu')  # `processes.platforms.Platform`


FLAGS = f"""
[several processes: Detected under Slurm, Open MPI, Kubernetes and on TPU
  workers, or given here (`xlflax launch` does).]
--coordinator HOST:PORT: address of process 0
--num_processes N (Count)
--process_id I (Natural)
--cluster (one of {' '.join(c.value for c in cluster.Cluster)}, default auto):
  who started the processes; "none" for one by itself
--platform (one of {' '.join(_PLATFORMS)}): what to compute on; the job ends
  where there is none (default: what JAX finds, and else the CPU)
--join_timeout SECONDS (Count, default 300): how long to wait for the other
  processes
--heartbeat_timeout SECONDS (Count, default 30): after so long without a sign
  of life a process counts as lost, and the job ends
[]
"""


def join(
  args: argparse.Namespace, *configurations: config.Configuration
) -> None:
  """Joins the other processes, which must have the same configurations.

  Raises:
    ConfigError: see `distributed.initialize` and `platforms.check`.
  """
  from xlflax.training.processes import distributed, platforms

  platform = args.platform and platforms.Platform(args.platform)
  platforms.choose(platform)
  distributed.initialize(
    coordinator=args.coordinator,
    num_processes=args.num_processes,
    process_id=args.process_id,
    cluster=cluster.Cluster(args.cluster),
    configuration=_common(args, configurations),
    timeout_seconds=args.join_timeout,
    heartbeat_seconds=args.heartbeat_timeout,
  )
  platforms.check(platform)


def _common(
  args: argparse.Namespace, configurations: Sequence[config.Configuration]
) -> str:
  """What must not differ; where data lie may, as hosts keep own copies."""
  local = ('CACHE_DIR', 'CORPUS', 'VOCABULARY')
  lines = [
    line
    for configuration in configurations
    for line in config.statements(configuration.parsed())
    if not line.startswith(local)
  ]
  flags = ('dry_run', 'stop_at_step', 'other_config')
  return '\n'.join(
    lines
    + [
      f'--{name}={getattr(args, name)}' for name in flags if hasattr(args, name)
    ]
  )
