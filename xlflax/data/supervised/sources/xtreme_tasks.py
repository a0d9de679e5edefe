"""Definitions of all XTREME and XTREME-R tasks: languages, files and metrics.

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
  """Task in XTREME or XTREME-R, with its languages, files and metric.

  Attributes:
    name: Name of the task, which is also the name of its folder in XTREME.
    group: Name of the column group in XTREME's results table that contains the
      task.
    languages: Codes of the test set's languages.
    metric: Metric that XTREME reports for the task. For question answering, it
      is the mean of F1 and exact match.
    files: For each split, the path or paths within XTREME's folder, with `{0}`
      in place of the language. A bitext mining task has several files for each
      language.
    gold: For bitext mining, the path of the test set's gold translation pairs.
      XTREME does not publish this file, but it is read if it exists.
    english: Names of the splits that contain only English data.
    format: Name of the file format, which determines the example class.
    options: Options passed to the format's reader.
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
    """Subclass of `Example` that represents the examples of the task."""
    return file_formats.find_reader(self.format).example

  @property
  def is_mined(self) -> bool:
    """True if the task is a bitext mining task."""
    return issubclass(self.example, labeled_examples.BitextSentence)

  def parts(self, split: str) -> tuple[str, ...]:
    """Returns the names of a split's languages or language pairs.

    For bitext mining, a name consists of a language and English, such as
    'fr-en'.
    """
    if split not in self.files:
      return ()
    if split in self.english:
      return ENGLISH
    if self.is_mined:
      return tuple(f'{language}-en' for language in self.languages)
    return self.languages


def _read_table() -> dict[str, Any]:
  """Reads the definitions of all XTREME tasks."""
  folder = importlib.resources.files('xlflax.data.supervised.sources')
  return tomllib.loads((folder / 'xtreme.toml').read_text(encoding='utf-8'))


def _make_task(
  name: str, fields: dict[str, Any], added_languages: str = ''
) -> XtremeTask:
  """Creates a task from its definition, and adds languages to the task."""
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
