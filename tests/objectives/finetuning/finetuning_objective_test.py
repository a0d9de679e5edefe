"""Inputs of heads: layers, custom features, and frozen and shared encoders."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.errors import raises_error
from tests.objectives.finetuning import fixtures
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.models.heads import classification_heads
from xlflax.models.variants import parameter_sharing, veco
from xlflax.objectives import model_calls
from xlflax.objectives.finetuning.token_classification import (
  TokenClassification,
)
from xlflax.utils import errors

_LABELS = ('a', 'b', 'c')


def _states(objective, model, params, batch):
  return np.asarray(
    jax.jit(objective.states, static_argnums=(0, 3))(
      model, params, batch, fixtures.SPEC
    )
  )


def _every_layer(model, params, batch):
  return np.asarray(
    jax.jit(model.apply, static_argnames='method')(
      {'params': params['model']},
      batch['token_ids'],
      segment_ids=batch['segment_ids'],
      positions=batch['positions'],
      language_ids=batch['language_ids'],
      method='encode_layers',
    )
  )


def test_layer_selects_encoder_states(model, batch):
  params = fixtures.make_params(model, TokenClassification(labels=_LABELS))
  layer_states = _every_layer(model, params, batch)
  for layer, expected in ((None, 2), (0, 0), (1, 1), (-1, 2), (2, 2)):
    objective = TokenClassification(labels=_LABELS, layer=layer)
    np.testing.assert_allclose(
      _states(objective, model, params, batch),
      layer_states[expected],
      atol=1e-5,
    )


def test_plug_in_features_equal_pair_features(batch):
  model = fixtures.make_model(cross_attention=True)
  objective = TokenClassification(
    labels=_LABELS, features='plug_in', head_type='dense'
  )
  params = fixtures.make_params(model, objective)
  head = params['heads']['token_classification']
  assert head['dense']['kernel'].shape == (16, 8)
  names = ('token_ids', 'segment_ids', 'positions', 'language_ids')
  first = {name: batch[name] for name in names}
  second = {name: batch[name][::-1] for name in names}
  pairs = batch | {f'paired_{name}': second[name] for name in names}
  expected, _ = jax.jit(
    lambda params: model.apply(
      {'params': params}, first, second, method=veco.pair_features
    )
  )(params['model'])
  np.testing.assert_allclose(
    _states(objective, model, params, pairs), expected, atol=1e-5
  )
  with raises_error(
    errors.ConfigError, mentions=("'token_classification'", 'heads')
  ):
    objective.states(model, params, batch, fixtures.SPEC)


def test_frozen_encoder_has_no_gradient_and_no_dropout(model, batch):
  objective = TokenClassification(
    labels=_LABELS,
    freeze_encoder=True,
    layer=1,
    head_layers=1,
    head_dropout=0.0,
  )
  params = fixtures.make_params(model, objective)
  _, gradient = fixtures.run(objective, model, params, batch)
  assert not any(np.any(x) for x in jax.tree.leaves(gradient['model']))
  head = gradient['heads'][objective.name]
  assert set(head) == {'layers', 'output'} and set(head['layers']) == {
    'layer_0'
  }
  for leaf in jax.tree.leaves(head['output']):
    assert np.any(leaf)
  assert np.any(head['layers']['layer_0']['mlp']['wi']['kernel'])
  plain = TokenClassification(
    labels=_LABELS, freeze_encoder=True, head_dropout=0.0
  )
  trained, still = jax.jit(
    lambda params: [
      plain(model, params, batch, fixtures.make_context(train=train)).loss.total
      for train in (True, False)
    ]
  )(params)
  np.testing.assert_allclose(trained, still, rtol=1e-6)


def test_head_layers_reject_disentangled_attention(model):
  config = dataclasses.replace(
    model.config, position_embedding='disentangled', relative_buckets=4
  )
  objective = TokenClassification(labels=_LABELS, head_layers=2)
  with raises_error(
    errors.ConfigError, where='TokenClassification.head_layers', got=2
  ):
    objective._check(model.clone(config=config))


def test_head_layers_ignore_padding(model, batch):
  objective = TokenClassification(labels=_LABELS, head_layers=2)
  params = fixtures.make_params(model, objective)
  first = _states(objective, model, params, batch)
  other = batch | {
    'token_ids': np.where(batch['segment_ids'] > 0, batch['token_ids'], 9)
  }
  text = batch['segment_ids'] > 0
  np.testing.assert_allclose(
    _states(objective, model, params, other)[text], first[text], atol=1e-5
  )


@pytest.mark.parametrize('head', ['output', 'dense', 'dense_norm'])
def test_initial_head_parameters(model, head):
  objective = TokenClassification(labels=_LABELS, head_type=head)
  head_params = nn.meta.unbox(objective.init_heads(model, jax.random.key(0)))
  shapes = jax.tree.map(jnp.shape, head_params)
  expected = {'output': {'kernel': (8, 3), 'bias': (3,)}}
  if head != 'output':
    expected['dense'] = {'kernel': (8, 8), 'bias': (8,)}
  if head == 'dense_norm':
    expected['norm'] = {'scale': (8,)}
  assert shapes == expected
  assert not np.any(head_params['output']['bias'])
  spread = np.std(head_params['output']['kernel'])
  assert 0.25 < spread < 0.75  # initializer_range is 0.5
  assert classification_heads.token_logits(
    head_params, jnp.ones((1, 2, 8))
  ).shape == (1, 2, 3)


@pytest.mark.slow
def test_sharing_plan_uses_language_specific_parameters(batch):
  model = fixtures.make_model(
    sharing=parameter_sharing.SharingPlan(embeddings=True, layers=1)
  )
  objective = TokenClassification(labels=_LABELS)
  params = fixtures.make_params(model, objective)
  german = {key: value[1:2] for key, value in batch.items()}
  plain = fixtures.make_model()
  expected = _every_layer(
    plain,
    {
      'model': parameter_sharing.select_language_params(
        model.config.sharing, params['model'], 1
      )
    },
    german,
  )[-1]
  np.testing.assert_allclose(
    _states(objective, model, params, german), expected, atol=1e-5
  )
  _, gradient = fixtures.run(objective, model, params, german)
  language_gradient = gradient['model']['language_specific']['embeddings'][
    'token'
  ]
  assert [bool(np.any(x)) for x in language_gradient] == [False, True, False]


@pytest.mark.slow
def test_encoder_decoder_trains_only_the_encoder(batch):
  model = encoder_decoder.EncoderDecoder(
    model_config.with_vocabulary(
      encoder_decoder_config.EncoderDecoderConfig(
        family='t5',
        num_encoder_layers=2,
        num_decoder_layers=1,
        hidden_dim=8,
        mlp_dim=12,
        num_heads=2,
        max_position_embeddings=16,
      ),
      fixtures.SPEC,
    )
  )
  objective = TokenClassification(labels=_LABELS, layer=1, head_layers=1)
  params = fixtures.make_params(model, objective)
  output, gradient = fixtures.run(objective, model, params, batch)
  assert np.isfinite(output.loss.total)
  assert np.any(gradient['model']['encoder']['token'])
  assert not any(
    np.any(x) for x in jax.tree.leaves(gradient['model']['decoder'])
  )


def test_unsupported_decoder_states_are_rejected(model):
  with raises_error(
    errors.ConfigError, mentions=('layer=1', "features='plug_out'")
  ):
    TokenClassification(labels=_LABELS, layer=1, states_from='decoder')
  objective = TokenClassification(labels=_LABELS, states_from='decoder')
  with raises_error(errors.ConfigError, got='Encoder'):
    fixtures.make_params(model, objective)


def test_states_equal_encode(model, batch):
  """The states are those of the last layer."""
  objective = TokenClassification(labels=_LABELS)
  params = fixtures.make_params(model, objective)
  context = fixtures.make_context()
  expected = jax.jit(
    lambda params, batch: model_calls.encode_batch(
      model, params, batch, rng=jax.random.key(0), context=context
    )
  )(params, batch)
  np.testing.assert_allclose(
    _states(objective, model, params, batch), expected, atol=1e-5
  )


@pytest.mark.parametrize(
  ('fields', 'values'),
  [
    (dict(head_dropout=1.0), (1.0, 'TokenClassification.head_dropout')),
    (dict(head_layers=-1), (-1, 'TokenClassification.head_layers')),
    (dict(activation='tan'), ('tan', 'TokenClassification.activation')),
    (
      dict(features='plug_in', layer=1),
      ("features='plug_in'", 1, 'TokenClassification.layer'),
    ),
    (
      dict(freeze_encoder='cold'),
      ('cold', 'TokenClassification.freeze_encoder'),
    ),
    (dict(labels=('a',)), ("('a',)", 'TokenClassification.labels')),
    (dict(labels=('a', 'a')), ("('a', 'a')", 'TokenClassification.labels')),
  ],
)
def test_invalid_settings_are_rejected(fields, values):
  with raises_error(errors.ConfigError, mentions=values):
    TokenClassification(**dict(labels=_LABELS) | fields)


@pytest.mark.parametrize(
  ('fields', 'model_fields', 'values'),
  [
    (dict(layer=3), {}, (3, 'TokenClassification.layer')),
    (dict(layer=-4), {}, (-4, 'TokenClassification.layer')),
    (
      dict(features='plug_in'),
      {},
      ('cross_attention', 'TokenClassification.features'),
    ),
    (
      dict(features='plug_in'),
      dict(
        cross_attention=True, sharing=parameter_sharing.SharingPlan(layers=1)
      ),
      ('plug_in', 'features=', 'TokenClassification.features'),
    ),
  ],
)
def test_incompatible_models_are_rejected(fields, model_fields, values):
  objective = TokenClassification(labels=_LABELS, **fields)
  with raises_error(errors.ConfigError, mentions=values):
    objective.init_heads(fixtures.make_model(**model_fields), jax.random.key(0))
