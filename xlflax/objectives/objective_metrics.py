"""Metrics as `WeightedMean`s: added up on device or host, finished on the host.

The last part of a metric's name decides how it is reported:

| last part | reported |
| --- | --- |
| `token_counts` | the total (the weight is the total again) |
| `perplexity` | exp(total / weight), of losses in nats |
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
_LARGEST_EXPONENT = 700.0  # exp stays a finite double


def add_metrics(
  a: dict[str, WeightedMean], b: dict[str, WeightedMean]
) -> dict[str, WeightedMean]:
  """Adds two dicts of metrics; a name in only one of them stays as it is."""
  common = {
    name: WeightedMean(
      a[name].total + b[name].total, a[name].weight + b[name].weight
    )
    for name in a
    if name in b
  }
  return {**a, **b, **common}


def add_outputs(outputs: Sequence[ObjectiveOutput]) -> ObjectiveOutput:
  """Adds outputs, without their states."""
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
  """Sums weights * values, and weights, for each language.

  A masked reduction, not a scatter: exact in float32, the same bits in every
  run, and no communication but one sum over a sharded batch.

  Args:
    values: any shape; ignored (even NaN) where the weight is 0. No gradient
      runs through them.
    weights: the same shape.
    language_ids: int, the same shape, in 0 .. num_languages - 1.
    num_languages: at least 1.

  Returns:
    `WeightedMean` of shape [num_languages].
  """
  values = jax.lax.stop_gradient(values)
  values = jnp.where(weights > 0, values * weights, 0.0).reshape(1, -1)
  ids = jnp.asarray(language_ids).reshape(1, -1)
  mine = ids == jnp.arange(num_languages, dtype=ids.dtype)[:, None]
  return WeightedMean(
    jnp.sum(jnp.where(mine, values, 0.0), axis=1),
    jnp.sum(jnp.where(mine, weights.reshape(1, -1), 0.0), axis=1),
  )


def count_by_language(
  present: jax.Array, language_ids: jax.Array, num_languages: int
) -> WeightedMean:
  """Counts true entries of `present` per language, for a `token_counts` metric.

  Before: present [[1, 1, 0]], language_ids [[2, 2, 0]], 3 languages; after:
  total and weight [0, 0, 2].
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
  """`<name>/<key>` -> `by_language`, for each key of `values`."""
  count = len(vocabulary.languages)
  return {
    f'{name}/{key}': by_language(value, weights, language_ids, count)
    for key, value in values.items()
  }


def token_counts(
  name: str, vocabulary: VocabularySpec, *batches: Mapping[str, jax.Array]
) -> dict[str, WeightedMean]:
  """`<name>/tokens`: those of all batches, padding left out."""
  counts = [
    count_by_language(
      masking.is_present(batch, vocabulary),
      batch[batch_keys.LANGUAGE_IDS],
      len(vocabulary.languages),
    )
    for batch in batches
  ]
  return {f'{name}/{TOKENS}': jax.tree.map(lambda *one: sum(one), *counts)}


def _finish(name: str, total: float, weight: float) -> float:
  kind = name.rsplit('/', 1)[-1]
  if kind == TOKENS:
    return total
  mean = total / weight
  if kind == PERPLEXITY:
    return float(np.exp(min(mean, _LARGEST_EXPONENT)))
  return mean


def finalize_metrics(
  metrics: dict[str, WeightedMean], languages: tuple[str, ...]
) -> dict[str, float]:
  """Turns summed metrics into plain numbers, on the host, in float64.

  Before: `{'mlm/loss': WeightedMean([6., 0., 1.], [3., 0., 1.])}` with
  languages `('en', 'de', 'fr')`; after:
  `{'mlm/loss': 1.75, 'mlm/loss/en': 2.0, 'mlm/loss/fr': 1.0}`.

  Args:
    metrics: name -> `WeightedMean` of shape [] or [languages].
    languages: codes, in the order of the language ids.

  Returns:
    name -> number over all languages, and name/code -> number of that
    language. Metrics of weight 0 are left out.

  Raises:
    ValueError: a metric's length is not the number of languages.
  """
  finished = {}
  for name, value in metrics.items():
    total = np.asarray(value.total, np.float64)
    weight = np.asarray(value.weight, np.float64)
    if total.shape not in ((), (len(languages),)):
      raise ValueError(
        f'metric {name!r} has shape {total.shape}; expected () '
        f'or ({len(languages)},), the number of languages.'
      )
    if weight.sum() > 0:
      finished[name] = _finish(name, float(total.sum()), float(weight.sum()))
    if total.ndim:
      finished.update(
        {
          f'{name}/{code}': _finish(name, float(t), float(w))
          for code, t, w in zip(languages, total, weight, strict=True)
          if w > 0
        }
      )
  return finished
