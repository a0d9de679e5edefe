"""Training steps of JAX baselines, for ahead-of-time compilation.

The baselines are T5X's encoder-decoder, imported from a checkout, and an
encoder that uses Flax layers as in the Flax documentation. Like xlflax, both
clip gradients and then apply AdamW. The target devices need not be present.
"""

import importlib
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.core
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen import partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class Step(NamedTuple):
  """Jitted training step and the abstract inputs for compiling it.

  Attributes:
    jitted: Jitted function (state, batch) -> (state, loss).
    state: Abstract training state (shapes and data types) with shardings.
    batch: Abstract batch (shapes and data types) with shardings.
    tokens: Number of tokens per batch.
  """

  jitted: Any
  state: Any
  batch: dict[str, Any]
  tokens: int


class T5Sizes(NamedTuple):
  """Sizes of a T5X encoder-decoder. The defaults are those of mT5-base."""

  vocabulary: int = 250_112
  layers: int = 12
  width: int = 768
  heads: int = 12
  mlp: int = 2048
  rows: int = 32
  inputs: int = 512
  targets: int = 115


class EncoderSizes(NamedTuple):
  """Sizes of a masked language model. The defaults are those of XLM-R base."""

  vocabulary: int = 250_002
  layers: int = 12
  width: int = 768
  heads: int = 12
  mlp: int = 3072
  rows: int = 64
  length: int = 512
  chosen: int = 77  # Predicted positions per sequence: 15 %.


# Standard rules of T5X for parameters that are split in two dimensions
# (`partitioning.standard_logical_axis_rules`), for a mesh with the axis 'data'.
_T5X_RULES = (('batch', 'data'), ('embed', 'data'))


def make_t5x_step(
  checkout: pathlib.Path, devices: tuple[Any, ...], sizes: T5Sizes
) -> Step:
  """Returns a training step built from T5X's `network.py` and `losses.py`.

  The modules are from T5X's `examples/t5/network.py` and `losses.py`, and the
  step uses bfloat16. The other modules that T5X's `__init__` imports are not
  required.

  Args:
    checkout: Folder that contains a checkout of github.com/google-research/t5x.
    devices: Devices over which the parameters and sequences are sharded.
    sizes: Sizes of the model and the batch. `rows` is the number of sequences
      per device.

  Raises:
    FileNotFoundError: If `checkout` does not contain T5X.
  """
  network, losses = _import_t5x_modules(checkout)
  module = network.Transformer(
    network.T5Config(
      vocab_size=sizes.vocabulary,
      dtype=jnp.bfloat16,
      emb_dim=sizes.width,
      num_heads=sizes.heads,
      num_encoder_layers=sizes.layers,
      num_decoder_layers=sizes.layers,
      head_dim=sizes.width // sizes.heads,
      mlp_dim=sizes.mlp,
      mlp_activations=('gelu', 'linear'),
      dropout_rate=0.1,
    )
  )
  rows = sizes.rows * len(devices)
  tokens = {
    'encoder_input_tokens': (rows, sizes.inputs),
    'decoder_input_tokens': (rows, sizes.targets),
    'decoder_target_tokens': (rows, sizes.targets),
  }

  def loss(params, batch, key):
    with partitioning.axis_rules(_T5X_RULES):
      logits = module.apply({'params': params}, **batch, rngs={'dropout': key})
    targets = batch['decoder_target_tokens']
    weights = (targets > 0).astype(jnp.float32)
    total, _, weight = losses.compute_weighted_cross_entropy(
      logits, targets, weights, z_loss=1e-4
    )
    return total / weight

  def initialize(key):
    inputs = {name: jnp.ones(shape, int) for name, shape in tokens.items()}
    return module.init({'params': key}, **inputs, enable_dropout=False)

  variables = jax.eval_shape(initialize, jax.random.key(0))
  with partitioning.axis_rules(_T5X_RULES):
    names = partitioning.get_axis_names(variables['params_axes'])
    specs = jax.tree.map(
      lambda axes: partitioning.logical_to_mesh_axes(axes),
      flax.core.unfreeze(names),
      is_leaf=lambda leaf: isinstance(leaf, PartitionSpec),
    )
  counted_inputs = ('encoder_input_tokens', 'decoder_input_tokens')
  return _make_step(
    loss, variables['params'], specs, tokens, devices, counted_inputs
  )


def _import_t5x_modules(checkout: pathlib.Path):
  """Imports two T5X modules without running the package's own imports."""
  if not (checkout / 't5x/losses.py').exists():
    raise FileNotFoundError(
      f'{checkout} is not a checkout of github.com/google-research/t5x. Pass '
      '--t5x=DIR.'
    )
  package = types.ModuleType('t5x')
  package.__path__ = [str(checkout / 't5x')]
  sys.modules.setdefault('t5x', package)
  return (
    importlib.import_module('t5x.examples.t5.network'),
    importlib.import_module('t5x.losses'),
  )


