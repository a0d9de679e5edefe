"""What a suite will cost, reckoned before it starts, and who does what."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from xlflax.evaluation import base
from xlflax.finetuning import finetune, trials
from xlflax.finetuning import grid as grid_lib
from xlflax.foundation import errors
from xlflax.planning import plan
from xlflax.storage import paths
from xlflax.suites import runner as runner_lib
from xlflax.training import setup as setup_lib
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.checkpointing import saved_checkpoints

_SAMPLE = 200  # texts whose tokens are counted; of the others the characters
Work = tuple[str, str]  # a checkpoint's name, 'mlm@1000', and a task's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reckoned:
  """What a task of a suite asks for on one checkpoint.

  Attributes:
    model: the checkpoint's name.
    task: of the suite.
    group: the task whose models are evaluated, so that one machine has both.
    trials: that are still to be trained; those of a group are its first
      task's.
    steps: of each trial.
    texts: of the test sets.
    flops: of everything, whatever is finished.
    left: of what is still to be trained, and of evaluation.
    trainer: of a trial that is still to be trained, if any.
    unknown: why nothing can be said; '' where something can.
  """

  model: str
  task: str
  group: str
  trials: int = 0
  steps: int = 0
  texts: int = 0
  flops: float = 0.0
  left: float = 0.0
  trainer: Any = None
  unknown: str = ''

  @property
  def work(self) -> Work:
    return self.model, self.task


def reckon(
  runner: runner_lib.SuiteRunner, models: Sequence[runner_lib.Model]
) -> list[Reckoned]:
  """Counts steps, texts and FLOPs of all tasks; nothing is written.

  A training step has the FLOPs of its plan, and a trial as many steps as its
  rows and epochs give. A text of a test set, or of the dev set each time that
  it is evaluated, counts a third of a training row. For vectors of sentences a
  token counts two FLOPs for each parameter of the layers.
  """
  found = []
  for model in models:
    groups: set[str] = set()
    for task in runner.suite.chosen(runner.names):
      group = task.trials or task.name
      one = Reckoned(model=model.name, task=task.name, group=group)
      failures = base.Failures(task.name)
      with failures.guard():
        if task.trials is None:
          one = _vectors(runner, task, model, one)
        else:
          one = _finetuned(runner, task, model, one, group not in groups)
      groups.add(group)
      messages = [str(failure) for failure in failures.collected()]
      found.append(dataclasses.replace(one, unknown='; '.join(messages)))
  return found


def share(found: Sequence[Reckoned], index: int, count: int) -> set[Work]:
  """The tasks of one of several machines, which have about equal FLOPs.

  Every machine that reckons on the same data finds the same shares. Tasks that
  use the models of one grid stay together.

  Args:
    found: all tasks.
    index: of the machine, from 0.
    count: of machines.

  Raises:
    ConfigError: a task could not be reckoned, so that shares may differ.
  """
  for one in found:
    if one.unknown:
      raise errors.ConfigError(
        'Tasks are shared out by their costs, and one is not known',
        got=f'{one.task}: {one.unknown}',
        where='--shard',
        fix='mend it, or leave the task out of --suite_tasks',
      )
  groups: dict[Work, list[Reckoned]] = {}
  for one in found:
    groups.setdefault((one.model, one.group), []).append(one)
  loads = [0.0] * count
  own: set[Work] = set()
  for tasks in sorted(groups.values(), key=_flops, reverse=True):
    least = loads.index(min(loads))
    loads[least] += _flops(tasks)
    if least == index:
      own.update(one.work for one in tasks)
  return own


def _flops(tasks: Sequence[Reckoned]) -> float:
  return sum(one.flops for one in tasks)


def _finetuned(runner, task, model, one: Reckoned, is_first: bool) -> Reckoned:
  """A task with a head; the first of its group has the training."""
  tested = sum(_count(test) for test in runner.tests(task, model))
  trainer = runner.suite.task(task.trials)
  grid = trials.TrialRunner(
    output=runner.directory(model) / trainer.name,
    configuration=runner.configuration(trainer, model),
    select=trainer.select,
  )
  made = finetune.make(grid, tuple(map(grid_lib.parse_axis, trainer.grid)))
  setup = setup_lib.Setup(made[0].trainer)
  steps, per_step = setup.settings.steps, plan.flops_per_step(setup)
  a_text = per_step / 3 / setup.settings.streams[0].batch_size
  evaluation: Any = setup.settings.evaluation
  dev = sum(map(_count, evaluation.tasks)) if evaluation else 0
  rounds = math.ceil(steps / evaluation.every_steps) if evaluation else 0
  a_trial = is_first * (steps * per_step + rounds * dev * a_text)
  left = [each for each in made if not _is_done(grid, each)] * is_first
  seeds = len(made) // len(grid_lib.settings([each.trial for each in made]))
  testing = seeds * tested * a_text
  # Of its own the step count: benchmarks need no data.
  counted = dataclasses.replace(made[0].trainer, total_steps=steps, epochs=None)
  return dataclasses.replace(
    one,
    trials=len(left),
    steps=steps,
    texts=tested,
    flops=len(made) * a_trial + testing,
    left=len(left) * a_trial + testing,
    trainer=counted if left else None,
  )


def _is_done(grid: trials.TrialRunner, made: trials.MadeTrial) -> bool:
  known = grid.record(made.trial)
  return known is not None and known.is_final


def _vectors(runner, task, model, one: Reckoned) -> Reckoned:
  """A task without training, on each text once."""
  texts = [
    text for test in runner.tests(task, model) for text in _texts(_read(test))
  ]
  vocabulary = run_lib.open_run(model.model_dir).vocabulary
  sample = texts[:: max(1, len(texts) // _SAMPLE)]
  tokens = sum(len(vocabulary.encode(text)) + 2 for text in sample)
  share_ = sum(map(len, texts)) / max(1, sum(map(len, sample)))
  flops = 2.0 * _layer_parameters(model) * tokens * share_
  return dataclasses.replace(one, texts=len(texts), flops=flops, left=flops)


def _layer_parameters(model: runner_lib.Model) -> int:
  """Parameters of a checkpoint's body without its embeddings."""
  shapes = saved_checkpoints.saved_shapes(
    saved_checkpoints.path_of(paths.of(model.model_dir), model.step)
  )
  return sum(
    math.prod(shape)
    for name, shape in shapes.items()
    if name.startswith('model/') and 'embed' not in name
  )


def _count(test: base.EvalTask) -> int:
  """How many examples, or texts, a test set has."""
  return sum(
    len(part) if isinstance(part, list) else len(list(_texts(part)))
    for part in _read(test)
  )


def _read(test: base.EvalTask) -> list[Any]:
  """The parts of a test set.

  Raises:
    ConfigError: the task has no source.
  """
  source = getattr(test, 'source', None)
  if source is None:
    raise errors.ConfigError(
      'The task does not say what it reads', where=test.name
    )
  listed = source.pairs if hasattr(source, 'pairs') else source.languages
  return [source.load(part) for part in listed()]


def _texts(value: Any) -> Iterator[str]:
  """All texts that a value holds; one of a word is a name or an id."""
  if isinstance(value, str):
    if len(value.split()) > 1 or not value.isascii():
      yield value
  elif dataclasses.is_dataclass(value) and not isinstance(value, type):
    for field in dataclasses.fields(value):
      yield from _texts(getattr(value, field.name))
  elif isinstance(value, dict):
    yield from _texts(list(value.values()))
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from _texts(item)
