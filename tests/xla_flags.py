"""Flags of XLA with which the tests' programs are compiled quickly.

Compilation is most of what the tests cost; speed is measured elsewhere.
"""

from importlib import metadata


def quick() -> str:
  """Flags for `XLA_FLAGS`: little optimization, few pieces of machine code.

  XLA splits a program into 32 modules for LLVM by default, to compile them in
  parallel. Each takes three memory maps for as long as the program lives.
  """
  flags = [
    '--xla_backend_optimization_level=0',
    '--xla_llvm_disable_expensive_passes=true',
    '--xla_cpu_parallel_codegen_split_count=1',
  ]
  if _jaxlib() < (0, 11):  # newer versions have no other emitters
    flags.append('--xla_cpu_use_fusion_emitters=false')
  return ' '.join(flags)


def _jaxlib() -> tuple[int, ...]:
  major, minor = metadata.version('jaxlib').split('.')[:2]
  return int(major), int(minor)
