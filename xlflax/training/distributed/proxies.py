"""Settings that exclude a job's coordinator from the HTTP proxies of gRPC."""

from collections.abc import MutableMapping

# Variables that gRPC reads, in this order. It reads the lowercase names only.
_PROXIES = ('grpc_proxy', 'https_proxy', 'http_proxy')
_EXEMPTIONS = ('no_proxy', 'NO_PROXY')


def exempt_coordinator(
  coordinator: str, environment: MutableMapping[str, str]
) -> None:
  """Adds the coordinator's host to `no_proxy` if a proxy is configured.

  The processes of JAX connect to the coordinator by gRPC, which honors
  `http_proxy`. A proxy usually cannot reach hosts inside the cluster. The
  processes would therefore wait for each other until they time out.

  Args:
    coordinator: 'HOST:PORT' at which process 0 is reached.
    environment: Environment variables, which are changed in place.
  """
  if not any(environment.get(name) for name in _PROXIES):
    return
  host = coordinator.rpartition(':')[0].strip('[]')
  names: tuple[str, ...] = _EXEMPTIONS
  if environment.get('no_grpc_proxy'):  # It replaces no_proxy.
    names = (*names, 'no_grpc_proxy')
  for name in names:
    hosts = [
      entry for entry in environment.get(name, '').split(',') if entry.strip()
    ]
    if host not in hosts:
      environment[name] = ','.join([*hosts, host])
