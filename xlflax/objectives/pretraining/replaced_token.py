"""Replaced-token detection objective (ELECTRA, XLM-E)."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models import encoder, encoder_config, model_params
from xlflax.objectives import (
  losses,
  model_calls,
  objective_base,
  objective_metrics,
  pretraining_heads,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.cross_entropy import softmax_sampling
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import class_registry, errors, validation

# Embedding tables that a generator can share with the model.
_SHARED_TABLES = ('token', 'position')


class _ReplacedBatch(NamedTuple):
  """Batch in which the generator has replaced the selected tokens.

  Attributes:
    token_ids: Token ids with the generator's samples at the selected positions,
      int32 [B, T].
    loss: Cross-entropy of the generator at the selected positions, [B, K].
    correct: Array that is 1 where the generator's largest logit is that of the
      original token, [B, K].
    weights: Array that is 1 for selected tokens and 0 for unused slots, [B, K].
    languages: Language ids of the selected tokens, int32 [B, K].
  """

  token_ids: jax.Array
  loss: jax.Array
  correct: jax.Array
  weights: jax.Array
  languages: jax.Array


@class_registry.register('replaced_token_detection')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplacedTokenDetection(objective_base.Objective):
  """Replaced-token detection (Clark et al. 2020; Chi et al. 2022, section 3).

  A generator, which is an encoder with a separate configuration, is trained by
  masked language modeling. Its samples, through which no gradient flows,
  replace the selected tokens. The model predicts for each token, including
  special symbols, whether it differs from the original. A sample that equals
  the original counts as not replaced. On sequences of one language, this is the
  multilingual task of XLM-E, and on translation pairs (`ExampleLayout.PAIRS`)
  its translation task.

  loss = generator_weight * mean over selected tokens of -log p
         + discriminator_weight * mean over tokens of the binary cross-entropy

  With gradient accumulation, the first mean is computed per micro-batch and
  weighted by the number of its tokens. Metrics by language of the token:
  generator_loss and generator_accuracy over the selected tokens;
  discriminator_loss and accuracy over all tokens; recall over the replaced
  tokens; replaced, the fraction of replaced tokens; and tokens. The parameters
  of the generator and of the binary head are stored in `heads`, so that `model`
  in a checkpoint is the encoder of the discriminator.

  Attributes:
    generator: Configuration of the generator, an encoder. The objective sets
      its vocabulary sizes. The generator has no cross-attention, even if the
      model does.
    mask_ratio: Fraction of each sequence's text tokens to select for masking,
      or a function of the step.
    max_mask_ratio: Upper bound for `mask_ratio`, which is required if the ratio
      is a schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol in the generator's input (ELECTRA, section 2: 1).
    random_probability: Probability of replacing a selected token by a random
      word in the generator's input.
    generator_weight: Weight of the generator's masked-LM loss.
    discriminator_weight: Weight of the discriminator's loss (lambda; 50 in
      ELECTRA and XLM-E).
    share_embeddings: Whether the generator and the model share token and
      position embeddings, which both losses then train (ELECTRA). Both must
      have the same `hidden_dim`.
    chunk_size: Number of vocabulary rows to score at a time for the generator's
      loss and samples. If None, all rows are scored at once, which requires two
      float32 arrays of shape [B * K, V].
    name: Name of the objective, which prefixes its metrics.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  generator: encoder_config.EncoderConfig
  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 1.0
  random_probability: validation.Fraction = 0.0
  generator_weight: validation.PositiveFloat = 1.0
  discriminator_weight: validation.PositiveFloat = 50.0
  share_embeddings: bool = False
  chunk_size: validation.PositiveInt | None = None
  name: str = 'rtd'

  def __post_init__(self):
    _ = self._masked_lm  # Its constructor checks the settings.

  @property
  def _masked_lm(self) -> masked_lm.MaskedLM:
    """Generator's masked-LM objective, which also masks its input."""
    return dataclasses.replace(
      masked_lm.make_masked_lm(self), chunk_size=self.chunk_size
    )

  def generator_module(self, model) -> encoder.Encoder:
    """Returns the generator, configured for the model's vocabulary.

    Raises:
      ConfigError: If the embeddings cannot be shared.
      VocabularyError: If the generator's configuration sets a vocabulary size
        that differs from the model's.
    """
    config, model_config = self.generator, model.config
    for field in ('vocab_size', 'num_languages'):
      if getattr(config, field) not in (None, getattr(model_config, field)):
        raise errors.VocabularyError(
          f'The generator of objective {self.name!r} must have the same '
          f'`{field}` as the model',
          got=getattr(config, field),
          expected=getattr(model_config, field),
          fix=f'Do not set `{field}` in the configuration of the generator.',
        )
    config = dataclasses.replace(
      config,
      vocab_size=model_config.vocab_size,
      num_languages=model_config.num_languages,
      pad_vocab_size_multiple=model_config.pad_vocab_size_multiple,
      cross_attention=False,
    )
    if self.share_embeddings:
      self._check_shared_embeddings(config, model_config)
    return encoder.Encoder(config)

  def _check_shared_embeddings(self, config, model_config) -> None:
    """Checks that the generator can use the model's embeddings."""
    if config.sharing is not None:
      raise errors.ConfigError(
        f'The generator of objective {self.name!r} must not have a sharing '
        'plan, because it shares the embeddings of the model',
        got=config.sharing,
        fix="Set the generator's EncoderConfig.sharing to None, such as "
        'generator/model_config.EncoderConfig.sharing = None.',
      )
    for field in (
      'hidden_dim',
      'max_position_embeddings',
      'position_offset',
      'position_embedding',
    ):
      value, model_value = getattr(config, field), getattr(model_config, field)
      if value != model_value:
        raise errors.ConfigError(
          f'The generator of objective {self.name!r} must have the same '
          f'`{field}` as the model, because it shares the embeddings of the '
          'model',
          got=value,
          expected=model_value,
          fix=(
            f'Set the same `{field}` in both models, or set '
            'share_embeddings=False.'
          ),
        )

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Initializes the generator and the discriminator's head.

    Args:
      model: Linen module of the model.
      rng: Random key.

    Returns:
      Parameters `{'generator': ..., 'discriminator': ...}`.

    Raises:
      ConfigError: If the embeddings cannot be shared.
      VocabularyError: If the generator's vocabulary sizes differ from the
        model's.
    """
    generator_rng, head_rng = jax.random.split(rng)
    generator = model_params.init_params(
      self.generator_module(model), generator_rng
    )
    if self.share_embeddings:
      generator = {
        **generator,
        'embeddings': {
          k: v
          for k, v in generator['embeddings'].items()
          if k not in _SHARED_TABLES
        },
      }
    states = jnp.zeros((1, model.config.hidden_dim))
    head = pretraining_heads.DiscriminatorHead().init(head_rng, states)[
      'params'
    ]
    return {'generator': generator, 'discriminator': head}

  def _generator_params(self, params) -> dict[str, Any]:
    """Returns the parameters of the generator as `{'model': ...}`."""
    generator_params = params['heads'][self.name]['generator']
    if not self.share_embeddings:
      return {'model': generator_params}
    shared = {
      k: v
      for k, v in params['model']['embeddings'].items()
      if k in _SHARED_TABLES
    }
    return {
      'model': {
        **generator_params,
        'embeddings': {**generator_params.get('embeddings', {}), **shared},
      }
    }

  def _replace_tokens(
    self, model, params, batch, context, rng
  ) -> _ReplacedBatch:
    """Masks a batch and replaces selected tokens by the generator's samples."""
    mask_rng, dropout_rng, sampling_rng = jax.random.split(rng, 3)
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
    sampled_ids = softmax_sampling.sample_tokens(
      sampling_rng, hidden, table, bias, chunk_size=self.chunk_size
    )
    sampled_ids = jnp.where(
      choice.weights > 0, sampled_ids.reshape(labels.shape), labels
    )
    return _ReplacedBatch(
      token_ids=masking.scatter_rows(
        batch[batch_keys.TOKEN_IDS], choice.positions, sampled_ids
      ),
      loss=scored.loss.reshape(labels.shape),
      correct=scored.correct.reshape(labels.shape),
      weights=choice.weights,
      languages=languages,
    )

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the losses of the generator and the discriminator."""
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )
    generator_rng, dropout_rng = jax.random.split(context.rng)
    replaced_batch = self._replace_tokens(
      model, params, batch, context, generator_rng
    )
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
    is_replaced = replaced_batch.token_ids != batch[batch_keys.TOKEN_IDS]
    token_loss = losses.binary_cross_entropy(logits, is_replaced)
    present = masking.is_present(batch, context.vocabulary).astype(jnp.float32)
    num_tokens = jnp.sum(present)

    generator_loss = objective_base.WeightedMean(
      jnp.sum(jnp.where(replaced_batch.weights > 0, replaced_batch.loss, 0.0)),
      jnp.sum(replaced_batch.weights),
    )
    mean_generator_loss = objective_base.weighted_mean(generator_loss)
    discriminator_loss = jnp.sum(jnp.where(present > 0, token_loss.loss, 0.0))
    total = (
      self.generator_weight * mean_generator_loss * num_tokens
      + self.discriminator_weight * discriminator_loss
    )
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, num_tokens),
      self._metrics(
        batch, context, replaced_batch, token_loss, is_replaced, present
      ),
    )

  def _metrics(
    self, batch, context, replaced_batch, token_loss, is_replaced, present
  ):
    """Returns the metrics by language."""
    vocabulary = context.vocabulary
    languages = batch[batch_keys.LANGUAGE_IDS]
    is_replaced = is_replaced.astype(jnp.float32)
    metrics_by_language = functools.partial(
      objective_metrics.metrics_by_language, self.name, vocabulary=vocabulary
    )
    generator_metrics = metrics_by_language(
      {
        'generator_loss': replaced_batch.loss,
        'generator_accuracy': replaced_batch.correct,
      },
      replaced_batch.weights,
      replaced_batch.languages,
    )
    discriminator_metrics = metrics_by_language(
      {
        'discriminator_loss': token_loss.loss,
        'accuracy': token_loss.correct,
        'replaced': is_replaced,
      },
      present,
      languages,
    )
    recall = metrics_by_language(
      {'recall': token_loss.correct}, present * is_replaced, languages
    )
    return (
      generator_metrics
      | discriminator_metrics
      | recall
      | objective_metrics.token_counts(self.name, vocabulary, batch)
    )
