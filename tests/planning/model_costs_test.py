"""Costs of each kernel class of a model, compared with arithmetic by hand.

The unit is A, the bytes of one array of hidden states: tokens x hidden size x
itemsize. The hidden arrays of the MLP have four times the size. The costs of one
layer are the difference between two models whose numbers of layers differ.
"""

import collections
import dataclasses

import pytest

from tests.slow import mark_slow
from tests.training import tiny, training_setup_test
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.planning import compilers, step_costs, traceable_attention
from xlflax.planning.step_costs import Kind
from xlflax.training import training_setup
from xlflax.training.devices import machine_topology, partitioning

_H200 = machine_topology.parse_topology('gpu:H200:1')
_BATCH, _LENGTH, _HIDDEN, _MLP, _VOCABULARY = 16, 128, 256, 1024, 10_112
_A = _BATCH * _LENGTH * _HIDDEN * 2
_LAYER_WEIGHTS = 4 * _HIDDEN**2 + 2 * _HIDDEN * _MLP


def _count(
  *,
  machine=_H200,
  batch=_BATCH,
  length=_LENGTH,
  vocabulary=_VOCABULARY,
  **fields,
):
  """Returns the costs of an MLM step of a small bfloat16 encoder."""
  sizes = dict(
    dtype='bfloat16',
    vocab_size=None,
    hidden_dim=_HIDDEN,
    mlp_dim=_MLP,
    num_heads=4,
    max_position_embeddings=length,
    pad_vocab_size_multiple=128,
    dropout_rate=0.1,
    attention_dropout_rate=0.1,
  )
  settings = training_setup_test.make_settings(
    partitioner=partitioning.Partitioner(),
    model=tiny.make_model(**(sizes | fields)),
    datasets=(
      dataclasses.replace(
        training_setup_test.MONO, batch_size=batch, length=length
      ),
    ),
    vocabulary=vocabulary_spec.make_dummy_spec(vocabulary, num_languages=2),
  ).on(machine)
  settings = traceable_attention.with_traceable_attention(settings, machine)
  setup = training_setup.Setup(settings)
  active = settings.objectives.active(0)
  with (
    compilers.trace_for_machine(machine, by='cpu'),
    settings.partitioner.scope(),
  ):
    traced = setup.jitted_step(active).trace(
      setup.factory.abstract_sharded, setup.abstract_batches(active)
    )
  return step_costs.count_costs(
    traced.jaxpr.jaxpr, has_accumulation=machine.platform == 'gpu'
  )


def _sum(costs, field='bytes'):
  """Returns sums of a field by (part, phase, kind)."""
  sums = collections.Counter()
  for operation in costs.operations:
    key = operation.part, operation.phase, operation.kind
    sums[key] += operation.count * getattr(operation, field)
  return sums


@pytest.fixture(scope='module', params=[True, False], ids=['scan', 'no scan'])
def layer(request):
  """Bytes of one layer by (part, phase, kind) in units of A."""
  two, four = (
    _sum(_count(num_layers=n, scan_layers=request.param)) for n in (2, 4)
  )
  return {key: (four[key] - two[key]) / 2 / _A for key in four}


@pytest.mark.slow
def test_matmul_traffic_of_a_layer(layer):
  """MLP: x (A), h (4 A), h (4 A) and y (A) are read or written, and weights of
  2 x 0.5 A. Attention: four projections read A and write A, with weights of 0.5
  A in total. The backward pass has twice as many matmuls."""
  assert layer['MLP', 'forward', Kind.MATMUL] == pytest.approx(11, rel=0.01)
  assert layer['MLP', 'backward', Kind.MATMUL] == pytest.approx(22, rel=0.01)
  attention = layer['attention', 'forward', Kind.MATMUL]
  assert attention == pytest.approx(8.5, rel=0.01)
  backward = layer['attention', 'backward', Kind.MATMUL]
  assert 17 <= backward <= 20  # Some matmuls compute sums.


