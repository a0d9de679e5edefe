"""Training that costs nothing, and evaluation tasks that count their calls."""

import dataclasses
import json
import pathlib
import shutil

from xlflax import config, errors, paths, registry
from xlflax.evaluation import base
from xlflax.training import checkpoints
from xlflax.training import run as run_lib

CALLS: list[str] = []
_MACROS = ('MODEL_DIR', 'LEARNING_RATE', 'SEED', 'EVALUATION', 'INIT_FROM')


@dataclasses.dataclass(frozen=True)
class FakeTraining:
  """Stands in for `Trainer`: a run with two checkpoints and their dev scores.

  The score is the rate at step 10 and half of it at step 20; a rate over 1
  diverges, one below 0 is a mistake.

  Attributes:
    pretrained: a run with checkpoints of steps 10 and 20, which is copied.
  """

  pretrained: pathlib.Path

  def __call__(self, *, other_config=None):
    del other_config
    given = {name: _macro(name) for name in _MACROS}
    return FakeTrainer(pretrained=str(self.pretrained), **given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeTrainer:
  """A trainer whose fields are macros."""

  pretrained: str
  MODEL_DIR: str = registry.changeable()
  LEARNING_RATE: float
  SEED: int
  EVALUATION: str | None
  INIT_FROM: str | None

  def train(self, *, gin_config):
    directory = paths.of(self.MODEL_DIR)
    rate, seed = self.LEARNING_RATE, self.SEED
    CALLS.append(directory.name)
    gin_config()
    if rate > 1:
      raise errors.TrainingError('The loss or its gradient is not finite')
    if rate < 0:
      raise errors.ConfigError('A rate is negative', got=rate)
    copy_run(pathlib.Path(self.pretrained), directory)
    paths.write_atomically(
      directory / 'metrics.jsonl',
      ''.join(
        json.dumps(
          {'step': step, 'eval': {'dev/accuracy/en': score + seed / 100}}
        )
        + '\n'
        for step, score in ((10, rate), (20, rate / 2))
      ),
    )
    run_lib.mark_finished(directory, 20)
    return {
      'step': 20,
      'loss': 1.0,
      'model_dir': str(directory),
      'finished': True,
    }


def copy_run(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a run on disk, also to a bucket."""
  if not paths.is_bucket(target):
    shutil.copytree(source, target)
    return
  for file in sorted(source.rglob('*')):
    if file.is_file():
      target.joinpath(*file.relative_to(source).parts).write_bytes(
        file.read_bytes()
      )
  for step in checkpoints.finished_steps(source):
    (target / 'checkpoints' / str(step) / 'commit_success.txt').write_text('')


def _macro(name: str):
  return config.macro(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted(base.EvalTask):
  """Scores which are given; notes in CALLS that it ran."""

  name: str = 'counted'
  scores: tuple[tuple[str, float], ...] = (('en', 0.8), ('fr', 0.5))
  broken: str = ''

  @property
  def primary_metric(self) -> str:
    return 'accuracy'

  def evaluate(self, subject) -> base.EvalResult:
    del subject
    CALLS.append(self.name)
    failures = base.Failures(self.name)
    metrics = {}
    for part, score in self.scores:
      with failures.guard(part):
        if part == self.broken:
          raise errors.CorpusError('A file is broken', where=part)
        metrics[f'accuracy/{part}'] = score
    return base.EvalResult(metrics=metrics, failures=failures.collected())
