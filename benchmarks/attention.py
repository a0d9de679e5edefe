"""Speed, memory use and numerical error of attention on packed sequences.

  python -m benchmarks.attention --model xlmr-base    # on a GPU
  python -m benchmarks.attention --model tiny         # on any device

Measures the forward and backward pass together. `xla`, `cudnn` and `fused` are
the values of `attention_backend`. Backends that support dropout on the
attention probabilities are also measured with dropout. On CPUs, `fused` runs in
interpret mode. Each backend's output on packed sequences is compared with a
float32 reference, and with the same backend's output on separate, padded
sequences.
"""

import argparse
import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import jitted
from xlflax.models.attention import attention_backends, masks
from xlflax.models.encoder_config import AttentionBackend
from xlflax.utils import errors

VARIANTS = ('xla', 'xla_dropout', 'cudnn', 'fused', 'fused_dropout')
ERRORS = ('forward_error', 'gradient_error', 'packed_error')
# Texts in a packed sequence. The last fifth of a sequence is padding.
_NUM_SEGMENTS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """Sizes of attention inputs of shape [batch, length, heads, width].

  Attributes:
    batch: Sequences per batch.
    length: Tokens per sequence.
    heads: Number of attention heads.
    width: Size of each head.
    dtype: Data type of queries, keys and values.
  """

  batch: int
  length: int
  heads: int
  width: int = 64
  dtype: str = 'bfloat16'


MODELS = {
  'tiny': Sizes(batch=2, length=32, heads=2, width=16, dtype='float32'),
  'xlmr-base': Sizes(batch=64, length=512, heads=12),
  'xlmr-large': Sizes(batch=32, length=512, heads=16),
  'mbert': Sizes(batch=256, length=128, heads=12),
}


def make_segment_ids(sizes: Sizes) -> np.ndarray:
  """Returns segment IDs for packed texts of equal length, followed by padding.

  Returns:
    int32 of shape [batch, length]; 0 is padding.
  """
  segment_length = sizes.length // (_NUM_SEGMENTS + 1)
  ids = np.zeros((sizes.batch, sizes.length), np.int32)
  for i in range(_NUM_SEGMENTS):
    ids[:, i * segment_length : (i + 1) * segment_length] = i + 1
  return ids


def make_inputs(sizes: Sizes, seed: int = 0):
  """Returns random query, key and value arrays and an output cotangent.

  Args:
    sizes: Dimensions and data type of the input arrays.
    seed: Random seed.

  Returns:
    Four arrays of shape [batch, length, heads, width].
  """
  shape = (sizes.batch, sizes.length, sizes.heads, sizes.width)
  return [
    jax.random.normal(key, shape, sizes.dtype)
    for key in jax.random.split(jax.random.key(seed), 4)
  ]


def compute_attention(
  variant: str, query, key, value, segment_ids
) -> jax.Array:
  """Computes attention in which tokens attend only within their segment.

  Args:
    variant: Attention implementation: one of `VARIANTS`, or 'formula' for the
      float32 reference.
    query: Queries of shape [batch, length, heads, width].
    key: Keys of the same shape as `query`.
    value: Values of the same shape as `query`.
    segment_ids: Segment IDs of shape [batch, length].

  Returns:
    Array with the same shape as `query`.
  """
  mask = masks.make_self_attention_mask(segment_ids)
  if variant == 'formula':
    length = query.shape[1]
    return _reference_attention(query, key, value, mask.array(length, length))
  name, _, dropout = variant.partition('_')
  dropout_options = (
    dict(dropout_rate=0.1, dropout_key=jax.random.key(1)) if dropout else {}
  )
  return attention_backends.dot_product_attention(
    query, key, value, mask, backend=AttentionBackend(name), **dropout_options
  )


def _reference_attention(query, key, value, mask) -> jax.Array:
  """Computes attention in float32 with the highest matmul precision."""
  query, key, value = (
    array.astype(jnp.float32) for array in (query, key, value)
  )
  scores = (
    jnp.einsum('btnd,bsnd->bnts', query, key, precision='highest')
    * query.shape[-1] ** -0.5
  )
  weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
  return jnp.einsum('bnts,bsnd->btnd', weights, value, precision='highest')


