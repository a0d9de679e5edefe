"""Negative controls: methods without the component that should help."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  sentence_alignment,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZeroQueue(sentence_alignment.SentenceAlignment):
  """Momentum contrast with a queue of zeros, which has no negatives."""

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
  """CA-MLM without the stop-gradient of VECO (section 2.2)."""

  def memory(self, states):
    """Returns the hidden states that the other side attends to, unchanged."""
    return states
