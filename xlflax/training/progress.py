"""Progress of a run: one live line on a terminal, plain lines in a log."""

import logging
import sys
import time

import rich.console
import rich.progress


class Progress:
  """Speed, and lines such as 'step 120/5,000 | loss 3.21 | 9,800 tok/s'.

  Args:
    total_steps: where the run ends.
    flops_per_step: model FLOPs of one step over all devices, or None.
    peak_flops: peak FLOP/s of all devices together, or None for no MFU.
    enabled: whether this process reports.
  """

  def __init__(
    self,
    *,
    first_step: int,
    total_steps: int,
    flops_per_step: float | None,
    peak_flops: float | None,
    enabled: bool = True,
  ):
    self._total = total_steps
    self._flops = flops_per_step
    self._peak = peak_flops
    self._enabled = enabled
    self._step = first_step
    self._time = time.perf_counter()
    self._seconds_per_step: float | None = None
    self._live = self._open_live(first_step)

  def _open_live(self, first_step):
    if not (self._enabled and sys.stderr.isatty()):
      return None
    live = rich.progress.Progress(
      rich.progress.TextColumn('{task.description}'),
      rich.progress.BarColumn(),
      rich.progress.MofNCompleteColumn(),
      rich.progress.TimeElapsedColumn(),
      rich.progress.TimeRemainingColumn(),
      console=rich.console.Console(stderr=True),
      transient=True,
    )
    live.start()
    self._task = live.add_task(
      'training', total=self._total, completed=first_step
    )
    return live

  def advance(self, step: int) -> None:
    """Moves the live bar."""
    if self._live:
      self._live.update(self._task, completed=step)

  def restart_clock(self, step: int) -> None:
    """Leaves what happened until now (compilation, evaluation) out of speed."""
    self._step, self._time = step, time.perf_counter()

  def report(
    self, step: int, loss: float, tokens_per_step: float
  ) -> dict[str, float]:
    """Prints a line; returns the speed since the last report.

    Args:
      step: finished steps.
      loss: mean loss since the last report.
      tokens_per_step: mean tokens of a step since then; the clock may have
        been restarted in between, so it is no total.

    Returns:
      'seconds_per_step', 'tokens_per_second' and, where known, 'mfu'.
    """
    now = time.perf_counter()
    steps, seconds = step - self._step, now - self._time
    self._step, self._time = step, now
    if steps <= 0 or seconds <= 0:
      return {}
    speed = {
      'seconds_per_step': seconds / steps,
      'tokens_per_second': tokens_per_step * steps / seconds,
    }
    if self._flops and self._peak:
      speed['mfu'] = self._flops * steps / seconds / self._peak
    self._print(step, loss, speed)
    return speed

  def _print(self, step, loss, speed) -> None:
    if not self._enabled:
      return
    left = (self._total - step) * speed['seconds_per_step']
    parts = [
      f'step {step:,}/{self._total:,}',
      f'loss {loss:.4f}',
      f'{speed["tokens_per_second"]:,.0f} tok/s',
    ]
    if 'mfu' in speed:
      parts.append(f'MFU {100 * speed["mfu"]:.1f} %')
    parts.append(f'ETA {duration(left)}')
    if self._live:
      self._live.update(
        self._task, completed=step, description=' | '.join(parts[1:4])
      )
    else:
      logging.info(' | '.join(parts))

  def close(self) -> None:
    if self._live:
      self._live.stop()


def duration(seconds: float) -> str:
  """'2 d 03:04:05' or '03:04:05'."""
  days, rest = divmod(int(seconds), 86400)
  text = f'{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}'
  return f'{days} d {text}' if days else text
