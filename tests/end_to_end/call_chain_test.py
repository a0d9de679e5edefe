"""Tests of the call depth of training and evaluation, and of user hooks."""

import dataclasses
import json
import pathlib
import traceback

import optax
import pytest

import xlflax
from tests.end_to_end.conftest import TINY_MLM
from xlflax import cli, trainer, training
from xlflax.evaluation.metrics import retrieval_metrics
from xlflax.training import step_compilation

pytest_plugins = ['tests.evaluation.fixtures']
_PACKAGE = pathlib.Path(xlflax.__file__).parent


def _train(workspace, run, *more):
  arguments = [*TINY_MLM, workspace.cache, *workspace.inputs, *more]
  return cli.main(
    ['train', *arguments, f'--model_dir={run}', '--gin.TRAIN_STEPS=4']
  )


def _calls(stack) -> list[tuple[str, str]]:
  """Returns (file, function) of the frames below `cli.main`."""
  calls = [
    (str(pathlib.Path(frame.filename).relative_to(_PACKAGE)), frame.name)
    for frame in stack
    if pathlib.Path(frame.filename).is_relative_to(_PACKAGE)
  ]
  names = [name for _, name in calls]
  return calls[names.index('main') :]


def test_optimizer_update_is_reached_in_few_calls(
  workspace, tmp_path, monkeypatch
):
  """ARCHITECTURE.md lists the calls ("Life of a training step")."""
  stacks, apply_updates = [], optax.apply_updates

  def record(*arguments):
    stacks.append(traceback.extract_stack())
    return apply_updates(*arguments)

  monkeypatch.setattr(optax, 'apply_updates', record)
  # Otherwise, the step is traced in a thread during the restore.
  monkeypatch.setattr(
    step_compilation.StepCompiler, '_compile', lambda self: self._lowered.set()
  )
  assert _train(workspace, tmp_path / 'run') == 0
  calls = _calls(stacks[-1])
  assert ('training/train_loop.py', 'run_steps') in calls
  assert calls[-1][0] == 'training/train_step.py'
  assert len(calls) <= 15, calls
  assert len({file for file, _ in calls}) <= 10, calls


def test_retrieval_metrics_are_reached_in_few_calls(
  make_run, corpus, tmp_path, monkeypatch
):
  """ARCHITECTURE.md lists the calls ("Life of an evaluation")."""
  stacks, accuracies = [], retrieval_metrics.retrieval_accuracies

  def record(*arguments):
    stacks.append(traceback.extract_stack())
    return accuracies(*arguments)

  monkeypatch.setattr(retrieval_metrics, 'retrieval_accuracies', record)
  arguments = [
    f'--model_dir={make_run(tmp_path / "run", [10])}',
    f'--corpus={corpus}',
    '--tasks=retrieval',
    '--compilation_cache=',
  ]
  assert cli.main(['evaluate', *arguments]) == 0
  calls = _calls(stacks[0])
  calls.append(('evaluation/metrics/retrieval_metrics.py', 'accuracies'))
  assert ('evaluate.py', 'evaluate_checkpoint') in calls
  assert ('evaluation/tasks/retrieval_task.py', 'evaluate') in calls
  assert len(calls) <= 15, calls
  assert len({file for file, _ in calls}) <= 10, calls


@dataclasses.dataclass(kw_only=True)
class _SumOfLosses(training.Hook):
  """Logs the sum of all losses and optionally kills the run."""

  kill_at: int | None = None
  total: float = dataclasses.field(default=0.0, init=False)

  def after_step(self, run, step, output):
    if step == self.kill_at:
      raise KeyboardInterrupt
    self.total += float(output.loss)
    run.write_metrics(step, sum={'loss': self.total.hex()})

  def state_dict(self):
    return {'total': self.total}

  def load_state_dict(self, state):
    self.total = state['total']


def _sums(run) -> list[tuple[int, str]]:
  lines = (run / 'metrics.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  return [(row['step'], row['sum']['loss']) for row in rows if 'sum' in row]


@pytest.mark.slow
def test_hook_state_is_restored_after_a_kill(workspace, tmp_path, monkeypatch):
  """The resumed run logs the same lines as an uninterrupted run."""
  train = trainer.Trainer.train

  def run(directory, **fields):
    def with_hook(self, **arguments):
      hooks = (_SumOfLosses(**fields),)
      return train(dataclasses.replace(self, hooks=hooks), **arguments)

    monkeypatch.setattr(trainer.Trainer, 'train', with_hook)
    interval_flag = '--gin.checkpoints.CheckpointOptions.save_interval_steps=2'
    return _train(workspace, tmp_path / directory, interval_flag)

  assert run('whole') == 0
  assert run('killed', kill_at=4) == 130  # The last checkpoint is of step 2.
  assert len(_sums(tmp_path / 'killed')) == 3
  assert run('killed') == 0
  assert _sums(tmp_path / 'killed') == _sums(tmp_path / 'whole')
  assert len(_sums(tmp_path / 'whole')) == 4
