"""Golden files of names, dtypes, shapes and logical axes of parameters.

`pytest tests/models/parameter_tree_test.py --regenerate_goldens` regenerates
the files. Review the difference before committing it.
"""

import json
import pathlib

import flax.linen as nn
import jax
import pytest

from xlflax.models import (
  encoder,
  encoder_decoder,
  encoder_decoder_config,
  model_params,
)
from xlflax.models import encoder_config as model_config
from xlflax.models.variants.parameter_sharing import SharingPlan

_GOLDENS = pathlib.Path(__file__).parent / 'goldens'
_SIZES = dict(
  num_layers=2,
  hidden_dim=8,
  mlp_dim=20,
  num_heads=2,
  vocab_size=30,
  max_position_embeddings=10,
)
_VARIANTS = {
  'bert': dict(type_vocab_size=2),
  'roberta_unrolled': dict(
    type_vocab_size=1, position_offset=2, scan_layers=False
  ),
  'xlm': dict(
    use_language_embeddings=True,
    num_languages=3,
    mlm_head='tied',
    position_embedding='sinusoidal',
    zero_padding_states=True,
  ),
  'pre_norm': dict(
    norm_position='pre',
    embedding_norm=False,
    pad_vocab_size_multiple=8,
    dtype='bfloat16',
    head_dim=3,
  ),
  'veco': dict(cross_attention=True),
  'veco_unrolled': dict(cross_attention=True, scan_layers=False),
  'sharing': dict(
    num_languages=3,
    use_language_embeddings=True,
    sharing=SharingPlan(embeddings=True, layers=1),
  ),
  'sharing_unrolled': dict(
    num_languages=3, scan_layers=False, sharing=SharingPlan(layers=1)
  ),
}
_ENCODER_DECODERS = {
  'mt5': dict(
    family='t5', gated_mlp=True, tie_word_embeddings=False, head_dim=3
  ),
  'umt5_unrolled': dict(
    family='t5', gated_mlp=True, per_layer_relative_bias=True, scan_layers=False
  ),
  'mbart': dict(family='pre_ln', position_offset=2),
  'veco_translation': dict(family='post_ln', tie_decoder=True),
  'xlm_translation_unrolled': dict(
    family='post_ln',
    use_language_embeddings=True,
    num_languages=3,
    tie_word_embeddings=False,
    mlm_head='transform',
    pad_vocab_size_multiple=8,
    scan_layers=False,
  ),
}


def _describe(boxed) -> dict[str, str]:
  """Returns descriptions such as 'float32[30,8] vocab,embed' by name."""
  described = {}
  for path, box in jax.tree_util.tree_leaves_with_path(
    boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
  ):
    shape = ','.join(map(str, box.value.shape))
    axes = ','.join(box.names)
    name = '/'.join(key.key for key in path)
    described[name] = f'{box.value.dtype}[{shape}] {axes}'
  return described


def _model(variant):
  if variant in _VARIANTS:
    return encoder.Encoder(
      model_config.EncoderConfig(**_SIZES | _VARIANTS[variant])
    )
  sizes = {k: v for k, v in _SIZES.items() if k != 'num_layers'}
  return encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      **sizes,
      num_encoder_layers=2,
      num_decoder_layers=1,
      **_ENCODER_DECODERS[variant],
    )
  )


@pytest.mark.parametrize('variant', [*_VARIANTS, *_ENCODER_DECODERS])
def test_parameters_equal_golden_files(variant, regenerate_goldens):
  model = _model(variant)
  tree = _describe(
    jax.eval_shape(
      lambda key: model_params.init_params(model, key), jax.random.key(0)
    )
  )
  path = _GOLDENS / f'{variant}.json'
  if regenerate_goldens:
    path.write_text(json.dumps(tree, indent=2, sort_keys=True) + '\n')
  assert tree == json.loads(path.read_text())
