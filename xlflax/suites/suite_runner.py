"""Runs a suite: fine-tunes what needs it, evaluates, one model at a time."""

import dataclasses
import logging
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

from xlflax import evaluate as evaluate_lib
from xlflax.config import gin_config
from xlflax.evaluation import eval_task
from xlflax.finetuning import finetune_grid, grid_report, hyperparameter_grid
from xlflax.storage import paths
from xlflax.suites import cost_meter, suite_config, suite_result_store
from xlflax.suites import suite_report as suite_results
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.training.devices import mmap_limit
from xlflax.utils import errors, signals, validation

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Model:
  """A checkpoint of a run that a suite is run on.

  Attributes:
    label: what tables call it; of its folder, too.
    model_dir: of the run.
    step: of the checkpoint.
  """

  label: str
  model_dir: str
  step: int

  @property
  def name(self) -> str:
    """'mlm@1000'."""
    return f'{self.label}@{self.step}'


def models(model_dirs: Sequence[str], step: int | None = None) -> list[Model]:
  """The newest checkpoint of each run, or that of a step.

  Raises:
    RunDirectoryError: a directory is no run.
    CheckpointError: it has no checkpoint, or not of this step.
  """
  labels = _labels(model_dirs)
  found = []
  for label, directory in zip(labels, model_dirs, strict=True):
    steps = saved_run.open_run(directory).steps
    if not steps or (step is not None and step not in steps):
      raise errors.CheckpointError(
        'The run has no such checkpoint',
        where=directory,
        got='the newest' if step is None else step,
        expected='one of ' + (', '.join(map(str, steps)) or 'none'),
      )
    found.append(Model(label, directory, steps[-1] if step is None else step))
  return found


def models_at(
  model_dirs: Sequence[str], steps: Sequence[int] | None
) -> list[Model]:
  """The checkpoints of some steps of each run; None: the newest.

  Raises:
    RunDirectoryError, CheckpointError: see `models`.
  """
  return [
    model
    for step in (steps if steps else (None,))
    for model in models(model_dirs, step)
  ]


def shard(
  suite: suite_config.Suite,
  models: Sequence[Model],
  names: Sequence[str] | None,
  index: int,
  count: int,
) -> set[tuple[str, str]]:
  """Assigns tasks to one of several machines, round-robin.

  Tasks that evaluate the models of one grid stay together.

  Args:
    suite: The suite.
    models: Checkpoints to evaluate.
    names: Names of the tasks to run. If None, all tasks.
    index: Index of the machine, from 0.
    count: Number of machines.

  Returns:
    (checkpoint, task) pairs of this machine.
  """
  groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
  for model in models:
    for task in suite.chosen(names):
      group = groups.setdefault((model.name, task.trials or task.name), [])
      group.append((model.name, task.name))
  return {
    pair for group in list(groups.values())[index::count] for pair in group
  }


