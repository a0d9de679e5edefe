"""Conversion of xlflax metrics to CLU metrics, which T5X accumulates.

This module requires T5X.
"""

import flax.struct
import jax.numpy as jnp
from clu import metrics as clu_metrics
from t5x import metrics as t5x_metrics

from xlflax.objectives import objective_base, objective_metrics


@flax.struct.dataclass
class Perplexity(clu_metrics.Average):
  """CLU metric for perplexity, the exponential of the mean loss in nats."""

  def compute(self):
    """Returns the value of the metric."""
    return jnp.exp(super().compute())


@flax.struct.dataclass
class Total(clu_metrics.Average):
  """CLU metric that sums the values of all batches."""

  def compute(self):
    """Returns the value of the metric."""
    return self.total


def from_output(
  output: objective_base.ObjectiveOutput, languages: tuple[str, ...]
) -> dict[str, clu_metrics.Metric]:
  """Returns a batch's CLU metrics by name.

  For example, `{'mlm/loss': WeightedMean([6., 1.], [3., 1.])}` with the
  languages `('en', 'fr')` becomes averages under 'mlm/loss' (7 / 4),
  'mlm/loss/en' and 'mlm/loss/fr'. The result also contains the loss as 'loss'
  and the steps per second. Averages without weight are NaN.

  Args:
    output: Loss and metrics of the objective for the batch.
    languages: Language codes, in the order of the language ids.
  """
  clu_metrics_by_name: dict[str, clu_metrics.Metric] = {
    'loss': _metric('loss', output.loss.total, output.loss.weight),
    'timing/steps_per_second': t5x_metrics.StepsPerTime.from_model_output(),
  }
  for name, value in output.metrics.items():
    clu_metrics_by_name[name] = _metric(
      name, value.total.sum(), value.weight.sum()
    )
    if value.total.ndim:
      clu_metrics_by_name |= {
        f'{name}/{code}': _metric(name, value.total[i], value.weight[i])
        for i, code in enumerate(languages)
      }
  return clu_metrics_by_name


def _metric(name: str, total, weight) -> clu_metrics.Metric:
  metric_classes = {
    objective_metrics.TOKENS: Total,
    objective_metrics.PERPLEXITY: Perplexity,
  }
  metric_type = name.rsplit('/', 1)[-1]
  metric_class = metric_classes.get(metric_type, clu_metrics.Average)
  return metric_class(total=total, count=weight)
