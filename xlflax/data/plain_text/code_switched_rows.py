"""Code-switching of a task's rows."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching import STEP, Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching

FEATURE = 'targets'


class SwitchedRows:
  """The step that switches `targets`, by groups of examples.

  With the dictionary `cat Katze` and a probability and a share of 1, before:
  `{'targets': 'the cat'}`; after: `{'targets': 'the Katze'}`. Other features
  stay. The dictionaries are read when the step is first used.

  Attributes:
    settings: how often, how much, into which languages; how many copies.
    dictionaries: what it was made of.
  """

  def __init__(
    self,
    task: str,
    language: str,
    dictionaries: Sequence[Dictionary | str | os.PathLike],
    settings: CodeSwitching,
  ):
    """Makes the step of a task.

    Args:
      task: its name, which the draws depend on.
      language: of the text.
      dictionaries: themselves, or `tsv` files named `<l1>-<l2>[.…]`.
      settings: see `CodeSwitching`.
    """
    self.__name__ = STEP
    self._task, self._language = task, language
    self.dictionaries = tuple(dictionaries)
    self.settings = settings

  @functools.cached_property
  def switcher(self) -> Switcher:
    """Of the task's language; errors as those of `Switcher`."""
    dictionaries = [
      d if isinstance(d, Dictionary) else Dictionary.read(d)
      for d in self.dictionaries
    ]
    return Switcher(self._language, dictionaries, self.settings)

  def fingerprint(self) -> dict:
    """What the step's result depends on; see `Switcher.fingerprint`."""
    return self.switcher.fingerprint()

  def rows(
    self, rows: Iterable[tuple], names: Sequence[str], start: int
  ) -> Iterator[tuple]:
    """Switches rows of a source from example `start` on.

    Args:
      rows: all rows of the source.
      names: of their columns.
      start: examples passed over.
    """
    column, size = names.index(FEATURE), self.settings.group_lines
    first = start - start % size
    rows = itertools.islice(rows, first, None)
    for number in itertools.count(first, size):
      block = list(itertools.islice(rows, size))
      if not block:
        return
      lines = self.switcher.switch(
        [row[column] for row in block], name=self._task, first=number
      ).lines
      switched = (
        row[:column] + (line,) + row[column + 1 :]
        for row, line in zip(block, lines, strict=True)
      )
      yield from itertools.islice(switched, max(start - number, 0), None)
