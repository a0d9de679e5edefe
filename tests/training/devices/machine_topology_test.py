"""Tests of machine descriptions and of detecting the size of nodes."""

import types

import pytest

from xlflax.training.devices import accelerators, device_rates, machine_topology
from xlflax.utils import errors


@pytest.mark.parametrize(
  ('text', 'name', 'count', 'nodes', 'per_node'),
  [
    ('gpu:H200:512', 'H200', 512, 64, 8),
    ('GPU:a100-80gb:8', 'A100-80GB', 8, 1, 8),
    ('tpu:v5p:256', 'v5p', 256, 1, 256),
    ('tpu:v5e:512', 'v5e', 512, 2, 256),
    ('gpu:H100:4', 'H100', 4, 1, 4),
    ('gpu:A100-40GB:64/4', 'A100-40GB', 64, 16, 4),
    ('gpu:A100:8', 'A100-80GB', 8, 1, 8),
    ('gpu:GB200:144', 'GB200', 144, 2, 72),
    ('gpu:rtx4090:2', 'RTX4090', 2, 1, 2),
    ('gpu:MI300X:8', 'MI300X', 8, 1, 8),
    ('tpu:v7:16', 'v7', 16, 1, 16),
    ('tpu:tpu7x:16', 'v7', 16, 1, 16),
  ],
)
def test_machine_descriptions_are_parsed(text, name, count, nodes, per_node):
  machine = machine_topology.parse_topology(text)
  assert machine.accelerator is not None
  assert machine.accelerator.name == name
  assert machine.platform == text[:3].lower()
  assert (machine.count, machine.nodes, machine.per_node) == (
    count,
    nodes,
    per_node,
  )


def test_cpu_description_has_no_accelerator():
  machine = machine_topology.parse_topology('cpu:8')
  assert machine.accelerator is None
  assert (machine.platform, machine.count, machine.nodes) == ('cpu', 8, 1)
  assert str(machine) == '8 x CPU'
  assert (
    str(machine_topology.parse_topology('gpu:H200:16'))
    == '16 x H200 in 2 nodes'
  )


@pytest.mark.parametrize(
  ('text', 'parts'),
  [
    (
      'gpu:H300:8',
      (
        'Got: H300',
        'Expected: one of ',
        ' B200, B300, GB200, GH200, H100, ',
        'accelerators.py',
      ),
    ),
    ('tpu:H200:8', ('TPU', 'Got: H200', 'one of v4, v5e')),
    ('gpu:H200', ('Got: gpu:H200', 'gpu:H200:512')),
    ('H200:8', ('Got: H200:8', 'gpu:H200:512')),
    ('cuda:H200:8', ('Got: cuda:H200:8', 'gpu:H200:512')),
    ('gpu:H200:0', ('Got: 0', '=gpu:H200:0')),
    ('gpu:H200:many', ('Got: many', '=gpu:H200:many')),
    ('gpu:H200:12', ('it is 12', 'a multiple of 8', 'gpu:H200:12/4')),
    ('cpu:x', ('Got: x', '=cpu:x')),
  ],
)
def test_invalid_descriptions_are_rejected(text, parts):
  with pytest.raises(errors.ConfigError) as error:
    machine_topology.parse_topology(text)
  for part in (*parts, '--target_topology'):
    assert part in str(error.value)


def _devices(count, platform='gpu', *, processes=1, **attributes):
  return [
    types.SimpleNamespace(
      platform=platform, process_index=i * processes // count, **attributes
    )
    for i in range(count)
  ]


@pytest.mark.parametrize(
  ('expected_nodes', 'environment', 'size'),
  [
    (_devices(8), {}, 8),
    (_devices(16, processes=2), {}, 8),
    (_devices(16, processes=16), {}, 1),
    (_devices(16, processes=16), {'SLURM_STEP_TASKS_PER_NODE': '8(x2)'}, 8),
    (_devices(16, processes=16), {'SLURM_STEP_TASKS_PER_NODE': '12,4'}, 1),
    (_devices(8, processes=8), {'OMPI_COMM_WORLD_LOCAL_SIZE': '4'}, 4),
    (_devices(256, 'tpu', processes=64), {}, 256),
    (
      _devices(8, 'tpu', slice_index=0) + _devices(8, 'tpu', slice_index=1),
      {},
      8,
    ),
    (_devices(8, slice_index=0) + _devices(4, slice_index=1), {}, 1),
  ],
)
def test_node_size_is_detected(expected_nodes, environment, size):
  assert machine_topology.node_size(expected_nodes, environment) == size


def test_accelerators_are_found_by_device_kind():
  for accelerator in accelerators.TABLE:
    assert accelerators.find_by_kind(accelerator.kinds[0]) is accelerator
    assert (
      device_rates.peak_flops(
        types.SimpleNamespace(device_kind=accelerator.kinds[0])
      )
      == accelerator.flops
    )
    assert accelerator.inside > accelerator.outside
    assert accelerator.bandwidth > accelerator.inside
