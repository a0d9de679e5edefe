"""Replaced-token detection: the model finds the tokens of a generator."""

import dataclasses
import enum
import functools
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.models import model_params as models_api
from xlflax.objectives import (
  losses,
  model_calls,
  objective_base,
  objective_metrics,
  pretraining_heads,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.cross_entropy import table_sampling
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import class_registry, errors, validation

# Tables that a generator can share with the model.
_SHARED = ('token', 'position')


class GeneratorEmbeddings(enum.Enum):
  """Whose token and position embeddings the generator reads."""

  SEPARATE = 'separate'  # its own
  SHARED = 'shared'  # the model's, which both losses then train (ELECTRA)


class _Replaced(NamedTuple):
  """A batch after the generator replaced tokens.

  Attributes:
    token_ids: int32 [B, T], with its draws at the chosen positions.
    loss: its cross-entropy at the chosen positions, [B, K].
    correct: whether the original was its first choice, [B, K].
    weights: [B, K].
    languages: int32 [B, K].
  """

  token_ids: jax.Array
  loss: jax.Array
  correct: jax.Array
  weights: jax.Array
  languages: jax.Array


@class_registry.register('replaced_token_detection')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplacedTokenDetection(objective_base.Objective):
  """ELECTRA (Clark et al. 2020), XLM-E (Chi et al. 2022, section 3).

  A generator, an encoder of its own size, is trained by masked language
  modelling. Its draws (no gradient flows through them) replace the chosen
  tokens, and the model predicts for each token, special symbols included,
  whether it differs from the original; a draw that equals the original counts
  as not replaced. Over rows of one language it is XLM-E's multilingual task,
  over translation pairs (`Layout.PAIRS`) its translation task.

  loss = generator_weight * mean over chosen tokens of -log p
         + discriminator_weight * mean over tokens of the binary cross-entropy

  Under accumulation the first mean is that of each micro-batch, weighed by
  its tokens. Metrics, per language of the token: generator_loss and
  generator_accuracy over the chosen tokens; discriminator_loss and accuracy
  over all tokens, recall over the replaced ones, replaced (their share); and
  tokens. The generator and the binary head are in `heads`, so that a
  checkpoint's `model` is the discriminator's encoder.

  Attributes:
    generator: its hyper-parameters; sizes of the vocabulary are filled in.
      It has no cross-attention, even if the model does.
    mask_ratio: share of each row's text tokens that is chosen, or a function
      of the step.
    max_mask_ratio: bound of a scheduled ratio.
    mask_probability: share of the chosen tokens that the generator sees as
      the mask symbol (section 2 of ELECTRA: all).
    random_probability: share that it sees as a random word.
    generator_weight: of its loss.
    discriminator_weight: lambda (both papers: 50).
    embeddings: SEPARATE or SHARED; the latter needs one `hidden_dim`.
    chunk_size: rows of the vocabulary scored at a time, in the generator's
      loss and draws; None for all, float32 [B * K, V] twice.
    name: the objective's name.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  generator: model_config.EncoderConfig
  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 1.0
  random_probability: validation.Fraction = 0.0
  generator_weight: validation.PositiveFloat = 1.0
  discriminator_weight: validation.PositiveFloat = 50.0
  embeddings: GeneratorEmbeddings = GeneratorEmbeddings.SEPARATE
  chunk_size: validation.PositiveInt | None = None
  name: str = 'rtd'

  def __post_init__(self):
    _ = self._masked_lm  # its settings are checked where it is made

  @property
  def _masked_lm(self) -> masked_lm.MaskedLM:
    """The generator's task, which masks its input."""
    return dataclasses.replace(
      masked_lm.masked_lm_of(self), chunk_size=self.chunk_size
    )

  def generator_module(self, model) -> encoder.Encoder:
    """Returns the generator with the sizes of the model's vocabulary.

    Raises:
      ConfigError: the two cannot share embeddings.
      VocabularyError: its config states another size than the model's.
    """
    config, theirs = self.generator, model.config
    for field in ('vocab_size', 'num_languages'):
      if getattr(config, field) not in (None, getattr(theirs, field)):
        raise errors.VocabularyError(
          f'The generator has another {field} than the model',
          got=getattr(config, field),
          expected=getattr(theirs, field),
          where=f'objective {self.name!r}',
          fix='leave it unset',
        )
    config = dataclasses.replace(
      config,
      vocab_size=theirs.vocab_size,
      num_languages=theirs.num_languages,
      pad_vocab_size_multiple=theirs.pad_vocab_size_multiple,
      cross_attention=False,
    )
    if self.embeddings is GeneratorEmbeddings.SHARED:
      self._check_shared(config, theirs)
    return encoder.Encoder(config)

  def _check_shared(self, config, theirs) -> None:
    if config.sharing is not None:
      raise errors.ConfigError(
        'A generator that shares embeddings has no sharing plan',
        got=config.sharing,
        expected='None',
        where=f'objective {self.name!r}',
        fix="set the generator's EncoderConfig.sharing to None: it reads "
        'what the model reads',
      )
    for field in (
      'hidden_dim',
      'max_length',
      'position_offset',
      'position_embedding',
    ):
      mine, model_value = getattr(config, field), getattr(theirs, field)
      if mine != model_value:
        raise errors.ConfigError(
          'The generator cannot share the embeddings of the model',
          got=f'{field} {mine} in the generator, {model_value} in the model',
          expected=f'one {field}',
          where=f'objective {self.name!r}',
          fix="make them equal, or set embeddings to 'separate'",
        )

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Makes {'generator': ..., 'discriminator': ...} from the key `rng`.

    Raises:
      ConfigError, VocabularyError: see `generator_module`.
    """
    generator_rng, head_rng = jax.random.split(rng)
    generator = models_api.init_params(
      self.generator_module(model), generator_rng
    )
    if self.embeddings is GeneratorEmbeddings.SHARED:
      generator = {
        **generator,
        'embeddings': {
          k: v for k, v in generator['embeddings'].items() if k not in _SHARED
        },
      }
    states = jnp.zeros((1, model.config.hidden_dim))
    head = pretraining_heads.DiscriminatorHead().init(head_rng, states)[
      'params'
    ]
    return {'generator': generator, 'discriminator': head}

  def _generator_params(self, params) -> dict[str, Any]:
    """Returns the generator's parameters as {'model': ...}."""
    generator_params = params['heads'][self.name]['generator']
    if self.embeddings is GeneratorEmbeddings.SEPARATE:
      return {'model': generator_params}
    shared = {
      k: v for k, v in params['model']['embeddings'].items() if k in _SHARED
    }
    return {
      'model': {
        **generator_params,
        'embeddings': {**generator_params.get('embeddings', {}), **shared},
      }
    }

  def _replace(self, model, params, batch, context, rng) -> _Replaced:
    """Masks the batch, trains the generator on it, draws from it."""
    mask_rng, dropout_rng, draw_rng = jax.random.split(rng, 3)
    masked, choice = self._masked_lm.mask(batch, context, mask_rng)
    labels, languages = (
      masking.gather_rows(batch[key], choice.positions)
      for key in (batch_keys.TOKEN_IDS, batch_keys.LANGUAGE_IDS)
    )
    generator = self.generator_module(model)
    params = model_calls.bind_language_params(
      generator, self._generator_params(params), batch, context.vocabulary
    )
    states = model_calls.encode_batch(
      generator,
      params,
      {**batch, batch_keys.TOKEN_IDS: masked},
      context=context,
      rng=dropout_rng,
    )
    hidden = model_calls.call_model(
      generator,
      params,
      'transform',
      masking.gather_rows(states, choice.positions),
    )
    hidden = hidden.reshape(-1, hidden.shape[-1])  # [B * K, H]
    table, bias = model_calls.call_model(generator, params, 'output_table')
    scored = linear_cross_entropy(
      hidden, table, bias, labels.reshape(-1), chunk_size=self.chunk_size
    )
    sampled_ids = table_sampling.sample_tokens(
      draw_rng, hidden, table, bias, chunk_size=self.chunk_size
    )
    sampled_ids = jnp.where(
      choice.weights > 0, sampled_ids.reshape(labels.shape), labels
    )
    return _Replaced(
      masking.scatter_rows(
        batch[batch_keys.TOKEN_IDS], choice.positions, sampled_ids
      ),
      scored.loss.reshape(labels.shape),
      scored.correct.reshape(labels.shape),
      choice.weights,
      languages,
    )

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )
    generator_rng, dropout_rng = jax.random.split(context.rng)
    replaced_batch = self._replace(model, params, batch, context, generator_rng)
    states = model_calls.encode_batch(
      model,
      params,
      {**batch, batch_keys.TOKEN_IDS: replaced_batch.token_ids},
      context=context,
      rng=dropout_rng,
    )
    logits = cast(
      jax.Array,
      pretraining_heads.DiscriminatorHead().apply(
        {'params': params['heads'][self.name]['discriminator']}, states
      ),
    )
    replaced = replaced_batch.token_ids != batch[batch_keys.TOKEN_IDS]
    token_loss = losses.binary_cross_entropy(logits, replaced)
    present = masking.is_present(batch, context.vocabulary).astype(jnp.float32)
    tokens = jnp.sum(present)
    generator_sum = objective_base.WeightedMean(
      jnp.sum(jnp.where(replaced_batch.weights > 0, replaced_batch.loss, 0.0)),
      jnp.sum(replaced_batch.weights),
    )
    total = self.generator_weight * objective_base.weighted_mean(
      generator_sum
    ) * tokens + self.discriminator_weight * jnp.sum(
      jnp.where(present > 0, token_loss.loss, 0.0)
    )
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, tokens),
      self._metrics(
        batch, context, replaced_batch, token_loss, replaced, present
      ),
    )

  def _metrics(self, batch, context, made, found, replaced, present):
    vocabulary = context.vocabulary
    languages = batch[batch_keys.LANGUAGE_IDS]
    replaced = replaced.astype(jnp.float32)
    named = functools.partial(
      objective_metrics.metrics_by_language, self.name, vocabulary=vocabulary
    )
    of_chosen = {
      'generator_loss': made.loss,
      'generator_accuracy': made.correct,
    }
    of_tokens = {
      'discriminator_loss': found.loss,
      'accuracy': found.correct,
      'replaced': replaced,
    }
    recall = {'recall': found.correct}
    return (
      named(of_chosen, made.weights, made.languages)
      | named(of_tokens, present, languages)
      | named(recall, present * replaced, languages)
      | objective_metrics.token_counts(self.name, vocabulary, batch)
    )
