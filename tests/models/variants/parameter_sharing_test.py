"""Language-specific parameters of encoders."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.models import layer_stacking, random_parameters
from tests.slow import mark_slow
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.models.variants import parameter_sharing
from xlflax.models.variants.parameter_sharing import SharingPlan
from xlflax.training import param_tree
from xlflax.utils import errors

_CONFIG = model_config.EncoderConfig(
  num_layers=8,
  hidden_dim=8,
  mlp_dim=12,
  num_heads=2,
  vocab_size=30,
  pad_vocab_size_multiple=1,
  max_position_embeddings=10,
  num_languages=3,
  use_language_embeddings=True,
  dropout_rate=0.0,
  attention_dropout_rate=0.0,
  initializer_range=0.5,
)
# The systems of ECS, table 1.
_PLANS = {
  'Sep Emb': SharingPlan(embeddings=True),
  'Sep Emb + L1-3': SharingPlan(embeddings=True, layers=3),
  'Sep Emb + L1-6': SharingPlan(embeddings=True, layers=6),
  'Sep L1-3': SharingPlan(layers=3),
  'Sep L1-6': SharingPlan(layers=6),
}
_LANGUAGES = 3
# The key bias adds a constant to all scores of a query.
_NO_EFFECT = 'attention/key/bias'
_ORDINARY = encoder.Encoder(_CONFIG)
_TOKENS = np.random.default_rng(0).integers(0, 30, (4, 7))


def _model(plan, **fields) -> encoder.Encoder:
  return encoder.Encoder(dataclasses.replace(_CONFIG, sharing=plan, **fields))


def _params(plan: SharingPlan):
  return random_parameters.draw_parameters(_model(plan), spread=0.5)


@jax.jit
def _logits(params, language):
  languages = jnp.broadcast_to(language, _TOKENS.shape)
  return _ORDINARY.apply({'params': params}, _TOKENS, language_ids=languages)


@functools.partial(jax.jit, static_argnums=0)
def _gradient(plan, params, language):
  def loss(params):
    logits = _logits(
      parameter_sharing.select_language_params(plan, params, language), language
    )
    return jnp.square(jax.nn.log_softmax(logits)).mean()

  return jax.grad(loss)(params)


@pytest.mark.parametrize('name', mark_slow(_PLANS, set(_PLANS) - {'Sep Emb'}))
def test_gradients_update_language_specific_and_shared_parameters(name):
  plan = _PLANS[name]
  params = _params(plan)
  gradient = jax.tree.map(np.asarray, _gradient(plan, params, jnp.int32(1)))
  own_gradient = gradient.pop('language_specific')
  assert set(own_gradient) == {
    *(['embeddings', 'output_bias'] * plan.embeddings),
    *(['layers'] * (plan.layers > 0)),
  }
  for name, leaf in param_tree.flatten_params(own_gradient).items():
    assert leaf.shape[0] == _LANGUAGES, name
    assert np.abs(leaf[1]).max() > 1e-6 or name.endswith(_NO_EFFECT), name
    assert not leaf[0].any() and not leaf[2].any(), name
  for name, leaf in param_tree.flatten_params(gradient).items():
    assert np.abs(leaf).max() > 1e-6 or name.endswith(_NO_EFFECT), name
    assert np.isfinite(leaf).all(), name
  shapes = jax.tree.map(np.shape, own_gradient)
  if plan.layers:
    assert shapes['layers']['mlp']['wi']['kernel'] == (3, plan.layers, 8, 12)
    kernel = gradient['layers']['mlp']['wi']['kernel']
    assert kernel.shape == (8 - plan.layers, 8, 12)
  if plan.embeddings:
    assert shapes['embeddings']['token'] == (3, 30, 8)
    assert shapes['embeddings']['position'] == (3, 10, 8)
    assert shapes['output_bias'] == (3, 30)
    # The table has one embedding per language.
    assert set(gradient['embeddings']) == {'language'}


def _select_with_numpy(plan, params, language):
  """Returns the parameters of one language as those of a plain encoder."""
  params = jax.tree.map(np.asarray, params)
  own_params = jax.tree.map(
    lambda x: x[language], params.pop('language_specific')
  )
  if plan.layers:
    params['layers'] = jax.tree.map(
      lambda *x: np.concatenate(x), own_params['layers'], params['layers']
    )
  if plan.embeddings:
    params['embeddings'] = {
      **own_params['embeddings'],
      'language': params['embeddings']['language'],
    }
    params['output_bias'] = own_params['output_bias']
  return params


@pytest.mark.parametrize(
  'name', mark_slow(_PLANS, set(_PLANS) - {'Sep Emb', 'Sep Emb + L1-6'})
)
def test_selected_parameters_equal_those_of_a_plain_encoder(name):
  plan = _PLANS[name]
  want = jax.tree.map(
    jnp.shape,
    nn.unbox(
      jax.eval_shape(
        lambda key: model_params.init_params(_ORDINARY, key), jax.random.key(0)
      )
    ),
  )
  params = _params(plan)
  traced = jax.jit(
    functools.partial(parameter_sharing.select_language_params, plan)
  )
  for language in range(_LANGUAGES):
    tree = _select_with_numpy(plan, params, language)
    assert jax.tree.map(np.shape, tree) == want
    got = traced(params, jnp.int32(language))
    jax.tree.map(np.testing.assert_array_equal, got, tree)
  got = parameter_sharing.select_language_params(plan, params, 2)
  jax.tree.map(np.testing.assert_array_equal, got, tree)


def test_logits_differ_by_language():
  plan = _PLANS['Sep Emb + L1-3']
  params = _params(plan)
  logits = [
    np.asarray(_logits(_select_with_numpy(plan, params, i), i))
    for i in range(2)
  ]
  assert np.abs(logits[0] - logits[1]).max() > 0.1


@pytest.mark.slow
def test_languages_are_initialized_independently():
  """The shared parameters equal those of a model without a plan."""
  plan = _PLANS['Sep Emb + L1-3']
  params = nn.unbox(model_params.init_params(_model(plan), jax.random.key(0)))
  ordinary = nn.unbox(model_params.init_params(_ORDINARY, jax.random.key(0)))
  np.testing.assert_array_equal(
    params['layers']['mlp']['wi']['kernel'],
    ordinary['layers']['mlp']['wi']['kernel'][3:],
  )
  table = params['language_specific']['embeddings']['token']
  kernel = params['language_specific']['layers']['mlp']['wi']['kernel']
  for weights in (table, kernel):
    assert abs(weights.std() - 0.5) < 0.05
    for i in range(_LANGUAGES):
      assert (weights[i] != weights[i - 1]).mean() > 0.99
  assert (table[0] != ordinary['embeddings']['token']).mean() > 0.99


def test_share_init_initializes_languages_equally():
  """Only the token embeddings differ between languages."""
  plan = SharingPlan(embeddings=True, layers=3, share_init=True)
  spec = VocabularySpec(
    size=30,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en', 'de', 'fr'),
  )
  shared_config = dataclasses.replace(_CONFIG, sharing=plan)
  model = encoder.Encoder(model_config.with_vocabulary(shared_config, spec))
  params = nn.unbox(model_params.init_params(model, jax.random.key(0)))
  parts = params[parameter_sharing.LANGUAGE_SPECIFIC]
  tokens = parts['embeddings'].pop('token')
  np.testing.assert_array_equal(tokens[0, :5], tokens[2, :5])
  assert not np.any(np.isclose(tokens[0, 5:], tokens[2, 5:]).all(axis=-1))
  for leaf in jax.tree.leaves(parts):
    np.testing.assert_array_equal(leaf[0], leaf[1])
    np.testing.assert_array_equal(leaf[0], leaf[2])
  apart = SharingPlan(embeddings=True, layers=3)
  plain = nn.unbox(model_params.init_params(_model(apart), jax.random.key(0)))
  plain = plain[parameter_sharing.LANGUAGE_SPECIFIC]
  pieces = plain['embeddings'].pop('token')[1, 5:]
  np.testing.assert_array_equal(pieces, tokens[1, 5:])
  for leaf, first in zip(
    jax.tree.leaves(parts), jax.tree.leaves(plain), strict=True
  ):
    np.testing.assert_array_equal(leaf[1], first[0])


@pytest.mark.parametrize('plan', _PLANS.values(), ids=_PLANS)
def test_parameter_count_by_number_of_languages(plan):
  params = _params(plan)
  num_own_params = (
    model_params.count_params(params['language_specific']) // _LANGUAGES
  )
  ordinary = model_params.count_params(
    jax.eval_shape(
      lambda key: model_params.init_params(_ORDINARY, key), jax.random.key(0)
    )
  )
  assert (
    model_params.count_params(params)
    == ordinary + (_LANGUAGES - 1) * num_own_params
  )
  layer = 4 * (8 * 8 + 8) + 8 * 12 + 12 + 12 * 8 + 8 + 4 * 8
  tables = 30 * 8 + 10 * 8 + 2 * 8 + 30
  assert num_own_params == plan.layers * layer + plan.embeddings * tables


@pytest.mark.slow
@pytest.mark.parametrize(
  'plan',
  [_PLANS['Sep Emb + L1-3'], SharingPlan(layers=8)],
  ids=['Sep Emb + L1-3', 'Sep L1-8'],
)
def test_scanned_equals_unrolled(plan):
  model = _model(plan, scan_layers=False)
  unrolled_shapes = jax.eval_shape(
    lambda key: nn.unbox(model_params.init_params(model, key)),
    jax.random.key(0),
  )
  scanned = _params(plan)
  unrolled = layer_stacking.unstack_layers(scanned)
  assert jax.tree.map(jnp.shape, unrolled) == jax.tree.map(
    jnp.shape, unrolled_shapes
  )
  jax.tree.map(
    np.testing.assert_array_equal,
    layer_stacking.stack_layers(unrolled),
    scanned,
  )
  jax.tree.map(
    np.testing.assert_array_equal,
    layer_stacking.stack_layers(
      parameter_sharing.select_language_params(plan, unrolled, 2)
    ),
    parameter_sharing.select_language_params(plan, scanned, 2),
  )


def test_stacked_boxes_have_logical_axes():
  plan = _PLANS['Sep Emb + L1-3']
  trees = [
    jax.eval_shape(
      functools.partial(
        model_params.init_params, _model(plan, scan_layers=scan)
      ),
      jax.random.key(0),
    )
    for scan in (True, False)
  ]
  unrolled = jax.eval_shape(layer_stacking.unstack_layers, trees[0])
  assert jax.tree.structure(unrolled) == jax.tree.structure(trees[1])
  kernel = unrolled['language_specific']['layers_2']['mlp']['wi']['kernel']
  assert kernel.names == ('language', 'embed', 'mlp')
  kernel = trees[0]['language_specific']['layers']['mlp']['wi']['kernel']
  assert kernel.names == ('language', 'layers', 'embed', 'mlp')


def test_parameters_are_unchanged_without_a_plan():
  params = {'embeddings': {}}
  assert parameter_sharing.select_language_params(None, params, 0) is params
  assert parameter_sharing.get_sharing_plan(_ORDINARY) is None
  assert parameter_sharing.get_sharing_plan(object()) is None
  plan = SharingPlan(layers=1)
  assert parameter_sharing.get_sharing_plan(_model(plan)) is plan


@pytest.mark.parametrize(
  ('fields', 'values'),
  [
    (
      {'layers': 1, 'special_ids': (0,)},
      ('(0,)', 'share_init=True', 'SharingPlan.special_ids'),
    ),
    ({}, ('embeddings=False', 'layers=0', 'SharingPlan')),
    ({'layers': -1}, (-1, 'SharingPlan.layers')),
  ],
)
def test_invalid_plans_are_rejected(fields, values):
  with raises_error(errors.ConfigError, mentions=values):
    SharingPlan(**fields)


def test_too_many_layers_are_rejected():
  with raises_error(
    errors.ConfigError, got=9, where='SharingPlan.layers', mentions=8
  ):
    _model(SharingPlan(layers=9))


def test_plan_requires_num_languages():
  model = _model(
    SharingPlan(layers=1), num_languages=None, use_language_embeddings=False
  )
  with pytest.raises(errors.ConfigError):
    model_params.init_params(model, jax.random.key(0))
