"""Predictions in the files that XTREME's leaderboard takes.

One folder for each task, one file for each language, `xnli/test-fr.tsv`. The
class of the task's examples writes a file's text (`write_predictions`).

Hu et al. 2020; README and `evaluate.py` of github.com/google-research/xtreme.
"""

import json
from collections.abc import Mapping

from xlflax.data.supervised.sources import xtreme, xtreme_tasks
from xlflax.storage import paths
from xlflax.utils import errors


def file_name(
  task: str, language: str, version: str = xtreme_tasks.XTREME
) -> str:
  """The file of a task's predictions in a language: 'xnli/test-fr.tsv'.

  Raises:
    ConfigError: XTREME has no such task, or not this language in it.
  """
  if version == xtreme_tasks.XTREME_R and task == 'mewslix':
    return f'{task}/test-{language}.json'
  xtreme_task = xtreme.find_xtreme_task(task, version)
  language = language.removesuffix('-en')
  if language not in xtreme_task.languages:
    raise errors.ConfigError(
      f"XTREME's task {task} has no such language",
      got=language,
      expected='one of ' + ', '.join(xtreme_task.languages),
    )
  return f'{task}/test-{language}.{xtreme_task.example.ENDING}'


def entities_json(run: str, *, count: int = 20) -> str:
  """Mewsli-X: JSON from query to its first documents, of a TREC run.

  Before: `m1 Q0 Q64 1 0.9 x` and `m1 Q0 Q90 2 0.8 x`; after:
  `{"m1": ["Q64", "Q90"]}`.
  """
  documents_by_query: dict[str, list[str]] = {}
  for line in run.splitlines():
    query, _, document, *_ = line.split()
    documents_by_query.setdefault(query, []).append(document)
  return json.dumps(
    {query: names[:count] for query, names in documents_by_query.items()}
  )


def write_submission(
  directory: str,
  contents: Mapping[str, str],
  version: str = xtreme_tasks.XTREME,
) -> tuple[str, ...]:
  """Writes files (name from `file_name` -> text) and tells what lacks.

  Args:
    directory: of the submission; what is there of other names stays.
    contents: texts by file name.
    version: 'xtreme' or 'xtreme-r'.

  Returns:
    The files that a complete submission needs and the folder lacks.
  """
  root = paths.to_path(directory)
  for name, text in contents.items():
    path = root / name
    paths.write_atomically(path, text)
  needed = [
    file_name(task, language, version)
    for task, languages in _needed(version).items()
    for language in languages
  ]
  return tuple(name for name in needed if not (root / name).is_file())


def _needed(version: str) -> dict[str, tuple[str, ...]]:
  """Task -> languages; LAReQA is no part of a submission."""
  languages_by_task = {
    name: task.languages
    for name, task in xtreme_tasks.VERSIONS[version].items()
  }
  if version == xtreme_tasks.XTREME_R:
    languages_by_task['mewslix'] = xtreme_tasks.RANKED['mewslix'][1]
  return languages_by_task
