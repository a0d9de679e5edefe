"""A tiny encoder and its train state for tests of training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import train_state
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers

SPEC = vocabulary_spec.VocabularySpec(
  size=64,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'de'),
)


def make_model(vocab_size: int = SPEC.size, **fields) -> encoder.Encoder:
  """Returns an encoder with two layers of width 16 and without dropout."""
  settings = (
    dict(
      num_layers=2,
      hidden_dim=16,
      mlp_dim=32,
      num_heads=2,
      max_position_embeddings=32,
      vocab_size=vocab_size,
      pad_vocab_size_multiple=1,
      num_languages=2,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
    )
    | fields
  )
  return encoder.Encoder(model_config.EncoderConfig(**settings))


def make_mixture(*entries, **fields) -> objective_mixture.ObjectiveMixture:
  entries = entries or (
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM()
    ),
  )
  return objective_mixture.ObjectiveMixture(entries=entries, **fields)


def one_device() -> partitioning.Partitioner:
  return partitioning.Partitioner(devices=(jax.devices()[0],))


def make_factory(
  *, model=None, mixture=None, optimizer=None, partitioner=None, use_ema=True
) -> train_state.StateFactory:
  return train_state.StateFactory(
    model or make_model(),
    mixture or make_mixture(),
    optimizer or optimizers.AdamW(learning_rate=0.01),
    SPEC,
    partitioner or one_device(),
    use_ema=use_ema,
  )


def make_batch(rows: int = 8, length: int = 12, seed: int = 0):
  """Rows of ordinary tokens between bos and eos; the last third is padding
  in every second row; the languages alternate."""
  rng = np.random.default_rng(seed)
  tokens = rng.integers(5, SPEC.size, (rows, length), dtype=np.int32)
  tokens[:, 0], tokens[:, -1] = SPEC.bos_id, SPEC.eos_id
  tokens[1::2, 2 * length // 3 :] = SPEC.pad_id
  segments = (tokens != SPEC.pad_id).astype(np.int32)
  positions = np.broadcast_to(
    np.arange(length, dtype=np.int32)[None, :], tokens.shape
  )
  languages = (np.arange(rows, dtype=np.int32) % 2)[:, None] * segments
  return {
    'token_ids': tokens,
    'segment_ids': segments,
    'positions': positions,
    'language_ids': languages,
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(objective_base.Objective):
  """Squared distance of a linear map of the tokens to the row's language.

  Rows weigh as many as they have tokens, so micro-batches weigh differently.
  """

  name: str = 'regression'
  poison: int = -1  # the step at which the loss is NaN

  def __call__(self, model, params, batch, context):
    del model
    tokens = batch['token_ids'].astype(jnp.float32) / SPEC.size
    weights = jnp.sum(batch['segment_ids'] > 0, axis=1, dtype=jnp.float32)
    target = batch['language_ids'][:, 0].astype(jnp.float32)
    error = tokens @ params['model']['w'] + params['model']['bias'] - target
    loss = jnp.sum(weights * error**2)
    loss = jnp.where(context.step == self.poison, jnp.nan, loss)
    rows = jnp.stack(
      [jnp.sum(target == i, dtype=jnp.float32) for i in range(2)]
    )
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(loss, jnp.sum(weights)),
      {f'{self.name}/rows': objective_base.WeightedMean(rows, jnp.ones(2))},
    )


def regression_state(optimizer, *, ema: bool = False, length: int = 12):
  """Returns a train state with the parameters of `Regression`."""
  params = {
    'model': {'bias': jnp.float32(0.5), 'w': jnp.linspace(-1.0, 1.0, length)}
  }
  return train_state.TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.transform.init(params),
    ema=jax.tree.map(jnp.copy, params) if ema else (),
    objective_state={},
  )


def assert_trees_equal(a, b) -> None:
  """Asserts that two trees have the same structure and equal values."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def numbered(state):
  """Returns the state with different values in all leaves."""
  leaves, structure = jax.tree.flatten(state)

  def fill(i, leaf):
    values = (np.arange(leaf.size) + 1000 * (i + 1)).reshape(leaf.shape)
    return jax.device_put(values.astype(leaf.dtype), leaf.sharding)

  return jax.tree.unflatten(
    structure, [fill(i, leaf) for i, leaf in enumerate(leaves)]
  )
