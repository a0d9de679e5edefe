"""Prediction files in the submission format for XTREME's leaderboard.

A submission has one folder for each task and one file for each language, such
as `xnli/test-fr.tsv`. The task's example class formats the text of these files
(`write_predictions`).

Source: Hu et al. (2020); README and `evaluate.py` of
github.com/google-research/xtreme.
"""

import json
from collections.abc import Mapping

from xlflax.data.supervised.sources import xtreme, xtreme_tasks
from xlflax.storage import paths
from xlflax.utils import errors


def file_name(
  task: str, language: str, version: str = xtreme_tasks.XTREME
) -> str:
  """Returns a prediction file's relative path, such as 'xnli/test-fr.tsv'.

  Args:
    task: Name of the task.
    language: Language code, or a language pair with English, such as 'fr-en'.
    version: Benchmark version, 'xtreme' or 'xtreme-r'.

  Raises:
    ConfigError: If the task does not exist or does not have the language.
  """
  if version == xtreme_tasks.XTREME_R and task == 'mewslix':
    return f'{task}/test-{language}.json'
  xtreme_task = xtreme.find_xtreme_task(task, version)
  language = language.removesuffix('-en')
  if language not in xtreme_task.languages:
    raise errors.ConfigError(
      f'The XTREME task {task!r} does not include the requested language',
      got=language,
      expected='one of ' + ', '.join(xtreme_task.languages),
    )
  return f'{task}/test-{language}.{xtreme_task.example.ENDING}'


def entities_json(run: str, *, count: int = 20) -> str:
  """Converts a Mewsli-X ranking from the TREC run format to JSON.

  For example, `m1 Q0 Q64 1 0.9 x` and `m1 Q0 Q90 2 0.8 x` become
  `{"m1": ["Q64", "Q90"]}`.

  Args:
    run: Text of a ranking in the TREC run format, one retrieved document per
      line.
    count: Maximum number of documents to keep for each query.
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
  """Writes a submission's files and returns the names of missing files.

  Args:
    directory: Folder of the submission. Files in it that are not in `contents`
      remain unchanged.
    contents: Mapping from each file's relative path, as returned by
      `file_name`, to the text of the file.
    version: Benchmark version, 'xtreme' or 'xtreme-r'.

  Returns:
    Names of the files that are required for a complete submission but missing
    in the folder.
  """
  root = paths.to_path(directory)
  for name, text in contents.items():
    paths.write_atomically(root / name, text)
  required = [
    file_name(task, language, version)
    for task, languages in _languages_by_task(version).items()
    for language in languages
  ]
  return tuple(name for name in required if not (root / name).is_file())


def _languages_by_task(version: str) -> dict[str, tuple[str, ...]]:
  """Returns the languages of the tasks of a submission, without LAReQA."""
  languages_by_task = {
    name: task.languages
    for name, task in xtreme_tasks.VERSIONS[version].items()
  }
  if version == xtreme_tasks.XTREME_R:
    languages_by_task['mewslix'] = xtreme_tasks.RANKED['mewslix'][1]
  return languages_by_task
