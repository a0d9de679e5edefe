"""Decorators that validate the first argument of a vocabulary's methods.

Because batches of texts are large, their elements are validated only after the
tokenization library has raised an error.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xlflax.utils import errors, validation

Method = Callable[..., Any]


def check_index(index: Any, size: int, *, where: str) -> None:
  """Checks that a value is a token id of a vocabulary.

  Args:
    index: Value to check.
    size: Number of tokens in the vocabulary.
    where: Location of the value to report in the error message.

  Raises:
    VocabularyError: If the value is not an integer in [0, size).
  """
  is_integer = not isinstance(index, bool) and hasattr(index, '__index__')
  if not is_integer or not 0 <= index < size:
    raise errors.VocabularyError(
      f'The token id must be an integer between 0 and {size - 1}',
      got=index if is_integer else repr(index),
      where=where,
      fix='Use an id that `encode` or `piece_id` returns.',
    )


def validate_texts(method: Method) -> Method:
  """Wraps a method to check that its argument `texts` contains only texts."""
  where = f'Vocabulary.{method.__name__}.texts'

  @functools.wraps(method)
  def call(self, texts, **options):
    # A single string is a sequence of characters, each of which would be
    # encoded as a text.
    if isinstance(texts, str | bytes):
      validation.validate(texts, Sequence[str | bytes], name=where)
    try:
      return method(self, texts, **options)
    except (TypeError, AttributeError):
      validation.validate(texts, Sequence[str | bytes], name=where)
      raise

  return call


def validate_ids(method: Method) -> Method:
  """Wraps a method to check that its argument `ids` contains only token ids."""
  where = f'Vocabulary.{method.__name__}.ids'

  @functools.wraps(method)
  def call(self, ids, **options):
    id_list = list(validation.validate(ids, Iterable[Any], name=where))
    for index in id_list:
      check_index(index, self.spec.size, where=where)
    return method(self, id_list, **options)

  return call


def validate_id(method: Method) -> Method:
  """Wraps a method to check that its argument `index` is a token id."""
  where = f'Vocabulary.{method.__name__}.index'

  @functools.wraps(method)
  def call(self, index, **options):
    check_index(index, self.spec.size, where=where)
    return method(self, index, **options)

  return call


def validate_token(method: Method) -> Method:
  """Wraps a method to check that its argument `piece` is a string."""
  where = f'Vocabulary.{method.__name__}.piece'

  @functools.wraps(method)
  def call(self, piece, **options):
    return method(self, validation.validate(piece, str, name=where), **options)

  return call


# Name of a method of `Vocabulary` -> its decorator.
DECORATORS: dict[str, Callable[[Method], Method]] = {
  'encode_ragged': validate_texts,
  'encode_batch': validate_texts,
  'decode': validate_ids,
  'piece': validate_id,
  'bare_piece': validate_id,
  'is_byte': validate_id,
  'piece_id': validate_token,
}
