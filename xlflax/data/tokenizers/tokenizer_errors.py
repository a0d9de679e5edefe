"""Conversion of errors from the `tokenizers` library to a VocabularyError."""

import contextlib
from collections.abc import Iterator

from xlflax.utils import errors


@contextlib.contextmanager
def converting_tokenizer_errors(message: str) -> Iterator[None]:
  """Context manager that converts `tokenizers` exceptions to VocabularyError.

  The library's panics do not derive from `Exception`, so `except Exception`
  does not catch them.

  Args:
    message: Message of the VocabularyError.
  """
  try:
    yield
  except (KeyboardInterrupt, SystemExit, GeneratorExit, errors.XlflaxError):
    raise
  except BaseException as error:
    is_panic = type(error).__name__ == 'PanicException'
    if not isinstance(error, Exception) and not is_panic:
      raise
    raise errors.VocabularyError(
      message,
      got=f'{type(error).__name__}: {error}'[:300],
      fix="Download the tokenizer from the model's publisher again.",
    ) from error
