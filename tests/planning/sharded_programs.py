"""A handwritten partitioned program and small compiled programs."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.planning import cpu_stand_in
from xlflax.training.devices import partitioning

# Four devices in two nodes of two. A loop of three gathers weights
# bf16[8, 4] from bf16[2, 4] and reduces a gradient f32[8, 4], of which each
# device reads its part f32[2, 4]; a branch of two permutes.
TEXT = """HloModule jit_step, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (p: (s32[], bf16[2,4], f32[6,8])) -> (s32[], bf16[2,4], f32[6,8]) {
  %p = (s32[], bf16[2,4]{1,0}, /*index=2*/f32[6,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %w = bf16[2,4]{1,0} get-tuple-element(%p), index=1
  %x.1 = f32[6,8]{1,0} get-tuple-element(%p), index=2
  %all = bf16[8,4]{1,0} all-gather(%w), channel_id=1, replica_groups=mesh['a'=2,'b'=2] {'a','b'}, dimensions={0}, use_global_device_ids=true
  %half = bf16[6,8]{1,0} convert(%x.1)
  %y.1 = bf16[6,4]{1,0} dot(%half, %all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %grad = f32[8,4]{1,0} dot(%half, %y.1), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %reduced = f32[8,4]{1,0} all-reduce(%grad), channel_id=2, replica_groups=[1,4]<=[4], to_apply=%add
  %start = s32[] constant(0)
  %part = f32[2,4]{1,0} dynamic-slice(%reduced, %start, %start), dynamic_slice_sizes={2,4}
  %new = bf16[2,4]{1,0} convert(%part)
  ROOT %out = (s32[], bf16[2,4]{1,0}, f32[6,8]{1,0}) tuple(%next, %new, %x.1)
}

%condition (q: (s32[], bf16[2,4], f32[6,8])) -> pred[] {
  %q = (s32[], bf16[2,4]{1,0}, f32[6,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %more = pred[] compare(%j, %three), direction=LT
}

%left (a: f32[6,8]) -> f32[6,8] {
  %a = f32[6,8]{1,0} parameter(0)
  ROOT %moved = f32[6,8]{1,0} collective-permute(%a), channel_id=3, source_target_pairs={{0,1},{1,0}}
}

%right (b: f32[6,8]) -> f32[6,8] {
  ROOT %b = f32[6,8]{1,0} parameter(0)
}

ENTRY %main (v: bf16[2,4], z: f32[6,8], c: pred[]) -> (bf16[2,4], f32[6,8]) {
  %v = bf16[2,4]{1,0} parameter(0)
  %z = f32[6,8]{1,0} parameter(1)
  %c = pred[] parameter(2)
  %zero = s32[] constant(0)
  %state = (s32[], bf16[2,4]{1,0}, f32[6,8]{1,0}) tuple(%zero, %v, %z)
  %loop = (s32[], bf16[2,4]{1,0}, f32[6,8]{1,0}) while(%state), condition=%condition, body=%body
  %w.2 = bf16[2,4]{1,0} get-tuple-element(%loop), index=1
  %kept = f32[6,8]{1,0} get-tuple-element(%loop), index=2
  %norm = f32[6,8]{1,0} all-reduce(%kept), channel_id=4, replica_groups={{0,2},{1,3}}, to_apply=%add
  %chosen = f32[6,8]{1,0} conditional(%c, %norm, %norm), true_computation=%left, false_computation=%right
  ROOT %result = (bf16[2,4]{1,0}, f32[6,8]{1,0}) tuple(%w.2, %chosen)
}
"""


def layers(
  *,
  data: int = 1,
  fsdp: int = 8,
  length: int = 6,
  rows: int = 16,
  width: int = 64,
) -> str:
  """Returns the partitioned HLO of a step of gradient descent on scanned layers exp(x W).

  Weights [length, width, width] are split over fsdp, rows over both axes.
  """
  mesh = partitioning.Partitioner(
    data=data, fsdp=fsdp, devices=tuple(jax.devices()[: data * fsdp])
  ).mesh

  def loss(weights, x):
    def body(x, w):
      return jnp.exp(x @ w.astype(jnp.bfloat16)), None

    out, _ = jax.lax.scan(body, x.astype(jnp.bfloat16), weights)
    return jnp.sum(out.astype(jnp.float32))

  def step(weights, x):
    return weights - 0.1 * jax.grad(loss)(weights, x)

  split = NamedSharding(mesh, PartitionSpec(None, 'fsdp'))
  batch = NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
  lowered = jax.jit(step, out_shardings=split).lower(
    jax.ShapeDtypeStruct((length, width, width), jnp.float32, sharding=split),
    jax.ShapeDtypeStruct((rows, width), jnp.float32, sharding=batch),
  )
  return cpu_stand_in.compile_partitioned(lowered)[1]
