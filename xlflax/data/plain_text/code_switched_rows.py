"""Code-switching of the rows of a task."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching import STEP, Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching

FEATURE = 'targets'


class SwitchedRows:
  """Preprocessing step that code-switches `targets` in groups of examples.

  With the dictionary `cat Katze` and a probability and a ratio of 1,
  `{'targets': 'the cat'}` becomes `{'targets': 'the Katze'}`. Other features
  are not changed. The dictionaries are read when the step is first used.

  Attributes:
    settings: Probability, ratio, target languages and copies of the
      code-switching.
    dictionaries: Dictionaries, or their paths.
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
      language: Language of the text.
      dictionaries: Dictionaries, or paths of `tsv` files named `<l1>-<l2>[.…]`.
      settings: Settings of the code-switching.
    """
    self.__name__ = STEP
    self._task, self._language = task, language
    self.dictionaries = tuple(dictionaries)
    self.settings = settings

  @functools.cached_property
  def switcher(self) -> Switcher:
    """Code-switcher of the language of the task."""
    dictionaries = [
      dictionary
      if isinstance(dictionary, Dictionary)
      else Dictionary.read(dictionary)
      for dictionary in self.dictionaries
    ]
    return Switcher(self._language, dictionaries, self.settings)

  def fingerprint(self) -> dict:
    """Returns the data that determines the result of the step.

    See `Switcher.fingerprint`.
    """
    return self.switcher.fingerprint()

  def rows(
    self, rows: Iterable[tuple], names: Sequence[str], start: int
  ) -> Iterator[tuple]:
    """Yields the switched rows of a source from an example on.

    Args:
      rows: All rows of the source.
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
