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


def format_truncated(count: int, name: str) -> str:
  """Formats a number of truncated sentences.

  For example, for 1 sentence of the language `de`, the result is '1 sentence of
  de was truncated'.

  Args:
    count: Number of sentences.
    name: Language, language pair or split of the sentences.
  """
  verb = 'was' if count == 1 else 'were'
  return f'{format_count(count, "sentence")} of {name} {verb} truncated'
