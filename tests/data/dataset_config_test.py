import jax.numpy as jnp
import pytest

from tests.errors import raises_error
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors

_SPEC = vocabulary_spec.make_dummy_spec(64)


def _dataset(**settings):
  return dataset_config.DatasetConfig(
    **{
      'name': 'mono',
      'mixture': 'corpus.mono',
      'layout': 'blocks',
      'length': 16,
      'batch_size': 4,
    }
    | settings
  )


def test_enums_may_be_given_by_value():
  dataset = _dataset(
    batching='one_language',
    layout='PAIRS',
    pairs=dataset_config.PairOptions(separator='xlm'),
  )
  assert dataset.batching is dataset_config.LanguageBatching.ONE_LANGUAGE
  assert dataset.layout is dataset_config.ExampleLayout.PAIRS
  assert dataset.pairs.separator is dataset_config.SpecialTokenTemplate.XLM


@pytest.mark.parametrize(
  'mixture, hints',
  [
    (
      'corpus.mono.de,corpus.mono.en',
      (
        '--gin.MONO="\'corpus.mono\'"',
        "--gin.LANGUAGES=\"('de', 'en')\"",
        'task_registry.add_mixture',
      ),
    ),
    (['corpus.mono.de', 'corpus.mono.en'], ("('de', 'en')",)),
    (('wiki40b.de', 'news'), ("['wiki40b.de', 'news']", '--task_module=')),
    ('corpus.parallel.de_en, corpus.parallel.en_fr', ('--task_module=',)),
    (['corpus.mono.de'], ("'corpus.mono.de'",)),
  ],
)
def test_mixture_is_a_single_name(mixture, hints):
  with raises_error(errors.ConfigError, got=mixture) as caught:
    _dataset(mixture=mixture)
  assert 'DatasetConfig.mixture' in caught.value.where
  for hint in hints:
    assert hint in caught.value.fix


def test_unknown_value_names_the_choices():
  with raises_error(
    errors.ConfigError,
    got='block',
    mentions=('blocks', 'DatasetConfig.layout', 'mono'),
  ):
    _dataset(layout='block')


@pytest.mark.parametrize(
  'settings, values',
  [
    ({'length': 2}, (2, "dataset 'mono'")),
    ({'layout': 'pairs', 'length': 5}, (5, "dataset 'mono'")),
    ({'batch_size': 0}, ('DatasetConfig.batch_size', 'mono', 0)),
    ({'max_examples': 0}, ('DatasetConfig.max_examples', 'mono', 0)),
    (
      {'max_examples': 9},
      ('DatasetConfig.max_examples', 'ExampleLayout.BLOCKS', "dataset 'mono'"),
    ),
    (
      {'layout': 'sentences', 'packing': 'next_fit', 'max_examples': 9},
      ('ExampleLayout.SENTENCES', "dataset 'mono'"),
    ),
    ({'alpha': -0.5}, ('DatasetConfig.alpha', 'mono', -0.5)),
    # The temperature of T5 in place of its reciprocal.
    ({'alpha': 5}, ('DatasetConfig.alpha', 'mono', 5, 0.2)),
    (
      {'packing': 'next_fit'},
      ('DatasetConfig.packing', 'ExampleLayout.BLOCKS', "dataset 'mono'"),
    ),
    (
      {'pairs': dataset_config.PairOptions(min_tokens=3)},
      ('DatasetConfig.pairs', 'ExampleLayout.BLOCKS', "dataset 'mono'"),
    ),
    (
      {'layout': 'dual', 'pairs': dataset_config.PairOptions(separator='bert')},
      ('DatasetConfig.pairs.separator', 'ExampleLayout.DUAL', "dataset 'mono'"),
    ),
    (
      {
        'layout': 'interleaved',
        'pairs': dataset_config.PairOptions(max_tokens=9),
      },
      (
        'DatasetConfig.pairs.max_tokens',
        'ExampleLayout.INTERLEAVED',
        "dataset 'mono'",
      ),
    ),
  ],
)
def test_invalid_settings_are_rejected(settings, values):
  with raises_error(errors.ConfigError, mentions=values):
    _dataset(**settings)


def test_filters_that_drop_all_pairs_are_rejected():
  with raises_error(errors.ConfigError, mentions='xlmr'):
    dataset_config.PairOptions(min_tokens=10, max_tokens=19)
  with raises_error(errors.ConfigError, got=0, where='PairOptions.min_tokens'):
    dataset_config.PairOptions(min_tokens=0)


def test_capacity_excludes_special_tokens():
  assert _dataset(length=16).capacity == 14
  assert _dataset(layout='pairs').capacity == 12
  assert (
    _dataset(
      layout='pairs', pairs=dataset_config.PairOptions(separator='bert')
    ).capacity
    == 13
  )


def test_batch_spec_has_the_keys_of_the_layout():
  single_keys = {'token_ids', 'segment_ids', 'positions', 'language_ids'}
  assert _dataset(layout='blocks').batch_spec(_SPEC).keys() == single_keys
  assert _dataset(layout='pairs').batch_spec(_SPEC).keys() == single_keys | {
    'side_ids'
  }
  dual_spec = _dataset(layout='dual').batch_spec(_SPEC)
  assert dual_spec.keys() == single_keys | {
    f'paired_{key}' for key in single_keys
  }
  assert {(v.shape, v.dtype) for v in dual_spec.values()} == {
    ((4, 16), jnp.dtype('int32'))
  }
