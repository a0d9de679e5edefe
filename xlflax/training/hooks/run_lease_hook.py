"""Hook that checks that only this run writes to its model directory."""

from xlflax.training.hooks import hook_base


class RunLeaseHook(hook_base.Hook):
  """Hook that ends a run if another process has taken over its directory.

  The hook raises RunDirectoryError before the run writes to the directory.
  """

  def after_step(self, run, step, output):
    """See base class."""
    if run.is_report_step:
      self.before_checkpoint(run)

  def before_checkpoint(self, run):
    """See base class."""
    if run.lease:
      run.lease.check()
    return True
