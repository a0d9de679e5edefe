"""Sentence pairs in the file format of the Tatoeba test sets."""

import dataclasses
import pathlib
import re

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import text_sources
from xlflax.storage import bucket_staging
from xlflax.utils import class_registry, errors, line_splitting, validation


@class_registry.register('tatoeba')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tatoeba(text_sources.PairSource):
  """A folder with Tatoeba test sets, in the file format of LASER and XTREME.

  `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng` contain one sentence per line.
  Lines with the same number are translations of each other. A language is
  identified by its shortest code, with the script if it is not the usual one
  (`language_codes.normalize_code`).

  Attributes:
    directory: Folder that contains the files.
    languages: Two- or three-letter codes of the languages to read. If None, all
      languages are read.
    name: Prefix of the file names, such as 'bible' for Glot500's files. The
      prefix may start with a subdirectory: 'flores/flores'.
    max_pairs: Maximum number of sentence pairs per language pair, from the
      beginning. If None, all sentence pairs are read.
  """

  directory: str
  languages: tuple[str, ...] | None = None
  name: str = 'tatoeba'
  max_pairs: validation.PositiveInt | None = None

  @classmethod
  def from_options(  # type: ignore[override]
    cls,
    tatoeba: str,
    languages: tuple[str, ...] | None = None,
    max_examples: int | None = None,
  ) -> 'Tatoeba':
    """Creates a source of Tatoeba pairs from options of `xlflax evaluate`."""
    return cls(directory=tatoeba, languages=languages, max_pairs=max_examples)

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs that this source provides."""
    available = tuple(sorted(self._files()))
    selected = self.languages and tuple(
      language_codes.normalize_code(code) for code in self.languages
    )
    return text_sources.chosen_pairs(available, selected, self.directory)

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Reads the sentences of a language pair."""
    first, second = map(_read_lines, self._files()[pair])
    if len(first) != len(second):
      raise line_splitting.unequal_lines_error(
        self._files()[pair], (len(first), len(second))
      )
    if not first:
      raise errors.CorpusError(
        'The Tatoeba file does not contain any sentences',
        where=self._files()[pair][0],
      )
    paired_text = text_sources.PairedText(
      first[: self.max_pairs], second[: self.max_pairs]
    )
    text_sources.check_pairs(pair, paired_text, self.directory)
    return paired_text

  def _files(
    self,
  ) -> dict[text_sources.Pair, tuple[pathlib.Path, pathlib.Path]]:
    """Returns the two files of each language pair."""
    directory = bucket_staging.stage_input(self.directory)
    if not directory.is_dir():
      raise errors.CorpusError(
        'The folder with the Tatoeba files does not exist',
        got=directory,
        fix='Pass --tatoeba=DIR with a folder that contains files such as '
        'tatoeba.deu-eng.deu.',
      )
    files_by_pair = {}
    for path in directory.glob(f'{self.name}.*-*.*'):
      match = re.fullmatch(r'\w+\.(\w+)-(\w+)\.\1', path.name)
      if match:
        first, second = map(language_codes.normalize_code, match.groups())
        files_by_pair[first, second] = (
          path,
          path.with_suffix('.' + match.group(2)),
        )
    if not files_by_pair:
      raise errors.CorpusError(
        'The folder must contain Tatoeba files such as tatoeba.deu-eng.deu and '
        'tatoeba.deu-eng.eng',
        got=directory,
        fix=self._suggest_directory(directory),
      )
    return files_by_pair

  def _suggest_directory(self, directory: pathlib.Path) -> str | None:
    """Returns a hint if a subdirectory contains the Tatoeba files."""
    subdirectories = sorted(
      {path.parent for path in directory.glob(f'*/{self.name}.*-*.*')}
    )
    if not subdirectories:
      return None
    return f'Did you mean {" or ".join(map(str, subdirectories[:3]))}?'


def _read_lines(path: pathlib.Path) -> list[str]:
  """Returns the stripped lines of a file."""
  if not path.is_file():
    raise errors.CorpusError(
      'One of the two files of a Tatoeba language pair does not exist',
      expected=path,
    )
  return [line.strip() for _, line in file_reading.read_lines(path)]
