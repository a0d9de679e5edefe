"""Warnings of runs that have diverged."""

import math

import pytest

from tests.errors import assert_mentions
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training import divergence

_OBJECTIVES = (
  masked_lm.MaskedLM(),
  masked_lm.TranslationLM(),
  sentence_alignment.SentenceAlignment(),
)


def _describe(metrics, step=150):
  return [
    *divergence.describe_divergence(
      _OBJECTIVES, metrics, step=step, vocabulary_size=2000
    )
  ]


@pytest.mark.parametrize('name', ['mlm', 'tlm'])
def test_a_loss_above_that_of_a_uniform_distribution(name):
  [message] = _describe({f'{name}/loss': 24.6})
  assert_mentions(message, name, '24.60', '7.60')


@pytest.mark.parametrize(
  'metrics, step',
  [
    ({'mlm/loss': 1.1 * math.log(2000)}, 150),
    ({'mlm/loss': 24.6}, 50),
    ({'align/loss': 24.6}, 150),
    ({}, 150),
  ],
)
def test_other_losses_have_not_diverged(metrics, step):
  assert _describe(metrics, step) == []
