"""What all analyses share: settings that run on models, layers, labels."""

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
  """Base of analyses: a frozen dataclass of settings."""

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Analyses; parts that fail are listed in the result."""
    raise NotImplementedError


class Case(NamedTuple):
  """The two models of a series for a language pair, at one step.

  Attributes:
    series: its name.
    pair: of languages.
    step: of the checkpoint that changes along a run; else the first one's.
    first: reads the pair's first language.
    second: reads the second.
  """

  series: str
  pair: model_refs.Pair
  step: result_store.Step
  first: model_refs.ModelRef
  second: model_refs.ModelRef

  @property
  def name(self) -> str:
    return f'{self.series} {"-".join(self.pair)} at step {self.step}'

  @property
  def columns(self) -> analysis_report.Row:
    """The columns of a row that say what it is of."""
    return {
      'series': self.series,
      'pair': '-'.join(self.pair),
      'step': self.step,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesStudy(Study):
  """Base of analyses that compare models of two languages.

  Attributes:
    series: the models that read the two languages.
    steps: checkpoints of models without a named step; see `Models.at_steps`.
  """

  series: tuple[model_refs.Series, ...]
  steps: model_refs.Steps = model_refs.LAST

  def __post_init__(self):
    names = [one.name for one in self.series]
    if not names or len(set(names)) < len(names):
      raise errors.ConfigError(
        'An analysis needs series of models with different names',
        got=', '.join(names) or 'none',
        where='--models',
      )

  def cases(
    self,
    pair: model_refs.Pair,
    models: model_refs.Models,
    failures: eval_task.Failures,
  ) -> Iterator[Case]:
    """Yields a case for each series and step; what is not there is a failure."""
    for one in self.series:
      found = []
      with failures.guard(f'{one.name} {"-".join(pair)}'):
        named = one.models(pair)
        found = models.at_steps(named, self.steps)
        last = [ref.step == model_refs.LAST for ref in named]
        moving = 1 if last == [False, True] else 0
        for refs in found:
          for ref in refs:
            models.num_layers(ref)
      for refs in found:
        yield Case(one.name, pair, refs[moving].step, *refs)

  def loaded_cases(
    self,
    pairs: Iterable[model_refs.Pair],
    load: Callable[[model_refs.Pair], _Text],
    models: model_refs.Models,
    failures: eval_task.Failures,
  ) -> Iterator[tuple[Case, _Text]]:
    """Yields the cases of pairs with what `load` makes of each pair; where it
    fails there are none."""
    for pair in pairs:
      with failures.guard('-'.join(pair)):
        text = load(pair)
        yield from ((case, text) for case in self.cases(pair, models, failures))


def check_finite(states: np.ndarray, what: str, where: str) -> None:
  """Raises AnalysisError for NaN or infinity in the states of a checkpoint."""
  if not np.isfinite(states).all():
    raise errors.AnalysisError(
      f'{what} is not finite',
      got='NaN or infinity',
      where=where,
      fix='see whether the checkpoint itself is finite',
    )


def chosen_layers(layers: Sequence[int] | None, count: int) -> list[int]:
  """Layers counted from 0, the embedding output; None: all.

  Args:
    layers: negative ones count from the end.
    count: how many there are, the embedding output included.

  Raises:
    AnalysisError: there is no such layer.
  """
  if layers is None:
    return list(range(count))
  for layer in layers:
    if not -count <= layer < count:
      raise errors.AnalysisError(
        'The model has no such layer',
        got=layer,
        expected=f'0 (embeddings) to {count - 1}, or counted from the end',
      )
  return sorted({layer % count for layer in layers})


def last_steps(
  rows: Sequence[analysis_report.Row],
) -> list[analysis_report.Row]:
  """The rows of the last step of every series and pair."""
  last = {(row['series'], row['pair']): row['step'] for row in rows}
  return [
    row for row in rows if row['step'] == last[row['series'], row['pair']]
  ]


def by_step(
  rows: Sequence[analysis_report.Row], value: str, *, layer: str = 'layer'
) -> dict[str, dict[str, list[tuple[float, float]]]]:
  """Panel (series and pair) -> layer -> (step, percent).

  Args:
    rows: the numbers; those at no number of steps are left out.
    value: the column that is drawn, a fraction.
    layer: the column of the layer.
  """
  several = len({row['series'] for row in rows}) > 1
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in rows:
    if isinstance(row['step'], int):
      name = f'{row["series"]}: {row["pair"]}' if several else row['pair']
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
  """Runs an analysis and writes what it finds.

  Args:
    analysis: what to find out, such as `cka_study.CkaStudy(...)`.
    output: the folder; see `report.write`.
    command: the words of a command, for the report.
    seed: of untrained parameters.
    batch_size: sentences a batch, where it does not change results.
    partitioner: shards parameters and batches; None splits batches over all
      devices.

  Returns:
    What was found, with the failures of single parts.

  Raises:
    XlflaxError: the settings are wrong, or nothing was found.
  """
  folder = paths.to_path(output)
  bucket_access.check_usable(folder)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  found = analysis.run(
    model_refs.Models(batch_size=batch_size, seed=seed, partitioner=partitioner)
  )
  analysis_report.write(folder, found, command=command)
  return found
