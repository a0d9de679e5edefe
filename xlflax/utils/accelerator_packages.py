"""Detection of JAX's accelerator packages, without importing JAX."""

import importlib.util

# JAX needs one of the packages of an accelerator.
PACKAGES = {
  'gpu': ('jax_cuda12_plugin', 'jax_cuda13_plugin', 'jax_rocm7_plugin'),
  'tpu': ('libtpu',),
}


def installed_packages(kind: str) -> list[str]:
  """Returns the installed packages that let JAX use an accelerator.

  Args:
    kind: Type of the accelerator, 'gpu' or 'tpu'.
  """
  names = PACKAGES.get(kind, ())
  return [name for name in names if importlib.util.find_spec(name)]
