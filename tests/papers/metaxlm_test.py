"""Gin files of MetaXLM: published settings and tracing."""

import jax
import pytest

from tests.papers import rows
from tests.slow import mark_slow
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining import distillation

_ROWS = rows.of_paper('metaxlm', ('base', 'settings', 'tiny'))


@pytest.fixture(autouse=True)
def teacher(monkeypatch):
  """Replaces distillation from a run by a fake objective."""
  monkeypatch.setattr(
    distillation.Distillation,
    'init_state',
    lambda self, model, params, vocabulary: (),
  )

  def no_teacher(self, model, params, batch, context):
    del batch, context, model
    first = jax.tree.leaves(params)[0]
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(first.sum(), first.sum()), {}
    )

  monkeypatch.setattr(distillation.Distillation, '__call__', no_teacher)


def test_rows_equal_the_tables():
  assert _ROWS == sorted(
    ['meta', 'xlm', 'metaxlm', 'dict', 'freezing', 'body', 'emb', 'kd']
  )


# A trace takes several CPU seconds. The other rows are ablations.
@pytest.mark.parametrize(
  'row', mark_slow(_ROWS, set(_ROWS) - {'xlm', 'metaxlm', 'kd'})
)
def test_settings_equal_the_paper(row):
  """Table 7."""
  settings = rows.trace('metaxlm', row)
  config = settings.model.config
  assert rows.sizes(config) == (12, 768, 3072, 12)
  assert config.dropout_rate == 0.1
  (mono,) = settings.datasets
  assert (mono.length, mono.batch_size, mono.alpha) == (512, 64, 0.7)
  assert mono.batching is dataset_config.LanguageBatching.MIXED
  assert settings.num_train_steps == 200_000
  assert rows.rates(settings, 5_000, 10_000, 105_000, 200_000) == pytest.approx(
    [0.5e-4, 1e-4, 0.5e-4, 0]
  )


@pytest.mark.parametrize(
  'row', mark_slow(_ROWS, set(_ROWS) - {'xlm', 'metaxlm'})
)
def test_tiny_configuration_is_valid(row):
  rows.check_tiny_row('metaxlm', row)


@pytest.mark.parametrize(
  'row, layers, embeddings, dictionaries',
  [
    ('xlm', False, False, False),
    ('metaxlm', True, True, False),
    ('dict', True, True, True),
    ('freezing', True, True, False),
    ('body', True, False, False),
    ('emb', False, True, False),
  ],
)
def test_initialized_parameters_equal_the_paper(
  row, layers, embeddings, dictionaries
):
  """Tables 1, 4 and 5."""
  settings = rows.settings('metaxlm', row)
  init = settings.init_from
  is_initialized = {
    name: init is not None and init.should_initialize(name)
    for name in (
      'model/layers/mlp/wi/kernel',
      'model/embeddings/position',
      'model/head_dense/kernel',
      'model/embeddings/token',
    )
  }
  assert list(is_initialized.values()) == [layers, layers, layers, embeddings]
  matching = init and init.vocabulary_matching
  assert bool(matching) == embeddings
  assert bool(matching and matching.dictionaries) == dictionaries


def test_freezing_trains_only_embeddings_and_head():
  """Section 5.4."""
  settings = rows.settings('metaxlm', 'freezing')
  for name, trains in (
    ('model/layers/attention/query/kernel', False),
    ('model/embeddings/token', True),
    ('model/head_dense/kernel', True),
  ):
    assert settings.optimizer.is_trainable(name) == trains


def test_parameter_count():
  """Table 3 of PPA states 270M parameters for these sizes."""
  settings = rows.settings(
    'metaxlm',
    'metaxlm',
    vocabulary=vocabulary_spec.make_dummy_spec(250_002, num_languages=94),
  )
  assert rows.parameters(settings) == pytest.approx(270e6, rel=0.04)
