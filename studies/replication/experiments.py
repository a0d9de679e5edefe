"""Execution of a study's runs within a CPU-time budget."""

import dataclasses
import logging
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from studies.replication import measures, probes, results, runner, trainers
from studies.replication.conditions import Condition, Size
from studies.replication.papers import entailment, translation
from studies.replication.study_data import StudyData, SyntheticSpec, TextVariant
from xlflax.storage import file_lock
from xlflax.trainer import Trainer
from xlflax.utils import errors

# File in the directory of a saved run, with the digest of its settings.
_SETTINGS = 'settings.txt'


class _LockedByOtherProcessError(errors.AnalysisError):
  """Error raised if a different process holds a run's lock."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """Training runs that an experiment executes.

  Attributes:
    conditions: Training configurations in order of importance. A configuration
      comes after the one whose run provides its initial parameters.
    seeds: Random seeds with which all conditions are run. All conditions are
      run with the first seed before any condition is run with the second seed.
    extra_runs: Additional pairs of a condition and a seed, which are run last.
    data_spec: Specification of the data, a `SyntheticSpec` or a `RealSpec`.
    size: Sizes of the models and batches.
  """

  conditions: tuple[Condition, ...]
  seeds: tuple[int, ...]
  extra_runs: tuple[tuple[Condition, int], ...] = ()
  data_spec: Any = SyntheticSpec()
  size: Size = Size()

  def initialization_chain(self, condition: Condition) -> tuple[Condition, ...]:
    """Returns a configuration, preceded by those from which it is initialized.

    If C is initialized from B, and B from A, the result for C is (A, B, C).
    """
    if condition.begins_from is None:
      return (condition,)
    conditions = {condition.name: condition for condition in self.conditions}
    initial_condition = conditions[condition.begins_from]
    return (*self.initialization_chain(initial_condition), condition)


def run_plan(
  plan: Plan, work: pathlib.Path, *, budget: float | None = None
) -> list[results.Result]:
  """Executes the unfinished runs of a plan.

  Several processes can share one directory. Each of them skips the runs that a
  different process is executing.

  Args:
    plan: Plan that specifies the conditions and seeds to run.
    work: Working directory with languages, caches, runs and results. Finished
      runs in this directory are not repeated.
    budget: Number of CPU minutes after which this call starts no more runs. If
      None, there is no limit.

  Returns:
    All available results of the plan's runs.

  Raises:
    XlflaxError: If a run fails.
  """
  experiment = _Experiment(plan, work)
  start_time = time.process_time()
  for condition, seed in _iterate_runs(plan):
    minutes = (time.process_time() - start_time) / 60
    if budget is not None and minutes >= budget:
      break
    if experiment.read_result(condition, seed) is None:
      try:
        run_measures = experiment.run(condition, seed).measures
      except _LockedByOtherProcessError:
        logging.info(
          'Skipping %s, seed %d, which another process is executing.',
          condition.name,
          seed,
        )
        continue
      summary = _format_measures(run_measures)
      logging.info('Finished %s, seed %d: %s', condition.name, seed, summary)

  finished = (experiment.read_result(*run) for run in _iterate_runs(plan))
  return [result for result in finished if result is not None]


def _iterate_runs(plan: Plan) -> Iterator[tuple[Condition, int]]:
  for seed in plan.seeds:
    for condition in plan.conditions:
      yield condition, seed
  yield from plan.extra_runs


def _format_measures(run_measures: Mapping[str, float]) -> str:
  """Formats a run's main measures for the log."""
  names = ('transfer', 'retrieval', 'cka', 'bleu')
  return ', '.join(
    f'{name} {value:.3f}'
    for name, value in run_measures.items()
    if name in names or name.startswith(('nli', 'aer'))
  )


