"""Negative controls: training methods without the component under test."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  sentence_alignment,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZeroQueue(sentence_alignment.SentenceAlignment):
  """Momentum contrast without negatives: the queue contains only zeros."""

  def start_step(self, params, state):
    """Updates the momentum encoder and sets the queue of negatives to zero."""
    state = super().start_step(params, state)
    empty_arrays = {
      name: jax.tree.map(jnp.zeros_like, state[name])
      for name in ('queue', 'negatives')
    }
    return {**state, **empty_arrays}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowingMemory(cross_attention_mlm.CrossAttentionMLM):
  """Cross-attention MLM without VECO's stop-gradient (section 2.2)."""

  def memory(self, states):
    """Returns the hidden states for cross-attention, without stop-gradient.

    Gradients flow through the hidden states.
    """
    return states
