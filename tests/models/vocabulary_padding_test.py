"""Parameter counts without vocabulary padding."""

import math

import pytest

from xlflax.models import encoder_config as model_config
from xlflax.models import vocabulary_padding

_CONFIG = model_config.EncoderConfig(
  num_layers=1, hidden_dim=4, mlp_dim=8, num_heads=1, vocab_size=130
)


@pytest.mark.parametrize(
  ('name', 'shape', 'unpadded'),
  [
    ('model/embeddings/token', (256, 4), (130, 4)),
    ('model/encoder/token', (256, 4), (130, 4)),
    ('model/output', (256, 4), (130, 4)),
    ('model/output_bias', (256,), (130,)),
    # One table for each of three languages.
    ('model/language_specific/embeddings/token', (3, 256, 4), (3, 130, 4)),
    ('heads/rtd/generator/embeddings/token', (256, 4), (130, 4)),
    # Another dimension of the same size.
    ('model/embeddings/position', (256, 4), (256, 4)),
    ('model/layers/mlp/wi/kernel', (1, 4, 256), (1, 4, 256)),
  ],
)
def test_unpadded_shape_and_count(name, shape, unpadded):
  assert vocabulary_padding.unpadded_shape(name, shape, _CONFIG) == unpadded
  count = vocabulary_padding.count_unpadded({name: shape}, _CONFIG)
  assert count == math.prod(unpadded)


def test_models_of_other_classes_have_no_padding():
  shape = vocabulary_padding.unpadded_shape('model/token', (256, 4), None)
  assert shape == (256, 4)
