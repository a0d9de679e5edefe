"""Probes of what stands beside a sentence, by objectives of known loss."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.data.vocabularies.spec import VocabularySpec
from xlflax.objectives.base import ObjectiveOutput, WeightedMean
from xlflax.replication import measures, probes
from xlflax.replication.conditions import Condition, Size

SPEC = VocabularySpec(
  size=60,
  bos_id=0,
  pad_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'fr'),
)


class Letters:
  """A piece for each letter."""

  spec = SPEC

  def language_id(self, code: str) -> int:
    return SPEC.languages.index(code)

  def encode_each(self, texts, languages):
    return [[10 + ord(letter) - ord('a') for letter in text] for text in texts]


class World:
  """Translations are the same letters."""

  seconds = ('fr',)
  TESTED = 10
  LENGTH = 16

  def translations(self, second):
    return [(letter * 5, letter * 5) for letter in 'abcdefghij']


class OtherSide:
  """Its loss: 1 of each row whose sides are unlike."""

  def __call__(self, model, params, batch, context):
    first, second = batch['token_ids'], batch['paired_token_ids']
    present = first[:, 1] > 4
    unlike = jnp.where(present, first[:, 1] != second[:, 1], False)
    return ObjectiveOutput(
      WeightedMean(unlike.sum() * 1.0, present.sum() * 1.0), {}
    )


def test_gain_is_of_wrong_pairs_beside_right_ones(monkeypatch):
  monkeypatch.setattr(probes.trainers, 'objective', lambda *own: OtherSide())
  subject = types.SimpleNamespace(
    vocabulary=Letters(), sharing=None, model=None, params={}
  )
  condition = Condition(name='t/x', title='x', steps=1, cross_attention=True)
  found = probes.partner_gain(subject, World(), condition, Size())
  assert found == {'fr': {'partner_gain': pytest.approx(1.0)}}
  subject.sharing = 'a language has its own parts'
  assert probes.partner_gain(subject, World(), condition, Size()) == {}


def test_wrong_translations_are_of_like_length(monkeypatch):
  """The longest alone gets a much shorter one."""
  seen = []

  def loss_of(subject, objective, stream, languages, first, second):
    seen.append([len(x) - len(y) for x, y in zip(first, second, strict=True)])
    return 0.0

  monkeypatch.setattr(probes, '_loss', loss_of)
  monkeypatch.setattr(probes.trainers, 'objective', lambda *own: None)
  lengths = [3, 12, 5, 10, 4, 11, 6, 9, 8, 7]
  monkeypatch.setattr(
    World, 'translations', lambda *_: [('a' * n, 'b' * n) for n in lengths]
  )
  subject = types.SimpleNamespace(
    vocabulary=Letters(), sharing=None, model=None, params={}
  )
  condition = Condition(name='t/x', title='x', steps=1)
  probes.partner_gain(subject, World(), condition, Size())
  right, wrong = seen
  assert set(right) == {0} and sorted(map(abs, wrong)) == [1] * 9 + [9]


def test_tokens_in_random_order_are_the_same_tokens(monkeypatch):
  seen = {}

  def states_of(subject, token_ids, language_ids, **settings):
    seen[len(seen)] = token_ids
    return types.SimpleNamespace(states=np.zeros((1, len(token_ids), 2)))

  monkeypatch.setattr(measures.states, 'token_states', states_of)
  world = World()
  monkeypatch.setattr(
    World, 'translations', lambda *_: [('abcdefghij', 'klmnopqrst')] * 4
  )
  subject = types.SimpleNamespace(vocabulary=Letters())
  for shuffled in (False, True):
    measures.sentence_states(subject, world, 'fr', 'fr', shuffled=shuffled)
  plain, mixed = seen[0], seen[1]
  assert [sorted(ids) for ids in mixed] == [sorted(ids) for ids in plain]
  assert any(list(x) != list(y) for x, y in zip(plain, mixed, strict=True))
