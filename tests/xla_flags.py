"""XLA flags that make the compilation of test programs fast.

Compilation dominates the cost of the tests; speed is measured elsewhere.
"""

from importlib import metadata


def quick_compilation_flags() -> str:
  """Returns `XLA_FLAGS` with little optimization and few code modules.

  By default, XLA splits a program into 32 LLVM modules to compile them in
  parallel. Each takes three memory maps for the lifetime of the program.
  """
  flags = [
    '--xla_backend_optimization_level=0',
    '--xla_llvm_disable_expensive_passes=true',
    '--xla_cpu_parallel_codegen_split_count=1',
  ]
  if _jaxlib() < (0, 11):  # Newer versions always use these emitters.
    flags.append('--xla_cpu_use_fusion_emitters=false')
  return ' '.join(flags)


def _jaxlib() -> tuple[int, ...]:
  major, minor = metadata.version('jaxlib').split('.')[:2]
  return int(major), int(minor)
