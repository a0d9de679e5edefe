"""Tests of the check of compiled steps against recorded bounds."""

import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import types

import pytest

from benchmarks import compile_targets
from xlflax.training.checkpointing import run_directory

_GOOD = {
  'milliseconds': 98.32,
  'mfu': 0.2494,
  'peak_gib': 33.48,
  'waited': 0.031,
  'largest_all_reduce_mb': 1.4,
  'windowed_loops': 0,
  'compiler': 'libtpu 0.0.42.1',
}


def test_find_faults_compares_with_recorded_bounds():
  def find_faults(measured, recorded, devices='gpu:H200:8'):
    return compile_targets.find_faults(measured, recorded, devices)

  assert find_faults(_GOOD, {}) == find_faults(_GOOD, _GOOD) == []
  assert find_faults(_GOOD, {}, 'tpu:v6e:8') == [
    'Peak memory is 33.48 GiB, but a device has 29.8 GiB.'
  ]
  assert find_faults(_GOOD | {'mfu': 0.2450}, _GOOD) == []
  assert find_faults(_GOOD | {'mfu': 0.2440}, _GOOD) == [
    'The MFU bound is 24.4%, but 24.9% is recorded.'
  ]
  assert find_faults(_GOOD | {'peak_gib': 34.5}, _GOOD) == [
    'Peak memory is 34.5 GiB, but 33.48 GiB is recorded.'
  ]
  wrong = _GOOD | {'largest_all_reduce_mb': 768.0, 'windowed_loops': 19}
  assert find_faults(wrong, {}) == [
    'An all-reduce exchanges 768.0 MB at once.',
    '19 loops compute partial sums.',
  ]
  assert find_faults({}, _GOOD) == ['The step does not compile.']
  new = _GOOD | {'compiler': 'libtpu 0.0.52', 'peak_gib': 99.0}
  assert find_faults(new, _GOOD)[-1] == (
    'The record was compiled with libtpu 0.0.42.1, this step with '
    'libtpu 0.0.52.'
  )


def test_format_table_of_bounds():
  text = compile_targets.format_table(
    {'base@gpu:H200:1': _GOOD} | {'mt5@gpu:H200:8': {}, 'x@tpu:v5p:8': None},
    {'base@gpu:H200:1': _GOOD | {'mfu': 0.1}},
  )
  assert text.splitlines()[2:] == [
    '| base | gpu:H200:1 | 98.3 | 24.9% | 33.5 | 3.1% | 98.3 | 10.0% | 33.5 |',
    '| mt5 | gpu:H200:8 | does not compile | - | - | - | - | - | - |',
    '| x | tpu:v5p:8 | not compiled | - | - | - | - | - | - |',
  ]


def test_format_counts_has_a_row_per_step_type():
  step = {'num_kernels': 7, 'program_bytes': 2e9, 'program_flops': 3e12}
  plan = {
    'memory': {'total': 2**30},
    'steps': [step | {'unaligned_matmuls': n} for n in (0, 3)],
  }
  text = compile_targets.format_counts(
    {'base@gpu:H200:1': plan, 'x@gpu:H200:8': {'error': []}}
  )
  assert text.splitlines()[2:] == [
    '| base | gpu:H200:1 | 7 | 2.00 | 3.00 | 1.00 | 0 |',
    '| base | gpu:H200:1 | 7 | 2.00 | 3.00 | 1.00 | 3 |',
    '| x | gpu:H200:8 | does not compile | - | - | - | - |',
  ]


def test_change_case_extends_the_name_and_bindings():
  cases = {case.name: case for case in compile_targets.CASES}
  changed = compile_targets.change_case(
    cases['xlmr-base'], 2, 'EncoderConfig.dropout_rate=0.0'
  )
  assert changed.name == 'xlmr-base-dropout_rate=0.0-num_layers=2'
  assert changed.flags[-2:] == (
    '--gin.EncoderConfig.dropout_rate=0.0',
    '--gin.EncoderConfig.num_layers=2',
  )
  assert compile_targets.change_case(cases['mt5-base'], 3).flags[-2:] == (
    '--gin.EncoderDecoderConfig.num_encoder_layers=3',
    '--gin.EncoderDecoderConfig.num_decoder_layers=3',
  )
  assert (
    compile_targets.change_case(cases['moco-tlm'], None) == (cases['moco-tlm'])
  )


def test_format_estimates_has_a_row_per_case():
  plan = {
    'memory': {'total': 3 * 2**30},
    'estimate': {'seconds_per_step': 0.0472, 'mfu': 0.437},
  }
  text = compile_targets.format_estimates(
    {'base@gpu:H200:1': plan, 'x@gpu:H200:8': {'error': []}}
  )
  assert text.splitlines()[2:] == [
    '| base | gpu:H200:1 | 3.0 | 47.2 | 44% |',
    '| x | gpu:H200:8 | cannot be planned | - | - |',
  ]


