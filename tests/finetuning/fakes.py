"""Fake training, and evaluation tasks that record their calls."""

import dataclasses
import json
import pathlib
import shutil
import types
from typing import Any

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.evaluation import eval_task
from xlflax.storage import paths
from xlflax.training.checkpointing import checkpoint_reader, saved_run
from xlflax.training.checkpointing.checkpoints import CheckpointOptions
from xlflax.utils import class_registry, errors

CALLS: list[str] = []


@class_registry.register('fake_trainer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeTrainer:
  """Fake `Trainer` that writes a run with two checkpoints and their dev scores.

  The score is the rate at step 10 and half of it at step 20; a rate over 1
  diverges, and a rate below 0 raises an error.

  Attributes:
    pretrained: Run with checkpoints at steps 10 and 20 that is copied.
    fits_checkpoint: Whether the checkpoint of the trial fits the model.
  """

  pretrained: str
  model_dir: str = class_registry.changeable_field()
  learning_rate: float
  seed: int
  init_from: Any = None
  corpus: str | None = None
  cache_dir: str | None = None
  task_modules: tuple[str, ...] = class_registry.changeable_field(default=())
  evaluation: Any = class_registry.changeable_field(default=None)
  checkpoints: CheckpointOptions = class_registry.changeable_field(
    default_factory=CheckpointOptions
  )
  num_train_steps: int = class_registry.changeable_field(default=20)
  epochs: float | None = class_registry.changeable_field(default=None)
  on_config_mismatch: Any = class_registry.changeable_field(default=None)
  fits_checkpoint: bool = class_registry.changeable_field(default=True)

  @property
  def model(self):
    return types.SimpleNamespace(config=None)

  @property
  def datasets(self):
    return ()

  @property
  def objectives(self):
    return types.SimpleNamespace(objectives=(), entries=())

  @property
  def vocabulary(self):
    return vocabulary_spec.make_dummy_spec(20)

  def can_resume(self):
    return self.fits_checkpoint

  def train(self, *, gin_config):
    directory = paths.to_path(self.model_dir)
    CALLS.append(directory.name)
    gin_config()
    if self.learning_rate > 1:
      raise errors.TrainingError('The loss or its gradient is not finite')
    if self.learning_rate < 0:
      raise errors.ConfigError('A rate is negative', got=self.learning_rate)
    copy_run(pathlib.Path(self.pretrained), directory)
    scores = ((10, self.learning_rate), (20, self.learning_rate / 2))
    paths.write_atomically(
      directory / 'metrics.jsonl',
      ''.join(
        json.dumps(
          {'step': step, 'eval': {'dev/accuracy/en': score + self.seed / 100}}
        )
        + '\n'
        for step, score in scores
      ),
    )
    saved_run.mark_finished(directory, 20)
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
  for step in checkpoint_reader.finished_steps(source):
    (target / 'checkpoints' / str(step) / 'commit_success.txt').write_text('')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted(eval_task.EvalTask):
  """Returns given scores and records the call in CALLS."""

  name: str = 'counted'
  scores: tuple[tuple[str, float], ...] = (('en', 0.8), ('fr', 0.5))
  broken: str = ''
  data_split: str = 'all'

  @property
  def split(self) -> str:
    return self.data_split

  @property
  def primary_metric(self) -> str:
    return 'accuracy'

  def evaluate(self, eval_model) -> eval_task.EvalResult:
    del eval_model
    CALLS.append(self.name)
    failures = eval_task.Failures(self.name)
    metrics = {}
    for part, score in self.scores:
      with failures.guard(part):
        if part == self.broken:
          raise errors.CorpusError('A file is broken', where=part)
        metrics[f'accuracy/{part}'] = score
    return eval_task.EvalResult(metrics=metrics, failures=failures.collected())
