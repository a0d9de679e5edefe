"""Mapping from the tensors of T5X's own T5 model to xlflax parameters.

The implementations `t5x.examples.t5` and `scalable_t5` are supported. Their
tensors differ from the parameters of xlflax as follows.

| | T5X | xlflax |
| --- | --- | --- |
| kernel of queries, keys, values | [embed, heads * kv], or [embed, heads, kv]
  | [embed, heads, kv] |
| kernel of the output | [heads * kv, embed], or [heads, kv, embed] |
  [heads, kv, embed] |
| relative positions | [heads, buckets] | [buckets, heads] |
| output table | [embed, vocab] | [vocab, embed] |
| scanned layers | second axis | first axis |
"""

import re
from collections.abc import Mapping

import numpy as np

from xlflax.models import encoder_decoder_config
from xlflax.utils import errors

_SCAN_AXIS = 1
_TRANSPOSED = ('rel_embedding', 'logits_dense/kernel')
_ATTENTION = {
  'query/kernel': 'query/kernel',
  'key/kernel': 'key/kernel',
  'value/kernel': 'value/kernel',
  'out/kernel': 'output/kernel',
}
# Mapping from the attention blocks of a layer in T5X to those in xlflax.
_ATTENTION_BLOCKS = {
  'encoder': {'attention': 'attention'},
  'decoder': {
    'self_attention': 'attention',
    'encoder_decoder_attention': 'cross_attention',
  },
}
_NORMS = {
  'encoder': {
    'pre_attention_layer_norm': 'attention_norm',
    'pre_mlp_layer_norm': 'mlp_norm',
  },
  'decoder': {
    'pre_self_attention_layer_norm': 'attention_norm',
    'pre_cross_attention_layer_norm': 'cross_attention_norm',
    'pre_mlp_layer_norm': 'mlp_norm',
  },
}
_MLP = {'mlp/wi/kernel': 'mlp/wi/kernel', 'mlp/wo/kernel': 'mlp/wo/kernel'}
_GATED_MLP = {
  'mlp/wi_0/kernel': 'mlp/gate/kernel',
  'mlp/wi_1/kernel': 'mlp/wi/kernel',
  'mlp/wo/kernel': 'mlp/wo/kernel',
}
_BIAS = 'relpos_bias/rel_embedding'
EMBEDDING = 'token_embedder/embedding'
_OUTPUT = 'logits_dense/kernel'
_MAX_LENGTH = 1024  # Relative positions do not limit the length.


def layer_names(
  stack: str, config: encoder_decoder_config.EncoderDecoderConfig
) -> dict[str, str]:
  """Returns the parameter names within an encoder or decoder layer.

  Args:
    stack: Component of the model, 'encoder' or 'decoder'.
    config: Configuration of the model.

  Returns:
    Mapping from the tensors of T5X to the parameters of xlflax.
  """
  names = {
    f'{block}/{tensor}': f'{parameter_block}/{parameter}'
    for block, parameter_block in _ATTENTION_BLOCKS[stack].items()
    for tensor, parameter in _ATTENTION.items()
  }
  names |= {
    f'{norm}/scale': f'{parameter_norm}/scale'
    for norm, parameter_norm in _NORMS[stack].items()
  }
  if config.per_layer_relative_bias:
    names[_BIAS] = 'relative_bias/table'
  return names | (_GATED_MLP if config.gated_mlp else _MLP)


def top_names(
  config: encoder_decoder_config.EncoderDecoderConfig,
) -> dict[str, str]:
  """Returns the names of the parameters outside the layers.

  Args:
    config: Configuration of the model.

  Returns:
    Mapping from the tensors of T5X to the parameters of xlflax.
  """
  names = {EMBEDDING: 'model/encoder/token'}
  for stack in _NORMS:
    names[f'{stack}/{stack}_norm/scale'] = f'model/{stack}/final_norm/scale'
    if not config.per_layer_relative_bias:
      names[f'{stack}/{_BIAS}'] = f'model/{stack}/relative_bias/table'
  if not config.tie_word_embeddings:
    names[f'decoder/{_OUTPUT}'] = 'model/output'
  return names