def _labels(model_dirs: Sequence[str]) -> list[str]:
  """The last part of each path, or as many as tell them apart."""
  parts = [pathlib.Path(path).absolute().parts for path in model_dirs]
  if len(set(parts)) < len(parts):
    raise errors.ConfigError(
      'A model directory is given twice',
      got=', '.join(model_dirs),
      where='--model_dir',
    )
  for size in range(1, max(map(len, parts)) + 1):
    names = ['_'.join(own[-size:]).strip('/') for own in parts]
    if len(set(names)) == len(names):
      break
  return names


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteRunner:
  """Runs the tasks of a suite on models.

  Attributes:
    suite: its tasks.
    output: what is fine-tuned lies in `OUTPUT/<label>@<step>/<task>/trials/`.
    data: the directory that the tasks read, macro DATA.
    names: of the tasks to run; None for all.
    bindings: gin bindings for every task with fine-tuning, after its own.
    search_paths: folders to look gin files up in.
    batch_size: sentences a batch of evaluations.
    only: (checkpoint, task) that this machine does; None: all.
  """

  suite: suite_config.Suite
  output: pathlib.Path
  data: str
  names: tuple[str, ...] | None = None
  bindings: tuple[str, ...] = ()
  search_paths: tuple[str, ...] = ()
  batch_size: validation.PositiveInt = 64
  only: Collection[tuple[str, str]] | None = None

  def missing(
    self, models: Sequence[Model], report: suite_results.SuiteReport
  ) -> list[tuple[str, str]]:
    """The (checkpoint, task) of other machines that a report lacks."""
    if self.only is None:
      return []
    found = {(one.model, one.task) for one in report.results}
    tasks = self.suite.chosen(self.names)
    wanted = ((model.name, task.name) for model in models for task in tasks)
    return [one for one in wanted if one not in found]

  def run(self, model: Model) -> list[suite_results.TaskResult]:
    """All tasks on one checkpoint; what fails is in the results."""
    run = run_directory.run_id(paths.to_path(model.model_dir))
    suite_result_store.check_run(
      model.name, run, self.suite.recipe, self.output
    )
    grids: dict[str, grid_report.GridReport] = {}
    found = []
    for task in self.suite.chosen(self.names):
      signals.check_stop_request()
      if self.only is not None and (model.name, task.name) not in self.only:
        continue
      _LOG.info('%s, step %d: task %s', model.label, model.step, task.name)
      meter = cost_meter.Meter(model.model_dir, model.step)
      before = suite_result_store.earlier_cost(
        task.name, model.name, self.output
      )
      result = self._run_task(task, model, grids)
      spent = meter.read()
      result = dataclasses.replace(
        result,
        run=run,
        recipe=self.suite.recipe,
        notes=(*self.suite.recipe_notes(task), *result.notes),
        cost=spent if before is None else before + spent,
      )
      suite_result_store.write(
        result, self.output, is_shared=self.only is not None
      )
      found.append(result)
      mmap_limit.make_room()
    return found

  def _run_task(self, task, model, grids) -> suite_results.TaskResult:
    """One task, whatever becomes of it."""
    failures = eval_task.Failures(task.name)
    result = suite_results.TaskResult(
      task=task.name, family=task.family, label=model.label, step=model.step
    )
    with failures.guard():
      # The tests are read first: what lacks its data is not trained for.
      tests = self.tests(task, model)
      result = (
        self._evaluated(task, model, tests, result)
        if task.trials is None
        else self._finetuned(task, model, tests, result, grids)
      )
    return dataclasses.replace(
      result,
      main=task.metrics,
      failures=(*result.failures, *failures.collected()),
    )

  def configuration(
    self, task: suite_config.SuiteTask, model: Model
  ) -> gin_config.Configuration:
    """A task's gin file for a model; MODEL_DIR is still to be given."""
    macros: dict[str, Any] = {'DATA': self.data}
    bindings = (*task.bindings, *task.recipe)
    if task.trials is not None:
      macros |= {'INIT_FROM': model.model_dir, 'INIT_STEP': model.step}
      bindings += self.bindings
    return gin_config.load_gin_files(
      (task.gin_file,), bindings, self.search_paths, macros=macros, partial=True
    )

  def tests(
    self, task: suite_config.SuiteTask, model: Model
  ) -> list[eval_task.EvalTask]:
    """The evaluation tasks that a task's gin file binds."""
    return list(
      self.configuration(task, model).parameter(
        'evaluate.evaluate.tasks', what='evaluation tasks'
      )
    )

  def _evaluated(self, task, model, tests, result):
    """Test results of the pretrained model itself, whose run is only read."""
    del task
    report = evaluate_lib.evaluate(
      model_dir=model.model_dir,
      tasks=tests,
      steps=[model.step],
      batch_size=self.batch_size,
      output=str(self.directory(model)),
    )
    return result.with_report(report, model.step)

  def _finetuned(self, task, model, tests, result, grids):
    """Test results of the selected setting, for all seeds."""
    trainer = self.suite.task(task.trials)
    if trainer.name not in grids:
      grids[trainer.name] = finetune_grid.finetune(
        output=str(self.directory(model) / trainer.name),
        configuration=self.configuration(trainer, model),
        axes=tuple(map(hyperparameter_grid.parse_axis, trainer.grid)),
        select=trainer.select,
      )
    grid = grids[trainer.name]
    result = dataclasses.replace(
      result,
      failures=tuple(
        eval_task.Failure(
          task=task.name,
          part=f'trial {trial.trial.name}',
          message=trial.message,
          status=trial.exit_status,
        )
        for trial in grid.trials
        if trial.message
      ),
    )
    for setting in grid.ranking[:1]:
      result = dataclasses.replace(result, setting=setting.name)
      for trial in setting.finished:
        report = finetune_grid.evaluate_trial(
          trial, tests, batch_size=self.batch_size
        )
        result = result.with_report(report, trial.step)
    return result

  def directory(self, model: Model) -> pathlib.Path:
    """Where the fine-tuned runs of a model lie."""
    return self.output / model.name
