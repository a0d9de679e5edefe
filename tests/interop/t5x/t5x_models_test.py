"""Compares losses, gradients and parameters of models in T5X and xlflax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.interop.t5x import conftest
from xlflax.data import dataset_config
from xlflax.data.batching import collate as rows
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import (
  decoding,
  encoder,
  encoder_decoder,
  encoder_decoder_config,
)
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm, sentence_alignment, seq2seq
from xlflax.training import param_tree, randomness, train_step
from xlflax.training import train_state as own_train_state
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

t5x_optimizers = conftest.import_t5x('t5x.optimizers')

from t5x import partitioning, train_state, trainer  # noqa: E402

from xlflax.interop.t5x import (  # noqa: E402
  logical_axes,
  objective_model,
  t5x_models,  # noqa: E402
)

_SPEC = vocabulary_spec.make_dummy_spec(64, num_languages=3)
_TINY = dict(
  hidden_dim=16,
  mlp_dim=32,
  num_heads=2,
  max_position_embeddings=32,
  dropout_rate=0.1,
  attention_dropout_rate=0.1,
)
_RATE = 0.01


class _Vocabulary:
  """The attributes of a SeqIO vocabulary that models use."""

  class vocabulary:
    spec = _SPEC


def _text(seed, size):
  first = max(_SPEC.special_ids) + 1
  return (
    np.random.default_rng(seed)
    .integers(first, _SPEC.size, size)
    .astype(np.int32)
  )


def _batch(layout):
  examples = [
    rows.Row([(_text(2 * i, 4 + i), _text(2 * i + 1, 9 - i))], (i % 2, 2))
    for i in range(4)
  ]
  if layout == 'sentences':
    examples = [
      rows.Row([row.units[0][:1]], row.languages[:1]) for row in examples
    ]
  length = 24 if layout == 'pairs' else 12
  return rows.build_batch(
    examples,
    dataset_config.DatasetConfig(
      name='s', mixture='m', layout=layout, length=length, batch_size=4
    ),
    _SPEC,
  )


def _encoder_model(objective, layout, **options):
  module = encoder.Encoder(
    model_config.EncoderConfig(num_layers=2, **_TINY, **options)
  )
  return t5x_models.EncoderModel(
    module=module,
    vocabulary=_Vocabulary(),
    objective=objective,
    optimizer_def=t5x_optimizers.sgd(_RATE),
    layout=layout,
  )


def _pair_model(**options):
  module = encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      family='t5',
      num_encoder_layers=2,
      num_decoder_layers=2,
      gated_mlp=True,
      activation='gelu_tanh',
      tie_word_embeddings=False,
      layer_norm_epsilon=1e-6,
      **_TINY,
    )
  )
  return t5x_models.EncoderDecoderModel(
    module=module,
    vocabulary=_Vocabulary(),
    layout='dual',
    objective=seq2seq.Translation(decoder_start='pad'),
    optimizer_def=t5x_optimizers.sgd(_RATE),
    decoding_options=decoding.DecodingOptions(method='greedy', max_length=6),
    **options,
  )


_MODELS = {
  'mlm': lambda: (
    _encoder_model(masked_lm.MaskedLM(mask_ratio=0.3), 'sentences'),
    'sentences',
  ),
  'tlm': lambda: (
    _encoder_model(
      masked_lm.TranslationLM(mask_ratio=0.3),
      'pairs',
      type_vocab_size=2,
      use_language_embeddings=True,
    ),
    'pairs',
  ),
  'translation': lambda: (_pair_model(), 'dual'),
}


def test_unsupported_layouts_of_objectives_are_rejected():
  with raises_error(
    errors.ConfigError, mentions=('tlm', 'ExampleLayout.SENTENCES')
  ):
    _encoder_model(masked_lm.TranslationLM(), 'sentences')


@pytest.fixture(scope='module', params=list(_MODELS))
def case(request):
  """A model, a batch, and a new T5X train state."""
  model, layout = _MODELS[request.param]()
  batch = {k: jnp.asarray(v) for k, v in _batch(layout).items()}
  state = train_state.FlaxOptimTrainState.create(
    model.optimizer_def, model.get_initial_variables(jax.random.PRNGKey(1), {})
  )
  return model, batch, state


def _xlflax_step(model, params, batch):
  """Runs one step of `xlflax train`; returns its output and parameters."""
  optimizer = optimizers.SGD(learning_rate=_RATE)
  builder = train_step.TrainStepBuilder(
    model.module,
    objective_mixture.ObjectiveMixture(
      entries=(
        objective_mixture.WeightedObjective(
          dataset='s', objective=model.objective
        ),
      )
    ),
    optimizer,
    _SPEC,
    seed=3,
  )
  state = own_train_state.TrainState(
    step=jnp.int32(0),
    params=params,
    ema=(),
    objective_state={},
    opt_state=optimizer.transform.init(params),
  )
  state, output = jax.jit(builder.build((0,)))(state, {'s': batch})
  return output, state.params


def test_training_step_equals_xlflax(case):
  model, batch, state = case
  params = objective_model.unfreeze_params(state.params)
  output, expected_params = _xlflax_step(model, params, batch)
  key = randomness.purpose_key(3, randomness.Purpose.TRAINING)
  for _ in range(2):  # For the step and the objective.
    key = jax.random.fold_in(key, 0)
  after, metrics = jax.jit(
    lambda s, b: trainer.train_with_lr(s, b, _RATE, key, model, None)
  )(state, batch)
  np.testing.assert_allclose(metrics['loss'].compute(), output.loss, atol=1e-5)
  params_by_name = param_tree.flatten_params(
    objective_model.unfreeze_params(after.params)
  )
  for name, array in param_tree.flatten_params(expected_params).items():
    np.testing.assert_allclose(
      params_by_name[name], array, atol=1e-6, err_msg=name
    )


def test_evaluation_masks_the_same_tokens(case):
  model, batch, state = case
  first, metrics = model.eval_fn(state.params, batch)
  second, _ = model.eval_fn(state.params, batch)
  assert first == second and np.isfinite(first)
  np.testing.assert_allclose(metrics['loss'].compute(), first, rtol=1e-6)


def test_scores_do_not_depend_on_other_sequences(case):
  model, batch, state = case
  scores, more = model.score_batch(
    state.params, batch, return_intermediates=True
  )
  order = np.array([2, 0, 3, 1])
  again = model.score_batch(
    state.params, {key: array[order] for key, array in batch.items()}
  )
  np.testing.assert_allclose(again, scores[order], atol=1e-4)
  assert np.all(scores < 0) and np.all(more['tokens'] >= 1)


def test_partitioner_knows_the_axes_of_all_parameters(case):
  model, _, state = case
  partitioner = partitioning.PjitPartitioner(
    num_partitions=1,
    logical_axis_rules=(
      partitioning.standard_logical_axis_rules(
        additional_rules=logical_axes.additional_rules()
      )
    ),
  )
  variables = model.get_initial_variables(jax.random.PRNGKey(1), {})
  names = param_tree.flatten_params(
    objective_model.unfreeze_params(variables['params'])
  )
  mesh_axes = partitioner.get_mesh_axes(state)
  params_by_name = param_tree.flatten_params(
    objective_model.unfreeze_params(mesh_axes.params)
  )
  assert set(params_by_name) == set(names)
  token = next(n for n in names if n.endswith('token'))
  assert params_by_name[token] == jax.sharding.PartitionSpec('model', None)


def test_encoder_predicts_masked_tokens():
  model, _ = _MODELS['mlm']()
  params = model.get_initial_variables(jax.random.PRNGKey(1), {})['params']
  batch = _batch('sentences')
  batch['token_ids'][0, 2] = _SPEC.mask_id
  predictions, aux = model.predict_batch_with_aux(params, batch)
  changed = np.asarray(predictions) != batch['token_ids']
  assert changed[0, 2] and changed.sum() == 1
  assert int(predictions[0, 2]) not in _SPEC.special_ids
  assert aux['scores'][0] < 0 and np.all(aux['scores'][1:] == 0)
  np.testing.assert_array_equal(model.predict_batch(params, batch), predictions)


def test_encoder_decoder_predictions_equal_xlflax():
  model, _ = _MODELS['translation']()
  params = model.get_initial_variables(jax.random.PRNGKey(1), {})['params']
  batch = _batch('dual')
  predictions, aux = jax.jit(model.predict_batch_with_aux)(params, batch)
  assert predictions.shape == (4, 6) and aux['scores'].shape == (4,)
  expected = decoding.generate(
    model.module,
    objective_model.unfreeze_params(params),
    {k: v for k, v in batch.items() if not k.startswith('paired_')},
    options=decoding.DecodingOptions(method='greedy', max_length=6),
    vocabulary=_SPEC,
    decoder_start=np.full(4, _SPEC.pad_id),
  )
  np.testing.assert_array_equal(predictions, expected.token_ids[:, 0])


def test_sum_normalization_multiplies_the_loss_by_its_weight():
  mean, total = _pair_model(), _pair_model(normalization='sum')
  params = mean.get_initial_variables(jax.random.PRNGKey(1), {})['params']
  batch = _batch('dual')
  weight = mean.eval_fn(params, batch)[1]['loss'].count
  np.testing.assert_allclose(
    total.eval_fn(params, batch)[0],
    mean.eval_fn(params, batch)[0] * weight,
    rtol=1e-6,
  )


def test_scheduled_mask_ratio_is_rejected():
  with pytest.raises(errors.ConfigError, match='Got: mask_ratio'):
    _encoder_model(
      masked_lm.MaskedLM(
        mask_ratio=lambda step: 0.1 + 0 * step, max_mask_ratio=0.2
      ),
      'sentences',
    )


def test_objectives_with_state_are_rejected():
  with pytest.raises(errors.ConfigError, match='Got: SentenceAlignment'):
    _encoder_model(
      sentence_alignment.SentenceAlignment(
        direction='forward', queue=sentence_alignment.MoCoQueue(size=8)
      ),
      'dual',
    )


def test_translation_with_an_encoder_is_rejected():
  with pytest.raises(errors.ConfigError, match='EncoderDecoder'):
    _encoder_model(seq2seq.Translation(), 'dual')


def test_masked_lm_with_an_encoder_decoder_is_rejected():
  with pytest.raises(errors.ConfigError, match='Use an EncoderModel'):
    t5x_models.EncoderDecoderModel(
      module=_pair_model().module,
      vocabulary=_Vocabulary(),
      objective=masked_lm.MaskedLM(),
      layout='sentences',
      optimizer_def=t5x_optimizers.sgd(_RATE),
    )
