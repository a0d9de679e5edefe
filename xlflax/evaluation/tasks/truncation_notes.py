"""Notes on truncated sentences in the results of evaluation tasks."""

from xlflax.utils import plurals


def format_truncated(count: int, name: str) -> str:
  """Formats a number of truncated sentences.

  For example, for 1 sentence of the language `de`, the result is '1 sentence of
  de was truncated'.

  Args:
    count: Number of sentences.
    name: Language, language pair or split of the sentences.
  """
  verb = 'was' if count == 1 else 'were'
  return f'{plurals.format_count(count, "sentence")} of {name} {verb} truncated'
