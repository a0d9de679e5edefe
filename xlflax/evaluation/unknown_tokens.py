"""Unknown tokens in evaluation text, which make likelihoods incomparable.

If a vocabulary lacks the script of a language, most words of the language are
encoded as unknown tokens. A model predicts them easily, so that the language
seems to be modeled better than by a model whose vocabulary covers the script.
"""

from collections.abc import Sequence

import numpy as np

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics.metric import Better, Metric, Unit

UNKNOWN_RATE = Metric(
  'unknown_rate',
  Better.NEITHER,
  Unit.FRACTION,
  title='rate of unknown tokens',
  description='Fraction of the tokens of the text that are unknown tokens. If '
  'it exceeds 1 %, perplexities and bits per byte must not be compared.',
)
# Rate of unknown tokens above which likelihoods are not compared.
MAX_UNKNOWN_RATE = 0.01
# Metrics of predicted tokens, which depend on the rate of unknown tokens.
_LIKELIHOOD_METRICS = (
  'perplexity',
  'loss',
  'accuracy',
  'word_perplexity',
  'bits_per_byte',
)


def is_unknown(tokens: Sequence[int], spec: VocabularySpec) -> np.ndarray:
  """Returns a boolean mask of the unknown tokens, of shape [T].

  All values are False if the vocabulary has no unknown token, in which case the
  id of the unknown token is that of another special token.

  Args:
    tokens: T token ids.
    spec: Specification of the vocabulary.
  """
  other_roles = (spec.pad_id, spec.bos_id, spec.eos_id, spec.mask_id)
  if spec.unk_id in other_roles:
    return np.zeros(len(tokens), bool)
  return np.asarray(tokens, np.int64) == spec.unk_id


def find_high_rates(
  metric: str, results: Sequence[eval_task.EvalResult]
) -> dict[str, float]:
  """Finds rates of unknown tokens that are too high for a comparison.

  With a high rate, the likelihoods of different models cannot be compared.

  Args:
    metric: Name of the metric to compare.
    results: Results of a model, such as those of runs with different seeds.

  Returns:
    Maximum rate over the results by language, language pair or file. Entries
    whose rate is at most `MAX_UNKNOWN_RATE`, or whose results lack the metric,
    are omitted. The result is empty if the metric does not depend on the rate.
  """
  if metric not in _LIKELIHOOD_METRICS:
    return {}
  prefix = f'{UNKNOWN_RATE.name}/'
  rates: dict[str, float] = {}
  for result in results:
    for name, rate in result.metrics.items():
      part = name.removeprefix(prefix)
      if (
        name.startswith(prefix)
        and rate > MAX_UNKNOWN_RATE
        and f'{metric}/{part}' in result.metrics
      ):
        rates[part] = max(rate, rates.get(part, 0))
  return rates


def describe_high_rate(metric: str, part: str, model: str, rate: float) -> str:
  """Explains why a metric is not compared for a language with unknown tokens.

  Args:
    metric: Name of the metric.
    part: Language, language pair or file.
    model: Display name of the model with the unknown tokens.
    rate: Fraction of the tokens that are unknown.
  """
  return (
    f'{metric} is not compared for {part} and for means that include {part}, '
    f'because {format_rate(rate)} of the tokens of {part} are unknown tokens '
    f'for {model}, which are easy to predict or are not scored.'
  )


def format_rate(rate: float) -> str:
  """Formats a fraction as a percentage, such as '44.0 %'."""
  return f'{100 * rate:.1f} %'
