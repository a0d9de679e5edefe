"""Flags of commands that run as several processes, and how they join."""

import argparse
from collections.abc import Sequence

from xlflax.configuration import config
from xlflax.foundation import numeric_flags, ranges
from xlflax.launch import job, starts
from xlflax.training.processes import cluster

_PLATFORMS = ('cpu', 'gpu', 'tpu')  # `processes.platforms.Platform`


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds `--coordinator` and the others."""
  group = parser.add_argument_group(
    'several processes',
    'Detected under Slurm, Open MPI, Kubernetes and on '
    'TPU workers, or given here (`xlflax launch` does).',
  )
  group.add_argument(
    '--coordinator', metavar='HOST:PORT', help='address of process 0'
  )
  group.add_argument(
    '--num_processes', type=numeric_flags.of(ranges.Count), metavar='N'
  )
  group.add_argument(
    '--process_id', type=numeric_flags.of(ranges.Natural), metavar='I'
  )
  group.add_argument(
    '--cluster',
    default='auto',
    choices=[c.value for c in cluster.Cluster],
    help='who started the processes; "none" for one by itself (default: '
    '%(default)s)',
  )
  group.add_argument(
    '--platform',
    choices=_PLATFORMS,
    help='what to compute on; the job ends where there is none (default: what '
    'JAX finds, and else the CPU)',
  )
  _add_timeouts(group)


def _add_timeouts(group: argparse._ArgumentGroup) -> None:
  """Adds how long the other processes may take."""
  group.add_argument(
    '--join_timeout',
    type=numeric_flags.of(ranges.Count),
    default=300,
    metavar='SECONDS',
    help='how long to wait for the other processes (default: %(default)s)',
  )
  group.add_argument(
    '--heartbeat_timeout',
    type=numeric_flags.of(ranges.Count),
    default=100,
    metavar='SECONDS',
    help='after so long without a sign of life a process counts as lost, '
    'and the job ends (default: %(default)s)',
  )


def add_hang_timeout(parser: argparse.ArgumentParser) -> None:
  """Adds after how long without progress a run ends."""
  parser.add_argument(
    '--hang_timeout',
    type=numeric_flags.of(ranges.NonNegative),
    metavar='SECONDS',
    help='without a step, batch or checkpoint for so long, all processes write '
    'their stacks and the job ends with status 74, to be started again; 0 '
    'waits for ever (default: 900, or ten steps)',
  )


def join(
  args: argparse.Namespace, *configurations: config.Configuration
) -> None:
  """Joins the other processes, which must have the same configurations.

  Raises:
    ConfigError: see `distributed.initialize` and `platforms.check`.
  """
  from xlflax.training.processes import distributed, platforms

  given = starts.wait_for_turn()
  if given is not None:
    args.coordinator = job.flag_value(given, '--coordinator')
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
