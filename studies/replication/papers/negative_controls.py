"""Negative controls: methods from which the effective component is removed."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  sentence_alignment,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZeroQueue(sentence_alignment.SentenceAlignment):
  """Momentum contrast without negatives, because its queue contains zeros."""

  def start_step(self, params, state):
    """Applies the momentum update, and sets the queue to zero."""
    state = super().start_step(params, state)
    empty_arrays = {
      name: jax.tree.map(jnp.zeros_like, state[name])
      for name in ('queue', 'negatives')
    }
    return {**state, **empty_arrays}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowingMemory(cross_attention_mlm.CrossAttentionMLM):
  """CA-MLM without VECO's stop-gradient (section 2.2)."""

  def memory(self, states):
    """Returns the hidden states for cross-attention without a stop-gradient."""
    return states
