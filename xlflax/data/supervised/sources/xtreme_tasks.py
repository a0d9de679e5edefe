"""Task definitions of XTREME and XTREME-R: languages, files and metrics.

Sources: Hu et al. (2020), "XTREME"; Ruder et al. (2021), "XTREME-R"; the
scripts of github.com/google-research/xtreme.
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
  """A task of XTREME or XTREME-R.

  Attributes:
    name: Name of the task and of its folder in XTREME.
    group: Group of the task in XTREME's table of results.
    languages: Languages of the test set.
    metric: Metric that XTREME reports. For question answering, it is the mean
      of F1 and exact match.
    files: Paths in the folder for each split, with `{0}` in place of the
      language. A bitext mining task has several files for a language.
    gold: For bitext mining, path of the gold pairs of the test set. XTREME does
      not publish it, but it is read if it exists.
    english: Splits with paths of English data only.
    format: File format, which determines the class of the examples.
    options: Options of the reader of the format.
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
    """Class of the examples."""
    return file_formats.find_reader(self.format).example

  @property
  def is_mined(self) -> bool:
    """True if the task is bitext mining."""
    return issubclass(self.example, labeled_examples.BitextSentence)

  def parts(self, split: str) -> tuple[str, ...]:
    """Returns the parts of a split.

    A part is a language or, for bitext mining, a pair of a language and
    English.
    """
    if split not in self.files:
      return ()
    if split in self.english:
      return ENGLISH
    if self.is_mined:
      return tuple(f'{language}-en' for language in self.languages)
    return self.languages


def _read_table() -> dict[str, Any]:
  """Reads the table of tasks."""
  folder = importlib.resources.files('xlflax.data.supervised.sources')
  return tomllib.loads((folder / 'xtreme.toml').read_text(encoding='utf-8'))


def _make_task(
  name: str, fields: dict[str, Any], added_languages: str = ''
) -> XtremeTask:
  """Returns a task of the table, with additional languages."""
  languages = [*fields['languages'].split(), *added_languages.split()]
  return XtremeTask(
    name=name,
    **fields
    | {
      'languages': tuple(sorted(languages)),
      'english': frozenset(fields.get('english', ())),
      'files': {
        split: tuple(paths) for split, paths in fields['files'].items()
      },
    },
  )


_TABLE = _read_table()
TASKS: Mapping[str, XtremeTask] = {
  name: _make_task(name, fields) for name, fields in _TABLE['tasks'].items()
}
# Tasks of XTREME-R, without the two retrieval tasks in `RANKED`.
R_TASKS: Mapping[str, XtremeTask] = {
  name: _make_task(name, fields, _TABLE['added_languages'].get(name, ''))
  for name, fields in (_TABLE['tasks'] | _TABLE['added_tasks']).items()
  if name not in ('pawsx', 'bucc2018')
}
# Group and languages of the queries of each retrieval task.
RANKED: Mapping[str, tuple[str, tuple[str, ...]]] = {
  name: (fields['group'], tuple(fields['languages'].split()))
  for name, fields in _TABLE['ranked'].items()
}
XTREME, XTREME_R = 'xtreme', 'xtreme-r'
VERSIONS = {XTREME: TASKS, XTREME_R: R_TASKS}
