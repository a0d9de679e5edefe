"""Backends of attention over packed rows: parity, time and memory.

  python -m benchmarks.attention --model xlmr-base    # on a GPU
  python -m benchmarks.attention --model tiny         # anywhere

Forward and backward pass together. `xla`, `cudnn` and `fused` are what
`attention_backend` chooses from, with dropout of probabilities too where they
have it; `fused` is interpreted on CPUs. Each is
compared with the formula in float32, and with itself on the same texts, one
to a row, padded.
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
_NUM_SEGMENTS = 4  # texts in a packed row; the fifth part of a row is padding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """Rows [batch, length] of heads [heads, width]."""

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
  """int32 [B, T]: texts of one length and, at the end, as much padding."""
  text = sizes.length // (_NUM_SEGMENTS + 1)
  ids = np.zeros((sizes.batch, sizes.length), np.int32)
  for i in range(_NUM_SEGMENTS):
    ids[:, i * text : (i + 1) * text] = i + 1
  return ids


def make_inputs(sizes: Sizes, seed: int = 0):
  """Query, key, value and the output's cotangent, [B, T, N, D]."""
  shape = (sizes.batch, sizes.length, sizes.heads, sizes.width)
  return [
    jax.random.normal(key, shape, sizes.dtype)
    for key in jax.random.split(jax.random.key(seed), 4)
  ]


def compute_attention(variant: str, query, key, value, ids) -> jax.Array:
  """Attention within segments by one of `VARIANTS`."""
  mask = masks.make_self_attention_mask(ids)
  if variant == 'formula':
    length = query.shape[1]
    return _reference_attention(query, key, value, mask.array(length, length))
  name, _, dropout = variant.partition('_')
  given = (
    dict(dropout_rate=0.1, dropout_key=jax.random.key(1)) if dropout else {}
  )
  return attention_backends.dot_product_attention(
    query, key, value, mask, backend=AttentionBackend(name), **given
  )


def _reference_attention(query, key, value, mask) -> jax.Array:
  query, key, value = (x.astype(jnp.float32) for x in (query, key, value))
  scores = (
    jnp.einsum('btnd,bsnd->bnts', query, key, precision='highest')
    * query.shape[-1] ** -0.5
  )
  weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
  return jnp.einsum('bnts,bsnd->btnd', weights, value, precision='highest')


def compute_with_gradients(variant: str, query, key, value, cotangent, ids):
  """(output, gradients of query, key and value) at positions of text."""
  text = (ids > 0)[:, :, None, None]

  def run(*given):
    return compute_attention(variant, *given, ids)

  output, back = jax.vjp(run, query, key, value)
  gradients = back(jnp.where(text, cotangent, 0).astype(output.dtype))
  return jnp.where(text, output, 0), gradients


def unpack_rows(arrays, ids: np.ndarray):
  """The same texts, each in a row of its own, padded to twice its length."""
  text = ids.shape[1] // (_NUM_SEGMENTS + 1)

  def split(array):
    rows = array[:, : _NUM_SEGMENTS * text].reshape(
      (-1, text) + array.shape[2:]
    )
    return jnp.concatenate([rows, jnp.zeros_like(rows)], axis=1)

  return [split(array) for array in arrays], split(np.minimum(ids, 1)).astype(
    np.int32
  )


def measure_packed_error(
  variant: str, arrays, ids: np.ndarray, packed
) -> float:
  """Distance between packed rows and the same texts in rows of their own."""
  rows, row_ids = unpack_rows(arrays, ids)
  alone = jax.jit(functools.partial(compute_with_gradients, variant))(
    *rows, row_ids
  )
  expected, _ = unpack_rows(jax.tree.leaves(packed), ids)
  return jitted.max_relative_error(jax.tree.leaves(alone), expected)


def compare_backends(sizes: Sizes, *, calls: int, variants=VARIANTS) -> dict:
  """Figures of each variant; {'refused': reason} where it cannot be run."""
  arrays, ids = make_inputs(sizes), make_segment_ids(sizes)
  wanted = jax.jit(functools.partial(compute_with_gradients, 'formula'))(
    *arrays, ids
  )
  results: dict[str, dict] = {}
  for variant in variants:
    run = functools.partial(compute_with_gradients, variant)
    try:
      figures, found = jitted.measure_jitted(run, *arrays, ids, calls=calls)
    except errors.ConfigError as error:
      results[variant] = {'refused': error.got}
      continue
    compared = 'dropout' not in variant
    results[variant] = figures | {
      'forward_error': jitted.max_relative_error(found[0], wanted[0])
      if compared
      else float('nan'),
      'gradient_error': jitted.max_relative_error(found[1], wanted[1])
      if compared
      else float('nan'),
      'packed_error': measure_packed_error(variant, arrays, ids, found)
      if compared
      else float('nan'),
    }
  return results


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--model', choices=list(MODELS), default='tiny')
  parser.add_argument('--variants', default=','.join(VARIANTS))
  parser.add_argument('--calls', type=int, default=20)
  parser.add_argument('--output', help='write the figures to this file too')
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
