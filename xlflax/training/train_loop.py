"""The training loop, which executes a run's steps.

`train` opens the run directory and the data, restores or initializes the state,
and runs all remaining steps. Everything that is not a step (metrics,
checkpoints, evaluation, fault detection) is a hook; see
`hooks.defaults.default_hooks`.
"""

import contextlib
import copy
import os
from typing import TYPE_CHECKING, Any

from xlflax.storage import bucket_access, paths
from xlflax.training import training_run, training_setup
from xlflax.training.checkpointing import (
  code_fingerprint,
  data_fingerprint,
  directory_claim,
)
from xlflax.training.distributed import distributed_job
from xlflax.training.hooks import defaults
from xlflax.training.initialization import init_from
from xlflax.training.metric_writers import metric_writer
from xlflax.utils import environment_variables

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


def train(
  trainer: 'Trainer',
  *,
  gin_config: str = '',
  report: metric_writer.Report | None = None,
) -> dict[str, Any]:
  """Trains to the last step, resuming from the last checkpoint if one exists.

  Args:
    trainer: Trainer that describes the run.
    gin_config: Text of the gin file that builds the trainer, for the run
      directory.
    report: Function called with the step and the metrics of each report.

  Returns:
    The results, as documented in `Trainer.train`.
  """
  environment_variables.check_variables(os.environ)
  distributed_job.warn_of_unread_variables()
  directory_claim.check_vocabulary_directory(trainer.vocabulary)
  bucket_access.check_usable(paths.to_path(trainer.model_dir))
  init_from.check_checkpoints_exist(trainer.init_from, trainer.model_dir)
  setup = training_setup.Setup(trainer)
  with contextlib.ExitStack() as stack:
    loaders = setup.open_loaders()
    for loader in loaders.values():
      stack.callback(loader.close)
    # `check_vocabulary_directory` has rejected vocabularies of sizes only.
    assert setup.vocabulary is not None
    fingerprint = data_fingerprint.describe_inputs(
      setup.vocabulary.hash, loaders, code_fingerprint.describe_code(trainer)
    )
    stack.enter_context(trainer.partitioner.scope())
    lease = stack.enter_context(
      directory_claim.open_directory(setup, loaders, fingerprint, gin_config)
    )
    run = training_run.TrainingRun(
      setup, loaders, fingerprint, lease=lease, report=report
    )
    run.add_hooks(defaults.default_hooks(run))
    run.add_hooks(copy.deepcopy(trainer.hooks))
    return run_steps(run)


def run_steps(run: training_run.TrainingRun) -> dict[str, Any]:
  """Executes the remaining steps and saves a checkpoint at the end."""
  with run.open():
    run.restore_or_initialize()
    try:
      run.before_training()
      while run.step < run.trainer.last_step and not run.stop_requested:
        active = run.trainer.objectives.active(run.step)
        batches = run.next_batches(active)
        train_step = run.step_function(active)
        with run.clock.waiting():
          run.state, output = train_step(run.state, batches)
        run.carry_out(run.after_step(output))
      if run.step != run.first_step:
        run.save()
    finally:
      run.close()
    return run.summary()