def is_vocabulary_table(parameter: str) -> bool:
  """Returns whether a parameter has one row per token in the vocabulary."""
  return parameter in ('model/encoder/token', 'model/output')


def find_sources(
  parameter: str,
  sources: Mapping[str, str],
  config: encoder_decoder_config.EncoderDecoderConfig,
  *,
  scanned: bool,
) -> list[tuple[str, int | None]]:
  """Returns the tensors that a parameter is built from.

  Args:
    parameter: Name of the parameter. With scanned layers, the name contains no
      layer number.
    sources: Mapping from parameter names to tensor names, the inverse of
      `top_names`.
    config: Configuration of the model.
    scanned: Whether T5X trained the model with scanned layers.

  Returns:
    Pairs of a tensor and a layer. The layer is None for tensors that are not
    scanned.
  """
  if parameter in sources:
    return [(sources[parameter], None)]
  match = re.fullmatch(r'model/(\w+)/layers(?:_(\d+))?/(.*)', parameter)
  assert match is not None, parameter
  stack, number, suffix = match.groups()
  tensors = {
    parameter_name: tensor
    for tensor, parameter_name in layer_names(stack, config).items()
  }
  tensor = tensors[suffix]
  if number is not None:
    layers = [int(number)]
  else:
    layers = list(range(num_layers(config, stack)))
  if scanned:
    return [(f'{stack}/{stack}/{tensor}', layer) for layer in layers]
  return [(f'{stack}/layers_{layer}/{tensor}', None) for layer in layers]


def num_layers(
  config: encoder_decoder_config.EncoderDecoderConfig, stack: str
) -> int:
  """Returns the number of layers in the encoder or the decoder."""
  if stack == 'encoder':
    return config.num_encoder_layers
  return config.num_decoder_layers


def select_layer(array: np.ndarray, layer: int | None) -> np.ndarray:
  """Returns one layer of a scanned tensor [rows, layers, ...].

  If `layer` is None, returns the complete tensor.
  """
  return array if layer is None else np.take(array, layer, _SCAN_AXIS)


def with_padded_rows(
  table: np.ndarray, *, vocab_size: int, num_rows: int
) -> np.ndarray:
  """Truncates an embedding table to the vocabulary size and pads it with zeros.

  Args:
    table: Embedding table of shape [R, H] with at least `vocab_size` rows.
    vocab_size: Number of rows to keep, which is the number of tokens.
    num_rows: Number of rows of the result, including the rows of zeros.
  """
  return np.pad(table[:vocab_size], ((0, num_rows - vocab_size), (0, 0)))


def convert_array(tensor: str, array: np.ndarray, shape) -> np.ndarray:
  """Converts a tensor to an array with the parameter's shape.

  Args:
    tensor: Name of the tensor, which determines whether to transpose it.
    array: Values of the tensor, or of its slice for one layer.
    shape: Shape of the parameter, or of its slice for one layer.
  """
  if tensor.endswith(_TRANSPOSED):
    array = array.T
  return array.reshape(shape)


def part_shape(
  tensor: str, shape: tuple[int, ...], layer: int | None
) -> tuple[int, ...]:
  """Returns the shape of one layer's tensor, transposed if necessary."""
  if layer is not None:
    shape = shape[:_SCAN_AXIS] + shape[_SCAN_AXIS + 1 :]
  return shape[::-1] if tensor.endswith(_TRANSPOSED) else shape


def is_scanned(names) -> bool:
  """Returns whether T5X trained the model with scanned layers."""
  return any(name.startswith('encoder/encoder/') for name in names)


