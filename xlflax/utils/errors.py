"""Errors caused by input, configuration or environment rather than by bugs.

The message of each error consists of the problem, the value, the expected
value, the location and a hint. The problem and the hint are sentences. The
other parts are values, such as a number, a list of choices or a path. The
command line prints the message without a traceback and exits with the status of
the error. All other exceptions keep their traceback.
"""

import contextlib
import enum
import errno
import os
import re
from collections.abc import Iterable, Iterator

# Maximum number of characters of a value in a message.
_MAX_VALUE_LENGTH = 10_000
# System errors that may not occur again when a command is restarted.
_TEMPORARY = frozenset(
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
# The file does not exist or is not a regular file. The caller reports it.
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# Errors of a service that is temporarily unavailable. EIO is not one of them,
# because the damage can be permanent.
_UNAVAILABLE = _TEMPORARY - _FULL - {errno.EIO}
_DEVICE_FULL = 'RESOURCE_EXHAUSTED'  # Prefix of the messages of XLA.
_UNAVAILABLE_TEXT = re.compile(
  '|'.join(
    [
      'ABORTED|DEADLINE_EXCEEDED|UNAVAILABLE|TimeoutError',
      *(re.escape(os.strerror(number)) for number in sorted(_UNAVAILABLE)),
    ]
  )
)


class ExitStatus(enum.IntEnum):
  """Exit status of a command, as documented in docs/launch.md.

  Schedulers should restart a command unless its status is DONE or MISTAKE. BUG
  is reserved for bugs: a command with failed parts returns the
  `joint_status` of its parts.
  """

  DONE = 0
  BUG = 1  # An unexpected exception, which is printed with its traceback.
  MISTAKE = 2  # A mistake of the user, which a restart does not correct.
  FAILURE = 74  # A failure of the environment, which a restart may overcome.
  STOPPED = 75  # A signal stopped the run, which can be resumed.
  INTERRUPTED = 130  # A signal or a closed pipe; there was nothing to save.


def joint_status(statuses: Iterable[int]) -> ExitStatus:
  """Combines the exit statuses of a command's tasks or runs into one status.

  The status of a task or run that may succeed after a restart takes precedence,
  because a restart does not repeat those that are finished.

  Args:
    statuses: The exit status of each task or run.
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
  """Error caused by a user's mistake or a failure of the environment.

  Attributes:
    what: Sentences that describe the problem and the requirement.
    got: The invalid value. If None, the message contains no value.
    expected: The valid values, or None.
    where: The location: file:line, gin binding, task, example index or step.
    fix: A hint on how to solve the problem, or None.
    status: Exit status of the command if the error ends it. FAILURE means that
      the same command may succeed later without a change. The status is always
      FAILURE if the cause is a temporary error of the operating system.
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
    """Exit status of a command that ends with this error."""
    passing = is_temporary(self.__cause__)
    if self._status is ExitStatus.MISTAKE and passing:
      return ExitStatus.FAILURE
    return self._status

  @property
  def parts(self) -> dict[str, str | int]:
    """Exit status and all message fields that have a value, by name."""
    named = ('what', 'got', 'expected', 'where', 'fix')
    fields = {name: getattr(self, name) for name in named}
    return {k: str(v) for k, v in fields.items() if v is not None} | {
      'status': int(self.status)
    }

  def __reduce__(self):
    # By default, pickle drops the keyword arguments of an exception.
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
        (label, _shorten(str(value)))
        for label, value in labels
        if value is not None
      )
    ]
    return ' '.join(parts)


def _shorten(text: str) -> str:
  """Truncates a text that is longer than `_MAX_VALUE_LENGTH`."""
  if len(text) <= _MAX_VALUE_LENGTH:
    return text
  return f'{text[:_MAX_VALUE_LENGTH]} … ({len(text):,} characters)'


def line_location(path: str | os.PathLike, line: int) -> str:
  """Returns the location of a line in a file, such as 'data/en.txt:3'.

  Args:
    path: The path of the file.
    line: The one-based number of the line.
  """
  return f'{os.fspath(path)}:{line}'


def field_location(owner: object, name: str) -> str:
  """Returns the location of a field, such as 'EncoderConfig.activation'.

  Locations of this form are extended with the file and the line of the gin
  binding that sets the field.

  Args:
    owner: The object with the invalid field, or its class.
    name: The name of the field or of an argument.
  """
  owner_class = owner if isinstance(owner, type) else type(owner)
  return f'{owner_class.__name__}.{name}'


def describe_problem(error: XlflaxError) -> str:
  """Formats an error's message and value, without its location and hint.

  Args:
    error: The error to describe, for example in a list of problems.
  """
  problem = error.what.rstrip('.')
  return problem if error.got is None else f'{problem}. Got: {error.got}'


def is_temporary(error: BaseException | None) -> bool:
  """Returns whether an operating-system error may be temporary."""
  return isinstance(error, OSError) and error.errno in _TEMPORARY


