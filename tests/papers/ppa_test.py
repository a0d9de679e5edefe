"""Tests of the gin files of PPA."""

import pytest

from tests.papers import rows
from tests.slow import mark_slow
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import masked_lm, sentence_alignment

_ROWS = rows.of_paper(
  'ppa', ('base', 'tiny', 'no_moco', 'no_tlm', 'mlm_for_tlm', 'tiny_mbert')
)
# Maximum number of pairs per language, and steps. Table 1 has 1.75M, 4.07M and
# 10.5M pairs of seven languages. The training takes 10 epochs (5 epochs for the
# last) in batches of 128.
_SIZES = {
  '250k': (250_000, 1_750_000 * 10 / 128),
  '600k': (600_000, 4_067_000 * 10 / 128),
  '2m': (2_000_000, 10_467_000 * 5 / 128),
}
_ABLATIONS = {
  '': {'moco', 'tlm'},
  '_no_moco': {'tlm'},
  '_no_tlm': {'moco'},
  '_mlm': {'moco', 'mlm'},
}


def test_gin_files_cover_table_5():
  assert _ROWS == sorted(s + a for s in _SIZES for a in _ABLATIONS)


@pytest.mark.parametrize('row', mark_slow(_ROWS, set(_ROWS) - {'2m'}))
def test_published_settings(row):
  """The values are those of sections 2 and 3.3."""
  size, _, _ = row.partition('_')
  settings = rows.trace('ppa', row)
  config = settings.model.config
  assert rows.sizes(config) == (12, 768, 3072, 12)
  assert (config.type_vocab_size, config.max_position_embeddings) == (2, 512)
  pairs, steps = _SIZES[size]
  assert settings.num_train_steps == pytest.approx(steps, abs=1)
  assert rows.rates(settings, settings.num_train_steps // 10 + 1)[0] == (
    pytest.approx(3e-5, rel=1e-3)
  )  # end of the warmup, after a tenth of the steps
  for read in settings.datasets:
    assert (read.length, read.batch_size) == (128, 128)
    assert (read.max_examples, read.alpha) == (pairs, 1.0)
    assert read.pairs.order is dataset_config.PairOrder.RANDOM
    assert (read.pairs.min_tokens, read.pairs.max_tokens) == (10, 128)
    assert read.seed_offset == 0  # All datasets contain the same pairs.
    if read.layout is dataset_config.ExampleLayout.PAIRS:
      assert read.pairs.positions is dataset_config.PositionIds.CONTINUOUS


@pytest.mark.parametrize('row', _ROWS)
def test_settings_of_ablations(row):
  settings = rows.settings('ppa', row)
  objectives = {o.name: o for o in settings.objectives.objectives}
  _, mark, ablation = row.partition('_')
  assert set(objectives) == _ABLATIONS[mark + ablation]
  moco = objectives.get('moco')
  if moco:
    assert isinstance(moco, sentence_alignment.SentenceAlignment)
    assert (moco.queue.size, moco.queue.momentum) == (32_000, 0.999)
    assert (moco.temperature, moco.projection_dim) == (0.05, 300)
    assert moco.pooling is Pooling.FIRST
    assert moco.normalize.value == 'states'
  for name in ('tlm', 'mlm'):
    assert objectives.get(name, masked_lm.MaskedLM()).mask_ratio == 0.15
  if 'mlm' in objectives:  # MLM on both sentences of the pairs
    assert {s.layout for s in settings.datasets} == {
      dataset_config.ExampleLayout.DUAL
    }


@pytest.mark.parametrize('row', mark_slow(_ROWS, set(_ROWS) - {'600k'}))
def test_tiny_configuration_has_the_methods_of_its_row(row):
  rows.check_tiny_row('ppa', row)


def test_initialization_of_tiny_configurations():
  beginning = rows.trace('ppa', 'tiny_mbert')
  tiny = rows.tiny_settings('ppa', '250k')
  assert beginning.model == tiny.model


def test_number_of_parameters():
  """Table 3 contains 172M for V = 110k, without the projection head."""
  settings = rows.settings(
    'ppa',
    '250k_no_moco',
    vocabulary=vocabulary_spec.make_dummy_spec(110_000, num_languages=104),
  )
  assert rows.parameters(settings) == pytest.approx(172e6, rel=0.04)
