"""Cross-attention masked language modelling (VECO)."""

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


class _Rows(NamedTuple):
  """Rows that one call of the model reads, of one side or both.

  Attributes:
    params: parameters that read them (`model_calls.bind_language_params`).
    batch: the original rows.
    token_ids: [N, T], the masked rows.
    choice: the chosen tokens.
  """

  params: Any
  batch: dict[str, jax.Array]
  token_ids: jax.Array
  choice: masking.Choice


@class_registry.register('cross_attention_mlm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossAttentionMLM(MaskedLM):
  """CA-MLM: predicts tokens from their own side, and also from both sides.

  With x and y the sides of a pair and x̂, ŷ the same after two independent
  draws of masks (VECO, section 2, equation 1):

      L(x, y) = - log P(x | x̂) - log P(y | ŷ)
                - log P(x | ŷ, x̂) - log P(y | x̂, ŷ)

  The first two terms (`self`) are scored on H^L, the plug-out pass of each
  side (equations 10, 11); the other two (`cross`) on S^L, the plug-in pass
  that attends to the other side's H^L (equations 12, 13), which is a constant
  there: no gradient flows into it (section 2.2). All four share the output
  head. Each -log P is summed over the chosen tokens, and the loss is the mean
  over the chosen tokens of both sides of self + cross.

  It reads streams with two sides: `Layout.ADJACENT` for monolingual text,
  `Layout.SIDES` for parallel text (the paper chooses 15 % and 25 % of the
  tokens). The model needs `EncoderConfig.cross_attention`.

  Metrics, per language of the token: loss (self + cross), self_loss,
  cross_loss, self_accuracy and cross_accuracy over the chosen tokens, and
  tokens (of both sides). The fields are those of `MaskedLM`.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SIDES

  name: str = 'ca_mlm'

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Returns no parameters; checks the model. `rng` is a key.

    Raises:
      ConfigError: the model has no cross-attention.
    """
    del rng
    veco.check_enabled(model.config, where=f'objective {self.name!r}')
    return {}

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    mask_rng, out_rng, in_rng = jax.random.split(context.rng, 3)
    groups = self._groups(model, params, batch, context, mask_rng)
    plug_out = [
      model_calls.encode_batch(
        model, group.params, _shown(group), context=context, rng=rng
      )
      for group, rng in zip(
        groups, sentence_pairs.split_keys(out_rng, groups), strict=True
      )
    ]
    memories = _other_sides(self.memory(plug_out))
    segments = _other_sides(
      [group.batch.get(batch_keys.SEGMENT_IDS) for group in groups]
    )
    outputs = []
    for i, rng in enumerate(sentence_pairs.split_keys(in_rng, groups)):
      plug_in = _plug_in(
        model, groups[i], memories[i], segments[i], context=context, rng=rng
      )
      outputs.append(
        self._output(model, groups[i], plug_out[i], plug_in, context)
      )
    return objective_metrics.add_outputs(outputs)

  def memory(self, states: list[jax.Array]) -> list[jax.Array]:
    """What the other side attends to: constants, [N, T, H] each."""
    return jax.lax.stop_gradient(states)

  def _groups(self, model, params, batch, context, rng) -> list[_Rows]:
    """Both sides as one batch of 2B rows.

    With a sharing plan, whose parameters are bound side by side: two groups.
    """
    sentence_pairs.split_sides(batch, objective=self.name)  # refuses one side
    parts = sentence_pairs.encoding_parts(model, batch)
    groups = []
    for rows, key in zip(
      parts, sentence_pairs.split_keys(rng, parts), strict=True
    ):
      bound = model_calls.bind_language_params(
        model, params, rows, context.vocabulary
      )
      groups.append(_Rows(bound, rows, *self.mask(rows, context, key)))
    return groups

  def _output(self, model, group, plug_out, plug_in, context):
    """Loss and metrics of the states H^L and S^L [N, T, H] of a group."""
    states = jnp.stack([plug_out, plug_in], axis=1)
    states = states.reshape(-1, *states.shape[2:])  # [2N, T, H]
    batch, choice = jax.tree.map(
      lambda x: jnp.repeat(x, 2, axis=0), (group.batch, group.choice)
    )
    scored = self._losses(model, group.params, batch, states, choice)
    loss, correct, weights, languages = (  # [2N, K] -> [N, 2, K]
      x.reshape(-1, 2, *x.shape[1:]) for x in scored
    )
    total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, jnp.sum(weights[:, 0])),
      self._terms(
        group,
        context,
        jax.lax.stop_gradient(loss),
        correct,
        weights[:, 0],
        languages[:, 0],
      ),
    )

  def _terms(self, group, context, loss, correct, weights, languages):
    """Metrics; `loss` and `correct` are [N, 2, K], self and cross."""
    values = {'loss': jnp.sum(loss, axis=1)}
    for i, term in enumerate(('self', 'cross')):
      values |= {f'{term}_loss': loss[:, i], f'{term}_accuracy': correct[:, i]}
    return objective_metrics.metrics_by_language(
      self.name, values, weights, languages, context.vocabulary
    ) | objective_metrics.token_counts(
      self.name, context.vocabulary, group.batch
    )


def _shown(group: _Rows) -> dict[str, jax.Array]:
  """Returns the batch as the model sees it."""
  return {**group.batch, batch_keys.TOKEN_IDS: group.token_ids}


def _other_sides(groups: list) -> list:
  """Returns the arrays that each group's rows are paired with."""
  if len(groups) == 1:
    return jax.tree.map(sentence_pairs.swap_sides, groups)
  return groups[::-1]


def _plug_in(model, group: _Rows, memory, memory_segments, *, context, rng):
  """S^L [N, T, H] of a group that attends to `memory` [N, T, H]."""
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
