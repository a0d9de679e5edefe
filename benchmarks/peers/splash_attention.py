"""`xlflax` with JAX's splash attention in place of its own kernels for TPUs.

  python -m benchmarks.peers.splash_attention train --dry_run ...

Splash attention has segments, but neither dropout nor biases. Blocks are of 512,
and one kernel makes all gradients, as in ours.
"""

import contextlib
import functools
import sys

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_kernel as kernel,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_mask as splash_masks,
)

from xlflax import cli
from xlflax.models import targets
from xlflax.models.attention import fused
from xlflax.models.attention.fused import problem, sharded
from xlflax.training import setup as setup_lib

_BLOCK = 512


def attend(
  query, key, value, mask, *, bias, scale, dropout_rate, dropout_key
) -> jax.Array:
  """`fused.attend` without dropout, biases and windows: [B, T, N, D]."""
  if dropout_key is not None and dropout_rate or bias is not None:
    raise ValueError('splash attention has neither dropout nor biases')
  segments = mask.query_segments, mask.key_segments
  arrays = problem.Arrays(
    query * scale, key, value, None, *segments, None, None
  )
  split = sharded._split(arrays)
  return split.map(_of_device, (arrays,), split.queries)


def _of_device(arrays: problem.Arrays) -> jax.Array:
  length, heads = arrays.query.shape[1:3]
  block = min(_BLOCK, length)
  names = 'block_q block_kv block_q_dkv block_kv_dkv'.split()
  with jax.ensure_compile_time_eval():
    run = kernel.make_splash_mha_single_device(
      splash_masks.MultiHeadMask(
        [splash_masks.FullMask((length, arrays.key.shape[1]))] * heads
      ),
      block_sizes=kernel.BlockSizes(
        **dict.fromkeys(names, block), use_fused_bwd_kernel=True
      ),
      interpret=targets.current().platform == 'cpu',
    )
  query, key, value = (x.swapaxes(1, 2) for x in arrays[:3])
  segments = kernel.SegmentIds(arrays.query_segments, arrays.key_segments)
  return jax.vmap(run)(query, key, value, segments).swapaxes(1, 2)


@contextlib.contextmanager
def _instead(function):
  kept, fused.attend = fused.attend, function
  try:
    yield
  finally:
    fused.attend = kept


def main() -> int:
  """Runs a command; its model FLOPs are those of the project's own form."""
  ours, counted = fused.attend, setup_lib.Setup.flops

  @functools.wraps(counted)
  def flops(self, active):
    with _instead(ours):
      return counted(self, active)

  setup_lib.Setup.flops = flops
  with _instead(attend):
    return cli.main()


if __name__ == '__main__':
  sys.exit(main())