class _Encoder(nn.Module):
  """BERT built from Flax layers, which returns logits at given positions."""

  sizes: EncoderSizes

  @nn.compact
  def __call__(self, tokens, chosen):
    """Returns the logits at the chosen positions.

    Args:
      tokens: Token IDs of shape [batch, length].
      chosen: Positions at which logits are computed, of shape [batch,
        positions].

    Returns:
      float32 of shape [batch, positions, vocabulary].
    """
    sizes = self.sizes

    def norm(x):
      return nn.LayerNorm(dtype=jnp.bfloat16)(x)

    def drop(x):
      return nn.Dropout(0.1)(x, deterministic=False)

    def dense(x, width):
      return nn.Dense(width, dtype=jnp.bfloat16)(x)

    embed = nn.Embed(sizes.vocabulary, sizes.width, dtype=jnp.bfloat16)
    position_embed = nn.Embed(sizes.length, sizes.width, dtype=jnp.bfloat16)
    x = drop(
      norm(embed(tokens) + position_embed(jnp.arange(sizes.length))[None])
    )
    for _ in range(sizes.layers):
      attention = nn.MultiHeadDotProductAttention(
        sizes.heads, dtype=jnp.bfloat16, dropout_rate=0.1
      )
      mask = nn.make_attention_mask(tokens > 0, tokens > 0)
      x = norm(x + drop(attention(x, mask=mask, deterministic=False)))
      activations = nn.gelu(dense(x, sizes.mlp), approximate=False)
      x = norm(x + drop(dense(activations, sizes.width)))
    x = jnp.take_along_axis(x, chosen[:, :, None], axis=1)
    x = norm(nn.gelu(dense(x, sizes.width), approximate=False))
    bias = self.param('bias', nn.initializers.zeros, (sizes.vocabulary,))
    return embed.attend(x).astype(jnp.float32) + bias[None, None]


def make_plain_flax_step(devices: tuple[Any, ...], sizes: EncoderSizes) -> Step:
  """Returns a bfloat16 training step for a masked LM built from Flax layers.

  As in xlflax, the head receives only the chosen positions.

  Args:
    devices: Devices over which the sequences are sharded. Parameters are
      replicated.
    sizes: Sizes of the model and the batch. `rows` is the number of sequences
      per device.
  """
  module = _Encoder(sizes)
  rows = sizes.rows * len(devices)
  tokens = {
    'tokens': (rows, sizes.length),
    'chosen': (rows, sizes.chosen),
    'labels': (rows, sizes.chosen),
  }

  def loss(params, batch, key):
    logits = module.apply(
      {'params': params},
      batch['tokens'],
      batch['chosen'],
      rngs={'dropout': key},
    )
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, batch['labels']
    ).mean()

  def initialize(key):
    tokens_input, chosen_input = (
      jnp.ones(tokens[k], int) for k in ('tokens', 'chosen')
    )
    return module.init(
      {'params': key, 'dropout': key}, tokens_input, chosen_input
    )

  params = jax.eval_shape(initialize, jax.random.key(0))['params']
  specs = jax.tree.map(lambda _: PartitionSpec(), params)
  return _make_step(loss, params, specs, tokens, devices, ('tokens',))


def _make_step(
  loss: Callable[..., jax.Array], params, specs, tokens, devices, counted_inputs
) -> Step:
  """Returns a training step that applies AdamW.

  Args:
    loss: Loss function (params, batch, key) -> loss.
    params: Abstract parameters (shapes and data types).
    specs: Partition specs of the parameters.
    tokens: Map from the name of each int32 array in a batch to its shape.
    devices: Devices that form the mesh.
    counted_inputs: Names of the arrays whose total size is counted as the
      batch's number of tokens.
  """
  optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(1e-4, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.01),
  )
  mesh = Mesh(np.asarray(devices), ('data',))

  def place_leaf(leaf, spec):
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

  moments = optax.tree_map_params(
    optimizer,
    place_leaf,
    jax.eval_shape(optimizer.init, params),
    specs,
    transform_non_params=lambda leaf: place_leaf(leaf, PartitionSpec()),
  )
  state = (
    jax.tree.map(place_leaf, params, specs),
    moments,
    place_leaf(jax.ShapeDtypeStruct((), jnp.int32), PartitionSpec()),
  )
  batch = {
    name: place_leaf(
      jax.ShapeDtypeStruct(shape, jnp.int32), PartitionSpec('data')
    )
    for name, shape in tokens.items()
  }

  def step(state, batch):
    params, moments, count = state
    key = jax.random.fold_in(jax.random.key(0), count)
    with mesh:
      value, gradient = jax.value_and_grad(loss)(params, batch, key)
    updates, moments = optimizer.update(gradient, moments, params)
    return (optax.apply_updates(params, updates), moments, count + 1), value

  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  replicated = NamedSharding(mesh, PartitionSpec())
  jitted = jax.jit(
    step, donate_argnums=0, out_shardings=(shardings, replicated)
  )
  count = sum(int(np.prod(tokens[name])) for name in counted_inputs)
  return Step(jitted, state, batch, count)
