"""A tiny encoder and a batch of words with labels and trees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import random_parameters
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import encoder, encoder_config
from xlflax.objectives import objective_base

SPEC = VocabularySpec(
  size=23,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'de', 'fr'),
)


def make_model(**fields) -> encoder.Encoder:
  """Returns an encoder with two layers of width 8."""
  return encoder.Encoder(
    encoder_config.with_vocabulary(
      encoder_config.EncoderConfig(
        **dict(
          num_layers=2,
          hidden_dim=8,
          mlp_dim=12,
          num_heads=2,
          max_position_embeddings=16,
          initializer_range=0.5,
        )
        | fields
      ),
      SPEC,
    )
  )


def make_params(model, *objectives):
  """Returns parameters, none of which is zero or one."""
  return {
    'model': random_parameters.draw_parameters(model, spread=0.5),
    'heads': {
      objective.name: random_parameters.of_heads(objective, model, spread=0.5)
      for objective in objectives
    },
  }


def make_context(*, train=False, seed=0) -> objective_base.ObjectiveContext:
  return objective_base.ObjectiveContext(
    vocabulary=SPEC, step=jnp.int32(0), train=train, rng=jax.random.key(seed)
  )


def run(objective, model, params, batch, *, train=False, seed=0):
  """Returns the output of an objective and the gradient of its loss."""
  return _run(objective, model, params, batch, jax.random.key(seed), train)


@functools.partial(jax.jit, static_argnums=(0, 1, 5))
def _run(objective, model, params, batch, rng, train):
  def loss(params):
    output = objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=SPEC, step=jnp.int32(0), train=train, rng=rng
      ),
    )
    return output.loss.total, output

  gradient, output = jax.grad(loss, has_aux=True)(params)
  return output, gradient


@pytest.fixture(scope='module')
def model():
  return make_model()


@pytest.fixture(scope='module')
def batch():
  """Three sentences of 3, 2 and 1 words in languages 0, 1 and 2.

  The first word of the first sentence has two tokens. The last sentence has no
  labels and no tree.
  """
  ids = np.array(
    [[1, 7, 8, 9, 10, 2, 0], [1, 11, 12, 2, 0, 0, 0], [1, 13, 2, 0, 0, 0, 0]]
  )
  present = (ids > 0).astype(np.int32)
  starts, lengths, heads, relations, labels = (
    np.full(ids.shape, fill) for fill in (-1, 0, -1, -1, -1)
  )
  starts[0, :4], starts[1, :3], starts[2, :2] = [0, 1, 3, 4], [0, 1, 2], [0, 1]
  lengths[0, :4], lengths[1, :3], lengths[2, :2] = [1, 2, 1, 1], 1, 1
  heads[0, 1:4], heads[1, 1:3] = [2, 0, 2], [0, 1]
  relations[0, 1:4], relations[1, 1:3] = [1, 0, 2], [0, 1]
  labels[0, [1, 3, 4]], labels[1, [1, 2]] = [0, 2, 1], [1, 0]
  return {
    key: np.asarray(value, np.int32)
    for key, value in {
      'token_ids': ids,
      'segment_ids': present,
      'positions': np.arange(7)[None] * present,
      'language_ids': np.arange(3)[:, None] * present,
      'labels': labels,
      'word_starts': starts,
      'word_lengths': lengths,
      'heads': heads,
      'relations': relations,
    }.items()
  }
