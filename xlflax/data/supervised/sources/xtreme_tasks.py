"""The tasks of XTREME and XTREME-R: languages, files, metrics.

Hu et al. 2020, "XTREME"; Ruder et al. 2021, "XTREME-R"; the scripts of
github.com/google-research/xtreme.
"""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples

TRAIN, VALIDATION, TEST = 'train', 'validation', 'test'
ENGLISH = ('en',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class XtremeTask:
  """One of the tasks.

  Attributes:
    name: XTREME's, also of the folder.
    group: of tasks, in XTREME's table of results.
    languages: those that are tested.
    metric: what XTREME reports; for questions the mean of F1 and exact match.
    files: split to paths in the folder, `{0}` the language; several that
      belong together for mining.
    gold: of the test set of collections to mine, the path of the pairs that
      are translations. XTREME keeps it back; if its file exists, it is read.
    english: splits whose paths are of English alone.
    format: of the files; it says what the examples are.
    options: of the format's reader.
  """

  name: str
  group: str
  languages: tuple[str, ...]
  metric: str
  files: Mapping[str, tuple[str, ...]]
  gold: str | None = None
  english: frozenset[str] = frozenset()
  format: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def example(self) -> type[labeled_examples.Example]:
    """The class of the examples."""
    return file_formats.find_reader(self.format).example

  @property
  def is_mined(self) -> bool:
    """Whether translations are to be found among two collections."""
    return issubclass(self.example, labeled_examples.MinedSentence)

  def parts(self, split: str) -> tuple[str, ...]:
    """The parts of a split: languages; with English behind for mining."""
    if split not in self.files:
      return ()
    if split in self.english:
      return ENGLISH
    if self.is_mined:
      return tuple(f'{language}-en' for language in self.languages)
    return self.languages


def _read() -> dict[str, Any]:
  file = importlib.resources.files('xlflax.data.supervised.sources')
  return tomllib.loads((file / 'xtreme.toml').read_text(encoding='utf-8'))


def _task(name: str, fields: dict[str, Any], more: str = '') -> XtremeTask:
  """A task of the table, with `more` languages in order."""
  languages = fields['languages'].split()
  return XtremeTask(
    name=name,
    **fields
    | {
      'languages': tuple(sorted([*languages, *more.split()])),
      'english': frozenset(fields.get('english', ())),
      'files': {
        split: tuple(paths) for split, paths in fields['files'].items()
      },
    },
  )


_TABLE = _read()
TASKS: Mapping[str, XtremeTask] = {
  name: _task(name, fields) for name, fields in _TABLE['tasks'].items()
}
# XTREME-R's, without the two whose texts are ranked (`RANKED`).
R_TASKS: Mapping[str, XtremeTask] = {
  name: _task(name, fields, _TABLE['added_languages'].get(name, ''))
  for name, fields in (_TABLE['tasks'] | _TABLE['added_tasks']).items()
  if name not in ('pawsx', 'bucc2018')
}
# Name -> group and languages of the questions.
RANKED: Mapping[str, tuple[str, tuple[str, ...]]] = {
  name: (fields['group'], tuple(fields['languages'].split()))
  for name, fields in _TABLE['ranked'].items()
}
XTREME, XTREME_R = 'xtreme', 'xtreme-r'
VERSIONS = {XTREME: TASKS, XTREME_R: R_TASKS}
