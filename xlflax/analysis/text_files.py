"""Text of one language each, from plain files."""

import dataclasses
import itertools
from collections.abc import Mapping

from xlflax import errors
from xlflax.data.labelled.readers import files
from xlflax.evaluation import sources


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles(sources.TextSource):
  """Files of one sentence a line.

  Attributes:
    files: language -> file; .gz and .zst are read, too.
    max_lines: the first so many of a language; None: all.
  """

  files: Mapping[str, str]
  max_lines: int | None = None

  def languages_found(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, language: str) -> list[str]:
    """The lines of a language that are not blank.

    Raises:
      CorpusError: there is no file of it, or no text in it.
    """
    if language not in self.files:
      raise errors.CorpusError('There is no text of a language', got=language,
                               expected='some of ' + ', '.join(self.files))
    lines = (text for _, text in files.read_lines(self.files[language])
             if text.strip())
    found = list(itertools.islice(lines, self.max_lines))
    if not found:
      raise errors.CorpusError('A file of text is empty',
                               where=self.files[language])
    return found
