"""Tests of the pretraining benchmark, with tiny configurations."""

import subprocess
import sys

import pytest
import torch

from benchmarks import measure, pretraining, training_step
from benchmarks.baselines import pretraining as baselines


def _mark_slow(quick, names):
  """Returns parameters, with the ones that are not `quick` marked as slow."""
  return [
    name if name in quick else pytest.param(name, marks=pytest.mark.slow)
    for name in names
  ]


@pytest.mark.slow
@pytest.mark.parametrize('name', _mark_slow(['mbert-tlm'], pretraining.MODELS))
def test_every_model_trains(name):
  figures = pretraining.measure_variant(name, 'x/as_is', 1, tiny=True)
  assert figures['flops'] > 0 and figures['tokens_per_second'] > 0


@pytest.mark.parametrize(
  'name', _mark_slow(['mt5-base'], ['xlmr-base', 'mbert-tlm', 'mt5-base'])
)
def test_every_baseline_trains(name):
  figures = pretraining.measure_variant(name, 'torch/as_is', 1, tiny=True)
  assert figures['seconds'] > 0 and figures['mfu'] is None


@pytest.mark.parametrize(
  'name, parameters',
  [
    ('xlmr-base', 278e6),
    ('xlmr-large', 560e6),
    ('mbert-tlm', 178e6),
    ('mt5-base', 390e6),
  ],
)  # Transformers 5 ties the output embeddings: 192M fewer parameters.
def test_baseline_sizes_match_the_papers(name, parameters):
  """Counts the parameters on the meta device."""
  torch = pytest.importorskip('torch')
  from benchmarks.baselines import pretraining as baselines

  with torch.device('meta'):
    network = baselines._make_network(pretraining.MODELS[name])
  assert sum(p.numel() for p in network.parameters()) == pytest.approx(
    parameters, rel=0.01
  )


def test_variants_set_the_corresponding_flags():
  model = pretraining.MODELS['mbert-tlm']
  flags = pretraining.make_benchmark_flags(model, 'x/chunked', calls=3)
  assert '--gin.TranslationLM.chunk_size=32768' in flags
  assert '--gin.PAIR_LENGTH=128' in flags and '--num_steps=3' in flags
  assert (
    '--gin.EncoderConfig.attention_dropout_rate=0.0'
    in pretraining.make_benchmark_flags(
      model, 'x/no_attention_dropout', calls=3
    )
  )
  assert pretraining.list_variants('veco-base') == (
    'x/as_is',
    'x/no_attention_dropout',
    'x/chunked',
  )


def test_table_computes_the_mfu_of_the_baseline(monkeypatch, capsys):
  common = dict(peak_bytes=2e9, first_seconds=5.0, device='H200', flops=1)
  results = {
    'x/as_is': dict(common, seconds=0.1, tokens_per_second=100.0, mfu=0.5),
    'torch/as_is': dict(common, seconds=0.2, tokens_per_second=50.0, mfu=None),
  }
  monkeypatch.setattr(
    measure, 'run_module', lambda *args, **_: results[args[4]]
  )
  training_step.main(
    ['--model', 'xlmr-base', '--variants', 'x/as_is,torch/as_is']
  )
  text = capsys.readouterr().out
  assert 'xlmr-base, H200' in text
  assert '| torch/as_is | 50 | 200.0 | 0.250 | 2.00 | 5.0 |' in text


@pytest.mark.slow
def test_pretraining_benchmark_does_not_import_tensorflow():
  code = (
    'import sys\n'
    'from benchmarks import pretraining\n'
    'pretraining.measure_variant("xlmr-base", "x/as_is", 1, tiny=True)\n'
    'assert not {"tensorflow", "seqio"} & set(sys.modules)\n'
  )
  subprocess.run([sys.executable, '-c', code], check=True, cwd=measure.ROOT)


@pytest.mark.parametrize('name', ['xlmr-base', 'mbert-tlm'])
def test_gathered_head_has_the_same_loss(name):
  model = pretraining.make_tiny(pretraining.MODELS[name])
  network = baselines._make_network(model).eval()
  batch = {
    k: torch.from_numpy(v) for k, v in baselines.make_batch(model).items()
  }
  masked = {
    name: torch.from_numpy(value)
    for name, value in baselines._gather_labels(
      baselines.make_batch(model)
    ).items()
  }
  with torch.no_grad():
    loss = baselines._GatheredHead(network)(**masked).loss
    torch.testing.assert_close(loss, network(**batch).loss)
  assert 'torch/gathered' in pretraining.list_variants(name)
  assert 'torch/gathered' not in pretraining.list_variants('mt5-base')
