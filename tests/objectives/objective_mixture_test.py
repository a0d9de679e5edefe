"""Objectives trained at each step, and the position of each dataset."""

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.objectives.objective_mixture import (
  Combine,
  ObjectiveMixture,
  WeightedObjective,
)
from xlflax.objectives.pretraining.masked_lm import MaskedLM, TranslationLM
from xlflax.objectives.pretraining.sentence_alignment import SentenceAlignment
from xlflax.utils import errors

MLM = WeightedObjective(dataset='mono', objective=MaskedLM())
TLM = WeightedObjective(dataset='pairs', objective=TranslationLM(), weight=0.5)
ALIGN = WeightedObjective(
  dataset='sides', objective=SentenceAlignment(), weight=2.0
)
SHARED = WeightedObjective(dataset='mono', objective=MaskedLM(name='other'))

MIXTURES = [
  ObjectiveMixture(entries=(MLM, TLM, ALIGN)),
  ObjectiveMixture(entries=(MLM, TLM), combine=Combine.ALTERNATE),
  ObjectiveMixture(
    entries=(MLM, TLM), combine=Combine.ALTERNATE, schedule=(0, 0, 1)
  ),
  ObjectiveMixture(
    entries=(MLM, TLM, ALIGN, SHARED),
    combine=Combine.ALTERNATE,
    schedule=((0, 3), (1, 2), 0, 2),
  ),
  ObjectiveMixture(
    entries=(MLM, TLM, ALIGN, SHARED), combine=Combine.SAMPLE, seed=7
  ),
]


@pytest.mark.parametrize('mixture', MIXTURES)
def test_dataset_step_counts_previous_steps(mixture):
  steps_by_dataset = dict.fromkeys(mixture.datasets, 0)
  groups = set()
  for step in range(60):
    assert {
      s: mixture.dataset_step(s, step) for s in steps_by_dataset
    } == steps_by_dataset
    active = mixture.active(step)
    groups.add(active)
    for dataset in {mixture.entries[i].dataset for i in active}:
      steps_by_dataset[dataset] += 1
  assert groups == set(mixture.groups)


def test_active_objectives_by_step():
  total, turns, pattern, grouped, _ = MIXTURES
  assert [total.active(s) for s in (0, 5)] == [(0, 1, 2)] * 2
  assert [turns.active(s) for s in range(4)] == [(0,), (1,), (0,), (1,)]
  assert [pattern.active(s) for s in (0, 1, 2, 3)] == [(0,), (0,), (1,), (0,)]
  assert [grouped.active(s) for s in (4, 5, 6)] == [(0, 3), (1, 2), (0,)]
  assert grouped.datasets == ('mono', 'pairs', 'sides')


def _sampled(weights, seed=0):
  entries = tuple(
    WeightedObjective(dataset=f's{i}', weight=w, objective=MaskedLM())
    for i, w in enumerate(weights)
  )
  return ObjectiveMixture(entries=entries, combine=Combine.SAMPLE, seed=seed)


@pytest.mark.parametrize(
  'weights, block, counts',
  [
    ((0.7, 0.3), 10, (7, 3)),
    ((1, 2, 3), 6, (1, 2, 3)),
    ((5,), 1, (1,)),
    ((2**0.5, 1), 1000, (586, 414)),
    ((1, 1e-9), 1000, (999, 1)),
    ((0.5, 1e-7, 1e-7), 1000, (998, 1, 1)),
  ],
)
def test_sampled_fractions_are_exact_in_every_block(weights, block, counts):
  mixture = _sampled(weights)
  for start in (0, block, 7 * block):
    active_entries = [mixture.active(start + i)[0] for i in range(block)]
    np.testing.assert_array_equal(np.bincount(active_entries), counts)


def test_samples_depend_only_on_seed_and_step():
  active_entries = [_sampled((3, 2), seed=1).active(s)[0] for s in range(15)]
  assert active_entries == [
    _sampled((3, 2), seed=1).active(s)[0] for s in range(15)
  ]
  assert active_entries == [0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1]
  other = [_sampled((3, 2), seed=2).active(s)[0] for s in range(15)]
  assert active_entries != other


