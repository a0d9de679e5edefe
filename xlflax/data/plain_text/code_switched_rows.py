"""Preprocessing step that code-switches the examples of a task."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching import STEP, Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching

FEATURE = 'targets'


class SwitchedRows:
  """Preprocessing step that code-switches the feature `targets` of a task.

  The examples are processed in groups of consecutive examples. For example,
  with the dictionary `cat Katze`, a probability of 1 and a ratio of 1,
  `{'targets': 'the cat'}` becomes `{'targets': 'the Katze'}`. Other features
  are not changed. The dictionaries are read when the step is first used.

  Attributes:
    settings: Settings for code-switching, such as the probability of replacing
      a word and the target languages.
    dictionaries: Dictionaries, or paths of dictionary files.
  """

  def __init__(
    self,
    task: str,
    language: str,
    dictionaries: Sequence[Dictionary | str | os.PathLike],
    settings: CodeSwitching,
  ):
    """Creates the step of a task.

    Args:
      task: Name of the task, which is part of the random seed.
      language: Language code of the text.
      dictionaries: Dictionaries, or paths of `tsv` files that are named
        `<l1>-<l2>[.…]`.
      settings: Settings for code-switching.
    """
    self.__name__ = STEP
    self._task, self._language = task, language
    self.dictionaries = tuple(dictionaries)
    self.settings = settings

  @functools.cached_property
  def switcher(self) -> Switcher:
    """Code-switcher for text in the task's language."""
    dictionaries = [
      dictionary
      if isinstance(dictionary, Dictionary)
      else Dictionary.read(dictionary)
      for dictionary in self.dictionaries
    ]
    return Switcher(self._language, dictionaries, self.settings)

  def fingerprint(self) -> dict:
    """Returns JSON data that identifies the step's settings and dictionaries.

    See `Switcher.fingerprint`.
    """
    return self.switcher.fingerprint()

  def rows(
    self, rows: Iterable[tuple], names: Sequence[str], start: int
  ) -> Iterator[tuple]:
    """Yields the code-switched rows of a source after skipping `start` rows.

    Args:
      rows: All rows of the source, including the rows to skip.
      names: Names of the columns.
      start: Number of examples to skip.
    """
    column, size = names.index(FEATURE), self.settings.group_lines
    first_group_start = start - start % size
    rows = itertools.islice(rows, first_group_start, None)
    for group_start in itertools.count(first_group_start, size):
      group = list(itertools.islice(rows, size))
      if not group:
        return
      lines = self.switcher.switch(
        [row[column] for row in group], name=self._task, first=group_start
      ).lines
      switched = (
        row[:column] + (line,) + row[column + 1 :]
        for row, line in zip(group, lines, strict=True)
      )
      yield from itertools.islice(switched, max(start - group_start, 0), None)
