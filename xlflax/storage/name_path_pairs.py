"""Parsing of NAME=PATH arguments whose path may itself contain `=`."""

import os
import pathlib
import re

# Start of a second item, such as ',fr=' or ',en-fr='.
_NEXT_LANGUAGE = re.compile(r',\s*[a-z]{2,3}([_-]\w+)*=')


def split_name(text: str) -> tuple[str, str]:
  """Splits 'NAME=PATH' into (name, path). A missing name becomes ''.

  For example, 'MLM=runs/mlm' becomes ('MLM', 'runs/mlm'). A name contains no
  path separator, so 'trials/SEED=0' becomes ('', 'trials/SEED=0'). A text that
  is an existing path has no name. If there are several `=`, the text is split
  at the first one that is followed by an existing path, or else at the first
  one.
  """
  if _exists(text):
    return '', text
  positions = [
    i
    for i, character in enumerate(text)
    if character == '=' and i and not {'/', os.sep} & set(text[:i])
  ]
  if not positions:
    return '', text
  position = next(
    (i for i in positions if _exists(text[i + 1 :])), positions[0]
  )
  return text[:position], text[position + 1 :]


def contains_several(text: str) -> bool:
  """Returns whether a text is a list such as 'fr=a.txt,sw=b.txt'.

  The names must look like language codes or pairs of them. A text whose path
  exists is a single item.
  """
  if not split_name(text)[0]:
    return False
  path = text.partition('=')[2]
  return _NEXT_LANGUAGE.search(path) is not None and not _exists(path)


def split_end(text: str) -> tuple[str, str]:
  """Splits PATH@END into (path, end), where END is a split or a step.

  For example, 'corpus@valid' becomes ('corpus', 'valid'). A missing end becomes
  ''. A text that is an existing path has no end, and an '@' in a parent
  directory is not a separator.
  """
  path, at, end = text.rpartition('@')
  if not (path and at) or {'/', os.sep} & set(end) or _exists(text):
    return text, ''
  return path, end


def _exists(text: str) -> bool:
  """Returns whether a path exists on disk. Buckets are not checked."""
  if not text or '://' in text:
    return False
  try:
    return pathlib.Path(text).expanduser().exists()
  except (OSError, ValueError, RuntimeError):
    return False
