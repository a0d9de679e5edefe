"""Token classification objective, such as part-of-speech or entity tagging."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax

from xlflax.data import batch_keys
from xlflax.models.heads import classification_heads
from xlflax.objectives.finetuning import classification_objective
from xlflax.utils import class_registry


@class_registry.register('token_classification')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenClassification(classification_objective.Classification):
  """Prediction of a label for each word from its first token's hidden state.

  The method follows Devlin et al. (2019), section 5.3. The logits have shape
  [B, T, C], and the batch's `labels` [B, T] are -1 except at the first tokens
  of words. The head is a linear layer unless `head_type` is set. The head has
  the parameters of `xlflax.models.heads.classification_heads`, as do imported
  checkpoints. Metrics by language of the word: loss and accuracy.
  """

  GOLD: ClassVar[Mapping[str, int]] = {batch_keys.LABELS: 2}

  name: str = 'token_classification'

  def head_logits(self, head, states, batch, **settings) -> jax.Array:
    """Computes the head's logits. See `Classification.head_logits`."""
    del batch
    return classification_heads.token_logits(head, states, **settings)

  def label_languages(self, batch, vocabulary) -> jax.Array:
    """Returns each label's language. See `Classification.label_languages`."""
    del vocabulary
    return batch[batch_keys.LANGUAGE_IDS]
