"""`xlflax analyze learning-curves`: evaluation results over training steps."""

import dataclasses

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningCurvesOptions(analysis_options.AnalysisOptions):
  """Plots evaluation results over training steps.

  Reads the results that `xlflax evaluate` wrote for each run's checkpoints.
  Also plots the transfer gap (Chi et al., 2022, figure 5).

  Attributes:
    model_dir: Run directory with evaluation results. Repeat the option for
      several runs.
    tasks: Evaluation tasks, separated by commas. Defaults to all tasks.
    metric: Metric to plot. Defaults to the main metric of each task.
    source_language: Language on which the runs were fine-tuned. The transfer
      gap is measured relative to this language.
  """

  model_dir: tuple[str, ...]
  tasks: shared_options.CommaSeparated = ()
  metric: str | None = None
  source_language: str = 'en'


def main(options: LearningCurvesOptions) -> int:
  """Plots the learning curves."""
  from xlflax.analysis import training_curves

  analysis = training_curves.LearningCurvesStudy(
    runs=options.model_dir,
    tasks=options.tasks or None,
    metric=options.metric,
    source=options.source_language,
  )
  return analysis_options.run(options, analysis)
