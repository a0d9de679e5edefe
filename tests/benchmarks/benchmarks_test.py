"""Smoke tests of the benchmarks at tiny sizes."""

import json
import sys

import pytest

from benchmarks import (
  beam_search,
  code_switching,
  inference,
  input_pipeline,
  measure,
  shapes,
  training_step,
)

_TINY = shapes.Shape(
  vocabulary=64, layers=1, hidden=16, mlp=32, heads=2, batch=8, length=16
)


@pytest.mark.parametrize(
  'variant',
  [
    variant
    if variant == 'torch/gathered'
    else pytest.param(variant, marks=pytest.mark.slow)
    for variant in training_step.VARIANTS
  ],
)
def test_every_variant_trains(capsys, variant):
  training_step.main(
    ['--run_variant', variant, '--calls', '2', '--shape', _TINY.to_json()]
  )
  figures = json.loads(capsys.readouterr().out)
  assert len(figures['seconds']) == 2 and figures['peak_bytes'] > 0


def test_format_table_is_relative_to_the_baseline():
  figures = {
    'seconds': [0.5, 2.0, 1.0],
    'cpu_seconds': [1.0],
    'peak_bytes': 2e9,
  }
  text = training_step.format_table(
    {
      'x/gathered': figures | {'seconds': [0.25], 'peak_bytes': 1e9},
      'torch/as_is': figures,
    },
    _TINY,
  )
  assert '| x/gathered | 512 | 1.00 | 1.00 | 4.00 | 0.50 |' in text
  assert '| torch/as_is | 128 | 1.00 | 2.00 | 1.00 | 1.00 |' in text


@pytest.mark.parametrize('module', [inference, beam_search])
def test_inference_outputs_match_the_baseline(module):
  figures = [
    module.measure_variant(variant, _TINY, 12, 1) for variant in module.VARIANTS
  ]
  ours, theirs = (f['outputs'] for f in figures)
  assert module.outputs_agree(ours, theirs)
  assert not module.outputs_agree(ours, [ours[-1]] * len(ours))
  assert figures[0]['work'] == figures[1]['work'] > 0
  text = inference.format_table(
    dict(zip(module.VARIANTS, figures, strict=True)), 'x'
  )
  assert text.splitlines()[-1].startswith('| torch/')


def test_format_table_of_inference():
  figures = {
    'seconds': [0.5, 2.0, 1.0],
    'cpu_seconds': [2.0],
    'work': 12,
    'peak_bytes': 2e9,
  }
  text = inference.format_table(
    {'x/states': figures | {'seconds': [0.25]}, 'torch/states': figures}, 'u'
  )
  assert '| x/states | 48 | 6 | 4.00 | 1.00 | 2.00 |' in text
  assert '| torch/states | 12 | 6 | 1.00 | 1.00 | 2.00 |' in text


def test_different_outputs_are_an_error(monkeypatch):
  figures = {
    'seconds': [1.0],
    'cpu_seconds': [1.0],
    'first_seconds': 1.0,
    'peak_bytes': 1,
    'work': 1,
  }
  monkeypatch.setattr(
    measure,
    'run_module',
    lambda *args, **_: {**figures, 'outputs': [[float('torch/' in args[2])]]},
  )
  with pytest.raises(RuntimeError, match='torch/'):
    inference.main(['--rounds', '1'])


def test_input_pipeline_benchmark_measures_all_variants():
  figures = input_pipeline.run_benchmark(
    lines=1500, batches=20, batch=4, length=32
  )
  assert set(figures['tokens_per_cpu_second']) == {
    'cached',
    'live',
    'array_record',
    'collator',
  }
  assert all(v > 0 for v in figures['tokens_per_cpu_second'].values())
  assert figures['masking_seconds_per_batch'] > 0
  assert figures['need']['cores'] > 0


def test_required_input_cores():
  """Compares with matmuls of one layer and the scored positions, by hand.

  The 64 rows of the embedding table are padded to 128.
  """
  h, t, v, layer = 16, 16, 128, 2 * 16 * (4 * 16 + 2 * 32)
  scored = 3 / t  # 15 % of 16 positions, rounded up
  per_token = 3 * (layer + 4 * t * h + scored * 2 * h * (v + h))
  need = input_pipeline.estimate_required_cores(
    1e6, gpus=2, peak_flops=1e12, shape=_TINY
  )
  assert need['flops_per_token'] == pytest.approx(per_token)
  assert need['cores'] == pytest.approx(
    2 * 1e12 * 0.5 / need['flops_per_token'] / 1e6
  )


@pytest.mark.slow
def test_code_switching_benchmark_measures_all_stages():
  figures = code_switching.run_benchmark(
    _TINY, lines=400, entries=200, calls=1, rounds=1, tokens_per_second=1000.0
  )
  rates = figures['tokens_per_core_second']
  assert set(rates) == {
    'tokenize',
    'switch',
    'switch_and_tokenize',
    'moses',
    'train_the_vocabulary',
  }
  assert figures['dictionary_entries'] == 100
  assert 0 < figures['words_changed'] < 0.15
  assert figures['share_of_a_step']['step_elsewhere']['switch'] == (
    pytest.approx(1000.0 / rates['switch'])
  )


@pytest.mark.skipif(sys.platform != 'linux', reason='taskset and glibc')
def test_run_module_sets_cores_and_huge_pages(tmp_path, monkeypatch):
  (tmp_path / 'report.py').write_text(
    'import json, os\nprint("before")\n'
    'print(json.dumps([len(os.sched_getaffinity(0)),'
    ' os.environ.get("OMP_NUM_THREADS"),'
    ' os.environ.get("GLIBC_TUNABLES")]))'
  )
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
  assert measure.run_module('report', cores=1, huge_pages=True) == [
    1,
    '1',
    'glibc.malloc.hugetlb=1',
  ]
  assert measure.run_module('report')[1:] == [None, None]


def test_run_module_raises_the_error_of_the_process(tmp_path, monkeypatch):
  (tmp_path / 'broken.py').write_text('raise ValueError("no such shape")')
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  with pytest.raises(RuntimeError, match='no such shape'):
    measure.run_module('broken')


@pytest.mark.parametrize(
  'flags, instructions',
  [('sse avx2', ' (AVX2)'), ('avx2 avx512f amx_tile', ' (AMX)'), ('sse', '')],
)
def test_describe_processor_reads_the_first_core(tmp_path, flags, instructions):
  file = tmp_path / 'cpuinfo'
  core = 'processor\t: {}\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: {}\n\n'
  file.write_text(core.format(0, flags) + core.format(1, 'avx512f'))
  description = f'Some CPU @ 2.0GHz{instructions}'
  assert measure.describe_processor(file) == description
  assert measure.describe_processor(tmp_path / 'none')
