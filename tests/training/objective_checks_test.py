"""Tests of warnings about user-defined objectives whose losses are wrong."""

import dataclasses
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives import model_calls, objective_base, objective_mixture
from xlflax.objectives.corruption import masking
from xlflax.objectives.finetuning import classification_objective, head_settings
from xlflax.objectives.pretraining import (
  denoising,
  masked_lm,
  sentence_alignment,
)
from xlflax.training import objective_checks

_BATCH = tiny.make_batch(rows=4)
_PAIRS = _BATCH | {
  f'paired_{key}': array
  for key, array in tiny.make_batch(rows=4, seed=1).items()
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LanguageId(objective_base.Objective):
  """Predicts the language of a text from its mean hidden state."""

  name: str = 'language_id'

  def init_heads(self, model, rng):
    shape = model.config.hidden_dim, model.config.num_languages
    return head_settings.init_linear(rng, shape, config=model.config)

  def __call__(self, model, params, batch, context):
    vectors = self.pool(self.encode(model, params, batch, context), batch)
    head = params['heads'][self.name]
    languages = model_calls.row_languages(batch, context.vocabulary)
    return classification_objective.class_output(
      self.name,
      vectors @ head['kernel'] + head['bias'][None],
      languages,
      languages,
      context.vocabulary,
    )

  def encode(self, model, params, batch, context):
    return model_calls.encode_batch(
      model, params, batch, context=context, rng=context.rng
    )

  def pool(self, states, batch):
    return model_calls.pool_hidden_states(
      states, masking.is_text(batch, tiny.SPEC), model_calls.Pooling.MEAN
    )


class _MeanOfPadding(_LanguageId):
  def pool(self, states, batch):
    return states.mean(axis=1)


class _WithoutSegments(_LanguageId):
  def encode(self, model, params, batch, context):
    return model_calls.call_model(
      model, params, 'encode', batch['token_ids'], deterministic=True
    )


class _MeanTotal(_LanguageId):
  def __call__(self, model, params, batch, context):
    output = super().__call__(model, params, batch, context)
    total, weight = output.loss
    return output._replace(
      loss=objective_base.WeightedMean(total / weight, weight)
    )


class _MeanOfOne(_LanguageId):
  """Counts a batch as one example, which is not wrong."""

  def __call__(self, model, params, batch, context):
    output = super().__call__(model, params, batch, context)
    total, weight = output.loss
    return output._replace(
      loss=objective_base.WeightedMean(total / weight, jnp.ones([]))
    )


class _SameNoise(_LanguageId):
  def encode(self, model, params, batch, context):
    states = super().encode(model, params, batch, context)
    return states + jax.random.normal(jax.random.key(0), states.shape)


class _NewNoise(_LanguageId):
  def encode(self, model, params, batch, context):
    states = super().encode(model, params, batch, context)
    return states + jax.random.normal(context.rng, states.shape)


class _MaskedEos(_LanguageId):
  """Computes the vector of a text with a mask token at its end."""

  def encode(self, model, params, batch, context):
    token_ids = batch['token_ids']
    token_ids = jnp.where(token_ids == tiny.SPEC.eos_id, 4, token_ids)
    batch = batch | {'token_ids': token_ids}
    return super().encode(model, params, batch, context)


class _ShiftedMask(_LanguageId):
  """Inserts a token and masks at random, so the tokens change positions."""

  def encode(self, model, params, batch, context):
    token_ids = jnp.roll(batch['token_ids'], 1, axis=1)
    chosen = jax.random.bernoulli(context.rng, 0.3, token_ids.shape)
    batch = batch | {'token_ids': jnp.where(chosen, 4, token_ids)}
    return super().encode(model, params, batch, context)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Width16(_LanguageId):
  """Supports only the width of the run's model."""

  def init_heads(self, model, rng):
    if model.config.hidden_dim != 16:
      raise ValueError
    return super().init_heads(model, rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MaskedTokens(objective_base.Objective):
  """Predicts a fraction of the tokens.

  Attributes:
    ignore_index: Label of the other tokens.
    normalize: Function that is applied to the logits.
    includes_all: Whether the loss includes the tokens that are not predicted.
    is_tied: Whether the logits are those of the model.
    predicts_all: Whether the labels of the other tokens are the tokens.
    predicts_masks: Whether the labels are the tokens after masking.
    count: Function that computes the weight from the text tokens and the
      predicted tokens. If None, the weight is the number of tokens in the loss.
    maskable: Function that selects the tokens that may be masked.
    transform: Transformation of the function that computes the loss.
  """

  name: str = 'masked_tokens'
  ignore_index: int = -100
  normalize: Callable = lambda logits: logits
  includes_all: bool = False
  is_tied: bool = False
  predicts_all: bool = False
  predicts_masks: bool = False
  count: Callable | None = None
  maskable: Callable = masking.is_text
  transform: Callable = lambda compute: compute

  def init_heads(self, model, rng):
    shape = model.config.hidden_dim, model.config.vocab_size
    return head_settings.init_linear(rng, shape, config=model.config)

  def __call__(self, model, params, batch, context):
    token_ids = batch['token_ids']
    text = masking.is_text(batch, context.vocabulary)
    chosen = self.maskable(batch, context.vocabulary)
    chosen &= jax.random.bernoulli(context.rng, 0.2, text.shape)
    encode = self.transform(
      lambda params, token_ids: model_calls.encode_batch(
        model,
        params,
        batch | {'token_ids': token_ids},
        context=context,
        rng=context.rng,
      )
    )
    masked_ids = jnp.where(chosen, 4, token_ids)
    states = encode(params, masked_ids)
    if self.predicts_masks:
      token_ids = masked_ids
    head = params['heads'][self.name]
    logits = (
      model_calls.call_model(model, params, 'logits', states)
      if self.is_tied
      else states @ head['kernel'] + head['bias'][None, None]
    )
    losses = optax.softmax_cross_entropy_with_integer_labels(
      self.normalize(logits),
      token_ids
      if self.predicts_all
      else jnp.where(chosen, token_ids, self.ignore_index),
    )
    includes_all = self.includes_all or self.predicts_all
    weights = text if includes_all else chosen
    total = jnp.sum(jnp.where(weights, losses, 0))
    weight = self.count(text, chosen) if self.count else jnp.sum(weights)
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, jnp.float32(weight)), {}
    )


