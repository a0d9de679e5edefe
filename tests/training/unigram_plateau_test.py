"""Tests of detecting a plateau at the unigram entropy."""

import logging
import types

import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.data.cache import cached_loader
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  masked_lm,
  sentence_alignment,
)
from xlflax.training import unigram_plateau


class _Loader(cached_loader.CachedLoader):
  """Loader with tokens 10 and 11 in one language and 20 in the other."""

  num_batches = None

  def __init__(self, tokens, languages, batch_size=1):
    self.dataset = types.SimpleNamespace(
      length=len(tokens[0]), batch_size=batch_size
    )
    self._tokens = np.array(tokens, np.int32)
    self._languages = np.array(languages, np.int32)[:, None]
    self.read = []

  def consecutive_batches(self, start, stop):
    batches = [self._batch(step) for step in range(start, stop)]
    return {k: np.concatenate([x[k] for x in batches]) for k in batches[0]}

  def _batch(self, step):
    self.read.append(step)
    return {
      'token_ids': self._tokens,
      'segment_ids': (self._tokens != 0).astype(np.int32),
      'positions': self._tokens,
      'language_ids': np.broadcast_to(self._languages, self._tokens.shape),
    }


@pytest.fixture
def few(monkeypatch):
  """Limits the count to one batch of four rows."""
  monkeypatch.setattr(unigram_plateau, '_MAX_ROWS', 4)


# Special ids 1, 2 and 4, and padding, are not predicted.
_ROWS = [
  [1, 10, 10, 11, 2, 0],
  [1, 10, 10, 11, 2, 0],
  [1, 20, 20, 20, 2, 4],
  [1, 20, 20, 20, 2, 4],
]
_LANGUAGES = [0, 0, 1, 1]
# Each language has half of the tokens. One language has two types
# with frequencies 2/3 and 1/3. The bias correction is for three types in two
# languages and twelve tokens.
_THIRDS = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
_ENTROPY = _THIRDS / 2 + (3 - 2) / 2 / 12


def test_unigram_entropy_equals_a_value_computed_by_hand(few):
  loader = _Loader(_ROWS, _LANGUAGES, batch_size=4)
  entropy = unigram_plateau.unigram_entropy([loader], tiny.SPEC)
  assert entropy.within == pytest.approx(_ENTROPY, rel=1e-9)
  joint = -(np.log(1 / 3) / 3 + np.log(1 / 6) / 6 + np.log(1 / 2) / 2)
  assert entropy.joint == pytest.approx(joint + 2 / 24)
  assert loader.read == [0]


def test_entropy_includes_both_texts_of_pairs(few):
  class Pairs(_Loader):
    def _batch(self, step):
      batch = super()._batch(step)
      first = {k: v[:2] for k, v in batch.items()}
      return first | {f'paired_{k}': v[2:] for k, v in batch.items()}

  loader = Pairs(_ROWS, _LANGUAGES, batch_size=4)
  assert unigram_plateau.unigram_entropy(
    [loader], tiny.SPEC
  ).within == pytest.approx(_ENTROPY)


def test_entropy_of_a_large_sample_is_near_the_true_entropy():
  """262,144 tokens are sampled from 59 types."""
  p = np.random.default_rng(0).dirichlet(np.ones(59))

  class Drawn(_Loader):
    def _batch(self, step):
      rng = np.random.default_rng(step)
      self._tokens = 5 + rng.choice(59, (64, 32), p=p).astype(np.int32)
      self._languages = np.zeros((64, 1), np.int32)
      return super()._batch(step)

  loader = Drawn([[0] * 32], [0], batch_size=64)
  entropy = unigram_plateau.unigram_entropy([loader], tiny.SPEC)
  assert (
    entropy.within
    == entropy.joint
    == pytest.approx(-np.sum(p * np.log(p)), abs=0.01)
  )
  assert loader.read == list(range(128))


