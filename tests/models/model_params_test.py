"""Initial parameters."""

import flax.linen as nn
import jax
import numpy as np

from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config

_CONFIG = model_config.EncoderConfig(
  num_layers=2,
  hidden_dim=32,
  mlp_dim=64,
  num_heads=4,
  vocab_size=300,
  pad_vocab_size_multiple=1,
  max_position_embeddings=6,
  initializer_range=0.05,
)


def test_initial_values():
  boxed = model_params.init_params(encoder.Encoder(_CONFIG), jax.random.key(0))
  assert boxed['embeddings']['token'].names == ('vocab', 'columns')
  params = jax.tree.map(np.asarray, nn.unbox(boxed))
  kernel = params['layers']['mlp']['wi']['kernel']
  for weights in (params['embeddings']['token'], kernel):
    assert abs(weights.std() - 0.05) < 0.003 and abs(weights.mean()) < 0.003
  assert (kernel[0] != kernel[1]).mean() > 0.99  # Layers have different values.
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    if path[-1].key == 'scale':
      assert (leaf == 1).all()
    if path[-1].key in ('bias', 'output_bias'):
      assert not leaf.any()
