"""Tests of the meshes and tables of the scaling benchmark."""

import math
import pathlib
import subprocess
import types

import pytest

from benchmarks import scaling


@pytest.mark.parametrize('model', scaling.MODELS, ids=lambda m: m.file)
@pytest.mark.parametrize('devices', scaling.DEVICES)
def test_meshes_split_state_over_all_devices(model, devices):
  flags = dict(
    flag.removeprefix('--gin.partitioning.Partitioner.').split('=')
    for flag in scaling.make_mesh_flags(model, devices, 'full')
  )
  sizes = [int(flags[axis]) for axis in ('data', 'fsdp', 'tensor')]
  assert math.prod(sizes) == devices and sizes[0] == 1
  assert model.width % sizes[1] == 0
  assert ('tensor_splits' in flags) == (sizes[2] > 1)
  assert scaling.make_mesh_flags(model, devices, 'default') == []


def _plan(devices: int) -> dict:
  return {
    'mesh': {'data': 1, 'fsdp': devices, 'tensor': 1},
    'parameters': {'total': 278_292_882},
    'sharding': {
      'split': 8 * 2**20 // devices if devices > 1 else 0,
      'whole': 8 * 2**20,
      'not_split': 2**20,
    },
    'compiled': devices < 64,
    'memory': {'total': 3 * 2**30},
    'collectives': {
      'all-gather': {'sent': 2**30, 'sent_outside': 2**29},
      'all-reduce': {'sent': 2**29, 'sent_outside': 0},
    },
    'estimate': {
      'limit': 'memory bandwidth',
      'seconds_per_step': 0.0251,
      'parts': {'exposed': 0.00502},
      'tokens_per_second': 1e6,
      'mfu': 0.25,
    },
  }


def test_format_tables_and_write_page(tmp_path):
  plans = {
    ('A', 1, 'full'): _plan(1),
    ('A', 8, 'full'): _plan(8),
    ('A', 64, 'default'): _plan(64),
  }
  text = scaling.format_tables(plans)
  assert '| A | 278.3M | 8 | 1 x 8 x 1 | 2.0 | 1.0 | 8.0 | 1.0 |' in text
  assert '| A | 278.3M | 1 | 1 x 1 x 1 | 1.0 | - | - | - |' in text
  assert (
    '| A | 64 | 1 x 64 x 1 | estimate | 3.0 | 1.50 | 0.50 | 25.1 | 20% | '
    'memory bandwidth | 1,000,000 | 25% |'
  ) in text
  assert '| A | 8 | 1 x 8 x 1 | compiler | 3.0 |' in text
  page = tmp_path / 'page.md'
  page.write_text('Before\n<!-- tables -->\nold\n<!-- end of tables -->\nAfter')
  for _ in range(2):
    scaling.write_page(page, text)
  assert page.read_text().startswith('Before\n<!-- tables -->\n\nMemory for')
  assert page.read_text().endswith('<!-- end of tables -->\nAfter')
  assert 'old' not in page.read_text()


def test_plans_are_compiled_up_to_a_number_of_devices(monkeypatch, tmp_path):
  """Also checks that each plan is made only once."""
  calls = []

  def run(command, **_):
    calls.append(command)
    output = pathlib.Path(command[-1].removeprefix('--output_file='))
    output.write_text('{}', encoding='utf-8')
    return types.SimpleNamespace(returncode=0)

  monkeypatch.setattr(subprocess, 'run', run)
  model = scaling.MODELS[0]
  for devices, max_devices in ((8, 64), (8, 64), (512, 64), (64, 8)):
    assert (
      scaling.make_plan(tmp_path, model, devices, 'full', max_devices) == {}
    )
  assert [
    [flag.split('=')[1] for flag in command if '--cost_model' in flag]
    for command in calls
  ] == [['auto'], ['estimate'], ['estimate']]
  assert '--target_topology=gpu:H200:8' in calls[0]
  assert '--gin.BATCH_SIZE=768' in calls[0]


def test_page_has_the_markers():
  page = pathlib.Path(scaling.__file__).parents[1] / 'docs/scaling.md'
  text = page.read_text(encoding='utf-8')
  assert text.count('<!-- tables -->') == 1
  assert text.count('<!-- end of tables -->') == 1
  assert 'python -m benchmarks.scaling' in text
