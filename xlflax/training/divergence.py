"""Detection of runs whose loss has diverged without becoming infinite."""

import math
from collections.abc import Iterable, Iterator, Mapping

from xlflax.objectives import objective_base
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
  objectives: Iterable[objective_base.Objective],
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
    objectives: Objectives of the run.
    metrics: Metrics of the last report, by name.
    first_metrics: Metrics of the first step of this process, by name.
    step: Step of the last report.
    vocabulary_size: Number of tokens in the vocabulary.
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run.
  """
  uniform_loss = math.log(vocabulary_size)
  for objective in objectives:
    if not isinstance(objective, masked_lm.MaskedLM):
      continue
    name = f'{objective.name}/loss'
    loss = metrics.get(name, 0.0)
    first_loss = first_metrics.get(name, math.inf)
    if (step >= _MIN_STEPS and loss > _MAX_RATIO * uniform_loss) or (
      step >= _MIN_EARLY_STEPS
      and loss > _MAX_EARLY_RATIO * max(uniform_loss, first_loss)
    ):
      yield (
        f'{objective.name}: the loss ({loss:.2f}) is higher than that of a '
        f'uniform distribution over the vocabulary ({uniform_loss:.2f}), so '
        'the run has probably diverged. '
        + schedule_checks.suggest_lower_rate(optimizer, num_steps)
      )
