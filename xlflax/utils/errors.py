"""Errors caused by input, configuration or environment, not by a bug.

Each says in one message what was wrong, what was got, what was expected,
where, and what to do. The command line prints that message without a
traceback and exits with the error's status; every other exception keeps its
traceback.
"""

import contextlib
import enum
import errno
import os
import re
from collections.abc import Iterable, Iterator

_LONGEST = 10_000  # characters of a value in a message
# What may be otherwise when a command is started again.
_PASSING = frozenset(
  (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EREMOTEIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOLCK,
    errno.EBUSY,
    errno.EAGAIN,
    errno.EINTR,
    errno.EFBIG,  # `ulimit -f`
  )
)
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
# The file is not there, or is another kind of file: what a reader says of it.
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# What does not answer now may answer later; EIO can be a lasting damage.
_AWAY = _PASSING - _FULL - {errno.EIO}
_DEVICE_FULL = 'RESOURCE_EXHAUSTED'  # what XLA's message begins with
_AWAY_TEXT = re.compile(
  '|'.join(
    [
      'ABORTED|DEADLINE_EXCEEDED|UNAVAILABLE|TimeoutError',
      *(re.escape(os.strerror(number)) for number in sorted(_AWAY)),
    ]
  )
)


class ExitStatus(enum.IntEnum):
  """How a command ended, as schedulers read it; the table of docs/launch.md.

  Whatever is neither 0 nor MISTAKE is worth starting again. BUG is for bugs
  only: parts that failed have their own status (`joint_status`).
  """

  DONE = 0
  BUG = 1  # an exception that nobody foresaw, with its traceback
  MISTAKE = 2  # of the user; starting again cannot mend it
  FAILURE = 74  # of the environment; starting again may mend it
  STOPPED = 75  # a signal stopped the run, which saved and can be continued
  INTERRUPTED = 130  # by a signal with nothing to save, or by `| head`


def joint_status(statuses: Iterable[int]) -> ExitStatus:
  """Returns the status of a command whose parts ended with these.

  What another start can mend counts before what it cannot: the parts that are
  done are not computed again.
  """
  order = (
    ExitStatus.STOPPED,
    ExitStatus.BUG,
    ExitStatus.FAILURE,
    ExitStatus.MISTAKE,
  )
  distinct = set(statuses)
  return next(
    (status for status in order if status in distinct), ExitStatus.DONE
  )


class XlflaxError(Exception):
  """A user's mistake or a failure of the environment, told in one message.

  Attributes:
    what: one sentence that says what is wrong.
    got: the offending value, if there is one.
    expected: what would have been right.
    where: file:line, gin binding, task, example index or step.
    fix: what to do about it.
    status: exit status of a command that it ends; FAILURE where nobody made
      a mistake and the same command may succeed later. An error that was
      raised from what the system refuses for now has it by itself.
  """

  def __init__(
    self,
    what: str,
    *,
    got=None,
    expected=None,
    where=None,
    fix=None,
    status: ExitStatus = ExitStatus.MISTAKE,
  ):
    self.what = what
    self.got = got
    self.expected = expected
    self.where = where
    self.fix = fix
    self._status = ExitStatus(status)
    super().__init__(what, got, expected, where, fix, self._status)

  @property
  def status(self) -> ExitStatus:
    passing = is_passing(self.__cause__)
    if self._status is ExitStatus.MISTAKE and passing:
      return ExitStatus.FAILURE
    return self._status

  @property
  def parts(self) -> dict[str, str | int]:
    """The parts that the message has, by their names, and the status."""
    named = ('what', 'got', 'expected', 'where', 'fix')
    fields = {name: getattr(self, name) for name in named}
    return {k: str(v) for k, v in fields.items() if v is not None} | {
      'status': int(self.status)
    }

  def __reduce__(self):
    # Keyword arguments don't pass between processes by themselves.
    return _rebuild, (type(self), (*self.args[:-1], self.status))

  def __str__(self) -> str:
    parts = [self.what.rstrip('.') + '.']
    labels = (
      ('Got', self.got),
      ('Expected', self.expected),
      ('Where', self.where),
      ('What to do', self.fix),
    )
    parts += [
      f'{label}: {text}' + ('' if text.endswith(('.', '?', '\n')) else '.')
      for label, text in (
        (label, _clipped(str(value)))
        for label, value in labels
        if value is not None
      )
    ]
    return ' '.join(parts)


