"""Tests of findings about compiled programs."""

import types

import pytest

from benchmarks.compiled import findings
from benchmarks.compiled.programs import collectives, execution, hlo
from xlflax.training.devices import machine_topology

_MACHINE = machine_topology.parse_topology('gpu:H200:1')


def _setup(length=1024, rows=32, longest=None, accumulation=1):
  dataset = types.SimpleNamespace(name='s', length=length, batch_size=rows)
  objective = types.SimpleNamespace(longest_row=lambda n: longest or n)
  entry = types.SimpleNamespace(dataset='s', objective=objective)
  config = types.SimpleNamespace(dtype='bfloat16', num_layers=6)
  return types.SimpleNamespace(
    settings=types.SimpleNamespace(
      datasets=(dataset,),
      gradient_accumulation_steps=accumulation,
      objectives=types.SimpleNamespace(entries=(entry,)),
      model=types.SimpleNamespace(config=config),
    )
  )


def _describe(text, run=None, setup=None) -> str:
  run = run or execution.Run(busy=1.0)
  described = findings.describe_findings(
    hlo.parse_module(text), run, setup or _setup(), _MACHINE
  )
  return '\n'.join(described)


_NOTHING = """
ENTRY %m (p: bf16[32,1024,64]) -> bf16[32,1024,64] {
  %p = bf16[32,1024,64]{2,1,0} parameter(0)
  ROOT %n = bf16[32,1024,64]{2,1,0} negate(%p)
}
"""


def test_program_without_findings():
  assert _describe(_NOTHING) == ''


def test_large_all_reduces_are_reported():
  run = execution.Run(busy=1.0)
  small = collectives.Collective('all-reduce', 8, 1, 'f32', (9,), 99e6)
  table = collectives.Collective('all-reduce', 8, 1, 'f32', (250, 7), 768e6)
  run.exchanged.update({small: 4, table: 2})
  description = _describe(_NOTHING, run)
  assert description.startswith('2 x all-reduce of f32[250, 7], 732.4 MiB')
  assert description.count('all-reduce of') == 1


def test_windowed_loops_and_exposed_time_are_reported():
  run = execution.Run(busy=0.8)
  run.windowed['while.1'] = 8
  gather = collectives.Collective('all-gather', 8, 1, 'bf16', (5,), 10)
  run.exposed[gather] = 0.2
  description = _describe(_NOTHING, run)
  assert '1 matmuls are loops of partial sums (8 iterations)' in description
  assert (
    'wait 20% of a step' in description
    and 'all-gather of bf16[5]' in description
  )


def test_attention_scores_in_memory_are_reported():
  text = _NOTHING.replace('[32,1024,64]', '[32,1024,1024]')
  assert 'writes its scores to memory, 64.0 MiB' in _describe(text)
  assert 'scores' not in _describe(text, setup=_setup(length=512))
  # Span corruption shortens the rows of a dataset.
  assert 'scores' in _describe(text, setup=_setup(length=1141, longest=1024))


def test_float32_arrays_of_a_bfloat16_model_are_reported():
  text = """
%inner (a: bf16[32,1024,512]) -> f32[32,1024,512] {
  %a = bf16[32,1024,512]{2,1,0} parameter(0)
  ROOT %c = f32[32,1024,512]{2,1,0} convert(%a)
}

ENTRY %m (p: bf16[32,1024,512]) -> f32[32,1024,512] {
  %p = bf16[32,1024,512]{2,1,0} parameter(0)
  ROOT %f = f32[32,1024,512]{2,1,0} fusion(%p), kind=kLoop, calls=%inner, metadata={op_name="jit(s)/jvp(M)/layers/norm/convert"}
}
"""
  assert 'layers/norm writes f32[32, 1024, 512], 64.0 MiB' in _describe(text)
  assert _describe(text, setup=_setup(rows=31)) == ''
  # Rows that span corruption shortens, and rows of a microbatch.
  shorter = _setup(length=1141, longest=1024)
  for setup in (shorter, _setup(rows=64, accumulation=2)):
    assert 'layers/norm writes' in _describe(text, setup=setup)


def test_padded_copies_are_reported():
  text = """
%inner (a: bf16[25002,768]) -> bf16[25024,768] {
  %a = bf16[25002,768]{1,0} parameter(0)
  %z = bf16[] constant(0)
  ROOT %c = bf16[25024,768]{1,0} pad(%a, %z), padding=0_22x0_0
}

ENTRY %m (p: bf16[25002,768]) -> bf16[25024,768] {
  %p = bf16[25002,768]{1,0} parameter(0)
  ROOT %f = bf16[25024,768]{1,0} fusion(%p), kind=kLoop, calls=%inner
}
"""
  description = _describe(text)
  assert (
    'bf16[25002, 768] is copied to be padded to [25024, 768]' in description
  )


def test_repeated_reads_of_unrolled_layers_are_reported():
  """Six kernels that read one array are reported, five are not."""

  def program(layers):
    kind = 'bf16[64,1024,512]{2,1,0}'
    lines = [
      f'  %x{i + 1} = {kind} add(%x{i}, %mask.1)' for i in range(layers - 1)
    ]
    return '\n'.join(
      [
        'ENTRY %m (x0: bf16[64,1024,512]) -> bf16[64,1024,512] {',
        f'  %x0 = {kind} parameter(0)',
        f'  %mask = {kind} negate(%x0)',
        f'  %mask.1 = {kind} bitcast(%mask)',
        *lines,
        f'  ROOT %out = {kind} add(%x{layers - 1}, %mask)',
        '}',
      ]
    )

  description = _describe(program(6))
  assert '6 kernels read the same bf16[64, 1024, 512], 64.0 MiB' in description
  assert _describe(program(5)) == ''


@pytest.mark.parametrize(
  ('rows', 'layout', 'misaligned'),
  [
    (250_002, '1,0', True),
    (250_112, '1,0', False),
    (250_002, '0,1', False),  # 768 is the contiguous dimension
    (119_547, '1,0', True),
    (119_552, '1,0', False),
  ],
)
@pytest.mark.parametrize('kernel', ['triton', 'cublas'])
def test_misaligned_matmuls_are_reported(rows, layout, misaligned, kernel):
  table = f'bf16[768,{rows}]{{{layout}}}'
  call = {
    'triton': f'{table} fusion(%p, %q), kind=kCustom, calls=%inner',
    'cublas': f'{table} custom-call(%p, %q), '
    'custom_call_target="__cublas$gemm"',
  }[kernel]
  text = f"""
%inner (a: bf16[768,64], b: bf16[64,{rows}]) -> bf16[768,{rows}] {{
  %a = bf16[768,64]{{1,0}} parameter(0)
  %b = bf16[64,{rows}]{{0,1}} parameter(1)
  ROOT %c = {table} dot(%a, %b), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}
}}

ENTRY %m (p: bf16[768,64], q: bf16[64,{rows}]) -> bf16[768,{rows}] {{
  %p = bf16[768,64]{{1,0}} parameter(0)
  %q = bf16[64,{rows}]{{0,1}} parameter(1)
  ROOT %f = {call}
}}
"""
  assert (findings.MISALIGNED in _describe(text)) == misaligned