def _find_problems(objective, batch=_BATCH, vocab_size=tiny.SPEC.size):
  problems = objective_checks.find_problems(
    objective,
    batch,
    model=tiny.make_model(vocab_size, pad_vocab_size_multiple=128),
    vocabulary=dataclasses.replace(tiny.SPEC, size=vocab_size),
  )
  return {name for name, is_found in problems._asdict().items() if is_found}


@dataclasses.dataclass
class _Loader:
  """A loader that returns rows of a batch."""

  batch: dict
  dataset = types.SimpleNamespace(batch_size=4)

  def rows(self, step, start, stop):
    assert step == 0
    return {key: array[start:stop] for key, array in self.batch.items()}


def _warn(objectives, batch=_BATCH):
  mixture = tiny.make_mixture(
    *(
      objective_mixture.WeightedObjective(dataset='mono', objective=objective)
      for objective in objectives
    )
  )
  objective_checks.warn_of_wrong_losses(
    mixture,
    {'mono': _Loader(batch)},
    model=tiny.make_model(),
    vocabulary=tiny.SPEC,
  )


@pytest.mark.parametrize(
  'objective, expected',
  [
    (_LanguageId(), set()),
    (_MeanOfPadding(), {'reads_padding'}),
    (_WithoutSegments(), {'ignores_segments'}),
    (_MeanTotal(), {'has_mean_total'}),
    (_MeanOfOne(), set()),
    (_SameNoise(), {'repeats_random_numbers'}),
    (_NewNoise(), set()),
    (masked_lm.MaskedLM(), set()),
  ],
)
def test_problems_of_an_objective_are_found(objective, expected):
  assert _find_problems(objective) == expected


@pytest.mark.parametrize(
  'objective, expected',
  [
    (_LanguageId(), {'ignores_second_texts'}),
    (masked_lm.MaskedLM(), set()),
    (sentence_alignment.SentenceAlignment(), set()),
  ],
)
def test_second_texts_of_pairs_must_be_read(objective, expected):
  assert _find_problems(objective, _PAIRS) == expected


@pytest.mark.parametrize('is_tied', [False, True])
def test_labels_of_minus_100_that_contribute_to_the_loss(is_tied):
  objective = _MaskedTokens(includes_all=True, is_tied=is_tied)
  assert _find_problems(objective, vocab_size=200) == {'has_ignored_labels'}


@pytest.mark.parametrize(
  'objective',
  [
    _MaskedTokens(),
    pytest.param(_MaskedTokens(is_tied=True), marks=pytest.mark.slow),
    pytest.param(
      _MaskedTokens(ignore_index=5, includes_all=True), marks=pytest.mark.slow
    ),
    pytest.param(masked_lm.MaskedLM(), marks=pytest.mark.slow),
    pytest.param(_LanguageId(), marks=pytest.mark.slow),
  ],
)
def test_labels_of_minus_100_that_are_not_in_the_loss(objective):
  assert not _find_problems(objective, vocab_size=200)


@pytest.mark.parametrize('includes_all', [False, True])
def test_texts_may_contain_the_token_with_the_index_minus_100(includes_all):
  token_ids = _BATCH['token_ids']
  batch = _BATCH | {'token_ids': jnp.where(token_ids > 30, 100, token_ids)}
  objective = _MaskedTokens(
    includes_all=includes_all, count=lambda text, chosen: len(text)
  )
  expected = {'has_ignored_labels'} if includes_all else set()
  assert _find_problems(objective, batch, vocab_size=200) == expected


