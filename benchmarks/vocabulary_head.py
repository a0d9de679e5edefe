"""Numerical errors, time and memory of cross-entropy implementations.

  python -m benchmarks.vocabulary_head --model xlmr-base    # on a GPU
  python -m benchmarks.vocabulary_head --model tiny         # on any device
  python -m benchmarks.vocabulary_head --model xlmr-base --vocabulary 250002 \\
      --devices gpu:H200:1   # compiles and counts, with the extra `plan-gpu`

Measures the loss and its gradients with respect to hidden states, embedding
table and bias. `plain` is the log-softmax over all logits in float32,
differentiated by JAX. `whole` and `chunked_N` are the implementations that the
objectives use (`chunk_size=None` and N), which have a custom backward pass. All
of them are compared with `plain` computed in float32.
"""

import argparse
import dataclasses
import json

import jax
import jax.numpy as jnp

from benchmarks import jitted
from benchmarks.compiled import findings
from benchmarks.compiled.programs import collectives, execution, hlo, kernels
from xlflax.objectives.cross_entropy import linear_cross_entropy
from xlflax.planning import compilers
from xlflax.training.devices import machine_topology

ERRORS = ('loss_error', 'gradient_error')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """Sizes of the vocabulary head, which computes logits and cross-entropy.

  Attributes:
    positions: Number of masked positions at which tokens are predicted.
    hidden: Size of the hidden states.
    vocabulary: Vocabulary size.
    dtype: Data type of the hidden states.
  """

  positions: int
  hidden: int
  vocabulary: int
  dtype: str = 'bfloat16'


# 77 tokens of each of 64 sequences of 512 are scored, as in a training step
# (mBERT: 20 of each of 256 sequences of 128). Vocabularies are padded to a
# multiple of 128.
MODELS = {
  'tiny': Sizes(positions=16, hidden=8, vocabulary=1000, dtype='float32'),
  'small': Sizes(
    positions=256, hidden=256, vocabulary=250_002, dtype='float32'
  ),
  'xlmr-base': Sizes(positions=4928, hidden=768, vocabulary=250_112),
  'xlmr-large': Sizes(positions=4928, hidden=1024, vocabulary=250_112),
  'mbert': Sizes(positions=5120, hidden=768, vocabulary=119_552),
}


def make_inputs(sizes: Sizes, seed: int = 0):
  """Returns random hidden states, embedding table, bias and labels.

  Args:
    sizes: Dimensions and data type of the input arrays.
    seed: Random seed.

  Returns:
    Hidden states of shape [positions, hidden] in `sizes.dtype`, the table of
    shape [vocabulary, hidden] and the bias of shape [vocabulary] in float32,
    and labels of shape [positions].
  """
  keys = jax.random.split(jax.random.key(seed), 4)
  hidden = jax.random.normal(keys[0], (sizes.positions, sizes.hidden))
  table = jax.random.normal(keys[1], (sizes.vocabulary, sizes.hidden)) * 0.02
  bias = jax.random.normal(keys[2], (sizes.vocabulary,)) * 0.02
  labels = jax.random.randint(keys[3], (sizes.positions,), 0, sizes.vocabulary)
  return hidden.astype(sizes.dtype), table, bias, labels


def _plain_cross_entropy(hidden, table, bias, labels):
  """Computes the cross-entropy of each position from all logits."""
  logits = (
    jnp.matmul(
      hidden, table.astype(hidden.dtype).T, preferred_element_type=jnp.float32
    )
    + bias[None, :]
  )
  scores = jax.nn.log_softmax(logits, axis=-1)
  return -jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def compute_with_gradients(variant: str, hidden, table, bias, labels):
  """Computes the mean cross-entropy and its gradients.

  Args:
    variant: Implementation of cross-entropy: 'plain', 'whole' or 'chunked_N'.
    hidden: Hidden states of shape [positions, hidden].
    table: Embedding table of shape [vocabulary, hidden].
    bias: Bias of shape [vocabulary].
    labels: Token IDs of shape [positions].

  Returns:
    The loss, and the gradients of hidden states, table and bias.
  """

  def loss(hidden, table, bias):
    if variant == 'plain':
      return _plain_cross_entropy(hidden, table, bias, labels).mean()
    _, _, chunk = variant.partition('_')
    return linear_cross_entropy.linear_cross_entropy(
      hidden, table, bias, labels, chunk_size=int(chunk) if chunk else None
    ).loss.mean()

  return jax.value_and_grad(loss, argnums=(0, 1, 2))(hidden, table, bias)