@contextlib.contextmanager
def add_path_to_errors(path: str | os.PathLike) -> Iterator[None]:
  """Context manager that adds a path to operating-system errors that lack one.

  For example, the error of a write to an open file does not contain the path.

  Args:
    path: Path of the file or directory that is accessed inside the context
      manager.
  """
  try:
    yield
  except OSError as error:
    if error.filename is None and error.errno is not None:
      error.filename = os.fspath(path)
    raise


def raise_if_system_error(
  error: BaseException, where: str | os.PathLike
) -> None:
  """Raises an error if the operating system could not read a file.

  Nothing is raised for a missing file or unexpected content, which the caller
  reports.

  Args:
    error: The error raised by the reader.
    where: The path of the file.

  Raises:
    XlflaxError: If `error` was caused by the operating system.
  """
  if not isinstance(error, OSError) or isinstance(error, _MISSING):
    return
  # Errors in the content of compressed files have no number.
  if error.errno is not None:
    raise convert_os_error(error, where=where) from error


def convert_os_error(
  error: OSError, where: str | os.PathLike | None = None
) -> XlflaxError:
  """Creates the error for a file that the operating system cannot access.

  Args:
    error: The error raised by the operating system.
    where: Path of the file. It is used if the error does not contain a path.
  """
  lasting = not is_temporary(error)
  return XlflaxError(
    'A file or directory cannot be accessed',
    got=error.strerror or f'{type(error).__name__}: {error}',
    where=error.filename or where,
    fix='Check that the path exists, and check its permissions.'
    if lasting
    else 'Check the disk and its free space, or wait. Then run the command '
    'again.',
    status=ExitStatus.MISTAKE if lasting else ExitStatus.FAILURE,
  )


def convert_out_of_memory_error(error: BaseException) -> XlflaxError | None:
  """Creates the error for an accelerator that ran out of memory.

  Args:
    error: An exception raised by JAX.

  Returns:
    The error, or None if `error` has another cause.
  """
  text = str(error)
  if not isinstance(error, RuntimeError) or _DEVICE_FULL not in text:
    return None
  return XlflaxError(
    'A device is out of memory',
    got=' '.join(text.partition(_DEVICE_FULL)[2].split())[:300].strip(': '),
    fix='Check the memory estimate of `xlflax train --dry_run`. Increase '
    'Trainer.gradient_accumulation_steps, enable EncoderConfig.remat, or use a '
    'smaller batch or more devices (docs/trouble.md#out-of-memory).',
    status=ExitStatus.FAILURE,
  )


def is_unavailable(error: BaseException) -> bool:
  """Returns whether a storage system or host is temporarily unavailable."""
  if isinstance(error, TimeoutError | ConnectionError):
    return True
  return getattr(error, 'errno', None) in _UNAVAILABLE or bool(
    _UNAVAILABLE_TEXT.search(error_reason(error))
  )


def system_reason(error: BaseException) -> str | None:
  """Extracts the operating system's reason from a library's long message.

  Args:
    error: The error raised by the library.

  Returns:
    The reason, such as 'No space left on device', or None if the message
    contains no temporary error of the system.
  """
  text = str(error)
  reasons = (os.strerror(number) for number in sorted(_TEMPORARY))
  return next((reason for reason in reasons if reason in text), None)


def error_reason(error: BaseException) -> str:
  """Returns the part of an error's text in which to search for known phrases.

  For an `XlflaxError`, this part is only the value, because the paths in other
  fields could contain such a phrase by chance.
  """
  return str(error.got if isinstance(error, XlflaxError) else error)


def _rebuild(kind, arguments):
  """Recreates an error in another process, for pickle."""
  message, got, expected, where, fix, status = arguments
  return kind(
    message, got=got, expected=expected, where=where, fix=fix, status=status
  )


class ConfigError(XlflaxError):
  """Error for an invalid gin file, binding, flag or combination of settings."""


class CorpusError(XlflaxError):
  """Error for an invalid corpus directory, text file, task or mixture."""


class BadRecordError(CorpusError):
  """Error for an unusable line or record of a text file.

  The other lines or records of the file can still be read. The sentence `what`
  does not contain values, so that equal problems can be counted.
  """


class TextColumnError(BadRecordError):
  """Error for a line or record whose text columns cannot be identified.

  The format of the file or the settings in `corpus.toml` are probably wrong,
  rather than the record, so all records of the file may be unusable.
  """


class FileConversionError(BadRecordError):
  """Error for an unusable line of a file that may have to be converted.

  The same problem often occurs in all lines of a file. The hint `fix` describes
  how to convert the complete file.
  """


class VocabularyError(XlflaxError):
  """Error for a missing, malformed or incompatible vocabulary."""


class CacheError(XlflaxError):
  """Error for a token cache that is missing, incomplete or outdated."""


class CheckpointError(XlflaxError):
  """Error for a checkpoint that cannot be saved, loaded or used by a model."""


class RunDirectoryError(XlflaxError):
  """Error for a directory that has no run or a run with different settings."""


class TrainingError(XlflaxError):
  """Error for a failed run, for example after a non-finite loss."""


class AnalysisError(XlflaxError):
  """Error for hidden states, pairs or dictionaries that cannot be analyzed."""