def read_config(
  shapes: Mapping[str, tuple[int, ...]],
  *,
  activation: str | None = None,
  scan_layers: bool = True,
  max_length: int = _MAX_LENGTH,
) -> encoder_decoder_config.EncoderDecoderConfig:
  """Derives a T5 model's configuration from the shapes of its tensors.

  Args:
    shapes: Mapping from the name of each tensor to its shape.
    activation: Activation of the feed-forward layers, which the shapes do not
      determine. If None, it is 'gelu_tanh' for gated layers (T5 v1.1 and mT5)
      and 'relu' for others (T5).
    scan_layers: Whether to stack the parameters of all layers, so that the
      resulting model scans over its layers.
    max_length: Maximum number of tokens per sequence.

  Raises:
    CheckpointError: If the tensors do not belong to a supported T5 model.
  """
  scanned = is_scanned(shapes)
  layer_prefix = '{0}/{0}/' if scanned else '{0}/layers_0/'
  encoder_layer = layer_prefix.format('encoder')
  decoder_layer = layer_prefix.format('decoder')
  per_layer_bias = encoder_layer + _BIAS in shapes
  bias_table = f'encoder/{_BIAS}'
  if per_layer_bias:
    bias_table = encoder_layer + _BIAS
  query_kernel = f'{encoder_layer}attention/query/kernel'
  mlp_output_kernel = f'{encoder_layer}mlp/wo/kernel'
  encoder_norm = f'{encoder_layer}pre_mlp_layer_norm/scale'
  decoder_norm = f'{decoder_layer}pre_mlp_layer_norm/scale'

  required = (
    EMBEDDING,
    bias_table,
    query_kernel,
    mlp_output_kernel,
    encoder_norm,
    decoder_norm,
  )
  missing = [name for name in required if name not in shapes]
  if missing:
    present_names = ', '.join(sorted(shapes)[:6])
    missing_names = ', '.join(missing)
    raise errors.CheckpointError(
      'The checkpoint must contain the tensors of t5x.examples.t5 or '
      f'scalable_t5. It contains tensors such as {present_names}, but it does '
      f'not contain {missing_names}',
      fix='For an xlflax model, pass the gin file that was passed to t5x.train '
      'for the model, such as --gin_file=models/SIZE.gin.',
    )

  layer = 0 if scanned else None
  query_shape = part_shape('', shapes[query_kernel], layer)
  mlp_output_shape = part_shape('', shapes[mlp_output_kernel], layer)
  num_buckets, num_heads = part_shape(
    bias_table, shapes[bias_table], layer if per_layer_bias else None
  )
  gated = f'{encoder_layer}mlp/wi_0/kernel' in shapes
  if scanned:
    num_encoder_layers = shapes[encoder_norm][_SCAN_AXIS]
    num_decoder_layers = shapes[decoder_norm][_SCAN_AXIS]
  else:
    num_encoder_layers = _count_layers(shapes, 'encoder')
    num_decoder_layers = _count_layers(shapes, 'decoder')
  return encoder_decoder_config.EncoderDecoderConfig(
    family=encoder_decoder_config.EncoderDecoderFamily.T5,
    num_encoder_layers=num_encoder_layers,
    num_decoder_layers=num_decoder_layers,
    hidden_dim=shapes[EMBEDDING][1],
    num_heads=num_heads,
    head_dim=int(np.prod(query_shape[1:])) // num_heads,
    mlp_dim=mlp_output_shape[0],
    max_position_embeddings=max_length,
    layer_norm_epsilon=1e-6,
    gated_mlp=gated,
    activation=activation or ('gelu_tanh' if gated else 'relu'),
    relative_buckets=num_buckets,
    per_layer_relative_bias=per_layer_bias,
    tie_word_embeddings=f'decoder/{_OUTPUT}' not in shapes,
    scan_layers=scan_layers,
  )


def _count_layers(shapes, stack: str) -> int:
  """Returns the number of unrolled layers of the encoder or the decoder."""
  layers = [
    int(match.group(1))
    for name in shapes
    if (match := re.match(rf'{stack}/layers_(\d+)/', name))
  ]
  return max(layers) + 1