def test_messages_when_a_plateau_is_reached_and_left():
  plateau = unigram_plateau.Plateau('mlm', unigram_plateau.Entropy(7.0, 6.0))
  assert plateau.add(50, 8.5) == plateau.advice() == ''
  reached = plateau.add(100, 7.2)
  assert reached.startswith('mlm: the loss (7.20) ')
  assert_mentions(reached, '(7.00, within a language 6.00)', '5.70')
  assert plateau.add(150, 5.9) == ''
  assert plateau.advice().startswith('mlm: the loss (5.90) ')
  assert_mentions(
    plateau.advice(),
    '7.00, within a language 6.00',
    'step 100',
    '5.70',
    'recipes/small.gin',
  )
  plateau_end = plateau.add(1230, 5.69, 3.1e6)
  assert plateau_end.startswith('mlm: left the unigram plateau')
  assert_mentions(plateau_end, 'step 1,230', '1,130', '3.1M')
  assert (
    plateau.add(1300, 5.9) == plateau.add(1350, 5.0) == plateau.advice() == ''
  )
  assert (plateau.reached, plateau.left) == (100, 1230)


def test_nan_loss_causes_no_message():
  plateau = unigram_plateau.Plateau('mlm', unigram_plateau.Entropy(7.0, 6.0))
  assert plateau.add(50, float('nan')) == plateau.advice() == ''


def _plateaus(loaders):
  two_losses = cross_attention_mlm.CrossAttentionMLM()
  entries = (
    objective_mixture.WeightedObjective(dataset='mono', objective=two_losses),
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM()
    ),
    objective_mixture.WeightedObjective(
      dataset='live', objective=masked_lm.MaskedLM(name='l')
    ),
    objective_mixture.WeightedObjective(
      dataset='mono', objective=sentence_alignment.SentenceAlignment()
    ),
  )
  mixture = tiny.make_mixture(*entries)
  return unigram_plateau.Plateaus(
    unigram_plateau.mixture_entropies(mixture, loaders, tiny.SPEC)
  )


def test_resumed_run_does_not_repeat_messages(few, caplog):
  """Live loaders are not read."""
  caplog.set_level(logging.INFO)
  live = types.SimpleNamespace(read=[])
  loaders = {'mono': _Loader(_ROWS, _LANGUAGES, batch_size=4), 'live': live}
  assert _plateaus({}).result() == {}
  ones = _plateaus(loaders)
  assert live.read == []
  reports = [(10, 2.0), (20, _ENTROPY), (30, _ENTROPY / 2)]
  records = []
  for step, loss in reports:
    metrics = {'mlm/loss': loss}
    ones.add(step, metrics, 100.0 * step)
    assert metrics['mlm/unigram_entropy_within_language'] == pytest.approx(
      _ENTROPY
    )
    records.append({'step': step, 'train': metrics})
  messages = [r.getMessage() for r in caplog.records]
  assert len(messages) == 2 and 'by step 30' in messages[1]
  summary = ones.result()
  assert list(summary) == ['mlm']
  entropy = summary['mlm']['unigram_entropy_within_language']
  assert entropy == pytest.approx(_ENTROPY)
  assert (summary['mlm']['reached'], summary['mlm']['left']) == (20, 30)
  caplog.clear()
  again = _plateaus(loaders)
  again.restore([*records[:2], {'step': 20, 'eval': {'f1': 1.0}}])
  assert caplog.records == []
  again.add(30, {'mlm/loss': _ENTROPY / 2}, 3000.0)
  assert again.result() == summary
  again.restore(records[:2])  # rewind to the checkpoint of step 20
  assert again.result()['mlm']['left'] is None
  assert not caplog.records[2:]
  again.log_advice()
  assert_mentions(caplog.text, 'step 20')


def test_an_objective_on_two_datasets_has_a_plateau_on_each(few):
  """The names are the prefixes of the metrics, and entropies are separate."""
  constant = [[1, 10, 10, 10, 2, 0]]
  loaders = {
    'mono': _Loader(_ROWS, _LANGUAGES, batch_size=4),
    'sents': _Loader(constant, [0]),
  }
  mixture = tiny.make_mixture(
    *(
      objective_mixture.WeightedObjective(
        dataset=name, objective=masked_lm.MaskedLM()
      )
      for name in loaders
    )
  )
  entropies = unigram_plateau.mixture_entropies(mixture, loaders, tiny.SPEC)
  assert list(entropies) == ['mono_mlm', 'sents_mlm']
  assert entropies['mono_mlm'].within == pytest.approx(_ENTROPY)
  assert entropies['sents_mlm'].within == 0.0
  plateaus = unigram_plateau.Plateaus(entropies)
  metrics = {'mono_mlm/loss': _ENTROPY, 'sents_mlm/loss': 1.0}
  plateaus.add(10, metrics, 1000.0)
  assert 'mono_mlm/unigram_entropy_within_language' in metrics
  assert plateaus.result()['mono_mlm']['reached'] == 10
