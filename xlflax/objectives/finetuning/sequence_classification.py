"""Classification objective for single texts and text pairs."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

import jax

from xlflax.data import batch_keys
from xlflax.models.heads import classification_heads
from xlflax.objectives import model_calls
from xlflax.objectives.finetuning import classification_objective
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import class_registry


@class_registry.register('sequence_classification')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceClassification(classification_objective.Classification):
  """Classification of complete sequences (Devlin et al. 2019, section 4.1).

  The logits have shape [B, C] and the batch's `labels` have shape [B]. With the
  default settings, an encoder's logits are computed as in RoBERTa and XLM-R:
  the hidden state of the first position passes through dense, tanh and output.
  The head has the parameters of `xlflax.models.heads.classification_heads`, as
  do imported checkpoints. An encoder-decoder's logits are computed as in BART:
  the last hidden state of the decoder passes through the same layers. Metrics
  by language of the (first) text: loss and accuracy.

  Attributes:
    pooling: Method of pooling a sequence's positions before its logits are
      computed. If None, LAST for the hidden states of a decoder and FIRST
      otherwise.
    head_type: Type of the head's output layers: OUTPUT, DENSE or DENSE_NORM.
  """

  GOLD: ClassVar[Mapping[str, int]] = {batch_keys.LABELS: 1}

  pooling: classification_heads.Pooling | None = None
  head_type: finetuning.HeadKind = finetuning.HeadKind.DENSE
  name: str = 'sequence_classification'

  def head_logits(self, head, states, batch, **settings) -> jax.Array:
    """Computes the head's logits. See `Classification.head_logits`."""
    return classification_heads.sequence_logits(
      head, states, mask=batch.get(batch_keys.SEGMENT_IDS), **settings
    )

  def _logits(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    return self.apply_head(
      functools.partial(self.head_logits, batch=batch),
      model,
      params,
      batch,
      vocabulary,
      rng,
      pooling=self.sequence_pooling(model, self.pooling),
    )

  def label_languages(self, batch, vocabulary) -> jax.Array:
    """Returns each label's language. See `Classification.label_languages`."""
    return model_calls.row_languages(batch, vocabulary)
