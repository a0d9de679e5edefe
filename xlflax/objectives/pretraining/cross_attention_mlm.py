"""Cross-attention masked language modeling (VECO)."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.variants import veco
from xlflax.objectives import (
  model_calls,
  objective_base,
  objective_metrics,
  sentence_pairs,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.pretraining.masked_lm import MaskedLM
from xlflax.utils import class_registry


class _MaskedSequences(NamedTuple):
  """Sequences that the model reads in a single call.

  Attributes:
    params: Parameters for the language of the sequences, as returned by
      `model_calls.bind_language_params`.
    batch: Original (unmasked) sequences.
    token_ids: Token ids of the masked sequences, of shape [N, T].
    choice: Tokens that were selected for masking.
  """

  params: Any
  batch: dict[str, jax.Array]
  token_ids: jax.Array
  choice: masking.Choice


@class_registry.register('cross_attention_mlm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossAttentionMLM(MaskedLM):
  """Cross-attention masked language modeling (CA-MLM) for pairs of texts.

  With x and y the texts of a pair and x̂, ŷ their masked versions, whose masks
  are drawn independently (VECO, section 2, equation 1):

      L(x, y) = - log P(x | x̂) - log P(y | ŷ)
                - log P(x | ŷ, x̂) - log P(y | x̂, ŷ)

  The first two terms (`self`) are computed from H^L, the plug-out pass over
  each text (equations 10, 11). The other two (`cross`) are computed from S^L,
  the plug-in pass, which attends to H^L of the paired text (equations 12, 13).
  In that pass, H^L of the paired text is a constant, and no gradient flows into
  it (section 2.2). All four terms share the output head. Each -log P is summed
  over the selected tokens, and the loss is the mean of self + cross over the
  selected tokens of both texts.

  The objective reads datasets with two texts per example:
  `ExampleLayout.INTERLEAVED` for monolingual text and `ExampleLayout.DUAL` for
  parallel text. The paper selects 15 % and 25 % of the tokens. The model
  requires `EncoderConfig.cross_attention`.

  Metrics by language of the token: loss (self + cross), self_loss, cross_loss,
  self_accuracy and cross_accuracy over the selected tokens, and tokens (the
  number of tokens in both texts). The fields are those of `MaskedLM`.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.DUAL

  name: str = 'ca_mlm'

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Checks the model and returns {}, because the objective has no head.

    Args:
      model: Linen module of the model.
      rng: Random key. It is ignored.

    Raises:
      ConfigError: If the model has no cross-attention.
    """
    del rng
    veco.check_enabled(model.config, where=f'objective {self.name!r}')
    return {}

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the sum of the four terms of VECO's loss L(x, y)."""
    mask_rng, plug_out_rng, plug_in_rng = jax.random.split(context.rng, 3)
    groups = self._groups(model, params, batch, context, mask_rng)

    # The plug-out pass computes H^L of each text.
    plug_out = []
    rngs = sentence_pairs.split_keys(plug_out_rng, groups)
    for group, rng in zip(groups, rngs, strict=True):
      hidden_states = model_calls.encode_batch(
        model, group.params, _masked_batch(group), context=context, rng=rng
      )
      plug_out.append(hidden_states)

    # The plug-in pass computes S^L, which attends to H^L of the paired text.
    memories = _other_sides(self.memory(plug_out))
    segments = _other_sides(
      [group.batch.get(batch_keys.SEGMENT_IDS) for group in groups]
    )
    outputs = []
    for i, rng in enumerate(sentence_pairs.split_keys(plug_in_rng, groups)):
      plug_in = _plug_in(
        model, groups[i], memories[i], segments[i], context=context, rng=rng
      )
      outputs.append(
        self._output(model, groups[i], plug_out[i], plug_in, context)
      )
    return objective_metrics.add_outputs(outputs)

  def memory(self, states: list[jax.Array]) -> list[jax.Array]:
    """Returns hidden states [N, T, H] for cross-attention, without gradients.

    The paired texts attend to these hidden states.
    """
    return jax.lax.stop_gradient(states)

  def _groups(
    self, model, params, batch, context, rng
  ) -> list[_MaskedSequences]:
    """Masks both texts and returns them as one batch of 2B sequences.

    With a sharing plan, which selects parameters by language, the first and the
    second texts are separate groups.
    """
    # Raises an error if the batch contains only single sequences.
    sentence_pairs.split_sides(batch, objective=self.name)
    parts = sentence_pairs.encoding_parts(model, batch)
    groups = []
    for rows, key in zip(
      parts, sentence_pairs.split_keys(rng, parts), strict=True
    ):
      bound = model_calls.bind_language_params(
        model, params, rows, context.vocabulary
      )
      token_ids, choice = self.mask(rows, context, key)
      groups.append(_MaskedSequences(bound, rows, token_ids, choice))
    return groups

  def _output(self, model, group, plug_out, plug_in, context):
    """Computes loss and metrics from H^L and S^L [N, T, H] of a group."""
    states = jnp.stack([plug_out, plug_in], axis=1)
    states = states.reshape(-1, *states.shape[2:])  # [2N, T, H]
    batch, choice = jax.tree.map(
      lambda x: jnp.repeat(x, 2, axis=0), (group.batch, group.choice)
    )
    scored = self.score_tokens(model, group.params, batch, states, choice)
    loss, correct, weights, languages = (  # [2N, K] -> [N, 2, K]
      x.reshape(-1, 2, *x.shape[1:]) for x in scored
    )
    total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, jnp.sum(weights[:, 0])),
      self._metrics_by_term(
        group,
        context,
        jax.lax.stop_gradient(loss),
        correct,
        weights[:, 0],
        languages[:, 0],
      ),
    )

  def _metrics_by_term(self, group, context, loss, correct, weights, languages):
    """Returns the metrics of loss and correctness [N, 2, K] (self, cross)."""
    values = {'loss': jnp.sum(loss, axis=1)}
    for i, term in enumerate(('self', 'cross')):
      values |= {f'{term}_loss': loss[:, i], f'{term}_accuracy': correct[:, i]}
    return objective_metrics.metrics_by_language(
      self.name, values, weights, languages, context.vocabulary
    ) | objective_metrics.token_counts(
      self.name, context.vocabulary, group.batch
    )


def _masked_batch(group: _MaskedSequences) -> dict[str, jax.Array]:
  """Returns the batch with the masked sequences."""
  return {**group.batch, batch_keys.TOKEN_IDS: group.token_ids}


def _other_sides(groups: list) -> list:
  """Returns the paired texts' arrays for the sequences of each group."""
  if len(groups) == 1:
    return jax.tree.map(sentence_pairs.swap_sides, groups)
  return groups[::-1]


def _plug_in(
  model, group: _MaskedSequences, memory, memory_segments, *, context, rng
):
  """Returns S^L [N, T, H] of a group that attends to `memory` [N, T, H]."""
  return model_calls.call_model(
    model,
    group.params,
    'plug_in',
    group.token_ids,
    memory,
    rng=rng,
    memory_segment_ids=memory_segments,
    deterministic=not context.train,
    **model_calls.model_kwargs(group.batch),
  )
