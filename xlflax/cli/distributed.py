"""Initialization of the processes in a distributed job."""

from collections.abc import Iterable, Sequence

from xlflax.cli import options as shared_options
from xlflax.config import gin_config
from xlflax.training.distributed import cluster_detection

# Macros that may differ between hosts, each of which may have its own copy of
# the data.
_LOCAL_MACROS = ('CACHE_DIR', 'CORPUS', 'VOCABULARY')


def join(
  options: shared_options.DistributedOptions,
  configurations: Iterable[gin_config.Configuration],
  shared_settings: Sequence[str] = (),
) -> None:
  """Joins a distributed job and compares the configurations of its processes.

  Args:
    options: Options for joining the job's processes.
    configurations: Configurations of the run, which must be equal in all
      processes.
    shared_settings: Additional settings, as lines of text, that must be equal
      in all processes.

  Raises:
    ConfigError: If the processes have different configurations (see
      `initialize_distributed`), or if the platform is not available (see
      `check_platform`).
  """
  from xlflax.training.distributed import distributed_job, platforms

  platform = options.platform and platforms.Platform(options.platform)
  platforms.choose_platform(platform)
  statements = [
    line
    for configuration in configurations
    for line in gin_config.split_statements(configuration.parsed())
    if not line.startswith(_LOCAL_MACROS)
  ]
  distributed_job.initialize_distributed(
    coordinator_address=options.coordinator_address,
    num_processes=options.num_processes,
    process_id=options.process_id,
    cluster=cluster_detection.Cluster(options.cluster),
    configuration='\n'.join([*statements, *shared_settings]),
    initialization_timeout=options.initialization_timeout,
    heartbeat_timeout_seconds=options.heartbeat_timeout,
  )
  platforms.check_platform(platform)
