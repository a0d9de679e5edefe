"""The heads of published fine-tuned encoders in numpy."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface.verification.arrays import (
  ACTIVATIONS,
  Array,
  Weights,
)

# Kind -> the dense map of a sequence's class, its activation, the output.
_SEQUENCE: Mapping[str, tuple[str, Callable[[Array], Array], str]] = {
  'bert': ('pooler.dense', np.tanh, 'classifier'),
  'distilbert': ('pre_classifier', ACTIVATIONS['relu'], 'classifier'),
  'gte': ('pooler.dense', np.tanh, 'classifier'),
  'nomic_bert': ('pooler.dense', np.tanh, 'classifier'),
  'xlm': ('', np.tanh, 'sequence_summary.summary'),
}
_ROBERTA = ('classifier.dense', np.tanh, 'classifier.out_proj')


def logits(
  weights: Weights, options: Mapping[str, Any], x: Array, mask: Array
) -> Array | None:
  """Logits of classes [B, C], or of each token's [B, T, C].

  Args:
    weights: of the folder.
    options: config.json.
    x: the last states [B, T, H].
    mask: [B, T], nonzero at text.

  Returns:
    None for models without a fine-tuned head.
  """
  _, _, task = (options.get('architectures') or [''])[0].partition('For')
  if options['model_type'] == 'modernbert':
    return _modern(weights, options, x, mask, task)
  if task.startswith('TokenClassification'):
    return weights.linear(x, 'classifier')
  if task.startswith('QuestionAnswering'):
    return weights.linear(x, 'qa_outputs')
  if task != 'SequenceClassification':
    return None
  dense, act, output = _SEQUENCE.get(options['model_type'], _ROBERTA)
  x = x[:, 0]
  if dense:
    x = act(weights.linear(x, dense))
  return weights.linear(x, output)


def _modern(weights, options, x, mask, task) -> Array | None:
  if 'classifier.weight' not in weights:
    return None
  if task == 'SequenceClassification':
    text = mask[..., None] / mask.sum(1)[:, None, None]
    by_first = options.get('classifier_pooling', 'cls') == 'cls'
    x = x[:, 0] if by_first else (x * text).sum(1)
  act = ACTIVATIONS[options.get('classifier_activation', 'gelu')]
  x = act(weights.linear(x, 'head.dense'))
  x = weights.norm(x, 'head.norm', options.get('norm_eps', 1e-5))
  return weights.linear(x, 'classifier')
