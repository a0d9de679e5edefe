"""Tests of parsing HLO text and of loop trip counts."""

import collections
import re

import pytest

from benchmarks.compiled.programs import execution, hlo
from tests.planning import sharded_programs


@pytest.fixture(scope='module')
def module():
  return hlo.parse_module(sharded_programs.TEXT)


def test_parse_module_reads_computations_and_instructions(module):
  assert module.entry.name == 'main'
  assert set(module.computations) == {
    'add',
    'body',
    'condition',
    'left',
    'right',
    'main',
  }
  dot = module.computations['body'].instructions['y.1']
  assert (dot.opcode, dot.operands, dot.is_tuple) == (
    'dot',
    ('half', 'all'),
    False,
  )
  assert dot.arrays == (hlo.Array('bf16', (6, 4)),)
  assert dot.dimensions('lhs_contracting_dims') == (1,)
  loop = module.entry.instructions['loop']
  assert loop.is_tuple and [a.shape for a in loop.arrays] == [
    (),
    (2, 4),
    (6, 8),
  ]
  assert loop.called == {'condition': ('condition',), 'body': ('body',)}
  assert module.entry.root.name == 'result'
  assert [p.name for _, p in sorted(module.entry.parameters.items())] == [
    'v',
    'z',
    'c',
  ]


def test_implicit_tuple_elements_are_parsed():
  """Newer versions of XLA write `%tuple#1` instead of get-tuple-element."""
  text = sharded_programs.TEXT
  pattern = r'^ *%(\S+) = .* get-tuple-element\(.*%(\S+)\), index=(\d+).*\n'
  for name, line, index in re.findall(pattern, text, re.M):
    text = re.sub(rf'%{re.escape(name)}(?![\w.])', f'%{line}#{index}', text)
  text = re.sub(r'^ *%\S+#\d+ = .*\n', '', text, flags=re.M)
  assert 'get-tuple-element' not in text.split('ROOT')[0] and '#1' in text
  old, new = (hlo.parse_module(t) for t in (sharded_programs.TEXT, text))
  for name, computation in old.computations.items():
    parsed_instructions = new.computations[name].instructions.values()
    assert collections.Counter(
      (i.opcode, i.arrays) for i in computation.instructions.values()
    ) == collections.Counter((i.opcode, i.arrays) for i in parsed_instructions)


def test_elements_of_nested_tuples_are_parsed():
  module = hlo.parse_module(
    'ENTRY %m (p: (s32[], (f32[2,3], pred[4]))) -> pred[4] {\n'
    '  %p = (s32[], /*index=1*/(f32[2,3]{1,0}, pred[4]{0})) parameter(0)\n'
    '  ROOT %not.1 = pred[4]{0} not(%p#1#1)\n'
    '}\n'
  )
  assert list(module.entry.instructions) == ['p', 'p#1', 'p#1#1', 'not.1']
  assert module.entry.instructions['p#1'].is_tuple
  assert module.entry.instructions['p#1'].index == 1
  assert module.entry.root.operands == ('p#1#1',)
  assert module.entry.instructions['p#1#1'].arrays == (hlo.Array('pred', (4,)),)


def test_array_bytes():
  assert hlo.Array('bf16', (8, 4)).bytes == 64
  assert hlo.Array('f32', ()).bytes == 4
  assert hlo.Array('s4', (3,)).bytes == 1.5
  assert hlo.Array('pred', (5,)).bytes == 5


def test_op_name_and_index_are_parsed():
  (parsed_module,) = hlo.parse_module(
    'ENTRY %m (p: (f32[2])) -> f32[2] {\n'
    '  %p = (f32[2]{0:T(8,128)}) parameter(0)\n'
    '  ROOT %g.1 = f32[2]{0} get-tuple-element(%p), index=0, '
    'metadata={op_name="jit(f)/transpose(jvp(a))/b" stack_frame_id=3}\n}\n'
  ).computations.values()
  assert parsed_module.root.op_name == 'jit(f)/transpose(jvp(a))/b'
  assert parsed_module.root.index == 0 and parsed_module.root.bytes == 8


def _trip_count(text: str) -> int | None:
  module = hlo.parse_module(text)
  loop = module.entry.instructions['loop']
  return execution.trip_count(module, module.entry, loop)


def test_trip_count_prefers_the_annotation_of_xla():
  """Without an annotation, the trip count follows from the condition."""
  assert _trip_count(sharded_programs.TEXT) == 3
  annotated = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
  assert (
    _trip_count(sharded_programs.TEXT.replace('body=%body', annotated)) == 7
  )


@pytest.mark.parametrize(
  ('old', 'new'),
  [
    ('direction=LT', 'direction=NE'),
    ('%three = s32[] constant(3)', '%three = s32[] negate(%j)'),
    ('tuple(%zero, %v, %z)', 'tuple(%zero.2, %v, %z)'),
  ],
)
def test_trip_count_of_unknown_loops_is_none(old, new):
  text = sharded_programs.TEXT.replace(old, new).replace(
    '  %zero = s32[] constant(0)\n',
    '  %zero = s32[] constant(0)\n  %zero.2 = s32[] add(%zero, %zero)\n',
  )
  assert _trip_count(text) is None


def test_arrays_in_tpu_vmem_have_no_traffic():
  """Covers the memory spaces 1 and 6."""
  vector, scalar, main = hlo.parse_arrays(
    '(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, s32[]{:T(128)S(6)}, '
    'f32[8,128]{1,0:T(8,128)})'
  )
  assert vector == hlo.Array('bf16', (8, 128), on_chip=True)
  assert (vector.bytes, vector.traffic, scalar.traffic) == (2048, 0, 0)
  assert main.traffic == main.bytes == 4096
