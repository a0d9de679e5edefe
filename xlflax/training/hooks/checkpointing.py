"""Periodic checkpoints."""

from xlflax.training.hooks import base


class CheckpointHook(base.Hook):
  """Requests checkpoints, and reports those that could not be written."""

  def after_step(self, run, step, output):
    """See base class.

    Raises:
      CheckpointError: If a checkpoint could not be written in the background.
    """
    run.checkpoints.check()
    if step % run.trainer.checkpoints.every_steps == 0:
      return base.Request(save=True)
    return None
