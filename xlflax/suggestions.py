"""Names that resemble a misspelt one, for messages."""

import difflib
from collections.abc import Iterable

_MANY = 20  # names that a message lists


def close(got: str, names: Iterable[str], *, most: int = 3) -> list[str]:
  """Returns the names that resemble `got`, the closest first.

  Letter case and the difference between - and _ do not count.

  Args:
    got: what was written.
    names: what there is.
    most: how many are returned.
  """
  plain: dict[str, str] = {}
  for name in names:
    plain.setdefault(_plain(name), name)
  found = difflib.get_close_matches(
    _plain(got), list(plain), n=most, cutoff=0.6
  )
  return [plain[name] for name in found]


def did_you_mean(got: str, names: Iterable[str]) -> str | None:
  """Returns 'did you mean a or b?', or None if nothing resembles `got`."""
  found = close(got, names)
  return f'did you mean {" or ".join(found)}?' if found else None


def or_else(got: str, names: Iterable[str], text: str) -> str:
  """Returns 'Did you mean a? text', or the text alone."""
  found = did_you_mean(got, names)
  return f'{found} {text}' if found else text


def some_of(names: Iterable[str]) -> str:
  """Returns 'one of a, b, c', not longer than a person reads."""
  listed = sorted(names)
  more = f' and {len(listed) - _MANY} more' if len(listed) > _MANY else ''
  return f'one of {", ".join(listed[:_MANY])}{more}'


def _plain(name: str) -> str:
  return name.lower().replace('-', '_')
