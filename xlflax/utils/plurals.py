"""Nouns and verbs in messages, in the singular or the plural."""


def format_count(count: int, noun: str) -> str:
  """Formats a number and a noun, such as '1 step' and '1,000 steps'.

  Args:
    count: Number of things.
    noun: Singular of a noun whose plural ends in -s.
  """
  return f'{count:,} {pluralize(noun, count)}'


def pluralize(noun: str, count: int) -> str:
  """Returns a noun in the singular if the number is 1, or else in the plural."""
  return noun if count == 1 else f'{noun}s'