def test_attention_traffic_of_a_layer(layer):
  """Forward: q, k, v and the output. Backward: one kernel reads q, k, v and the
  gradient and writes dq, and one writes dk and dv."""
  forward = layer['attention', 'forward', Kind.ATTENTION]
  assert forward == pytest.approx(4, rel=0.05)
  backward = layer['attention', 'backward', Kind.ATTENTION]
  assert backward == pytest.approx(5 + 6, rel=0.05)


def test_norm_traffic_of_a_layer(layer):
  """Two norms. Forward: the statistics and the result each read the residual
  and the output of the block, and the result is written (5 A). Backward: the
  kernel reads x and the gradient and writes one array (3 A), and writes two
  sums of each of 384 programs, which are then read. Matmuls add the gradient of
  the residual connection."""
  sums = 2 * 2 * 384 * _HIDDEN * 4 / _A
  forward = layer['norms', 'forward', Kind.MEMORY]
  assert forward == pytest.approx(2 * 5, rel=0.05)
  backward = layer['norms', 'backward', Kind.MEMORY] + layer.get(
    ('residuals and dropout', 'backward', Kind.MEMORY), 0.0
  )
  assert backward == pytest.approx(2 * (3 + sums), rel=0.05)


def test_elementwise_traffic_of_a_layer(layer):
  """GELU reads 4 A and writes 4 A. Its gradient reads 8 A and writes 4 A, and
  the sum of the bias gradient reads 4 A again. Dropout and biases of the
  outputs add at most 2 A forward and 4 A backward for each block. The backward
  pass of attention reads at least the output, its gradient and the gradients of
  q, k and v."""
  assert 8 <= layer['MLP', 'forward', Kind.MEMORY] <= 16
  assert 12 <= layer['MLP', 'backward', Kind.MEMORY] <= 20
  assert 6 <= layer['attention', 'forward', Kind.MEMORY] <= 14
  assert 5 <= layer['attention', 'backward', Kind.MEMORY] <= 12


def test_update_traffic_of_a_layer(layer):
  """AdamW in float32 reads the parameter, the gradient and two moments, and
  writes three of them: 28 bytes per parameter. The gradient norm reads the
  gradient once more, and layers that are not stacked may add a copy."""
  update = layer['optimizer', 'update', Kind.MEMORY] * _A / _LAYER_WEIGHTS
  assert 0.9 * 26 <= update <= 36


@pytest.mark.slow
@pytest.mark.parametrize('scan', mark_slow([True, False], slow=[True]))
@pytest.mark.parametrize(
  'norm_position', mark_slow(['pre', 'post'], slow=['post'])
)
def test_costs_grow_linearly_with_the_number_of_layers(scan, norm_position):
  """Regression test: without a scan, layers were counted more than once."""
  totals = [
    _count(num_layers=n, scan_layers=scan, norm_position=norm_position).total(
      'bytes'
    )
    for n in (2, 6, 10)
  ]
  first, second = totals[1] - totals[0], totals[2] - totals[1]
  assert second == pytest.approx(first, rel=0.05)


@pytest.mark.parametrize('accelerator', ['gpu:H200', 'tpu:v5e'])
def test_costs_are_divided_by_the_number_of_devices(accelerator):
  """Eight devices with eight times the batch have eight times the traffic.

  Regression test: kernels on shards were counted with the arrays of all
  devices, and each launch was counted once per device.
  """
  counts = {
    n: _count(
      machine=machine_topology.parse_topology(f'{accelerator}:{n}'),
      batch=n * _BATCH,
      num_layers=2,
    )
    for n in (1, 8)
  }
  single, eight = (_sum(counts[n]) for n in (1, 8))
  for key in set(single) | set(eight):
    part, phase, _ = key
    if part in ('MLP', 'attention', 'norms', 'residuals and dropout'):
      assert eight[key] == pytest.approx(8 * single[key], rel=0.3), key
    if phase == 'update':
      assert eight[key] == pytest.approx(single[key], rel=0.15)
  operations = {n: sum(o.count for o in counts[n].operations) for n in counts}
  assert operations[8] == pytest.approx(operations[1], rel=0.05)
  assert counts[8].total('flops') == pytest.approx(
    8 * counts[1].total('flops'), rel=0.1
  )
  assert counts[8].peak_bytes <= 8.8 * counts[1].peak_bytes