def _clipped(text: str) -> str:
  """A text that people can still read; input can be a line of megabytes."""
  if len(text) <= _LONGEST:
    return text
  return f'{text[:_LONGEST]} … ({len(text):,} characters)'


def is_passing(error: BaseException | None) -> bool:
  """Whether the system refuses what it may allow later: no mistake."""
  return isinstance(error, OSError) and error.errno in _PASSING


@contextlib.contextmanager
def naming_path(path: str | os.PathLike) -> Iterator[None]:
  """Context in which what the system refuses without a name gets this one.

  A write to an open file does not say which one it was.
  """
  try:
    yield
  except OSError as error:
    if error.filename is None and error.errno is not None:
      error.filename = os.fspath(path)
    raise


def check_system(error: BaseException, where: str | os.PathLike) -> None:
  """Raises what the operating system refuses: that is no damage of a file.

  Args:
    error: what a reader got; nothing is raised for a file that is missing, or
      that has another content than expected.
    where: the file.
  """
  if not isinstance(error, OSError) or isinstance(error, _MISSING):
    return
  if error.errno is not None:  # else it is of a compressed file's content
    raise of_os_error(error, where=where) from error


def of_os_error(
  error: OSError, where: str | os.PathLike | None = None
) -> XlflaxError:
  """What the operating system refuses, with the file's name.

  Args:
    error: what it says.
    where: the file, where the error has no name.
  """
  lasting = not is_passing(error)
  return XlflaxError(
    'A file or directory cannot be used',
    got=error.strerror or f'{type(error).__name__}: {error}',
    where=error.filename or where,
    fix='look whether it is there, and at its permissions'
    if lasting
    else 'mend the disk, free space, or wait, and start again',
    status=ExitStatus.MISTAKE if lasting else ExitStatus.FAILURE,
  )


def of_full_device(error: BaseException) -> XlflaxError | None:
  """What an accelerator says that has no memory left; None for other errors.

  Args:
    error: such as JAX's.
  """
  text = str(error)
  if not isinstance(error, RuntimeError) or _DEVICE_FULL not in text:
    return None
  return XlflaxError(
    'A device is out of memory',
    got=' '.join(text.partition(_DEVICE_FULL)[2].split())[:300].strip(': '),
    fix='look at the plan of `xlflax train --dry_run`; raise '
    'Trainer.accumulation, recompute layers by EncoderConfig.remat, take a '
    'smaller batch or more devices (docs/trouble.md#out-of-memory)',
    status=ExitStatus.FAILURE,
  )


def is_away(error: BaseException) -> bool:
  """Whether a file system, bucket or machine does not answer for now."""
  if isinstance(error, TimeoutError | ConnectionError):
    return True
  return getattr(error, 'errno', None) in _AWAY or bool(
    _AWAY_TEXT.search(error_reason(error))
  )


def system_reason(error: BaseException) -> str | None:
  """Why the system refused, where a library's long message says it.

  Returns:
    Such as 'No space left on device'; None where it is something else.
  """
  text = str(error)
  reasons = (os.strerror(number) for number in sorted(_PASSING))
  return next((reason for reason in reasons if reason in text), None)


def error_reason(error: BaseException) -> str:
  """What an error was got; names of files may say anything."""
  return str(error.got if isinstance(error, XlflaxError) else error)


def _rebuild(kind, arguments):
  message, got, expected, where, fix, status = arguments
  return kind(
    message, got=got, expected=expected, where=where, fix=fix, status=status
  )


class ConfigError(XlflaxError):
  """A gin file, binding, flag or combination of settings is wrong."""


class CorpusError(XlflaxError):
  """A corpus directory, text file, task or mixture is unusable."""


class VocabularyError(XlflaxError):
  """A vocabulary is missing, malformed, or does not fit the model."""


class CacheError(XlflaxError):
  """A token cache is missing, incomplete or stale."""


class CheckpointError(XlflaxError):
  """A checkpoint can't be written, read or matched to the model."""


class RunDirectoryError(XlflaxError):
  """A model directory is in use by another configuration or is no run."""


class TrainingError(XlflaxError):
  """A run can't continue (non-finite loss, lost peer)."""


class AnalysisError(XlflaxError):
  """States, pairs or a dictionary can't be analysed."""