class _Experiment:
  """Executor of a plan's runs in a working directory."""

  def __init__(self, plan: Plan, work: pathlib.Path):
    self._plan = plan
    self._work = work
    self._store = results.ResultStore(work / 'results')
    self._runner = runner.Runner()
    self._data: dict[TextVariant, StudyData] = {}

  def read_result(
    self, condition: Condition, seed: int
  ) -> results.Result | None:
    """Returns a run's stored result, or None if the run is not finished."""
    return self._store.read(
      condition.name, seed, self._settings_digest(condition)
    )

  def run(self, condition: Condition, seed: int) -> results.Result:
    """Trains a model, measures its scores, and stores the result.

    Raises:
      _LockedByOtherProcessError: If a different process is executing the run.
    """
    with self._lock(condition.name, seed):
      # Another process may have finished the run since the caller's check.
      result = self.read_result(condition, seed)
      return result or self._train_and_measure(condition, seed)

  def _lock(self, name: str, seed: int = 0, *, wait: bool = False):
    """Prevents other processes from executing a run or writing languages."""
    return file_lock.lock_directory(
      self._work / 'locks' / name,
      name=str(seed),
      what='run',
      error=_LockedByOtherProcessError,
      wait=wait,
    )

  def _train_and_measure(
    self, condition: Condition, seed: int
  ) -> results.Result:
    for initial_condition in self._plan.initialization_chain(condition)[:-1]:
      with self._lock(initial_condition.name, seed, wait=True):
        if not self._is_saved(initial_condition, seed):
          self._train(initial_condition, seed)

    start_time = time.process_time()
    trainer, run, data = self._train(condition, seed)
    loss = {'loss': run.losses[-1][1]} if run.losses else {}
    result = results.Result(
      condition=condition.name,
      seed=seed,
      settings=self._settings_digest(condition),
      measures=loss | self._measure(condition, trainer, run, data),
      cpu_seconds=time.process_time() - start_time,
    )
    self._store.write(result)
    return result

  def _is_saved(self, condition: Condition, seed: int) -> bool:
    """Returns whether a run with the current settings has been saved."""
    directory = trainers.run_directory(self._work, condition.name, seed)
    settings = pathlib.Path(directory, _SETTINGS)
    return settings.exists() and (
      settings.read_text() == self._settings_digest(condition)
    )

  def _train(
    self, condition: Condition, seed: int
  ) -> tuple[Trainer, runner.TrainedRun, StudyData]:
    """Trains a run, and saves it if other runs are initialized from it."""
    with self._lock('languages', wait=True):
      data = self._get_data(condition.text)
      trainer = trainers.build_trainer(
        condition, data, self._plan.size, seed=seed
      )
    run = self._runner.train(trainer, untrained=condition.untrained)
    if condition.saved:
      directory = pathlib.Path(runner.save_run(run, trainer.vocabulary))
      (directory / _SETTINGS).write_text(self._settings_digest(condition))
    return trainer, run, data

  def _measure(
    self,
    condition: Condition,
    trainer: Trainer,
    run: runner.TrainedRun,
    data: StudyData,
  ) -> dict[str, float]:
    """Returns a run's measures, or {} if it only initializes other runs."""
    if not condition.measured:
      return {}
    setup, params = run.setup, run.state.params
    if condition.decoder_layers:
      model = measures.create_eval_model(
        setup, params, setup.settings.objectives.objectives
      )
      return translation.measure_bleu(model, data)

    finetuning_arguments = (
      self._runner,
      trainer,
      params['model'],
      data,
      self._plan.size,
    )
    if condition.entailment_steps:
      return entailment.measure_entailment(
        *finetuning_arguments, steps=condition.entailment_steps
      )

    run_measures = measures.measure_similarity(
      setup, params, data, against_random=condition.against_random
    )
    run_measures |= measures.measure_transfer(*finetuning_arguments)
    run_measures |= data.measure_corpus(setup.vocabulary)
    gains = probes.measure_partner_gain(
      measures.create_eval_model(setup, params),
      data,
      condition,
      self._plan.size,
    )
    if gains:
      run_measures |= measures.average_languages(gains)
    if condition.aligned:
      run_measures |= measures.measure_word_alignment(setup, params, data)
    return run_measures

  def _get_data(self, text: TextVariant) -> StudyData:
    """Returns the data for a text variant, after writing missing files."""
    if text not in self._data:
      self._data[text] = self._plan.data_spec.create_data(self._work, text)
      self._data[text].write()
    return self._data[text]

  def _settings_digest(self, condition: Condition) -> str:
    chain = self._plan.initialization_chain(condition)
    data_spec = self._plan.data_spec.restrict_to(chain)
    return results.digest_settings(chain, data_spec, self._plan.size)


def group_scores(
  run_results: Sequence[results.Result],
) -> dict[str, dict[int, dict[str, float]]]:
  """Returns a nested map from training configuration to seed to scores."""
  scores: dict[str, dict[int, dict[str, float]]] = {}
  for result in run_results:
    scores.setdefault(result.condition, {})[result.seed] = result.measures
  return scores


def check_work_directory(work: pathlib.Path) -> None:
  """Raises an error if the path of the working directory is a file.

  Raises:
    ConfigError: If the path is a file.
  """
  if work.exists() and not work.is_dir():
    raise errors.ConfigError(
      'The path given with --work is a file, not a directory', got=str(work)
    )
