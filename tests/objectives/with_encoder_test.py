"""Objectives with the xlflax encoder."""

import jax
import numpy as np
import pytest

from tests.models import random_parameters
from xlflax.models.encoder import Encoder
from xlflax.models.encoder_config import EncoderConfig
from xlflax.objectives.pretraining.masked_lm import MaskedLM
from xlflax.objectives.pretraining.sentence_alignment import SentenceAlignment


@pytest.mark.slow
def test_losses_and_gradients_are_finite_in_bfloat16(pairs, context):
  config = EncoderConfig(
    num_layers=1,
    hidden_dim=8,
    mlp_dim=16,
    num_heads=2,
    max_position_embeddings=10,
    vocab_size=23,
    pad_vocab_size_multiple=1,
    num_languages=3,
    use_language_embeddings=True,
    dtype='bfloat16',
  )
  model = Encoder(config)
  objectives = (
    MaskedLM(mask_ratio=0.5, chunk_size=8),
    SentenceAlignment(projection_dim=4, layer=1),
  )

  params = {
    'model': random_parameters.draw_parameters(model, spread=0.02),
    'heads': {o.name: random_parameters.of_heads(o, model) for o in objectives},
  }

  @jax.jit
  def run(params):
    def total(params):
      one_side = {k: v for k, v in pairs.items() if not k.startswith('paired')}
      outputs = [
        o(model, params, batch, context())
        for o, batch in zip(objectives, (one_side, pairs), strict=True)
      ]
      return sum(o.loss.total for o in outputs), outputs

    return jax.value_and_grad(total, has_aux=True)(params)

  (_, outputs), gradients = run(params)
  means = [o.loss.total / o.loss.weight for o in outputs]
  np.testing.assert_allclose(means[0], np.log(23), rtol=0.2)
  assert 0 < means[1] < 20 * np.log(4)
  assert outputs[0].loss.weight == 2 + 4 + 2 + 3 + 3
  for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
    assert gradient.dtype == np.float32, path
    assert np.isfinite(gradient).all(), path
  heads = jax.tree.leaves(gradients['heads'])
  assert all((g != 0).any() for g in heads)
