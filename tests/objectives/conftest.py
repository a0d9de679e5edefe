"""Fixtures with a tiny fake encoder that compiles quickly."""

import functools
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives import objective_base
from xlflax.utils import class_registry

VOCAB, HIDDEN, LAYERS = 23, 8, 2


@class_registry.register('fake_encoder_of_the_tests')
class FakeEncoder(nn.Module):
  """Encoder that mixes embeddings with their mean in LAYERS layers."""

  dropout_rate: float = 0.0

  @property
  def config(self):
    return types.SimpleNamespace(hidden_dim=HIDDEN, num_layers=LAYERS)

  def setup(self):
    normal = nn.initializers.normal(0.5)
    self.table = self.param('table', normal, (VOCAB, HIDDEN))
    self.bias = self.param('bias', normal, (VOCAB,))
    self.kernels = self.param('kernels', normal, (LAYERS, HIDDEN, HIDDEN))
    self.head = self.param('head', normal, (HIDDEN, HIDDEN))
    self.dropout = nn.Dropout(self.dropout_rate)

  def encode_layers(
    self,
    token_ids,
    *,
    segment_ids=None,
    positions=None,
    language_ids=None,
    token_type_ids=None,
    deterministic=True,
  ):
    del language_ids, token_type_ids
    if segment_ids is None:
      segment_ids = jnp.ones_like(token_ids)
    if positions is None:
      positions = jnp.broadcast_to(
        jnp.arange(token_ids.shape[1])[None], token_ids.shape
      )
    mask = segment_ids[:, :, None] == segment_ids[:, None, :]
    mask = mask / jnp.sum(mask, axis=-1, keepdims=True)
    states = [self.table[token_ids] + 0.1 * jnp.sin(positions)[..., None]]
    for kernel in self.kernels:
      mixed = states[-1] + jnp.einsum('bts,bsh->bth', mask, states[-1])
      mixed = self.dropout(mixed, deterministic=deterministic)
      states.append(jnp.tanh(jnp.einsum('bth,hk->btk', mixed, kernel)))
    return jnp.stack(states)

  def encode(self, token_ids, **inputs):
    return self.encode_layers(token_ids, **inputs)[-1]

  def transform(self, states):
    return jnp.tanh(jnp.einsum('...h,hk->...k', states, self.head))

  def output_table(self):
    return self.table, self.bias

  def __call__(self, token_ids, **inputs):
    hidden = self.transform(self.encode(token_ids, **inputs))
    return jnp.einsum('bth,vh->btv', hidden, self.table) + self.bias[None, None]


@pytest.fixture
def vocabulary() -> VocabularySpec:
  """Vocabulary with special ids 0-4, 10 and 22, and three languages."""
  return VocabularySpec(
    size=VOCAB,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4, 10, 22),
    languages=('en', 'de', 'fr'),
  )


@pytest.fixture
def model() -> FakeEncoder:
  return FakeEncoder()


@pytest.fixture
def dropout_model() -> FakeEncoder:
  return FakeEncoder(dropout_rate=0.5)


@pytest.fixture
def params(model):
  tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
  shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)['params']
  rng = np.random.default_rng(0)
  return {
    'model': jax.tree.map(
      lambda s: jnp.asarray(rng.normal(0, 0.5, s.shape), jnp.float32), shapes
    ),
    'heads': {},
  }


def _rows(rng, lengths, length, languages):
  token_ids = np.zeros((len(lengths), length), np.int32)
  ordinary = np.setdiff1d(np.arange(VOCAB), [0, 1, 2, 3, 4, 10, 22])
  for row, n in zip(token_ids, lengths, strict=True):
    row[: n + 2] = [1, *rng.choice(ordinary, n), 2]
  present = (token_ids > 0).astype(np.int32)
  return {
    'token_ids': token_ids,
    'segment_ids': present,
    'positions': np.arange(length, dtype=np.int32)[None] * present,
    'language_ids': np.asarray(languages, np.int32)[:, None] * present,
  }


@pytest.fixture
def batch():
  """Sequences of 12, 5, 0 and 9 words in languages 0, 1, 2 and 1."""
  return _rows(np.random.default_rng(0), [12, 5, 0, 9], 14, [0, 1, 2, 1])


@pytest.fixture
def pairs():
  """Five en-de or en-fr pairs; the target of the fourth pair is empty."""
  rng = np.random.default_rng(1)
  first = _rows(rng, [4, 7, 3, 5, 6], 10, [0, 0, 0, 0, 0])
  second = _rows(rng, [5, 6, 8, 0, 4], 10, [1, 2, 1, 2, 2])
  return {**first, **{f'paired_{k}': v for k, v in second.items()}}


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _loss_and_gradient(
  objective, model, vocabulary, train, params, batch, step, rng
):
  def total(params):
    output = objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=vocabulary, step=step, train=train, rng=rng
      ),
    )
    return output.loss.total, output

  (_, output), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return output, gradient


@pytest.fixture
def run(model, params):
  """Fixture that returns the output and gradient of an objective."""

  def call(objective, batch, context, params=params):
    return _loss_and_gradient(
      objective,
      model,
      context.vocabulary,
      context.train,
      params,
      batch,
      context.step,
      context.rng,
    )

  return call


@pytest.fixture
def context(vocabulary):
  """Fixture that creates an `ObjectiveContext` from a seed."""

  def make(seed=0, *, train=True, step=0):
    return objective_base.ObjectiveContext(
      vocabulary=vocabulary,
      step=jnp.int32(step),
      train=train,
      rng=jax.random.key(seed),
    )

  return make
