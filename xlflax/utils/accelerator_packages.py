"""Packages that let JAX use accelerators, without importing JAX."""

import importlib.util

# Of each kind one is enough.
PACKAGES = {
  'gpu': ('jax_cuda12_plugin', 'jax_cuda13_plugin', 'jax_rocm7_plugin'),
  'tpu': ('libtpu',),
}


def installed_packages(kind: str) -> list[str]:
  """Returns the packages of a kind ('gpu', 'tpu') that are there."""
  names = PACKAGES.get(kind, ())
  return [name for name in names if importlib.util.find_spec(name)]