def test_sampled_order_is_uniform():
  """The 10 orders of (0, 0, 0, 1, 1) in a block are equally likely."""
  mixture = _sampled((3, 2))
  orders = [
    tuple(mixture.active(5 * b + i)[0] for i in range(5)) for b in range(2000)
  ]
  counts = np.unique(orders, axis=0, return_counts=True)[1]
  assert len(counts) == 10
  assert ((counts - 200) ** 2 / 200).sum() < 27.9  # chi2(9), p = 0.001


def test_dataset_steps_of_huge_steps():
  far = 10**15 + 3
  for mixture in MIXTURES:
    for dataset in mixture.datasets:
      difference = mixture.dataset_step(
        dataset, far + 1
      ) - mixture.dataset_step(dataset, far)
      active = {mixture.entries[i].dataset for i in mixture.active(far)}
      assert difference == (dataset in active)


def test_dataset_fractions_and_loss_weights():
  def shares(mixture, steps):
    return [mixture.dataset_step(s, steps) / steps for s in mixture.datasets]

  total, _, pattern, _, sample = MIXTURES
  assert shares(total, 1) == [1, 1, 1]
  assert shares(pattern, 3) == pytest.approx([2 / 3, 1 / 3])
  assert shares(sample, 10**6) == pytest.approx(
    [2 / 4.5, 0.5 / 4.5, 2 / 4.5], abs=1e-3
  )
  assert [total.loss_weight(i) for i in range(3)] == [1.0, 0.5, 2.0]
  assert sample.loss_weight(2) == 1.0


def test_objectives_are_listed_once():
  twice = ObjectiveMixture(
    entries=(MLM, WeightedObjective(dataset='more', objective=MaskedLM()), TLM)
  )
  assert twice.objectives == (MLM.objective, TLM.objective)


@pytest.mark.parametrize(
  'settings, got',
  [
    ({'entries': ()}, None),
    (
      {
        'entries': (
          MLM,
          WeightedObjective(dataset='b', objective=MaskedLM(mask_ratio=0.3)),
        )
      },
      'mlm',
    ),
    ({'entries': (MLM,), 'schedule': (0,)}, 'Combine.SUM'),
    (
      {'entries': (MLM, TLM), 'schedule': (0, 2), 'combine': Combine.ALTERNATE},
      '(0, 2)',
    ),
    (
      {'entries': (MLM, TLM), 'schedule': (0, 0), 'combine': Combine.ALTERNATE},
      '(0, 0)',
    ),
    (
      {
        'entries': (MLM, TLM),
        'schedule': ((0, 0), 1),
        'combine': Combine.ALTERNATE,
      },
      '((0, 0), 1)',
    ),
  ],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    ObjectiveMixture(**settings)


@pytest.mark.parametrize('weight', [0.0, -1, 1e308, float('nan')])
def test_invalid_weights_are_rejected(weight):
  with raises_error(errors.ConfigError, where='WeightedObjective.weight'):
    WeightedObjective(dataset='a', objective=MaskedLM(), weight=weight)


def test_unknown_dataset_is_rejected():
  with raises_error(errors.ConfigError, got='x', mentions=('mono', 'pairs')):
    MIXTURES[1].dataset_step('x', 0)


@pytest.mark.parametrize(
  ('fields', 'period'),
  [
    ({}, 1),
    ({'combine': Combine.ALTERNATE, 'schedule': (0,) * 300 + (1,)}, 301),
    ({'combine': Combine.SAMPLE}, 1000),
  ],
)
def test_period_contains_every_group(fields, period):
  entries = (
    WeightedObjective(dataset='a', objective=MLM.objective, weight=0.999),
    WeightedObjective(dataset='b', objective=TLM.objective, weight=0.001),
  )
  mixture = ObjectiveMixture(entries=entries, **fields)
  assert mixture.period == period
  active = {mixture.active(step) for step in range(period)}
  assert active == set(mixture.groups)
