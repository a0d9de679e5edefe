"""T5X's T5 (`t5x.examples.t5` and `scalable_t5`): tensors and parameters.

| | in T5X | here |
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
# Block in T5X -> here; both are within a layer.
_ATTENTIONS = {
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
_MAX_LENGTH = 1024  # relative positions have no bound of their own


def names_of(
  half: str, config: encoder_decoder_config.EncoderDecoderConfig
) -> dict[str, str]:
  """Tensor -> parameter, within a layer of the encoder or the decoder."""
  found = {
    f'{there}/{name}': f'{here}/{parameter}'
    for there, here in _ATTENTIONS[half].items()
    for name, parameter in _ATTENTION.items()
  }
  found |= {
    f'{there}/scale': f'{here}/scale' for there, here in _NORMS[half].items()
  }
  if config.per_layer_relative_bias:
    found[_BIAS] = 'relative_bias/table'
  return found | (_GATED_MLP if config.gated_mlp else _MLP)


def top_names(
  config: encoder_decoder_config.EncoderDecoderConfig,
) -> dict[str, str]:
  """Tensor -> parameter, outside of layers."""
  found = {EMBEDDING: 'model/encoder/token'}
  for half in _NORMS:
    found[f'{half}/{half}_norm/scale'] = f'model/{half}/final_norm/scale'
    if not config.per_layer_relative_bias:
      found[f'{half}/{_BIAS}'] = f'model/{half}/relative_bias/table'
  if config.output_embeddings == 'own':
    found[f'decoder/{_OUTPUT}'] = 'model/output'
  return found


def is_vocabulary_table(parameter: str) -> bool:
  """Returns whether a parameter has a row for each token."""
  return parameter in ('model/encoder/token', 'model/output')


def tensors_of(
  parameter: str,
  sources: Mapping[str, str],
  config: encoder_decoder_config.EncoderDecoderConfig,
  *,
  scanned: bool,
) -> list[tuple[str, int | None]]:
  """What a parameter is made of: (tensor, layer of a scanned one) pairs.

  Args:
    parameter: name here; of scanned layers without a number.
    sources: of `top_names`, turned round: parameter -> tensor.
    config: of the model here.
    scanned: whether T5X's layers are.
  """
  if parameter in sources:
    return [(sources[parameter], None)]
  match = re.fullmatch(r'model/(\w+)/layers(?:_(\d+))?/(.*)', parameter)
  assert match is not None, parameter
  half, number, within = match.groups()
  there = {here: name for name, here in names_of(half, config).items()}
  layers = range(layers_of(config, half)) if number is None else (int(number),)
  return [
    (f'{half}/{half}/{there[within]}', layer)
    if scanned
    else (f'{half}/layers_{layer}/{there[within]}', None)
    for layer in layers
  ]


def layers_of(
  config: encoder_decoder_config.EncoderDecoderConfig, half: str
) -> int:
  """Layers of the encoder or the decoder."""
  return (
    config.num_encoder_layers
    if half == 'encoder'
    else config.num_decoder_layers
  )


def select_layer(array: np.ndarray, layer: int | None) -> np.ndarray:
  """Returns a layer of a scanned tensor [rows, layers, ...], or all of it."""
  return array if layer is None else np.take(array, layer, _SCAN_AXIS)


def with_padded_rows(
  table: np.ndarray, *, vocab_size: int, num_rows: int
) -> np.ndarray:
  """Returns a table [num_rows, H] whose rows beyond the vocabulary are 0.

  Args:
    table: Array [R, H] with at least `vocab_size` rows.
    vocab_size: Number of tokens.
    num_rows: Number of rows of the result.
  """
  return np.pad(table[:vocab_size], ((0, num_rows - vocab_size), (0, 0)))


def convert_array(tensor: str, array: np.ndarray, shape) -> np.ndarray:
  """Returns a tensor's array as an array of the parameter's shape.

  Args:
    tensor: its name, which says whether it is transposed.
    array: [...], one layer of it.
    shape: of the parameter.
  """
  if tensor.endswith(_TRANSPOSED):
    array = array.T
  return array.reshape(shape)


def part_shape(
  tensor: str, shape: tuple[int, ...], layer: int | None
) -> tuple[int, ...]:
  """The shape of `select_layer`, transposed as by `convert_array`."""
  if layer is not None:
    shape = shape[:_SCAN_AXIS] + shape[_SCAN_AXIS + 1 :]
  return shape[::-1] if tensor.endswith(_TRANSPOSED) else shape


def is_scanned(names) -> bool:
  """Whether T5X's layers are stacked."""
  return any(name.startswith('encoder/encoder/') for name in names)


