"""T5X models that train an xlflax module with an objective. Requires T5X."""

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
  """T5X model of an encoder, for masked and translation language modeling."""

  def predict_batch_with_aux(self, params, batch, rng=None):
    """Replaces the mask symbols in sequences by the most probable tokens.

    Args:
      params: Parameters, as returned by `get_initial_variables`.
      batch: Mapping from batch keys to arrays of shape [batch, length]. The
        sequences contain mask symbols.
      rng: Random key. It is ignored.

    Returns:
      Token ids as int32, of shape [batch, length], and `{'scores': ...}`, the
      sum of the log probabilities of the predicted tokens as float32, of shape
      [batch].
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
    is_masked = token_ids == self.spec.mask_id
    log_probs = jnp.max(jax.nn.log_softmax(logits), axis=-1)
    predictions = jnp.argmax(logits, axis=-1).astype(token_ids.dtype)
    return (
      jnp.where(is_masked, predictions, token_ids),
      {'scores': jnp.sum(jnp.where(is_masked, log_probs, 0.0), axis=-1)},
    )


class EncoderDecoderModel(ObjectiveModel):
  """T5X model of an encoder-decoder, for sequence-to-sequence objectives."""

  def __init__(
    self,
    *,
    objective: objective_base.Objective,
    decoding_options: decoding.DecodingOptions | None = None,
    **arguments,
  ):
    """Initializes the model. See `ObjectiveModel` for other arguments.

    Args:
      objective: Sequence-to-sequence objective.
      decoding_options: Options for text generation in `predict_batch`.
      **arguments: Arguments of `ObjectiveModel`.

    Raises:
      ConfigError: If the objective does not predict target sequences.
    """
    if not isinstance(objective, seq2seq.SequenceToSequence):
      raise errors.ConfigError(
        'EncoderDecoderModel requires an objective that predicts target '
        'sequences, such as translation or span corruption',
        got=objective.name,
        where=errors.field_location(self, 'objective'),
        fix='Use an EncoderModel for this objective.',
      )
    super().__init__(objective=objective, **arguments)
    self._sequences = objective
    self._decoding = decoding_options or decoding.DecodingOptions()

  def predict_batch_with_aux(self, params, batch, rng=None):
    """Generates target sequences from the source sequences of the objective.

    The source of translation is the first text of a pair. The source of span
    corruption is the corrupted sequence, which is always the same for a batch.

    Args:
      params: Parameters, as returned by `get_initial_variables`.
      batch: Batch in the same format as the batches in training.
      rng: Random key for sampling with `Method.SAMPLE`.

    Returns:
      Token ids of the best hypothesis as int32, of shape [batch, length], and
      `{'scores': ...}`, as float32 of shape [batch].
    """
    objective = self._sequences
    source, target, _ = objective.rows(
      batch, self.context(self.key(batch), train=False), self.key(batch)
    )
    source = seq2seq.with_symbols(source, objective.source_symbols, self.spec)
    languages = teacher_forcing.row_languages(target, self.spec)
    hypotheses = decoding.generate(
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
    return hypotheses.token_ids[:, 0], {'scores': hypotheses.scores[:, 0]}
