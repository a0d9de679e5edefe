"""Flags that name the file of a language: LANGUAGE=FILE."""

from collections.abc import Sequence

from xlflax.foundation import errors
from xlflax.storage import names


def parse(items: Sequence[str], *, where: str) -> dict[str, str]:
  """The files by language.

  Args:
    items: what a flag was given.
    where: the flag.
  """
  files = {}
  for item in items:
    language, path = names.split(item)
    if not (language and path) or language in files:
      raise errors.ConfigError(
        'An input is named wrongly',
        got=item,
        expected='LANGUAGE=FILE, each language once',
        where=where,
      )
    files[language] = path
  return files