def test_teacher_has_as_many_layers_as_its_case(monkeypatch, tmp_path):
  commands = []

  def run(command, **_):
    commands.append(command)
    return types.SimpleNamespace(returncode=1, stderr='ConfigError: no')

  monkeypatch.setattr(subprocess, 'run', run)
  cases = {case.name: case for case in compile_targets.CASES}
  case = compile_targets.change_case(cases['metaxlm/kd'], 2)
  for make_plan in (
    compile_targets.compile_case,
    compile_targets.estimate_case,
  ):
    plan = make_plan(tmp_path, case, 'gpu:H200:8')
    assert plan == {'error': ['ConfigError: no']}
  for command in commands:
    (flag,) = (f for f in command if f.startswith('--gin.INIT_DIR='))
    directory = pathlib.Path(flag.removeprefix('--gin.INIT_DIR=').strip("'"))
    assert run_directory.read_model(directory).config.num_layers == 2
    assert '--gin.BATCH_SIZE=64' in command


# All shipped objectives with an output over the vocabularies of XLM-R, mBERT,
# mBART and mT5.
_LARGE_VOCABULARIES = tuple(
  case.name
  for case in compile_targets.CASES
  if case.name not in ('ecs/default', 'ppa/2m')
  and not case.name.startswith(('xlmr-base-', 'xlmr-large-'))
  and not case.name.startswith(('mbert-tlm-', 'moco-tlm-'))
)


@pytest.mark.slow
@pytest.mark.parametrize('name', _LARGE_VOCABULARIES)
def test_matmuls_over_large_vocabularies_are_aligned(tmp_path, name):
  (case,) = (c for c in compile_targets.CASES if c.name == name)
  case = compile_targets.change_case(case, 1)
  plan = compile_targets.estimate_case(tmp_path, case, 'gpu:H200:1')
  assert 'error' not in plan
  assert plan['estimate']['parts']['misaligned'] == 0.0
  assert not any('16 bytes' in text for text in plan['recommendations'])


def test_compile_case_caches_plans_per_case(monkeypatch, tmp_path):
  """Compares the flags of the first call, and the results of repeated calls."""
  calls = []

  def run(command, **_):
    calls.append(command)
    output = command[-1].removeprefix('--output=')
    with open(output, 'w', encoding='utf-8') as file:
      json.dump({'made': len(calls)}, file)
    return types.SimpleNamespace(returncode=0)

  monkeypatch.setattr(subprocess, 'run', run)
  for case in compile_targets.CASES:
    plan = compile_targets.compile_case(tmp_path, case, 'gpu:H200:8')
    assert compile_targets.compile_case(tmp_path, case, 'gpu:H200:8') == plan
  assert len(calls) == len(compile_targets.CASES)
  base = calls[0]
  assert '--devices=gpu:H200:8' in base
  assert base.count('--gin.BATCH_SIZE=512') == 1
  assert not any(flag.startswith('--gin.BATCH_SIZE=64') for flag in base)


def test_recorded_bounds_belong_to_existing_cases():
  record = json.loads(compile_targets.RECORD.read_text())
  case_names = {
    f'{case.name}@{devices}'
    for case in compile_targets.CASES
    for devices in (*case.checked_devices, *case.table_devices)
  }
  for table in record.values():
    for key, figures in table.items():
      assert key in case_names
      assert not figures or figures.keys() | {'compiler'} == _GOOD.keys()


def _reduced(name):
  """Returns the case with two narrow layers, few rows and its vocabulary.

  An all-reduce of the embedding table therefore exceeds 100 MB.
  """
  (case,) = (c for c in compile_targets.CASES if c.name == name)
  sizes = ['hidden_dim=128', 'mlp_dim=512', 'num_heads=2']
  config = 'EncoderConfig'
  if 'EncoderDecoderConfig' in ' '.join(case.flags):
    config = 'EncoderDecoderConfig'
    sizes.append('head_dim=64')
  case = compile_targets.change_case(
    case, 2, *(f'{config}.{size}' for size in sizes)
  )
  return dataclasses.replace(case, batches=dict.fromkeys(case.batches, 8))


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  [
    'xlmr-base',
    'mbert-tlm',
    'veco-base',
    'mt5-base',
    'moco-tlm',
    'ecs/default',
  ],
)
@pytest.mark.parametrize(
  'devices, package',
  [('tpu:v6e:8', 'libtpu'), ('gpu:H200:8', 'jax_cuda12_plugin')],
)
def test_reduced_cases_compile_without_faults(tmp_path, name, devices, package):
  """Checks the same properties as `make compile-targets`, without its bounds."""
  if importlib.util.find_spec(package) is None:
    pytest.skip(f'needs {package}')
  plan = compile_targets.compile_case(tmp_path, _reduced(name), devices)
  summary = compile_targets.summarize_plan(plan)
  assert compile_targets.find_faults(summary, {}, devices) == [], plan.get(
    'error'
  )
  assert summary['peak_gib'] > 0 and summary['mfu'] > 0
  assert not [w for w in plan['warnings'] if 'scores' in w]


def test_every_record_names_its_compiler():
  recorded = json.loads(compile_targets.RECORD.read_text())['recorded']
  assert recorded and all('compiler' in entry for entry in recorded.values())


def test_case_flags_set_bindings_or_sizes():
  for case in compile_targets.CASES:
    for flag in case.flags:
      assert flag.startswith(
        ('--gin', '--vocabulary_size=', '--num_languages=')
      )
