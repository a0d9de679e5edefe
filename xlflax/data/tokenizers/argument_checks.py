"""What the methods of every vocabulary are given, checked in one place.

Texts are many, so that they are looked at only where the library that encodes
them failed.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xlflax.utils import errors, validation

Method = Callable[..., Any]


def check_index(index: Any, size: int, *, where: str) -> None:
  """Raises a VocabularyError for what is no id of a vocabulary."""
  is_integer = not isinstance(index, bool) and hasattr(index, '__index__')
  if not is_integer or not 0 <= index < size:
    raise errors.VocabularyError(
      'No such id in the vocabulary',
      got=index if is_integer else repr(index),
      expected=f'0..{size - 1}',
      where=where,
      fix='take an id that encode gives, or piece_id of a piece',
    )


def of_texts(method: Method) -> Method:
  """Guards a method whose first argument is texts."""
  where = f'Vocabulary.{method.__name__}.texts'

  @functools.wraps(method)
  def call(self, texts, **options):
    if isinstance(texts, str | bytes):  # their letters would be encoded
      validation.validate(texts, Sequence[str | bytes], name=where)
    try:
      return method(self, texts, **options)
    except (TypeError, AttributeError):
      validation.validate(texts, Sequence[str | bytes], name=where)
      raise

  return call


def of_ids(method: Method) -> Method:
  """Guards a method whose first argument is ids."""
  where = f'Vocabulary.{method.__name__}.ids'

  @functools.wraps(method)
  def call(self, ids, **options):
    id_list = list(validation.validate(ids, Iterable[Any], name=where))
    for index in id_list:
      check_index(index, self.spec.size, where=where)
    return method(self, id_list, **options)

  return call


def of_id(method: Method) -> Method:
  """Guards a method whose first argument is an id."""
  where = f'Vocabulary.{method.__name__}.index'

  @functools.wraps(method)
  def call(self, index, **options):
    check_index(index, self.spec.size, where=where)
    return method(self, index, **options)

  return call


def of_piece(method: Method) -> Method:
  """Guards a method whose first argument is a piece."""
  where = f'Vocabulary.{method.__name__}.piece'

  @functools.wraps(method)
  def call(self, piece, **options):
    return method(self, validation.validate(piece, str, name=where), **options)

  return call


METHODS: dict[str, Callable[[Method], Method]] = {
  'encode_ragged': of_texts,
  'encode_batch': of_texts,
  'decode': of_ids,
  'piece': of_id,
  'bare_piece': of_id,
  'is_byte': of_id,
  'piece_id': of_piece,
}
