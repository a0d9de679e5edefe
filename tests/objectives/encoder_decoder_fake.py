"""A tiny fake encoder-decoder, a vocabulary with all symbols, and batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.objectives.conftest import HIDDEN, VOCAB, FakeEncoder
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives import objective_base

PAD, BOS, EOS, MASK = 0, 1, 2, 4
SYMBOLS = (5, 6, 7)  # languages en, de, fr
SENTINELS = (22, 21, 20, 19)
FIRST = 8  # first text id
_STARTS = [8, 9, 10, 13, 16]  # ids that start a word

SPEC = VocabularySpec(
  size=VOCAB,
  pad_id=PAD,
  bos_id=BOS,
  eos_id=EOS,
  unk_id=3,
  mask_id=MASK,
  special_ids=(0, 1, 2, 3, 4, *SYMBOLS, *SENTINELS),
  languages=('en', 'de', 'fr'),
  language_symbol_ids=SYMBOLS,
  sentinel_ids=SENTINELS,
  word_starts=bytes(
    sum(1 << (i % 8) for i in _STARTS if i // 8 == byte)
    for byte in range(-(-VOCAB // 8))
  ),
)


def begins_word(token: int) -> bool:
  return token in _STARTS


class FakeEncoderDecoder(FakeEncoder):
  """Adds a causal mean of decoder inputs and the mean of the memory."""

  def decode(
    self,
    decoder_token_ids,
    memory,
    *,
    memory_segment_ids=None,
    segment_ids=None,
    positions=None,
    language_ids=None,
    deterministic=True,
  ):
    del positions, language_ids
    is_token = (segment_ids > 0).astype(jnp.float32)
    length = decoder_token_ids.shape[1]
    causal = jnp.tril(jnp.ones((length, length)))[None] * is_token[:, None, :]
    causal /= jnp.maximum(jnp.sum(causal, axis=-1, keepdims=True), 1)
    present = (memory_segment_ids > 0).astype(jnp.float32)
    mean = jnp.einsum('bth,bt->bh', memory, present)
    mean /= jnp.maximum(jnp.sum(present, axis=1), 1)[:, None]
    states = jnp.einsum('bst,bth->bsh', causal, self.table[decoder_token_ids])
    states = self.dropout(states, deterministic=deterministic)
    return jnp.tanh(states + mean[:, None, :])


MODEL = FakeEncoderDecoder()


@functools.cache
def params():
  tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
  shapes = jax.eval_shape(MODEL.init, jax.random.key(0), tokens)['params']
  rng = np.random.default_rng(0)
  return {
    'model': jax.tree.map(
      lambda s: jnp.asarray(rng.normal(0, 0.5, s.shape), jnp.float32), shapes
    ),
    'heads': {},
  }


def text(rng, count: int) -> list[int]:
  """Returns `count` random text ids."""
  return [int(i) for i in rng.integers(FIRST, SENTINELS[-1], count)]


def batch_of(texts, length: int, languages):
  """Returns sequences `<s> a </s> b </s>`; each text is a list of sentences."""
  rows = np.zeros((len(texts), length), np.int32)
  for row, sentences in zip(rows, texts, strict=True):
    tokens = [BOS, *(t for s in sentences for t in (*s, EOS))]
    row[: len(tokens)] = tokens
  present = (rows > 0).astype(np.int32)
  return {
    'token_ids': rows,
    'segment_ids': present,
    'positions': np.arange(length, dtype=np.int32)[None] * present,
    'language_ids': np.asarray(languages, np.int32)[:, None] * present,
  }


def pair_batch(seed: int = 0):
  """Returns five pairs; the target of the fourth pair is padding."""
  rng = np.random.default_rng(seed)
  sides = [
    batch_of([[text(rng, n)] for n in lengths], 9, languages)
    for lengths, languages in (
      ([7, 3, 1, 4, 5], [0, 0, 0, 1, 2]),
      ([2, 7, 1, 4, 6], [1, 2, 1, 0, 0]),
    )
  ]
  for values in sides[1].values():
    values[3] = 0
  return {**sides[0], **{f'paired_{k}': v for k, v in sides[1].items()}}


def context(seed: int = 0, *, step: int = 0, train: bool = True, spec=SPEC):
  return objective_base.ObjectiveContext(
    vocabulary=spec, step=jnp.int32(step), train=train, rng=jax.random.key(seed)
  )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _jitted(objective, spec, train, params, batch, step, rng):
  def total(params):
    output = objective(
      MODEL,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=spec, step=step, train=train, rng=rng
      ),
    )
    return output.loss.total, output

  (_, output), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return output, gradient


def run(objective, batch, context, given=None):
  """Returns the output and gradient of an objective."""
  return _jitted(
    objective,
    context.vocabulary,
    context.train,
    given or params(),
    batch,
    context.step,
    context.rng,
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _jitted_rows(objective, spec, batch, step, rng):
  return objective.rows(
    batch,
    objective_base.ObjectiveContext(
      vocabulary=spec, step=step, train=True, rng=rng
    ),
    jax.random.split(rng)[0],
  )


def rows(objective, batch, context):
  """Returns the source, target and scored positions of an objective."""
  return jax.tree.map(
    np.asarray,
    _jitted_rows(
      objective, context.vocabulary, batch, context.step, context.rng
    ),
  )


def filled(row) -> list[int]:
  """Returns a sequence without its padding."""
  return [int(t) for t in row if t != PAD]


assert HIDDEN == 8
