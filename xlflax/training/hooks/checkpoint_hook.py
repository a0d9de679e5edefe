"""Hook that saves checkpoints periodically."""

from xlflax.training.hooks import hook_base


class CheckpointHook(hook_base.Hook):
  """Hook that requests periodic checkpoints and fails if a write failed."""

  def after_step(self, run, step, output):
    """See base class.

    Raises:
      CheckpointError: If a checkpoint could not be written in the background.
    """
    run.checkpoints.check()
    if step % run.trainer.checkpoints.save_interval_steps == 0:
      return hook_base.Request(save=True)
    return None