def compute_with_gradients(
  variant: str, query, key, value, cotangent, segment_ids
):
  """Computes attention and its gradients.

  Args:
    variant: Attention implementation, as in `compute_attention`.
    query: Queries of shape [batch, length, heads, width].
    key: Keys of the same shape as `query`.
    value: Values of the same shape as `query`.
    cotangent: Cotangent of the output, with the same shape as `query`.
    segment_ids: Segment IDs of shape [batch, length].

  Returns:
    The output, which is 0 at padding positions, and the gradients with respect
    to query, key and value.
  """
  is_text = (segment_ids > 0)[:, :, None, None]

  def run(*tensors):
    return compute_attention(variant, *tensors, segment_ids)

  output, backward = jax.vjp(run, query, key, value)
  gradients = backward(jnp.where(is_text, cotangent, 0).astype(output.dtype))
  return jnp.where(is_text, output, 0), gradients


def unpack_rows(arrays, segment_ids: np.ndarray):
  """Unpacks arrays so that each text has its own padded sequence.

  Args:
    arrays: Arrays of shape [batch, length, ...].
    segment_ids: Segment IDs of shape [batch, length].

  Returns:
    The unpacked arrays and their segment IDs. Each text is padded to twice its
    length.
  """
  segment_length = segment_ids.shape[1] // (_NUM_SEGMENTS + 1)

  def split(array):
    rows = array[:, : _NUM_SEGMENTS * segment_length].reshape(
      (-1, segment_length) + array.shape[2:]
    )
    return jnp.concatenate([rows, jnp.zeros_like(rows)], axis=1)

  return [split(array) for array in arrays], split(
    np.minimum(segment_ids, 1)
  ).astype(np.int32)


def measure_packed_error(
  variant: str, arrays, segment_ids: np.ndarray, packed
) -> float:
  """Returns the maximum relative error of attention on packed sequences.

  The reference is attention on the same texts in separate, padded sequences.
  The error covers the attention output and its gradients.

  Args:
    variant: Attention implementation, as in `compute_attention`.
    arrays: Query, key, value and cotangent of the packed sequences.
    segment_ids: Segment IDs of the packed sequences.
    packed: Output and gradients that were computed on the packed sequences.
  """
  unpacked_arrays, unpacked_ids = unpack_rows(arrays, segment_ids)
  unpacked = jax.jit(functools.partial(compute_with_gradients, variant))(
    *unpacked_arrays, unpacked_ids
  )
  expected, _ = unpack_rows(jax.tree.leaves(packed), segment_ids)
  return jitted.max_relative_error(jax.tree.leaves(unpacked), expected)


def compare_backends(sizes: Sizes, *, calls: int, variants=VARIANTS) -> dict:
  """Measures the time, memory and numerical errors of attention variants.

  Args:
    sizes: Dimensions and data type of the input arrays.
    calls: Number of timed calls of each variant.
    variants: Attention implementations to measure, a subset of `VARIANTS`.

  Returns:
    Map from variant to its measurements, or to {'refused': reason} if it cannot
    be run.
  """
  arrays, segment_ids = make_inputs(sizes), make_segment_ids(sizes)
  reference = jax.jit(functools.partial(compute_with_gradients, 'formula'))(
    *arrays, segment_ids
  )
  results: dict[str, dict] = {}
  for variant in variants:
    run = functools.partial(compute_with_gradients, variant)
    try:
      figures, outputs = jitted.measure_jitted(
        run, *arrays, segment_ids, calls=calls
      )
    except errors.ConfigError as error:
      results[variant] = {'refused': error.got}
      continue
    is_deterministic = 'dropout' not in variant
    results[variant] = figures | {
      'forward_error': jitted.max_relative_error(outputs[0], reference[0])
      if is_deterministic
      else float('nan'),
      'gradient_error': jitted.max_relative_error(outputs[1], reference[1])
      if is_deterministic
      else float('nan'),
      'packed_error': measure_packed_error(
        variant, arrays, segment_ids, outputs
      )
      if is_deterministic
      else float('nan'),
    }
  return results


def main(arguments=None) -> None:
  """Measures the attention backends and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--model', choices=list(MODELS), default='tiny', help='Model to measure.'
  )
  parser.add_argument(
    '--variants',
    default=','.join(VARIANTS),
    help='Variants to measure, separated by commas.',
  )
  parser.add_argument(
    '--calls', type=int, default=20, help='Number of timed calls.'
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  args = parser.parse_args(arguments)
  sizes = MODELS[args.model]
  results = compare_backends(
    sizes, calls=args.calls, variants=args.variants.split(',')
  )
  print(
    f'{sizes}\n{jax.devices()[0].device_kind}\n\n'
    f'{jitted.format_table(results, ERRORS)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(
        {'sizes': dataclasses.asdict(sizes), 'results': results}, file, indent=2
      )


if __name__ == '__main__':
  main()
