"""Detection of runs whose loss has diverged without becoming infinite."""

import math
from collections.abc import Iterator, Mapping

from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.optimization import optimizers, schedule_checks

# A loss is too high if it exceeds this multiple of that of a uniform
# distribution. The loss may be higher in the first steps.
_MAX_RATIO = 1.2
_MIN_STEPS = 100
# In a shorter run, a loss is too high if it exceeds this multiple of that of a
# uniform distribution and of that of the first step.
_MAX_EARLY_RATIO = 2.0
_MIN_EARLY_STEPS = 10


def describe_divergence(
  mixture: objective_mixture.ObjectiveMixture,
  metrics: Mapping[str, float],
  *,
  first_metrics: Mapping[str, float],
  step: int,
  vocabulary_size: int,
  optimizer: optimizers.Optimizer,
  num_steps: int,
) -> Iterator[str]:
  """Yields a sentence for each masked-LM objective whose loss has diverged.

  The loss of a model that assigns the same probability to every token is the
  logarithm of the vocabulary size. A higher loss after 100 steps is nearly
  always caused by a learning rate that is too high.

  Args:
    mixture: Mixture of objectives that the run trains.
    metrics: Metrics of the last report, by name.
    first_metrics: Metrics of the first step of this process, by name.
    step: Step of the last report.
    vocabulary_size: Number of tokens in the vocabulary.
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run.
  """
  uniform_loss = math.log(vocabulary_size)
  for name, entry in zip(mixture.metric_prefixes, mixture.entries, strict=True):
    if not isinstance(entry.objective, masked_lm.MaskedLM):
      continue
    loss = metrics.get(f'{name}/loss', 0.0)
    first_loss = first_metrics.get(f'{name}/loss', math.inf)
    if (step >= _MIN_STEPS and loss > _MAX_RATIO * uniform_loss) or (
      step >= _MIN_EARLY_STEPS
      and loss > _MAX_EARLY_RATIO * max(uniform_loss, first_loss)
    ):
      yield (
        f'{name}: the loss ({loss:.2f}) is higher than that of a '
        f'uniform distribution over the vocabulary ({uniform_loss:.2f}), so '
        'the run has probably diverged. '
        + schedule_checks.suggest_lower_rate(optimizer, num_steps)
      )
