"""Tests of warnings about user-defined objectives whose losses are wrong."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.objectives import model_calls, objective_base, objective_mixture
from xlflax.objectives.corruption import masking
from xlflax.objectives.finetuning import classification_objective, head_settings
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training import objective_checks

_BATCH = tiny.make_batch(rows=4) | {
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Width16(_LanguageId):
  """Supports only the width of the run's model."""

  def init_heads(self, model, rng):
    if model.config.hidden_dim != 16:
      raise ValueError
    return super().init_heads(model, rng)


def _find_problems(objective, batch=_BATCH):
  problems = objective_checks.find_problems(
    objective, batch, model=tiny.make_model(), vocabulary=tiny.SPEC
  )
  return {name for name, is_found in problems._asdict().items() if is_found}


class _Loader:
  """A loader that returns rows of the test's batch."""

  dataset = types.SimpleNamespace(batch_size=4)

  def rows(self, step, start, stop):
    assert step == 0
    return {key: array[start:stop] for key, array in _BATCH.items()}


def _warn(objectives):
  mixture = tiny.make_mixture(
    *(
      objective_mixture.WeightedObjective(dataset='mono', objective=objective)
      for objective in objectives
    )
  )
  objective_checks.warn_of_wrong_losses(
    mixture, {'mono': _Loader()}, model=tiny.make_model(), vocabulary=tiny.SPEC
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
    (sentence_alignment.SentenceAlignment(), set()),
  ],
)
def test_problems_of_an_objective_are_found(objective, expected):
  assert _find_problems(objective) == expected


def test_sequences_without_padding_do_not_require_segments():
  batch = _BATCH | {'segment_ids': jnp.ones_like(_BATCH['segment_ids'])}
  assert not _find_problems(_WithoutSegments(), batch)


def test_a_user_defined_objective_with_a_problem_causes_a_warning(caplog):
  _warn([_MeanOfPadding()])
  assert_mentions(caplog.text, 'language_id', '_MeanOfPadding', 'padding')


@pytest.mark.parametrize('objective', [_LanguageId(), _Width16()])
def test_objectives_without_a_known_problem_cause_no_warning(objective, caplog):
  _warn([objective])
  assert not caplog.records
