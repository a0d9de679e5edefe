"""The target of a traced program."""

import os

import jax

from xlflax.models import compile_targets


def test_current_target_defaults_to_the_backend():
  here = compile_targets.Target(jax.default_backend())
  assert compile_targets.current_target() == here
  hopper = compile_targets.Target('gpu', (9, 0))
  with compile_targets.compiling_for(hopper):
    assert compile_targets.current_target() is hopper
    with compile_targets.compiling_for(compile_targets.Target('tpu')):
      assert compile_targets.current_target().platform == 'tpu'
    assert compile_targets.current_target() is hopper
  assert compile_targets.current_target() == here


def test_optimization_levels_of_small_programs(monkeypatch):
  """The level is reduced on CPUs only if XLA_FLAGS does not set it."""
  level = 'xla_backend_optimization_level'
  assert level in os.environ['XLA_FLAGS']
  assert compile_targets.single_run_options() == {}
  assert compile_targets.compiler_options(1000) == {}
  monkeypatch.setenv('XLA_FLAGS', '')
  assert compile_targets.single_run_options() == {level: 1}
  assert compile_targets.compiler_options(1000) == {level: 2}
  assert compile_targets.compiler_options(100_000_000) == {}
  assert compile_targets.compiler_options() == {}
  with compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))):
    assert compile_targets.single_run_options() == {}
    assert level not in compile_targets.compiler_options(1000)
  with compile_targets.compiling_for(compile_targets.Target('tpu')):
    assert level not in compile_targets.compiler_options(1000)


def test_options_follow_the_substitute_compiler():
  with compile_targets.compiling_for(compile_targets.Target('tpu'), by='cpu'):
    assert compile_targets.current_target().platform == 'tpu'
    assert not any('tpu' in name for name in compile_targets.compiler_options())
  with compile_targets.compiling_for(compile_targets.Target('tpu')):
    assert all('tpu' in name for name in compile_targets.compiler_options())


def test_nvidia_gpus_use_cublaslt_unless_xla_flags_differ(monkeypatch):
  triton, cublaslt = 'xla_gpu_enable_triton_gemm', 'xla_gpu_enable_cublaslt'
  monkeypatch.setenv('XLA_FLAGS', '--xla_gpu_autotune_level=2')
  with compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))):
    options = compile_targets.compiler_options()
    assert options == {triton: False, cublaslt: True}
    monkeypatch.setenv('XLA_FLAGS', f'--xla_a=1 --{triton}=true')
    assert compile_targets.compiler_options() == {cublaslt: True}
    monkeypatch.setenv('XLA_FLAGS', f'--{triton} --{cublaslt}=false')
    assert compile_targets.compiler_options() == {}
  with compile_targets.compiling_for(compile_targets.Target('gpu')):
    assert compile_targets.compiler_options() == {}
