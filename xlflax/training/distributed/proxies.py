"""HTTP proxies, which gRPC would also use for the coordinator of a job."""

from collections.abc import MutableMapping

# gRPC reads the lowercase names only, and the first pair before the others.
_PROXIES = ('grpc_proxy', 'https_proxy', 'http_proxy')
_EXEMPTIONS = ('no_proxy', 'NO_PROXY')


def exempt_coordinator(
  coordinator: str, environment: MutableMapping[str, str]
) -> None:
  """Adds the coordinator's host to the hosts that need no HTTP proxy.

  JAX's processes connect to the coordinator by gRPC, which honors
  `http_proxy`. A proxy cannot usually reach a host inside of the cluster, so
  that the processes would wait for each other until they time out.

  Args:
    coordinator: 'HOST:PORT' of process 0.
    environment: Environment variables, which are changed in place.
  """
  if not any(environment.get(name) for name in _PROXIES):
    return
  host = coordinator.rpartition(':')[0].strip('[]')
  names: tuple[str, ...] = _EXEMPTIONS
  if environment.get('no_grpc_proxy'):  # It replaces no_proxy.
    names = (*names, 'no_grpc_proxy')
  for name in names:
    hosts = [h for h in environment.get(name, '').split(',') if h.strip()]
    if host not in hosts:
      environment[name] = ','.join([*hosts, host])
