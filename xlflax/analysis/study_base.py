"""Base classes for analyses, and helpers for models, layers and tables."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from xlflax.analysis import analysis_report, model_refs
from xlflax.evaluation import eval_task, result_store
from xlflax.storage import bucket_access, paths
from xlflax.training.devices import partitioning
from xlflax.utils import errors, validation

_Text = TypeVar('_Text')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """Base class for analyses. A subclass is a frozen dataclass of settings."""

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis.

    Args:
      models: Cache from which the analysis loads its models.

    Returns:
      The results, which include failures of single parts such as language
      pairs.
    """
    raise NotImplementedError


class Case(NamedTuple):
  """Two models that are compared for a language pair at a training step.

  Attributes:
    series: Name of the model series in tables and legends.
    pair: Language pair.
    step: Training step of the model whose checkpoint varies. If the checkpoints
      of both models are fixed, this is the step of the first model.
    first: Model that reads the pair's first language.
    second: Model that reads the pair's second language.
  """

  series: str
  pair: model_refs.Pair
  step: result_store.Step
  first: model_refs.ModelRef
  second: model_refs.ModelRef

  @property
  def name(self) -> str:
    """Text that identifies the models, language pair and step in messages."""
    return f'{self.series} {"-".join(self.pair)} at step {self.step}'

  @property
  def columns(self) -> analysis_report.Row:
    """Table columns that identify the models, language pair and step."""
    return {
      'series': self.series,
      'pair': '-'.join(self.pair),
      'step': self.step,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesStudy(Study):
  """Base class for analyses that compare models for two languages.

  Attributes:
    series: Models to compare. Each series names one model, or one model for
      each language of a pair.
    steps: Checkpoint steps for models whose reference does not name a step (see
      `Models.at_steps`).
  """

  series: tuple[model_refs.ModelSeries, ...]
  steps: model_refs.Steps = model_refs.LAST

  def __post_init__(self):
    names = [series.name for series in self.series]
    if not names or len(set(names)) < len(names):
      raise errors.ConfigError(
        'The flag --models must specify one or more series of models in the '
        'form NAME=MODEL, each with a different name',
        got=', '.join(names) or 'no series',
      )

  def cases(
    self,
    pair: model_refs.Pair,
    models: model_refs.Models,
    failures: eval_task.Failures,
  ) -> Iterator[Case]:
    """Yields both languages' models for each model series and training step.

    Args:
      pair: Language pair.
      models: Cache from which the analysis loads its models.
      failures: Recorder to which a failure is added for each series whose
        models are missing.
    """
    for series in self.series:
      refs_by_step = []
      with failures.guard(f'{series.name} {"-".join(pair)}'):
        refs = series.models(pair)
        refs_by_step = models.at_steps(refs, self.steps)
        is_last = [ref.step == model_refs.LAST for ref in refs]
        step_index = 1 if is_last == [False, True] else 0
        # Opens the runs, so that missing ones fail here.
        for first, second in refs_by_step:
          models.num_layers(first)
          models.num_layers(second)
      for step_refs in refs_by_step:
        yield Case(series.name, pair, step_refs[step_index].step, *step_refs)

  def loaded_cases(
    self,
    pairs: Iterable[model_refs.Pair],
    load: Callable[[model_refs.Pair], _Text],
    models: model_refs.Models,
    failures: eval_task.Failures,
  ) -> Iterator[tuple[Case, _Text]]:
    """Yields the models for each language pair together with the pair's text.

    Args:
      pairs: Language pairs to analyze.
      load: Function that loads a language pair's text.
      models: Cache from which the analysis loads its models.
      failures: Recorder to which a failure is added for each language pair
        whose text cannot be loaded and for each series whose models are
        missing.
    """
    for pair in pairs:
      with failures.guard('-'.join(pair)):
        text = load(pair)
        yield from ((case, text) for case in self.cases(pair, models, failures))


def check_finite(states: np.ndarray, what: str, where: str) -> None:
  """Checks that hidden states or vectors are finite.

  Args:
    states: Hidden states or vectors to check.
    what: Name of the states, for the error message.
    where: Location of the states, for the error message.

  Raises:
    AnalysisError: If `states` contains NaN or infinity.
  """
  if not np.isfinite(states).all():
    raise errors.AnalysisError(
      f'{what} contains NaN or infinity',
      where=where,
      fix="Check that the checkpoint's parameters are finite.",
    )


def chosen_layers(layers: Sequence[int] | None, count: int) -> list[int]:
  """Returns sorted layer indices, where 0 is the embedding output.

  Args:
    layers: Layer indices. Negative indices count from the end. If None, all
      layers are returned.
    count: Number of layers, including the embedding output.

  Raises:
    AnalysisError: If a layer does not exist.
  """
  if layers is None:
    return list(range(count))
  for layer in layers:
    if not -count <= layer < count:
      raise errors.AnalysisError(
        'A layer index must be between 0 (the embeddings) and '
        f'{count - 1}, or negative to count from the last layer',
        got=layer,
      )
  return sorted({layer % count for layer in layers})


def last_steps(
  rows: Sequence[analysis_report.Row],
) -> list[analysis_report.Row]:
  """Selects rows of the last step for each model series and language pair."""
  last = {(row['series'], row['pair']): row['step'] for row in rows}
  return [
    row for row in rows if row['step'] == last[row['series'], row['pair']]
  ]


def by_step(
  rows: Sequence[analysis_report.Row], value: str, *, layer: str = 'layer'
) -> dict[str, dict[str, list[tuple[float, float]]]]:
  """Converts table rows to one curve over training steps for each layer.

  Args:
    rows: Table rows. Rows whose step is not a number are omitted.
    value: Name of the column with the values, which are fractions.
    layer: Name of the column that contains the layer index.

  Returns:
    Points (step, percentage) by panel (series and pair) and layer. A panel is
    omitted if none of its layers has values at several steps.
  """
  has_several_series = len({row['series'] for row in rows}) > 1
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in rows:
    if isinstance(row['step'], int):
      name = (
        f'{row["series"]}: {row["pair"]}' if has_several_series else row['pair']
      )
      panels.setdefault(name, {}).setdefault(f'L{row[layer]}', []).append(
        (row['step'], 100 * row[value])
      )
  return {
    name: lines
    for name, lines in panels.items()
    if any(len(points) > 1 for points in lines.values())
  }


@validation.validate_call
def analyze(
  analysis: Study,
  *,
  output: validation.FilePath,
  command: Sequence[str] = (),
  seed: validation.Seed = 0,
  batch_size: validation.PositiveInt = 64,
  partitioner: partitioning.Partitioner | None = None,
) -> analysis_report.Analysis:
  """Runs an analysis and writes its results.

  Args:
    analysis: Analysis to run, such as `cka_study.CkaStudy(...)`.
    output: Output folder (see `analysis_report.write`).
    command: Command-line arguments to show in the report.
    seed: Random seed for initializing untrained parameters.
    batch_size: Number of sentences that a model encodes per batch.
    partitioner: Partitioner that shards parameters and batches. If None,
      batches are split over all devices.

  Returns:
    The results, which include failures of single parts such as language pairs.

  Raises:
    XlflaxError: If the settings are invalid, or if there are no results.
  """
  folder = paths.to_path(output)
  bucket_access.check_usable(folder)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  result = analysis.run(
    model_refs.Models(batch_size=batch_size, seed=seed, partitioner=partitioner)
  )
  analysis_report.write(folder, result, command=command)
  return result
