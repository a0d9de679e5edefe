"""Gin files of ECS: published settings, tracing and parameter counts."""

import pytest

from tests.papers import rows
from tests.slow import mark_slow
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives.corruption import random_words

_ROWS = rows.of_paper('ecs', ('base', 'tiny'))
# Row -> (embeddings, layers) that are language-specific.
_PLANS = {
  'sep_emb': (True, 0),
  'sep_emb_l1_3': (True, 3),
  'sep_emb_l1_6': (True, 6),
  'sep_l1_3': (False, 3),
  'sep_l1_6': (False, 6),
}


def test_rows_equal_table_1():
  assert set(_ROWS) == set(_PLANS) | {
    'default',
    'wiki_cc',
    'default_anchors',
    'no_anchors',
    'extra_anchors',
    'monolingual',
    'monolingual_seed_2',
  }


# The other plans only change the number of language-specific layers.
@pytest.mark.parametrize(
  'row', mark_slow(_ROWS, slow=['sep_emb_l1_3', 'sep_emb_l1_6', 'sep_l1_6'])
)
def test_settings_equal_the_paper(row):
  """Section 3.1."""
  settings = rows.trace('ecs', row)
  config = settings.model.config
  assert rows.sizes(config) == (8, 768, 3072, 12)
  assert config.dropout_rate == 0.1
  (mono,) = settings.datasets
  assert (mono.length, mono.batch_size, mono.alpha) == (256, 96 * 8, 0.7)
  assert mono.batching is dataset_config.LanguageBatching.ONE_LANGUAGE
  assert mono.mixture == {
    'extra_anchors': 'corpus.code_switched',
    'monolingual': 'corpus.mono.en',
    'monolingual_seed_2': 'corpus.mono.en',
  }.get(row, 'corpus.mono')
  # The schedule is an inverse square root.
  assert rows.rates(settings, 15_000, 30_000, 120_000) == pytest.approx(
    [0.5e-4, 1e-4, 0.5e-4]
  )
  assert settings.num_train_steps == 200 * 200_000
  (entry,) = settings.objectives.entries
  assert entry.objective.mask_ratio == 0.15
  assert settings.checkpoints.metric_for_best_model == (
    'perplexity/perplexity/mean'
    if row.startswith('monolingual')
    else 'perplexity/perplexity/en'
  )
  assert settings.seed == (1 if row == 'monolingual_seed_2' else 0)
  assert not settings.checkpoints.greater_is_better


@pytest.mark.parametrize('row', _ROWS)
def test_sharing_plan_equals_the_paper(row):
  settings = rows.settings('ecs', row)
  plan = settings.model.config.sharing
  assert _PLANS.get(row) == (plan and (plan.embeddings, plan.layers))
  random_word_source = settings.objectives.entries[0].objective.random_words
  language_words = random_words.RandomWords.LANGUAGE
  assert (random_word_source is language_words) == (row.startswith('sep_emb'))


@pytest.mark.parametrize(
  'row',
  mark_slow(
    _ROWS, slow={*_PLANS, 'wiki_cc', 'extra_anchors'} - {'sep_emb_l1_6'}
  ),
)
def test_tiny_configuration_has_the_same_plan(row):
  rows.check_tiny_row('ecs', row)
  tiny, full = rows.tiny_settings('ecs', row), rows.settings('ecs', row)
  assert tiny.model.config.sharing == full.model.config.sharing


def test_parameter_counts_of_joint_and_separate_vocabularies():
  """The joint vocabulary has 80k tokens, and that of a language 40k."""
  joint = vocabulary_spec.make_dummy_spec(80_000, num_languages=2)
  separate_spec = vocabulary_spec.make_dummy_spec(40_000, num_languages=2)
  body = 8 * (12 * 768**2 + 13 * 768)
  default = rows.parameters(rows.settings('ecs', 'default', vocabulary=joint))
  assert default == pytest.approx(80_000 * 769 + body, rel=0.01)
  separate = rows.parameters(
    rows.settings('ecs', 'sep_emb', vocabulary=separate_spec)
  )
  assert separate == pytest.approx(default, rel=0.01)
