"""Knowledge distillation from a monolingual teacher with its own vocabulary."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.models import model_params as models_api
from xlflax.objectives import model_calls, objective_base, objective_metrics
from xlflax.objectives.corruption import masking
from xlflax.objectives.losses import linear_kl
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import class_registry, errors, validation


@class_registry.register('distillation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation(objective_base.Objective):
  """KL to a frozen teacher's predictions (MetaXLM, section 5.3).

  The student's input is masked as for masked language modelling; the teacher
  reads the same masked rows. Of the details, which the paper leaves open:

  * Only rows all of whose text is in the teacher's language count.
  * Tokens are matched by `training.initialization.vocabulary_matching`. A token
    without a match is the teacher's unknown symbol in its input. Several that
    match one token of the teacher share its probability evenly.
  * Both distributions are restricted to the student's tokens of text with a
    match, and renormalised: the loss ignores the others. A chosen
    position whose own token has no match is left out.
  * The loss of a position is T^2 KL(teacher || student) at temperature T
    (Hinton et al. 2015), and the batch's the mean over positions.

  Metrics: loss; agreement (both have one likeliest token); coverage, the share
  of the chosen positions in the teacher's language that count; tokens.

  The teacher's parameters are loaded once, when a run begins, and kept in the
  state; afterwards only its module is needed. Memory: float32 [B * K, V] for
  each of the two and for gradients, unless `slots_per_chunk` is set, which
  computes the logits of fewer positions at a time, and again in the backward
  pass.

  Attributes:
    teacher: an encoder of any size; see `objective_base.Teacher`.
    language: code of the teacher's language, one of the student's vocabulary.
    temperature: T of both softmaxes.
    mask_ratio: share of each row's text tokens that is chosen, or a function
      of the step.
    max_mask_ratio: bound of a scheduled ratio.
    mask_probability: share of the chosen tokens shown as the mask symbol.
    random_probability: share shown as a random word; the rest is shown as is.
    masked_lm_weight: weight of the masked LM's mean loss on the same masked
      rows, those of all languages; the student runs once for both. Of k
      micro-batches, the mean of the distillation is that of their means.
    slots_per_chunk: chosen positions of each row that are scored at a time;
      None for all K.
    name: the objective's name.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  teacher: objective_base.Teacher
  language: str = 'en'
  temperature: validation.PositiveFloat = 1.0
  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  masked_lm_weight: validation.NonNegativeFloat = 0.0
  slots_per_chunk: validation.PositiveInt | None = None
  name: str = 'distill'

  def __post_init__(self):
    _ = self._masked_lm  # its settings are checked where it is made

  @property
  def _masked_lm(self) -> masked_lm.MaskedLM:
    """The objective that masks the rows."""
    return masked_lm.masked_lm_of(self)

  def init_state(self, model, params, vocabulary) -> Any:
    """Returns zeros in the shapes of the teacher; `load_state` fills them.

    Raises:
      RunDirectoryError: the teacher's directory is no run.
      ConfigError: no plain encoder, or a language that the student lacks.
    """
    del params
    self._language_id(vocabulary)
    module = self.teacher.encoder(model.config)
    shapes = jax.eval_shape(
      lambda rng: nn.unbox(models_api.init_params(module, rng)),
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
    """Loads the teacher, its tokens in the student's order.

    Raises:
      CheckpointError: no such checkpoint.
      VocabularyError: no token in common, or the run has no vocabulary but
        its sizes.
      ConfigError: the teacher has language embeddings, but not this one's.
    """
    del params
    if vocabulary is None:
      raise errors.VocabularyError(
        "A teacher's tokens cannot be matched without the student's",
        got='a vocabulary of sizes only',
        where=f'objective {self.name!r}',
        expected='a vocabulary directory',
      )
    module = self.teacher.encoder(model.config)
    teacher_parameters = self.teacher.load(
      vocabulary=vocabulary,
      rows=module.config.table_size,
      temperature=self.temperature,
    )
    language = 0
    if module.config.use_language_embeddings:
      language = self._index(teacher_parameters.languages, 'the teacher')
    loaded = {
      'teacher': teacher_parameters.params,
      'matched': teacher_parameters.matched,
      'language': np.int32(language),
    }
    return jax.tree.map(_place, state, loaded)

  def _language_id(self, vocabulary) -> int:
    return self._index(vocabulary.languages, 'the vocabulary')

  def _index(self, languages, whose: str) -> int:
    if self.language not in languages:
      raise errors.ConfigError(
        f'The language of the distillation is none of {whose}',
        got=repr(self.language),
        expected=f'one of {tuple(languages)}',
        where=f'objective {self.name!r}',
      )
    return languages.index(self.language)

  def _teacher_scorer(self, model, token_ids, batch, state, choice):
    """Runs the teacher on the chosen positions; see `_scorer`."""
    module = self.teacher.encoder(model.config)
    if token_ids.shape[1] > module.config.max_length:
      raise errors.ConfigError(
        'The rows are longer than the teacher reads',
        got=f'{token_ids.shape[1]} tokens',
        expected=f'at most {module.config.max_length}',
        where=f'objective {self.name!r}',
        fix='shorten the stream',
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
    return _scorer(module, params, states, choice)

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
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
      _scorer(model, params, states, choice),
      self._teacher_scorer(model, token_ids, batch, context.state, choice),
      context.state['matched'],
      temperature=self.temperature,
      slots_per_chunk=self.slots_per_chunk,
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
    if self.masked_lm_weight:
      mlm = self._masked_lm_loss(model, params, states, batch, choice)
      loss = _add_means(loss, mlm, self.masked_lm_weight)
      metrics[f'{self.name}/masked_lm_loss'] = jax.lax.stop_gradient(mlm)
    return objective_base.ObjectiveOutput(loss, metrics, context.state)

  def _masked_lm_loss(self, model, params, states, batch, choice):
    """The masked LM's loss over all chosen tokens, from the same states."""
    loss, _, weights, _ = self._masked_lm._losses(
      model, params, batch, states, choice
    )
    total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
    return objective_base.WeightedMean(total, jnp.sum(weights))

  def _metrics(self, batch, context, scored, weights, in_language, choice):
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


def _add_means(
  first: objective_base.WeightedMean,
  second: objective_base.WeightedMean,
  factor: float,
) -> objective_base.WeightedMean:
  """One mean that is `first`'s plus `factor` times `second`'s.

  Its weight is that of `second`, which a batch always has.
  """
  scale = second.weight / jnp.maximum(first.weight, 1e-8)
  scale = jnp.where(first.weight > 0, scale, 0.0)
  return objective_base.WeightedMean(
    first.total * scale + factor * second.total, second.weight
  )


def _place(leaf: jax.Array, value) -> jax.Array:
  """Puts a host array on devices in the sharding of `leaf`."""
  value = np.asarray(value)
  assert leaf.shape == value.shape, (leaf.shape, value.shape)
  return jax.make_array_from_callback(
    leaf.shape, leaf.sharding, lambda index: value[index].astype(leaf.dtype)
  )


def _scorer(model, params, states, choice):
  """Returns hidden [B, K, H], table [R, H], bias [R], the factors of logits."""
  hidden = model_calls.call_model(
    model, params, 'transform', masking.gather_rows(states, choice.positions)
  )
  return hidden, *model_calls.call_model(model, params, 'output_table')
