"""Metrics of objectives as CLU metrics, which T5X sums up. Needs T5X."""

import flax.struct
import jax.numpy as jnp
from clu import metrics as clu_metrics
from t5x import metrics as t5x_metrics

from xlflax.objectives import objective_base, objective_metrics


@flax.struct.dataclass
class Perplexity(clu_metrics.Average):
  """exp of a mean of losses in nats."""

  def compute(self):
    """Returns the value of the metric."""
    return jnp.exp(super().compute())


@flax.struct.dataclass
class Total(clu_metrics.Average):
  """The total alone."""

  def compute(self):
    """Returns the value of the metric."""
    return self.total


def from_output(
  output: objective_base.ObjectiveOutput, languages: tuple[str, ...]
) -> dict[str, clu_metrics.Metric]:
  """Metrics of one batch, by name.

  Before: `{'mlm/loss': WeightedMean([6., 1.], [3., 1.])}` with languages
  `('en', 'fr')`; after: averages under 'mlm/loss' (7 / 4), 'mlm/loss/en' and
  'mlm/loss/fr', the loss as 'loss', and steps per second. What has no weight
  is NaN.

  Args:
    output: of the objective.
    languages: codes, in the order of the language ids.
  """
  found: dict[str, clu_metrics.Metric] = {
    'loss': _metric('loss', output.loss.total, output.loss.weight),
    'timing/steps_per_second': t5x_metrics.StepsPerTime.from_model_output(),
  }
  for name, value in output.metrics.items():
    found[name] = _metric(name, value.total.sum(), value.weight.sum())
    if value.total.ndim:
      found |= {
        f'{name}/{code}': _metric(name, value.total[i], value.weight[i])
        for i, code in enumerate(languages)
      }
  return found


def _metric(name: str, total, weight) -> clu_metrics.Metric:
  kind = {
    objective_metrics.TOKENS: Total,
    objective_metrics.PERPLEXITY: Perplexity,
  }.get(name.rsplit('/', 1)[-1], clu_metrics.Average)
  return kind(total=total, count=weight)