def list_variants(sizes: Sizes) -> tuple[str, ...]:
  """Returns the names of the cross-entropy implementations to measure."""
  return (
    'plain',
    'whole',
    *(
      f'chunked_{chunk_size}'
      for chunk_size in (256, 8192, 32768)
      if chunk_size < sizes.vocabulary and chunk_size >= sizes.vocabulary // 64
    ),
  )


def compare_variants(sizes: Sizes, *, calls: int) -> dict[str, dict]:
  """Measures time, memory and numerical errors of each implementation.

  Args:
    sizes: Dimensions of the vocabulary head's inputs and weights.
    calls: Number of timed calls.

  Returns:
    Map from variant to its measurements.
  """
  arrays = make_inputs(sizes)
  float32_arrays = (arrays[0].astype(jnp.float32), *arrays[1:])
  reference = jax.jit(
    lambda *tensors: compute_with_gradients('plain', *tensors)
  )(*float32_arrays)
  reference = jax.device_get(reference)
  results = {}
  for variant in list_variants(sizes):
    figures, outputs = jitted.measure_jitted(
      lambda *tensors, variant=variant: compute_with_gradients(
        variant, *tensors
      ),
      *arrays,
      calls=calls,
    )
    results[variant] = figures | {
      'loss_error': jitted.max_relative_error(outputs[0], reference[0]),
      'gradient_error': jitted.max_relative_error(outputs[1], reference[1]),
    }
  return results


def count_program(
  sizes: Sizes, machine: machine_topology.DeviceTopology
) -> dict[str, float]:
  """Compiles cross-entropy with gradients for a device and counts its kernels.

  The device does not have to be present.

  Args:
    sizes: Dimensions of the vocabulary head's inputs and weights.
    machine: Topology with a single device. The compiler for this device must be
      installed.

  Returns:
    The number of kernels, their bytes and FLOPs, the temporary bytes, and the
    unaligned matmuls.
  """
  (device,) = compilers.topology_devices(machine)
  sharding = jax.sharding.SingleDeviceSharding(device)
  arrays = [
    jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
    for array in jax.eval_shape(lambda: make_inputs(sizes))
  ]
  with compilers.trace_for_machine(machine):
    program = compilers.compile_step(
      machine,
      jax.jit(lambda *tensors: compute_with_gradients('whole', *tensors)),
      *arrays,
    )
  module = hlo.parse_module(program.text)
  reader = kernels.make_reader(machine.platform, {}, {})
  placement = collectives.Placement(devices=1, per_node=1)
  run = execution.Execution(
    module, reader, placement, machine.accelerator
  ).run()
  return {
    'kernels': sum(run.kernels.values()),
    'bytes': sum(kernel.bytes * count for kernel, count in run.kernels.items()),
    'flops': sum(kernel.flops * count for kernel, count in run.kernels.items()),
    'temporary_bytes': program.memory.temporary,
    'unaligned_matmuls': sum(findings.count_misaligned(module).values()),
  }


def main(arguments=None) -> None:
  """Benchmarks implementations of cross-entropy and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--model', choices=list(MODELS), default='tiny', help='Model to measure.'
  )
  parser.add_argument(
    '--calls', type=int, default=10, help='Number of timed calls.'
  )
  parser.add_argument('--vocabulary', type=int, help='Vocabulary size.')
  parser.add_argument(
    '--devices',
    help='Absent device for which the head is compiled, such as gpu:H200:1.',
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  args = parser.parse_args(arguments)
  sizes = MODELS[args.model]
  if args.vocabulary:
    sizes = dataclasses.replace(sizes, vocabulary=args.vocabulary)
  if args.devices:
    counts = count_program(sizes, machine_topology.parse_topology(args.devices))
    print(json.dumps(dataclasses.asdict(sizes) | counts, indent=2))
    return
  results = compare_variants(sizes, calls=args.calls)
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
