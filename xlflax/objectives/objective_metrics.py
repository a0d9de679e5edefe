"""Functions that sum metrics over batches and convert them to numbers.

Sums may be taken on the device or on the host. The last component of a metric's
name determines the reported value:

| last component | reported value |
| --- | --- |
| `tokens` | total (the weight equals the total) |
| `perplexity` | exp(total / weight) of losses in nats |
| any other | total / weight |
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking
from xlflax.objectives.objective_base import ObjectiveOutput, WeightedMean

TOKENS = 'tokens'
PERPLEXITY = 'perplexity'
_MAX_EXPONENT = 700.0  # exp(700) is a finite float64.


def add_metrics(
  a: dict[str, WeightedMean], b: dict[str, WeightedMean]
) -> dict[str, WeightedMean]:
  """Adds two dictionaries of metrics, by summing totals and weights per name.

  A metric that only one dictionary contains is copied unchanged.
  """
  common = {
    name: WeightedMean(
      a[name].total + b[name].total, a[name].weight + b[name].weight
    )
    for name in a
    if name in b
  }
  return {**a, **b, **common}


def add_outputs(outputs: Sequence[ObjectiveOutput]) -> ObjectiveOutput:
  """Sums the losses and metrics of several outputs, and drops their states."""
  total, *other_outputs = outputs
  for output in other_outputs:
    loss = WeightedMean(
      total.loss.total + output.loss.total,
      total.loss.weight + output.loss.weight,
    )
    total = ObjectiveOutput(loss, add_metrics(total.metrics, output.metrics))
  return total


def by_language(
  values: jax.Array,
  weights: jax.Array,
  language_ids: jax.Array,
  num_languages: int,
) -> WeightedMean:
  """Computes the weighted mean of values for each language.

  The sum is a masked reduction instead of a scatter. It is exact in float32,
  bitwise reproducible, and needs a single all-reduce if the batch is sharded.

  Args:
    values: Values to average, an array of any shape. Values with weight 0 are
      ignored, even if they are NaN. No gradient flows through the values.
    weights: Weight of each value, with the same shape as `values`.
    language_ids: Language id of each value, from 0 to num_languages - 1, an
      integer array with the same shape as `values`.
    num_languages: Number of languages, at least 1.

  Returns:
    `WeightedMean` of shape [num_languages].
  """
  values = jax.lax.stop_gradient(values)
  values = jnp.where(weights > 0, values * weights, 0.0).reshape(1, -1)
  ids = jnp.asarray(language_ids).reshape(1, -1)
  in_language = ids == jnp.arange(num_languages, dtype=ids.dtype)[:, None]
  return WeightedMean(
    jnp.sum(jnp.where(in_language, values, 0.0), axis=1),
    jnp.sum(jnp.where(in_language, weights.reshape(1, -1), 0.0), axis=1),
  )


def count_by_language(
  present: jax.Array, language_ids: jax.Array, num_languages: int
) -> WeightedMean:
  """Counts the true entries of `present` for each language.

  The result is the value of a metric `tokens`. For example, present [[1, 1,
  0]], language_ids [[2, 2, 0]] and 3 languages result in a total and a weight
  of [0, 0, 2].
  """
  weights = present.astype(jnp.float32)
  return by_language(
    jnp.ones_like(weights), weights, language_ids, num_languages
  )


def metrics_by_language(
  name: str,
  values: Mapping[str, jax.Array],
  weights: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> dict[str, WeightedMean]:
  """Averages metrics by language, and prefixes their keys with `name`.

  Args:
    name: Name of the objective, which prefixes the keys.
    values: Mapping from the key of each metric to its values. All arrays have
      the same shape.
    weights: Weight of each value, with the same shape as each array in
      `values`.
    language_ids: Language id of each value, an integer array with the same
      shape as each array in `values`.
    vocabulary: Vocabulary specification with the number of languages.
  """
  count = len(vocabulary.languages)
  return {
    f'{name}/{key}': by_language(value, weights, language_ids, count)
    for key, value in values.items()
  }


def token_counts(
  name: str, vocabulary: VocabularySpec, *batches: Mapping[str, jax.Array]
) -> dict[str, WeightedMean]:
  """Returns the metric `<name>/tokens`, the number of non-padding tokens."""
  counts = [
    count_by_language(
      masking.is_present(batch, vocabulary),
      batch[batch_keys.LANGUAGE_IDS],
      len(vocabulary.languages),
    )
    for batch in batches
  ]
  return {
    f'{name}/{TOKENS}': jax.tree.map(lambda *values: sum(values), *counts)
  }


def _finalize_metric(name: str, total: float, weight: float) -> float:
  """Computes the reported value of one metric from its sums."""
  kind = name.rsplit('/', 1)[-1]
  if kind == TOKENS:
    return total
  mean = total / weight
  if kind == PERPLEXITY:
    return float(np.exp(min(mean, _MAX_EXPONENT)))
  return mean


def finalize_metrics(
  metrics: dict[str, WeightedMean], languages: tuple[str, ...]
) -> dict[str, float]:
  """Converts summed metrics to float64 numbers on the host.

  Before: `{'mlm/loss': WeightedMean([6., 0., 1.], [3., 0., 1.])}` with
  languages `('en', 'de', 'fr')`. After: `{'mlm/loss': 1.75, 'mlm/loss/en': 2.0,
  'mlm/loss/fr': 1.0}`.

  Args:
    metrics: Mapping from the name of each metric to a weighted mean of shape []
      or [languages].
    languages: Language codes in the order of the language ids.

  Returns:
    The value over all languages by metric name, and the value of each language
    under `<name>/<code>`. Metrics with weight 0 are omitted.

  Raises:
    ValueError: If the length of a metric differs from the number of languages.
  """
  results = {}
  for name, value in metrics.items():
    total = np.asarray(value.total, np.float64)
    weight = np.asarray(value.weight, np.float64)
    if total.shape not in ((), (len(languages),)):
      raise ValueError(
        f'Metric {name!r} must have the shape () or ({len(languages)},), with '
        f'one value per language, but has the shape {total.shape}.'
      )
    if weight.sum() > 0:
      results[name] = _finalize_metric(
        name, float(total.sum()), float(weight.sum())
      )
    if total.ndim:
      results.update(
        {
          f'{name}/{code}': _finalize_metric(name, float(t), float(w))
          for code, t, w in zip(languages, total, weight, strict=True)
          if w > 0
        }
      )
  return results
