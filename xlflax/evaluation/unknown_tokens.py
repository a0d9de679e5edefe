"""Unknown tokens in evaluation text, which make likelihoods incomparable.

If a vocabulary lacks the script of a language, most words of the language are
encoded as unknown tokens. A model predicts them easily, so that the language
seems to be modeled better than by a model whose vocabulary covers the script.
"""

import collections
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xlflax.data import corpus_checks
from xlflax.data.supervised.sources import example_source
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.evaluation import eval_task, text_sources
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.utils import logs

UNKNOWN_RATE = Metric(
  'unknown_rate',
  Better.NEITHER,
  Unit.FRACTION,
  title='rate of unknown tokens',
  description='Fraction of the tokens of the text that are unknown tokens. If '
  'it exceeds 1 %, perplexities and bits per byte must not be compared.',
)
# Rate of unknown tokens above which likelihoods are not compared.
MAX_UNKNOWN_RATE = corpus_checks.MAX_UNKNOWN_RATE
# Number of texts in which unknown tokens are counted before the evaluation.
_NUM_SAMPLED_TEXTS = 1000
# Fields of labeled examples with text in the language of the example.
_TEXT_FIELDS = ('text', 'context', 'words', 'source_words')
# Metrics of predicted tokens, which depend on the rate of unknown tokens.
_LIKELIHOOD_METRICS = (
  'perplexity',
  'loss',
  'accuracy',
  'word_perplexity',
  'bits_per_byte',
)


def is_unknown(
  tokens: Sequence[int] | np.ndarray, spec: VocabularySpec
) -> np.ndarray:
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


def warn_of_unknown_tokens(
  tasks: Sequence[eval_task.EvalTask], vocabulary: Vocabulary
) -> None:
  """Logs a warning for each task whose text has many unknown tokens.

  The first texts of each language are tokenized. Errors of reading a text are
  ignored, because they are raised when the task is evaluated.

  Args:
    tasks: Evaluation tasks. Tasks without a source of text or of labeled
      examples are ignored.
    vocabulary: Vocabulary of the evaluated model.
  """
  for task in tasks:
    rates: dict[str, float] = {}
    # A source of the user may raise any exception.
    with contextlib.suppress(Exception):
      rates = _compute_rates(getattr(task, 'source', None), vocabulary)
    high_rates = [
      f'{format_rate(rate)} in {language}'
      for language, rate in rates.items()
      if rate > MAX_UNKNOWN_RATE
    ]
    if high_rates:
      logging.warning(
        '%s: Many tokens are unknown to the vocabulary: %s. Scores in these '
        'languages are unreliable, because the model cannot distinguish '
        'unknown words. Check whether the text differs from the training text '
        'of the vocabulary in its letter case, script or characters.',
        task.name,
        ', '.join(high_rates),
        extra=logs.ONCE,
      )


def _compute_rates(source: Any, vocabulary: Vocabulary) -> dict[str, float]:
  """Returns the rate of unknown tokens of a source by language."""
  unknown: collections.Counter[str] = collections.Counter()
  total: collections.Counter[str] = collections.Counter()
  for language, texts in _sample_texts(source):
    ids, _ = vocabulary.encode_ragged(texts, language=language)
    unknown[language] += int(is_unknown(ids, vocabulary.spec).sum())
    total[language] += ids.size
  return {language: unknown[language] / total[language] for language in +total}


def _sample_texts(source: Any) -> Iterator[tuple[str, list[str]]]:
  """Yields languages with the first texts of a source in each language."""
  if isinstance(source, text_sources.TextSource):
    for language in source.languages_found():
      yield language, source.load(language)[:_NUM_SAMPLED_TEXTS]
  elif isinstance(source, text_sources.PairSource):
    for pair in source.pairs():
      for language, texts in zip(pair, source.load(pair), strict=True):
        yield language, list(texts[:_NUM_SAMPLED_TEXTS])
  elif isinstance(source, example_source.ExampleSource):
    for part in source.languages():
      for example in source.load(part)[:_NUM_SAMPLED_TEXTS]:
        values = (getattr(example, name, None) for name in _TEXT_FIELDS)
        texts = [x if isinstance(x, str) else ' '.join(x) for x in values if x]
        yield example.language, texts


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
    f'for the model "{model}", which are easy to predict or are not scored.'
  )


def format_rate(rate: float) -> str:
  """Formats a fraction as a percentage, such as '44.0 %'."""
  return f'{100 * rate:.1f} %'
