"""Progress of a run: lines, and a live line below them on a terminal."""

import logging
import threading
import time

from xlflax.utils import live_display

# XLA prints its banner "Very slow compile?" after two minutes.
_LONG_COMPILATION = 110.0
_QUIET = 30.0  # seconds without a line in a log, within a report's interval


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
    self._step = first_step
    self._time = time.perf_counter()
    self._begun: tuple[int, float] | None = None
    self._told = self._time
    self._loss = 'the first step is compiled'
    self._live = None
    self._patience = threading.Timer(_LONG_COMPILATION, _tell_of_compilation)
    self._patience.daemon = True
    if enabled:
      self._patience.start()
      self._live = live_display.Line(
        f'{self._place(first_step)} | {self._loss}', total=total_steps
      )

  def advance(self, step: int) -> None:
    """Moves the live line; in a log, a line where none was for a while."""
    if self._live is None or self._begun is None:
      return
    current_time = time.perf_counter()
    if self._live.is_open:
      parts = [self._place(step), self._loss, *self._left(step)]
      self._live.show(' | '.join(parts), step)
    elif current_time - self._told > _QUIET:
      self._told = current_time
      logging.info(' | '.join([self._place(step), *self._left(step)]))

  def begin(self, step: int, loss: float, seconds: float) -> None:
    """Prints the line of the first step, and starts the clocks.

    Args:
      step: finished steps.
      loss: of the first one.
      seconds: that it took, compilation included.
    """
    self._patience.cancel()
    self.restart(step)
    self._begun = (step, self._time)
    self._told = self._time
    self._loss = f'loss {loss:.4f}'
    if self._live:
      logging.info(
        '%s | loss %.4f | the first step took %s, compilation included',
        self._place(step),
        loss,
        format_duration(seconds) if seconds >= 60 else f'{seconds:.1f} s',
      )

  def restart(self, step: int) -> None:
    """Leaves what happened until now (compilation, evaluation) out of speed."""
    self._step, self._time = step, time.perf_counter()

  def _place(self, step: int) -> str:
    return f'step {step:,}/{self._total:,}'

  def _left(self, step: int) -> list[str]:
    """['ETA 01:02:03'], from all since the first step; [] before it is known.

    Evaluations and checkpoints count: they will come again.
    """
    if self._begun is None or step <= self._begun[0]:
      return []
    first, start = self._begun
    seconds_per_step = (time.perf_counter() - start) / (step - first)
    return [f'ETA {format_duration((self._total - step) * seconds_per_step)}']

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
    current_time = time.perf_counter()
    steps, seconds = step - self._step, current_time - self._time
    self._step, self._time = step, current_time
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
    if self._live is None:
      return
    self._told = time.perf_counter()
    self._loss = f'loss {loss:.4f}'
    parts = [
      self._place(step),
      self._loss,
      f'{speed["tokens_per_second"]:,.0f} tok/s',
    ]
    if 'mfu' in speed:
      parts.append(f'MFU {100 * speed["mfu"]:.1f} %')
    parts += self._left(step)
    logging.info(
      ' | '.join(parts),
      extra={
        'fields': dict(step=step, total_steps=self._total, loss=loss, **speed)
      },
    )

  def close(self) -> None:
    """Takes the live line off the screen."""
    self._patience.cancel()
    if self._live:
      self._live.close()


def _tell_of_compilation() -> None:
  logging.info(
    'The first step is still being compiled, which happens once. XLA may ask '
    '"Very slow compile?": nothing is wrong, and there is no bug to report.'
  )


def format_duration(seconds: float) -> str:
  """'2 d 03:04:05' or '03:04:05'."""
  days, remaining_seconds = divmod(int(seconds), 86400)
  text = f'{remaining_seconds // 3600:02d}:{remaining_seconds % 3600 // 60:02d}:{remaining_seconds % 60:02d}'
  return f'{days} d {text}' if days else text
