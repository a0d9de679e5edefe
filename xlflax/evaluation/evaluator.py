"""Runs evaluation tasks on checkpoints and keeps what they find."""

import collections
import dataclasses
import logging
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from xlflax.evaluation import (
  base,
  outputs,
  plots,
  results,
  sentence_encoding,
  summary,
)
from xlflax.evaluation.reports import run_pages, text
from xlflax.foundation import progress, registry, stopping, validation
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.checkpointing import run_directory
from xlflax.training.processes import distributed

_LOG = logging.getLogger(__name__)


@registry.register('report')
@dataclasses.dataclass(frozen=True)
class Report:
  """What `evaluate` found.

  Attributes:
    tasks: what was evaluated.
    results: task name -> step ('untrained' for the fresh model) -> result,
      of this call, whether computed or read back.
    failures: everything that could not be evaluated.
    computed: how many results were not there before.
    folders: task name -> the folder that its results lie in.
  """

  tasks: tuple[base.EvalTask, ...]
  results: dict[str, dict[results.Step, base.EvalResult]]
  failures: tuple[base.Failure, ...]
  computed: validation.NonNegativeInt
  folders: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)


class Evaluator:
  """Runs all tasks on one checkpoint after the other."""

  def __init__(
    self,
    run: run_lib.SavedRun,
    tasks: tuple[base.EvalTask, ...],
    partitioner,
    *,
    seed: int,
    batch_size: int,
    output: str | os.PathLike[str] | None = None,
  ):
    """Evaluates nothing yet.

    Args:
      run: the run; nothing is written to it if `output` is another folder.
      tasks: what to evaluate.
      partitioner: shards parameters and batches; None: one device.
      seed: of the tasks' random choices and the untrained parameters.
      batch_size: sentences a batch.
      output: where `eval/` with the results goes; None: the run's directory.

    Raises:
      RunDirectoryError: `output` has the results of another run.
    """
    self._directory = outputs.directory(run, output)
    self._run = run
    self._tasks = tasks
    self._partitioner = partitioner
    self._seed = seed
    self._batch_size = batch_size
    self._identities: dict[str, dict[str, Any]] = {}
    self._results: dict[str, dict] = {task.name: {} for task in tasks}
    self._failures: list[base.Failure] = []
    self._computed = 0
    self.seen: set[results.Step] = set()

  def evaluate(self, step: results.Step) -> None:
    """Evaluates all tasks that have no result of this checkpoint yet."""
    self.seen.add(step)
    identities = {task.name: self._identity(task, step) for task in self._tasks}
    missing = []
    for task in self._tasks:
      found = results.read_finished(
        self._directory, identities[task.name], step
      )
      if found is None:
        missing.append(task)
      else:
        _LOG.info('step %s | %s (was there)', step, summary.line(task, found))
        self._results[task.name][step] = found
    subject = self._subject(step) if missing else None
    if subject is not None:
      for task in missing:
        self._compute(task, step, subject, identities[task.name])

  def report(self, command: Sequence[str] = ()) -> Report:
    """Writes CSV, pictures and a page of all results; returns those seen.

    Args:
      command: the words of the command, for the page.
    """
    groups = {
      name: results.group(identity)
      for name, identity in self._identities.items()
    }
    evaluations = self._directory / run_directory.EVALUATION
    if distributed.is_lead():
      found = results.find(self._directory)
      summary.write_csv(self._directory, found)
      tables: list[text.Table] = []
      drawn: dict[str, pathlib.Path] = {}
      languages = self._run.vocabulary.spec.languages
      for group, task in self._shown(groups, found).items():
        shown = summary.table(
          task,
          found[group],
          languages=languages,
          folder=evaluations / group.folder,
        )
        tables.append(run_pages.of_rich(shown))
        files = plots.write(evaluations, task, found[group])
        drawn |= {file.stem: file for file in files}
      self._write_page(evaluations, found, tables, drawn, command)
    ordered = {
      name: {step: found[step] for step in sorted(found, key=results.order)}
      for name, found in self._results.items()
    }
    return Report(
      self._tasks,
      ordered,
      tuple(self._failures),
      self._computed,
      {name: evaluations / group.folder for name, group in groups.items()},
    )

  def _shown(self, groups, found):
    """The task of each group of results: of this call, then of others."""
    asked = {groups.get(task.name): task for task in self._tasks}
    shown = {group: asked[group] for group in asked if group in found}
    alike = collections.Counter(group[:2] for group in found)
    for group, by_step in found.items():
      task = asked.get(group) or summary.recorded(
        group, by_step, is_one_of_many=alike[group[:2]] > 1
      )
      if task is not None:
        shown.setdefault(group, task)
    return shown

  def _write_page(self, directory, found, tables, drawn, command) -> None:
    """Writes `eval/report.html` about all results that are on disk."""
    if not tables:
      return
    notes = dict.fromkeys(
      f'{group.task}: {note}'
      for group, by_step in found.items()
      for result in by_step.values()
      for note in result.notes
    )
    run_pages.write(
      directory,
      f'Evaluation of {self._run.directory.name}',
      'Checkpoints across, languages or pairs down; the column untrained is '
      'the model before its first step. ±: half of the 95 % interval of the '
      'first and last column, where single examples are at hand.',
      tables,
      drawn,
      notes=[*notes, *(f'failed: {failure}' for failure in self._failures)],
      command=command,
    )

  def _compute(self, task, step, subject, identity) -> None:
    start = time.monotonic()
    result = base.evaluate_task(task, subject)
    self._computed += 1
    self._results[task.name][step] = result
    self._fail(step, result.failures)
    if distributed.is_lead():
      outputs.record(self._directory, self._run)
      results.write(self._directory, result, step=step, identity=identity)
    _LOG.info(
      'step %s | %s (%.1f s)',
      step,
      summary.line(task, result),
      time.monotonic() - start,
    )

  def _fail(self, step: results.Step, failures) -> None:
    for failure in failures:
      _LOG.error('step %s | %s', step, failure)
      self._failures.append(
        dataclasses.replace(
          failure,
          part=' '.join(filter(None, (failure.part, f'at step {step}'))),
        )
      )

  def _subject(self, step: results.Step) -> base.Subject | None:
    """None, with a failure recorded, if the checkpoint cannot be read."""
    stopping.check()
    restoring = base.Failures('checkpoint')
    with restoring.guard(), progress.named(f'reading checkpoint {step}'):
      if isinstance(step, str):  # results.UNTRAINED
        params = self._run.untrained_params(
          seed=self._seed, partitioner=self._partitioner
        )
      else:
        params = self._run.restore_params(step, partitioner=self._partitioner)
      return base.Subject(
        model=self._run.model,
        params=params,
        vocabulary=self._run.vocabulary,
        partitioner=self._partitioner,
        seed=self._seed,
        batch_size=self._batch_size,
        objectives=self._run.objectives,
        inputs=self._run.inputs,
        sentence=sentence_encoding.of_run(self._run.directory, params),
      )
    if step != results.UNTRAINED and step not in self._run.steps:
      _LOG.warning(
        'step %s | the checkpoint was deleted before it could be evaluated',
        step,
      )
    else:
      self._fail(step, restoring.collected())
    return None

  def _identity(
    self, task: base.EvalTask, step: results.Step
  ) -> dict[str, Any]:
    if task.name not in self._identities:  # reads the task's text
      self._identities[task.name] = results.identity(
        task,
        model=self._run.model,
        vocabulary_hash=self._run.vocabulary.hash,
        seed=self._seed,
        sentence=sentence_encoding.read(self._run.directory),
      )
    checkpoint = results.checkpoint_identity(self._run.directory, step)
    return self._identities[task.name] | {'checkpoint': checkpoint}
