"""Methods that are broken on purpose: negative controls, which must lose."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  sentence_alignment,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZeroQueue(sentence_alignment.SentenceAlignment):
  """Momentum contrast against a queue of zeros: no sentence is a negative."""

  def start_step(self, params, state):
    """As of the whole method, but the queue is emptied."""
    state = super().start_step(params, state)
    empty = {
      name: jax.tree.map(jnp.zeros_like, state[name])
      for name in ('queue', 'negatives')
    }
    return {**state, **empty}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowingMemory(cross_attention_mlm.CrossAttentionMLM):
  """CA-MLM without the stop-gradient of VECO's section 2.2."""

  def memory(self, states):
    """The states that the other side attends to, as they are."""
    return states
