"""Progress reports of a run.

Progress is reported in log lines and, on a terminal, also in a live line below
the log lines.
"""

import logging
import threading
import time

from xlflax.utils import live_display

# XLA prints its banner "Very slow compile?" after two minutes.
_LONG_COMPILATION_SECONDS = 110.0
# Maximum time without a log line between two reports.
_MAX_QUIET_SECONDS = 30.0


class Progress:
  """Logger of lines such as 'step 120/5,000 | loss 3.21 | 9,800 tok/s'.

  Args:
    first_step: Number of steps that were completed before training starts.
    total_steps: Step at which the run ends.
    flops_per_step: Model FLOPs of one step over all devices. If None, MFU is
      not reported.
    peak_flops: Peak FLOP/s of all devices together. If None, MFU is not
      reported.
    enabled: Whether this process logs progress.
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
    # Number of the first step of this process, and the time when it finished.
    self._first_step: tuple[int, float] | None = None
    self._last_log_time = self._time
    self._loss_text = 'compiling the first step'
    self._live_line = None
    self._compilation_timer = threading.Timer(
      _LONG_COMPILATION_SECONDS, _log_long_compilation
    )
    self._compilation_timer.daemon = True
    if enabled:
      self._compilation_timer.start()
      self._live_line = live_display.Line(
        f'{self._format_step(first_step)} | {self._loss_text}',
        total=total_steps,
      )

  def advance(self, step: int) -> None:
    """Updates the live progress line, or logs the progress at long intervals.

    Args:
      step: Number of completed steps.
    """
    if self._live_line is None or self._first_step is None:
      return
    current_time = time.perf_counter()
    if self._live_line.is_open:
      parts = [
        self._format_step(step),
        self._loss_text,
        *self._format_eta(step),
      ]
      self._live_line.show(' | '.join(parts), step)
    elif current_time - self._last_log_time > _MAX_QUIET_SECONDS:
      self._last_log_time = current_time
      logging.info(
        ' | '.join([self._format_step(step), *self._format_eta(step)])
      )

  def begin(self, step: int, loss: float, seconds: float) -> None:
    """Logs the loss and duration of the first step, and starts measuring speed.

    The measurement of the intervals between log lines also starts.

    Args:
      step: Number of completed steps.
      loss: Loss of the first step.
      seconds: Duration of the first step in seconds, including compilation.
    """
    self._compilation_timer.cancel()
    self.restart(step)
    self._first_step = (step, self._time)
    self._last_log_time = self._time
    self._loss_text = f'loss {loss:.4f}'
    if self._live_line:
      logging.info(
        '%s | loss %.4f | first step: %s including compilation',
        self._format_step(step),
        loss,
        format_duration(seconds) if seconds >= 60 else f'{seconds:.1f} s',
      )

  def restart(self, step: int) -> None:
    """Restarts the speed measurement after a compilation or an evaluation.

    Args:
      step: Number of completed steps.
    """
    self._step, self._time = step, time.perf_counter()

  def _format_step(self, step: int) -> str:
    return f'step {step:,}/{self._total:,}'

  def _format_eta(self, step: int) -> list[str]:
    """Returns the remaining time, such as ['ETA 01:02:03'], or [] if unknown.

    The estimate is based on the time since the first step, including
    evaluations and checkpoints, which recur.
    """
    if self._first_step is None or step <= self._first_step[0]:
      return []
    first_step, start_time = self._first_step
    elapsed = time.perf_counter() - start_time
    seconds_per_step = elapsed / (step - first_step)
    return [f'ETA {format_duration((self._total - step) * seconds_per_step)}']

  def report(
    self, step: int, loss: float, tokens_per_step: float
  ) -> dict[str, float]:
    """Logs a progress line and returns the speed since the last report.

    Args:
      step: Number of completed steps.
      loss: Mean loss since the last report.
      tokens_per_step: Mean number of tokens per step since the last report. It
        is not a total, because the clock may have been restarted in between.

    Returns:
      'seconds_per_step', 'tokens_per_second' and, if known, 'mfu'.
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
    self._log(step, loss, speed)
    return speed

  def _log(self, step, loss, speed) -> None:
    """Logs the line of a report."""
    if self._live_line is None:
      return
    self._last_log_time = time.perf_counter()
    self._loss_text = f'loss {loss:.4f}'
    parts = [
      self._format_step(step),
      self._loss_text,
      f'{speed["tokens_per_second"]:,.0f} tok/s',
    ]
    if 'mfu' in speed:
      parts.append(f'MFU {100 * speed["mfu"]:.1f} %')
    parts += self._format_eta(step)
    logging.info(
      ' | '.join(parts),
      extra={
        'fields': dict(step=step, total_steps=self._total, loss=loss, **speed)
      },
    )

  def close(self) -> None:
    """Removes the live line from the screen."""
    self._compilation_timer.cancel()
    if self._live_line:
      self._live_line.close()


def _log_long_compilation() -> None:
  """Logs that the compilation of the first step takes long."""
  logging.info(
    'Still compiling the first step, which is required only once. If XLA logs '
    '"Very slow compile?", the message can be ignored.'
  )


def format_duration(seconds: float) -> str:
  """Formats a duration as 'HH:MM:SS' or 'D d HH:MM:SS'."""
  days, remaining_seconds = divmod(int(seconds), 86400)
  hours, remaining_seconds = divmod(remaining_seconds, 3600)
  minutes, seconds_left = divmod(remaining_seconds, 60)
  text = f'{hours:02d}:{minutes:02d}:{seconds_left:02d}'
  return f'{days} d {text}' if days else text