def test_costs_of_head_and_embeddings():
  """N = 16 x 19 + ... = 320 scored positions (rounded up) and V = 10,112.

  The head has three matmuls of 2 N V D FLOPs. Element-wise passes over the
  logits read them for the maximum, the sum and the gradient, and write the
  gradient. The embeddings gather T rows and scatter their gradients.
  """
  costs = _count(num_layers=2)
  scored = next(
    o.rows
    for o in costs.operations
    if o.part == 'head and loss' and o.flops > 1e9
  )
  flops = _sum(costs, 'flops')
  transform = 2 * scored * _HIDDEN**2  # The dense layer before the logits.
  assert flops['head and loss', 'forward', Kind.MATMUL] == pytest.approx(
    2 * scored * _VOCABULARY * _HIDDEN + transform, rel=0.01
  )
  assert flops['head and loss', 'backward', Kind.MATMUL] == pytest.approx(
    2 * (2 * scored * _VOCABULARY * _HIDDEN + transform), rel=0.01
  )
  sums = _sum(costs)
  logits = 2 * scored * _VOCABULARY
  table = 4 * _VOCABULARY * _HIDDEN
  passes = (
    sums['head and loss', 'forward', Kind.MEMORY]
    + sums['head and loss', 'backward', Kind.MEMORY]
  )
  assert 4 * logits <= passes <= 9 * logits + 2 * table
  embeddings = sums['embeddings', 'forward', Kind.MEMORY] / _A
  assert 2 * 2 <= embeddings <= 10  # Float32 rows, read and written, twice.


def test_attention_flops():
  """Each matmul has 2 B T T D FLOPs: two forward, 3 + 4 backward."""
  flops = _sum(_count(num_layers=2), 'flops')
  matmul = 2 * 2 * _BATCH * _LENGTH**2 * _HIDDEN
  assert flops['attention', 'forward', Kind.ATTENTION] == 2 * matmul
  assert flops['attention', 'backward', Kind.ATTENTION] == 7 * matmul


# GB of the kernels in the program that XLA compiles for an H200, for XLM-R base
# with 64 x 512 tokens, as counted by `python -m benchmarks.compiled.count_step`.
_COMPILED = {
  'norms': 12.8,
  'residuals and dropout': 3.6,
  'MLP': 13.3,
  'attention': 11.2,
  'optimizer': 8.6,
  'embeddings': 2.0,
  'head and loss': 9.3,
}


@pytest.mark.slow
@pytest.mark.parametrize('scan', [True, False])
def test_memory_traffic_of_xlmr_base(scan):
  """The parts agree within 40 %, and their sum within 15 %. A kernel that
  belongs to a norm and to a residual connection is counted with either."""
  costs = _count(
    batch=64,
    length=512,
    vocabulary=250_002,
    num_layers=12,
    hidden_dim=768,
    mlp_dim=3072,
    num_heads=12,
    scan_layers=scan,
  )
  sums = collections.Counter()
  for operation in costs.operations:
    if operation.kind is Kind.MEMORY:
      sums[operation.part] += operation.count * operation.bytes / 1e9
  assert sum(sums.values()) == pytest.approx(sum(_COMPILED.values()), rel=0.15)
  residuals = ('norms', 'residuals and dropout', 'MLP', 'attention')
  groups = [residuals, ('optimizer',), ('embeddings',), ('head and loss',)]
  for parts in groups:
    expected = sum(_COMPILED[part] for part in parts)
    assert sum(sums[part] for part in parts) == pytest.approx(expected, rel=0.4)
