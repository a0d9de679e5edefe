"""Tests of warnings about runs that have diverged."""

import math

import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training import divergence
from xlflax.training.optimization import optimizers, schedules

_MIXTURE = tiny.make_mixture(
  *(
    objective_mixture.WeightedObjective(dataset='text', objective=objective)
    for objective in (
      masked_lm.MaskedLM(),
      masked_lm.TranslationLM(),
      sentence_alignment.SentenceAlignment(),
    )
  )
)
_TWO_DATASETS = tiny.make_mixture(
  *(
    objective_mixture.WeightedObjective(
      dataset=name, objective=masked_lm.MaskedLM()
    )
    for name in ('mono', 'sents')
  )
)


_RATE = schedules.Piecewise(values=(0.5,), boundaries=())


def _describe(metrics, step=150, first_loss=7.7, mixture=_MIXTURE):
  return [
    *divergence.describe_divergence(
      mixture,
      metrics,
      first_metrics={name: first_loss for name in metrics},
      step=step,
      vocabulary_size=2000,
      optimizer=optimizers.AdamW(learning_rate=_RATE),
      num_steps=150,
    )
  ]


@pytest.mark.parametrize('name', ['mlm', 'tlm'])
def test_loss_above_that_of_a_uniform_distribution_is_reported(name):
  [message] = _describe({f'{name}/loss': 24.6})
  assert_mentions(message, name, '24.60', '7.60', 'Piecewise', '0.5')


@pytest.mark.parametrize('step', [10, 60, 99])
def test_increased_loss_of_a_short_run_is_reported(step):
  [message] = _describe({'mlm/loss': 107.3}, step)
  assert_mentions(message, 'mlm', '107.30', '7.60')


@pytest.mark.parametrize(
  'metrics, step, first_loss',
  [
    ({'mlm/loss': 1.1 * math.log(2000)}, 150, 7.7),
    ({'mlm/loss': 24.6}, 9, 7.7),
    ({'mlm/loss': 1.9 * math.log(2000)}, 60, 5.0),
    ({'mlm/loss': 24.6}, 60, 40.0),  # The loss falls.
    ({'align/loss': 24.6}, 150, 7.7),
    ({}, 150, 7.7),
  ],
)
def test_other_losses_are_not_reported(metrics, step, first_loss):
  assert _describe(metrics, step, first_loss) == []


def test_an_objective_on_two_datasets_is_named_as_its_metrics():
  metrics = {'mono_mlm/loss': 2.0, 'sents_mlm/loss': 24.6}
  [message] = _describe(metrics, mixture=_TWO_DATASETS)
  assert_mentions(message, 'sents_mlm: the loss')