@pytest.mark.parametrize('is_tied', [False, True])
def test_loss_that_includes_tokens_that_are_not_masked(is_tied):
  objective = _MaskedTokens(predicts_all=True, is_tied=is_tied)
  assert _find_problems(objective, vocab_size=200) == {
    'predicts_unmasked_tokens'
  }


@pytest.mark.parametrize('is_tied', [False, True])
def test_labels_that_are_read_after_masking(is_tied):
  objective = _MaskedTokens(predicts_masks=True, is_tied=is_tied)
  assert _find_problems(objective) == {'predicts_mask_tokens'}


@pytest.mark.parametrize(
  'count', [lambda text, chosen: text.size, lambda text, chosen: jnp.sum(text)]
)
def test_weights_that_count_other_tokens(count):
  objective = _MaskedTokens(count=count)
  assert _find_problems(objective, vocab_size=200) == {'has_other_weight'}


@pytest.mark.parametrize(
  ('normalize', 'expected'),
  [
    (jax.nn.softmax, {'has_flat_logits'}),
    (jax.nn.log_softmax, set()),
    (lambda logits: logits / 2, set()),
  ],
)
def test_loss_that_hardly_depends_on_the_logits(normalize, expected):
  objective = _MaskedTokens(normalize=normalize)
  assert _find_problems(objective, vocab_size=200) == expected


@pytest.mark.slow
def test_a_decoder_may_predict_tokens_that_are_not_masked():
  config = encoder_decoder_config.EncoderDecoderConfig(
    family='post_ln',
    num_encoder_layers=1,
    num_decoder_layers=1,
    hidden_dim=16,
    mlp_dim=32,
    num_heads=2,
    max_position_embeddings=32,
    vocab_size=200,
  )
  problems = objective_checks.find_problems(
    denoising.MaskedSeq2Seq(
      predicted=denoising.PredictedPositions.ALL, decoder_start='bos'
    ),
    tiny.make_batch(rows=4),
    model=encoder_decoder.EncoderDecoder(config),
    vocabulary=dataclasses.replace(tiny.SPEC, size=200),
  )
  assert not any(problems)


@pytest.mark.parametrize('transform', [lambda compute: compute, jax.checkpoint])
def test_special_tokens_that_are_masked_at_random(transform):
  objective = _MaskedTokens(maskable=masking.is_present, transform=transform)
  assert _find_problems(objective) == {'masks_special_tokens'}


@pytest.mark.parametrize('objective', [_MaskedEos(), _ShiftedMask()])
def test_other_inputs_with_mask_tokens_cause_no_warning(objective):
  assert not _find_problems(objective)


def _pack_texts(batch):
  """Returns a batch in which columns 5 and up contain a second text."""
  second = (jnp.arange(batch['segment_ids'].shape[1]) >= 5)[None]
  segment_ids = batch['segment_ids']
  return batch | {'segment_ids': segment_ids + (second & (segment_ids > 0))}


class _FirstPosition(_LanguageId):
  def pool(self, states, batch):
    return states[:, 0]


@pytest.mark.parametrize(
  ('objective', 'expected'),
  [
    (_FirstPosition(), {'ignores_later_texts'}),
    (_LanguageId(), set()),
    (_MaskedTokens(), set()),
    (masked_lm.MaskedLM(), set()),
  ],
)
def test_objectives_that_train_only_the_first_packed_text(objective, expected):
  assert not _find_problems(objective, _BATCH)
  assert _find_problems(objective, _pack_texts(_BATCH)) == expected


def test_short_second_texts_may_be_ignored():
  batch = _pack_texts(_BATCH)
  is_last = jnp.arange(batch['segment_ids'].shape[1]) == 11
  segment_ids = jnp.where(is_last[None], batch['segment_ids'], 1)
  assert not _find_problems(
    _FirstPosition(), batch | {'segment_ids': segment_ids}
  )


def test_sequences_without_padding_do_not_require_segments():
  batch = _BATCH | {'segment_ids': jnp.ones_like(_BATCH['segment_ids'])}
  assert not _find_problems(_WithoutSegments(), batch)


def test_a_user_defined_objective_with_a_problem_causes_a_warning(caplog):
  _warn([_MeanOfPadding()])
  assert_mentions(caplog.text, 'language_id', '_MeanOfPadding', 'padding')


def test_warning_about_packed_texts_names_the_dataset(caplog):
  rows = {key: np.asarray(a) for key, a in _pack_texts(_BATCH).items()}
  _warn([_FirstPosition()], rows)
  assert_mentions(
    caplog.text,
    '_FirstPosition',
    "mono/dataset_config.DatasetConfig.packing = 'none'",
  )


@pytest.mark.parametrize('objective', [_LanguageId(), _Width16()])
def test_objectives_without_a_known_problem_cause_no_warning(objective, caplog):
  _warn([objective])
  assert not caplog.records