def read_config(
  shapes: Mapping[str, tuple[int, ...]],
  *,
  activation: str | None = None,
  scan_layers: bool = True,
  max_length: int = _MAX_LENGTH,
) -> encoder_decoder_config.EncoderDecoderConfig:
  """What the shapes of a checkpoint's tensors say of the model.

  Args:
    shapes: of each tensor, by name.
    activation: of the feed-forward blocks; None for T5 v1.1's and mT5's
      gated 'gelu_tanh', or T5's 'relu', which the shapes do not tell.
    scan_layers: whether the layers are stacked here.
    max_length: longest row.

  Raises:
    CheckpointError: these are not the tensors of a T5.
  """
  scanned = is_scanned(shapes)
  inside = '{0}/{0}/' if scanned else '{0}/layers_0/'
  layer = inside.format('encoder')
  per_layer = layer + _BIAS in shapes
  bias = layer + _BIAS if per_layer else f'encoder/{_BIAS}'
  wanted = (
    EMBEDDING,
    bias,
    f'{layer}attention/query/kernel',
    f'{layer}mlp/wo/kernel',
    f'{layer}pre_mlp_layer_norm/scale',
    inside.format('decoder') + 'pre_mlp_layer_norm/scale',
  )
  missing = [name for name in wanted if name not in shapes]
  if missing:
    raise errors.CheckpointError(
      'The checkpoint is not of a T5 that is known',
      got='no '
      + ', '.join(missing)
      + '; there are '
      + ', '.join(sorted(shapes)[:6]),
      expected="t5x.examples.t5's or scalable_t5's tensors",
      fix="for xlflax's own models, give the model that t5x.train was "
      'given: --gin_file=models/SIZE.gin',
    )
  query = part_shape('', shapes[wanted[2]], 0 if scanned else None)
  buckets, heads = part_shape(
    bias, shapes[bias], 0 if scanned and per_layer else None
  )
  gated = f'{layer}mlp/wi_0/kernel' in shapes
  counts = {
    half: (
      shapes[inside.format(half) + 'pre_mlp_layer_norm/scale'][_SCAN_AXIS]
      if scanned
      else _count(shapes, half)
    )
    for half in ('encoder', 'decoder')
  }
  return encoder_decoder_config.EncoderDecoderConfig(
    family=encoder_decoder_config.EncoderDecoderFamily.T5,
    num_encoder_layers=counts['encoder'],
    num_decoder_layers=counts['decoder'],
    hidden_dim=shapes[EMBEDDING][1],
    num_heads=heads,
    head_dim=int(np.prod(query[1:])) // heads,
    mlp_dim=part_shape('', shapes[wanted[3]], 0 if scanned else None)[0],
    max_length=max_length,
    layer_norm_epsilon=1e-6,
    gated_mlp=gated,
    activation=activation or ('gelu_tanh' if gated else 'relu'),
    relative_buckets=buckets,
    per_layer_relative_bias=per_layer,
    output_embeddings=encoder_decoder_config.OutputEmbeddings(
      'own' if f'decoder/{_OUTPUT}' in shapes else 'tied'
    ),
    scan_layers=scan_layers,
  )


def _count(shapes, half: str) -> int:
  numbers = [
    int(match.group(1))
    for name in shapes
    if (match := re.match(rf'{half}/layers_(\d+)/', name))
  ]
  return max(numbers) + 1
