"""`Trainer`: a run of pretraining or fine-tuning as one object."""

import dataclasses
from collections.abc import Callable
from typing import Any

from xlflax.configuration import config
from xlflax.foundation import calls, ranges, registry
from xlflax.planning import plan as plan_lib
from xlflax.training import benchmark, train_loop
from xlflax.training import settings as settings_lib
from xlflax.training.devices import machines
from xlflax.training.metric_writers import base as writers


@registry.register('trainer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer(settings_lib.Settings):
  """A run: made by Gin, by Python, or from another by `dataclasses.replace`.

  `Settings` documents the fields. Two trainers of one description are one run
  (`training.description.identity`).
  """

  @classmethod
  @calls.checked
  def from_recipe(
    cls, name: str, *, pretraining: str = 'mlm', **macros: Any
  ) -> 'Trainer':
    """Builds the run of a recipe, as `xlflax train --gin_file` does.

    Args:
      name: of a file of `gin_configs/recipes/`, such as 'small'.
      pretraining: of a file of `gin_configs/pretrain/`: what is learned.
      **macros: values of what the two files name in capitals, such as
        `model_dir`, `corpus`, `vocabulary`, `cache_dir`, `train_steps`.

    Raises:
      ConfigError: there is no such recipe or macro, or a value is missing.
    """
    values = {name.upper(): value for name, value in macros.items()}
    files = [f'pretrain/{pretraining}.gin', f'recipes/{name}.gin']
    return config.load(files, macros=values).build(cls)

  @calls.checked
  def train(
    self,
    *,
    gin_config: str | Callable[[], str] = '',
    report: writers.Report | None = None,
  ) -> dict[str, Any]:
    """Trains, or continues the run where its last checkpoint left it.

    Args:
      gin_config: the text of a gin file that builds this trainer, for the
        run's directory; '' where none does.
      report: is called after each report with the step and the metrics that
        `metrics.jsonl` gets, such as {'train': {'mlm/loss/en': 2.0}}; in the
        process that writes them.

    Returns:
      {'step', 'loss', 'model_dir', 'finished', 'interrupted'} (by a signal).

    Raises:
      XlflaxError: settings, data or checkpoints are unusable, or the loss was
        not finite.
    """
    text = gin_config() if callable(gin_config) else gin_config
    made, options = self, self.checkpoints
    if (
      self.evaluation is not None
      and options.best_metric
      and options.best_is_highest is None
    ):
      highest = self.evaluation.is_better_higher(options.best_metric)
      options = dataclasses.replace(options, best_is_highest=highest)
      made = dataclasses.replace(self, checkpoints=options)
    return train_loop.train(made, gin_config=text, report=report)

  @calls.checked
  def plan(
    self,
    machine: machines.Machine | None = None,
    *,
    by: plan_lib.By = plan_lib.By.AUTO,
  ) -> dict[str, Any]:
    """Checks everything and describes the run, without a step.

    Args:
      machine: what is planned for, while this process's devices stand in for
        it (`planning.stand_in`); None for these devices.
      by: the machine's own compiler, or an estimate.

    Returns:
      Memory, parameters, streams, times: see `planning.plan.make`.

    Raises:
      XlflaxError: settings or data are unusable.
    """
    return plan_lib.make(self.on(machine) if machine else self, by=by)

  @calls.checked
  def benchmark(self, *, steps: ranges.Count = 10) -> dict[str, Any]:
    """Times steps on synthetic batches; writes nothing.

    Args:
      steps: how many are timed.

    Returns:
      Step time, tokens/s, MFU, peak memory: see `training.benchmark.run`.
    """
    return benchmark.run(self, steps=steps)
