"""Knowledge distillation from a monolingual teacher with its own vocabulary."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.models import model_params
from xlflax.objectives import model_calls, objective_base, objective_metrics
from xlflax.objectives.corruption import masking
from xlflax.objectives.losses import linear_kl
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import class_registry, errors, name_suggestions, validation


@class_registry.register('distillation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation(objective_base.Objective):
  """Distillation from a frozen teacher by KL divergence (MetaXLM, section 5.3).

  The student's input is masked as for masked language modeling, and the teacher
  reads the same masked sequences. The loss of a selected position is

    T^2 KL(softmax(teacher / T) || softmax(student / T))

  at temperature T (Hinton et al. 2015). The loss of the batch is the mean over
  positions. The paper does not specify the following details:

  * Only sequences whose text is entirely in the teacher's language contribute.
  * Tokens are matched by `training.initialization.vocabulary_matching`. In the
    teacher's input, a token without a match becomes the unknown symbol. Several
    tokens that match one token of the teacher share its probability evenly.
  * Both distributions are restricted to the student's text tokens with a match
    and renormalized. The loss ignores all other tokens. A selected position is
    left out if its own token has no match.

  Metrics: loss, agreement (the fraction of positions with the same most likely
  token), coverage (the fraction of the selected positions in the teacher's
  language that contribute), and tokens.

  The teacher's parameters are loaded once, when a run starts, and kept in the
  state. Afterwards, only the teacher's module is needed. The logits take
  float32 memory of shape [B * K, V] for the teacher, for the student and for
  the gradients. If `chunk_size` is set, the logits of fewer positions are
  computed at a time, and again in the backward pass.

  Attributes:
    teacher: Teacher model, an encoder of any size (see
      `objective_base.Teacher`).
    language: Code of the teacher's language. The student's vocabulary must
      contain this language.
    temperature: Temperature T of the softmax of the student and the teacher.
    mask_ratio: Fraction of each sequence's text tokens to select for masking,
      or a function of the step.
    max_mask_ratio: Upper bound for `mask_ratio`, which is required if the ratio
      is a schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol.
    random_probability: Probability of replacing a selected token by a random
      word. Selected tokens that are not replaced by the mask symbol or a random
      word are kept unchanged.
    mlm_weight: Weight of an additional masked-LM loss. The student runs once,
      on the same masked sequences, for both losses. The masked-LM loss is the
      mean over the sequences of all languages. With k micro-batches, the
      distillation loss is the average of the micro-batches' means.
    chunk_size: Number of positions per sequence whose logits are computed at a
      time. If None, the logits of all K selected positions are computed at
      once.
    name: Name of the objective, which prefixes its metrics.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  teacher: objective_base.Teacher
  language: str = 'en'
  temperature: validation.PositiveFloat = 1.0
  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  mlm_weight: validation.NonNegativeFloat = 0.0
  chunk_size: validation.PositiveInt | None = None
  name: str = 'distill'

  def __post_init__(self):
    _ = self._masked_lm  # Its constructor checks the settings.

  @property
  def _masked_lm(self) -> masked_lm.MaskedLM:
    """Masked-LM objective that masks the sequences."""
    return masked_lm.make_masked_lm(self)

  def init_state(self, model, params, vocabulary) -> Any:
    """Returns zeros in the shapes of the teacher's parameters.

    `load_state` replaces the zeros.

    Raises:
      RunDirectoryError: If the teacher's directory is not a run.
      ConfigError: If the teacher is not a plain encoder, or if the student's
        vocabulary does not contain its language.
    """
    del params
    self._language_id(vocabulary)
    module = self.teacher.encoder(model.config)
    shapes = jax.eval_shape(
      lambda rng: nn.unbox(model_params.init_params(module, rng)),
      jax.random.key(0),
    )
    return {
      'teacher': jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes
      ),
      'matched': jnp.zeros([module.config.table_size], bool),
      'language': jnp.zeros([], jnp.int32),
    }

  def load_state(self, state, *, model, params, vocabulary) -> Any:
    """Loads the teacher, with embedding rows in the student's token order.

    Raises:
      CheckpointError: If the checkpoint does not exist.
      VocabularyError: If the teacher and the student share no token, or if only
        the sizes of the run's vocabulary are known.
      ConfigError: If the teacher has language embeddings, but no embedding for
        the language `language`.
    """
    del params
    if vocabulary is None:
      raise errors.VocabularyError(
        f'Objective {self.name!r} requires a vocabulary directory, because '
        'distillation compares the tokens of the teacher and the student. The '
        'run has only a vocabulary specification, which does not contain '
        'tokens'
      )
    module = self.teacher.encoder(model.config)
    teacher_parameters = self.teacher.load(
      vocabulary=vocabulary,
      rows=module.config.table_size,
      temperature=self.temperature,
    )
    language = 0
    if module.config.use_language_embeddings:
      language = self._find_language(
        teacher_parameters.languages, 'the teacher'
      )
    loaded = {
      'teacher': teacher_parameters.params,
      'matched': teacher_parameters.matched,
      'language': np.int32(language),
    }
    return jax.tree.map(_put_like, state, loaded)

  def _language_id(self, vocabulary) -> int:
    """Returns the id of the teacher's language in the student's vocabulary."""
    return self._find_language(vocabulary.languages, 'the vocabulary')

  def _find_language(self, languages, owner: str) -> int:
    """Returns the index of `language` in the languages of `owner`."""
    if self.language not in languages:
      raise errors.ConfigError(
        f'The `language` of objective {self.name!r} must be one of the '
        f'languages of {owner}',
        got=repr(self.language),
        expected=name_suggestions.format_choices(languages),
      )
    return languages.index(self.language)

  def _teacher_logits(self, model, token_ids, batch, state, choice):
    """Runs the teacher on the selected positions; see `_linear_logits`."""
    module = self.teacher.encoder(model.config)
    if token_ids.shape[1] > module.config.max_position_embeddings:
      raise errors.ConfigError(
        f'The sequences of objective {self.name!r} have {token_ids.shape[1]} '
        'tokens, but the teacher accepts at most '
        f'{module.config.max_position_embeddings}',
        fix='Reduce the `length` of the dataset.',
      )
    params = jax.lax.stop_gradient({'model': state['teacher']})
    languages = jnp.full_like(token_ids, state['language'])
    states = model_calls.call_model(
      module,
      params,
      'encode',
      token_ids,
      **{**model_calls.model_kwargs(batch), 'language_ids': languages},
    )
    return _linear_logits(module, params, states, choice)

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the KL divergence to the teacher."""
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )
    mask_rng, dropout_rng = jax.random.split(context.rng)
    token_ids, choice = self._masked_lm.mask(batch, context, mask_rng)
    states = model_calls.encode_batch(
      model,
      params,
      {**batch, batch_keys.TOKEN_IDS: token_ids},
      context=context,
      rng=dropout_rng,
    )
    scored = linear_kl(
      _linear_logits(model, params, states, choice),
      self._teacher_logits(model, token_ids, batch, context.state, choice),
      context.state['matched'],
      temperature=self.temperature,
      chunk_size=self.chunk_size,
    )
    language = self._language_id(context.vocabulary)
    text = masking.is_text(batch, context.vocabulary)
    other_language = text & (batch[batch_keys.LANGUAGE_IDS] != language)
    in_language = choice.weights * ~jnp.any(other_language, axis=1)[:, None]
    labels = masking.gather_rows(batch[batch_keys.TOKEN_IDS], choice.positions)
    weights = in_language * context.state['matched'][labels]
    total = jnp.sum(jnp.where(weights > 0, scored.loss * weights, 0.0))
    loss = objective_base.WeightedMean(total, jnp.sum(weights))
    metrics = self._metrics(
      batch, context, scored, weights, in_language, choice
    )
    if self.mlm_weight:
      mlm_loss = self._masked_lm_loss(model, params, states, batch, choice)
      loss = _add_weighted_means(loss, mlm_loss, self.mlm_weight)
      metrics[f'{self.name}/masked_lm_loss'] = jax.lax.stop_gradient(mlm_loss)
    return objective_base.ObjectiveOutput(loss, metrics, context.state)

  def _masked_lm_loss(self, model, params, states, batch, choice):
    """Computes the masked LM loss of all selected tokens."""
    loss, _, weights, _ = self._masked_lm.score_tokens(
      model, params, batch, states, choice
    )
    total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
    return objective_base.WeightedMean(total, jnp.sum(weights))

  def _metrics(self, batch, context, scored, weights, in_language, choice):
    """Returns the metrics by language."""
    vocabulary = context.vocabulary
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS], choice.positions
    )
    values = {'loss': scored.loss, 'agreement': scored.correct}
    return (
      objective_metrics.metrics_by_language(
        self.name, values, weights, languages, vocabulary
      )
      | objective_metrics.metrics_by_language(
        self.name, {'coverage': weights}, in_language, languages, vocabulary
      )
      | objective_metrics.token_counts(self.name, vocabulary, batch)
    )


def _add_weighted_means(
  first: objective_base.WeightedMean,
  second: objective_base.WeightedMean,
  factor: float,
) -> objective_base.WeightedMean:
  """Returns the mean of `first` plus `factor` times the mean of `second`.

  The sum has the weight of `second`, which is positive for all batches.
  """
  scale = second.weight / jnp.maximum(first.weight, 1e-8)
  scale = jnp.where(first.weight > 0, scale, 0.0)
  return objective_base.WeightedMean(
    first.total * scale + factor * second.total, second.weight
  )


def _put_like(leaf: jax.Array, value) -> jax.Array:
  """Transfers a host array to the devices with the sharding of `leaf`."""
  value = np.asarray(value)
  assert leaf.shape == value.shape, (leaf.shape, value.shape)
  return jax.make_array_from_callback(
    leaf.shape, leaf.sharding, lambda index: value[index].astype(leaf.dtype)
  )


def _linear_logits(model, params, states, choice):
  """Returns the linear layer that computes the selected positions' logits.

  Returns:
    Hidden states of shape [B, K, H], embedding table of shape [R, H] and output
    bias of shape [R].
  """
  hidden = model_calls.call_model(
    model, params, 'transform', masking.gather_rows(states, choice.positions)
  )
  table, bias = model_calls.call_model(model, params, 'output_table')
  return hidden, table, bias
