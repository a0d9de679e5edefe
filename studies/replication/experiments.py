"""Runs what claims need, seed by seed, within a budget of processor time."""

import dataclasses
import logging
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from studies.replication import measures, probes, results, running, trainers
from studies.replication.conditions import Condition, Size
from studies.replication.papers import entailment, translating
from studies.replication.worlds import Amounts, Text, World
from xlflax.storage import file_lock
from xlflax.utils import errors

_SETTINGS = 'settings.txt'  # of a saved run


class _MadeElsewhereError(errors.AnalysisError):
  """Another process makes this run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """What is to be run.

  Attributes:
    conditions: in the order of their importance, each after the one it begins
      from.
    seeds: of runs; all conditions have the first seed before the second.
    more: further runs, after these.
    amounts: of text; its `world` has the languages.
    size: of models and batches.
  """

  conditions: tuple[Condition, ...]
  seeds: tuple[int, ...]
  more: tuple[tuple[Condition, int], ...] = ()
  amounts: Any = Amounts()
  size: Size = Size()

  def chain(self, condition: Condition) -> tuple[Condition, ...]:
    """The conditions that one begins from, the first one first, and itself."""
    if condition.begins_from is None:
      return (condition,)
    known = {one.name: one for one in self.conditions}
    return (*self.chain(known[condition.begins_from]), condition)


def run(
  plan: Plan, work: pathlib.Path, *, budget: float | None = None
) -> list[results.Result]:
  """Runs what is missing, and returns all results of the plan.

  Processes that share a working directory share the runs: none makes what
  another is making, and each returns what is finished when it ends.

  Args:
    plan: conditions and seeds.
    work: where languages, caches, runs and results are kept; what is finished
      there is not computed again.
    budget: processor minutes of this call, after which no run is begun; None:
      without end.

  Raises:
    XlflaxError: a run fails.
  """
  experiment = _Experiment(plan, work)
  began = time.process_time()
  for condition, seed in _order(plan):
    spent = (time.process_time() - began) / 60
    if budget is not None and spent >= budget:
      break
    if experiment.finished(condition, seed) is None:
      try:
        found = experiment.run(condition, seed).measures
      except _MadeElsewhereError:
        logging.info('%s, seed %d: by another process', condition.name, seed)
        continue
      logging.info('%s, seed %d: %s', condition.name, seed, _shown(found))
  finished = (experiment.finished(*one) for one in _order(plan))
  return [one for one in finished if one is not None]


def _order(plan: Plan) -> Iterator[tuple[Condition, int]]:
  for seed in plan.seeds:
    for condition in plan.conditions:
      yield condition, seed
  yield from plan.more


def _shown(found: Mapping[str, float]) -> str:
  names = ('transfer', 'retrieval', 'cka', 'bleu')
  return ', '.join(
    f'{name} {value:.3f}'
    for name, value in found.items()
    if name in names or name.startswith(('nli', 'aer'))
  )


class _Experiment:
  """Makes results, one after the other."""

  def __init__(self, plan: Plan, work: pathlib.Path):
    self._plan = plan
    self._work = work
    self._store = results.Store(work / 'results')
    self._programs = running.Programs()
    self._worlds: dict[Text, World] = {}

  def finished(self, condition: Condition, seed: int) -> results.Result | None:
    """The result on disk."""
    return self._store.read(condition.name, seed, self._settings(condition))

  def run(self, condition: Condition, seed: int) -> results.Result:
    """Trains, measures, and keeps the result.

    Raises:
      _MadeElsewhereError: another process does so.
    """
    with self._alone(condition.name, seed):
      # Another process may have ended since the caller looked.
      return self.finished(condition, seed) or self._make(condition, seed)

  def _alone(self, name: str, seed: int = 0, *, wait: bool = False):
    """Keeps other processes from a run, or from the languages."""
    return file_lock.lock_directory(
      self._work / 'locks' / name,
      name=str(seed),
      what='run',
      error=_MadeElsewhereError,
      wait=wait,
    )

  def _make(self, condition: Condition, seed: int) -> results.Result:
    for begun in self._plan.chain(condition)[:-1]:
      with self._alone(begun.name, seed, wait=True):
        if not self._is_saved(begun, seed):
          self._train(begun, seed)
    began = time.process_time()
    trainer, trained, world = self._train(condition, seed)
    loss = {'loss': trained.losses[-1][1]} if trained.losses else {}
    result = results.Result(
      condition=condition.name,
      seed=seed,
      settings=self._settings(condition),
      measures=loss | self._measure(condition, trainer, trained, world),
      cpu_seconds=time.process_time() - began,
    )
    self._store.write(result)
    return result

  def _is_saved(self, condition: Condition, seed: int) -> bool:
    """Whether another run can begin from one of these settings."""
    place = trainers.run_directory(self._work, condition.name, seed)
    told = pathlib.Path(place, _SETTINGS)
    return told.exists() and told.read_text() == self._settings(condition)

  def _train(self, condition: Condition, seed: int):
    """Trains, and saves what others begin from."""
    with self._alone('languages', wait=True):
      world = self._world(condition.text)
      trainer = trainers.trainer(condition, world, self._plan.size, seed=seed)
    trained = self._programs.run(trainer, untrained=condition.untrained)
    if condition.saved:
      place = pathlib.Path(running.save(trained, trainer.vocabulary))
      (place / _SETTINGS).write_text(self._settings(condition))
    return trainer, trained, world

  def _measure(
    self, condition: Condition, trainer, trained: running.Trained, world: World
  ) -> dict[str, float]:
    """What is measured at the end; no more of runs only begun from."""
    if not condition.measured:
      return {}
    setup, params = trained.setup, trained.state.params
    if condition.decoder_layers:
      subject = measures.subject_of(
        setup, params, setup.settings.objectives.objectives
      )
      return translating.measure(subject, world)
    tuned = self._programs, trainer, params['model'], world, self._plan.size
    if condition.entailment_steps:
      return entailment.measure(*tuned, steps=condition.entailment_steps)
    found = measures.of_model(
      setup, params, world, against_random=condition.against_random
    ) | measures.transfer(*tuned)
    found |= world.probes(setup.vocabulary)
    gains = probes.partner_gain(
      measures.subject_of(setup, params), world, condition, self._plan.size
    )
    found |= measures.by_language(gains) if gains else {}
    if condition.aligned:
      found |= measures.word_alignment(setup, params, world)
    return found

  def _world(self, text: Text) -> World:
    """The languages, written if they are not there."""
    if text not in self._worlds:
      self._worlds[text] = self._plan.amounts.world(self._work, text)
      self._worlds[text].write()
    return self._worlds[text]

  def _settings(self, condition: Condition) -> str:
    chain = self._plan.chain(condition)
    return results.settings_of(
      chain, self._plan.amounts.read_by(chain), self._plan.size
    )


def group_scores(
  found: Sequence[results.Result],
) -> dict[str, dict[int, dict[str, float]]]:
  """Condition -> seed -> measures."""
  out: dict[str, dict[int, dict[str, float]]] = {}
  for one in found:
    out.setdefault(one.condition, {})[one.seed] = one.measures
  return out


def check_work(work: pathlib.Path) -> None:
  """Refuses a working directory that is a file."""
  if work.exists() and not work.is_dir():
    raise errors.ConfigError(
      'The working directory is a file', got=str(work), where='--work'
    )
