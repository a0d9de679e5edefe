"""Tests of the benchmark of held-out loss over CPU time."""

import math

import numpy as np
import pytest

from benchmarks import efficiency, input_pipeline
from xlflax.data.corpus import corpus_writer
from xlflax.data.tokenizers import vocabulary_spec

_CURVE = [[10, 1.0, 8.0], [20, 3.0, 6.0], [30, 5.0, 5.0]]


@pytest.mark.parametrize(
  'goal, seconds', [(9.0, 1.0), (7.0, 2.0), (6.0, 3.0), (5.5, 4.0)]
)
def test_interpolate_seconds_between_checkpoints(goal, seconds):
  assert efficiency.interpolate_seconds(_CURVE, goal) == seconds


def test_interpolate_seconds_of_an_unreached_loss_is_nan():
  assert math.isnan(efficiency.interpolate_seconds(_CURVE, 4.9))


def test_format_table_uses_the_loss_that_all_variants_reach():
  slow = [[tokens, 4 * seconds, loss + 1] for tokens, seconds, loss in _CURVE]
  lines = efficiency.format_table(
    {'x/same': _CURVE, 'torch/as_is': slow}
  ).splitlines()
  assert lines[0].endswith('seconds to 6.000 |')
  assert lines[2].endswith('| 5.0 | 5.000 | 3.0 |')
  assert lines[3].endswith('| 20.0 | 6.000 | 20.0 |')


def test_baseline_masks_a_fixed_number_of_positions():
  torch = pytest.importorskip('torch')
  from benchmarks.baselines import masked_lm

  spec = vocabulary_spec.VocabularySpec(
    size=200,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en',),
  )
  special = torch.zeros(spec.size, dtype=torch.bool)
  special[list(spec.special_ids)] = True
  ids = torch.randint(len(spec.special_ids), spec.size, (20, 50))
  ids[:, 0] = spec.bos_id
  inputs, positions, labels = masked_lm.mask_tokens(ids, spec, special)
  assert len(set(positions.tolist())) == 150 and (positions % 50 > 0).all()
  assert (labels == ids.flatten()[positions]).all()
  other_positions = np.setdiff1d(np.arange(1000), positions)
  assert (
    inputs.flatten()[other_positions] == ids.flatten()[other_positions]
  ).all()
  mask_fraction = (inputs.flatten()[positions] == spec.mask_id).float().mean()
  assert 0.65 < mask_fraction < 0.95


@pytest.fixture
def setting(tmp_path):
  """Setting with a tiny model, corpus, vocabulary and cache."""
  input_pipeline.prepare_data(tmp_path, 1000)
  corpus_writer.write_monolingual(
    tmp_path / 'corpus',
    'en',
    [input_pipeline.make_text(200, seed=1)],
    split='validation',
  )
  return efficiency.Setting(
    corpus=str(tmp_path / 'corpus'),
    cache=str(tmp_path / 'cache'),
    vocabulary=str(tmp_path / 'vocabulary'),
    work=str(tmp_path),
    core=0,
    tokens=20_480,
    layers=1,
    hidden=16,
    heads=2,
    length=32,
    batch=8,
  )


@pytest.mark.slow
@pytest.mark.parametrize('variant', efficiency.VARIANTS)
def test_every_variant_is_measured(setting, variant):
  efficiency.write_rows(setting)
  curve = efficiency.measure_variant(setting, variant)
  tokens, seconds, losses = zip(*curve, strict=True)
  assert tokens == (4096, 8192, 12288, 16384, 20480)
  assert list(seconds) == sorted(seconds) and seconds[0] > 1
  assert losses[-1] < losses[0] < math.log(2100)


@pytest.mark.slow
def test_interrupted_baseline_resumes_exactly(setting, monkeypatch):
  torch = pytest.importorskip('torch')
  from benchmarks.baselines import masked_lm

  monkeypatch.setattr(masked_lm, '_SAVE_INTERVAL_STEPS', 10)
  efficiency.write_rows(setting)
  folder = setting.folder('torch/gathered')
  clip, calls = torch.nn.utils.clip_grad_norm_, []

  def stop(*args):
    calls.append(args)
    if len(calls) == 36:
      raise KeyboardInterrupt
    return clip(*args)

  def train():
    masked_lm.train_model(setting, 'torch/gathered')
    return torch.load(folder / 'STATE.pt', weights_only=True)

  folder.mkdir()
  uninterrupted = train()
  folder.rename(folder.with_name('whole'))
  folder.mkdir()
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(torch.nn.utils, 'clip_grad_norm_', stop)
    train()
  stopped = train()
  assert uninterrupted['step'] == stopped['step'] == 80
  assert stopped['seconds'] > 0
  for name, value in uninterrupted['model'].items():
    assert torch.equal(value, stopped['model'][name]), name
