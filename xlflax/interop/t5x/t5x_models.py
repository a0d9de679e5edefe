"""T5X models made of an xlflax module and an objective. Needs T5X."""

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.interop.t5x.objective_model import (
  Normalization,
  ObjectiveModel,
  unfreeze_params,
)
from xlflax.models import decoding
from xlflax.objectives import model_calls, objective_base, teacher_forcing
from xlflax.objectives.pretraining import seq2seq
from xlflax.utils import errors

__all__ = ['EncoderDecoderModel', 'EncoderModel', 'Normalization']


class EncoderModel(ObjectiveModel):
  """An encoder: masked and translation language modelling."""

  def predict_batch_with_aux(self, params, batch, rng=None):
    """Rows with mask symbols replaced by the most probable tokens.

    Args:
      params: as `get_initial_variables` makes them.
      batch: rows, some tokens of which are the mask symbol.
      rng: not used.

    Returns:
      int32 [B, T], and `{'scores': float32 [B]}`: the sum of the log
      probabilities of the tokens put in.
    """
    del rng
    params = model_calls.bind_language_params(
      self.module, unfreeze_params(params), batch, self.spec
    )
    token_ids = batch[batch_keys.TOKEN_IDS]
    states = model_calls.encode_batch(
      self.module,
      params,
      batch,
      rng=jax.random.key(0),
      context=self.context(jax.random.key(0), train=False),
    )
    logits = model_calls.call_model(self.module, params, 'logits', states)
    special = jnp.isin(
      jnp.arange(logits.shape[-1]), jnp.asarray(self.spec.special_ids)
    )
    logits = jnp.where(special[None, None], -jnp.inf, logits)
    masked = token_ids == self.spec.mask_id
    chances = jnp.max(jax.nn.log_softmax(logits), axis=-1)
    best = jnp.argmax(logits, axis=-1).astype(token_ids.dtype)
    return (
      jnp.where(masked, best, token_ids),
      {'scores': jnp.sum(jnp.where(masked, chances, 0.0), axis=-1)},
    )


class EncoderDecoderModel(ObjectiveModel):
  """An encoder-decoder: translation, span corruption, infilling."""

  def __init__(
    self,
    *,
    objective: objective_base.Objective,
    decoding_options: decoding.DecodingOptions | None = None,
    **arguments,
  ):
    """As `ObjectiveModel`, and how `predict_batch` generates.

    Raises:
      ConfigError: the objective has no target rows.
    """
    if not isinstance(objective, seq2seq.SequenceToSequence):
      raise errors.ConfigError(
        'The objective predicts no rows',
        got=objective.name,
        expected='translation, span corruption or the like',
        where='EncoderDecoderModel.objective',
        fix='use an EncoderModel',
      )
    super().__init__(objective=objective, **arguments)
    self._sequences = objective
    self._decoding = decoding_options or decoding.DecodingOptions()

  def predict_batch_with_aux(self, params, batch, rng=None):
    """What the decoder generates from the encoder's rows.

    These are the objective's: of translation the first side, of span
    corruption the corrupted row, the same one each time.

    Args:
      params: as `get_initial_variables` makes them.
      batch: as in training.
      rng: key to sample with, with `Method.SAMPLE`.

    Returns:
      int32 [B, L], the best hypothesis, and `{'scores': float32 [B]}`.
    """
    objective = self._sequences
    source, goal, _ = objective.rows(
      batch, self.context(self.key(batch), train=False), self.key(batch)
    )
    source = seq2seq.with_symbols(source, objective.source_symbols, self.spec)
    languages = teacher_forcing.row_languages(goal, self.spec)
    found = decoding.generate(
      self.module,
      unfreeze_params(params),
      source,
      options=self._decoding,
      vocabulary=self.spec,
      rng=rng,
      language_ids=languages,
      decoder_start=teacher_forcing.start_ids(
        languages, objective.decoder_start, self.spec
      ),
    )
    return found.token_ids[:, 0], {'scores': found.scores[:, 0]}
