"""Predictions in the files that XTREME's leaderboard takes.

One folder for each task, one file for each language, `xnli/test-fr.tsv`. The
class of the task's examples writes a file's text (`write_predictions`).

Hu et al. 2020; README and `evaluate.py` of github.com/google-research/xtreme.
"""

from collections.abc import Mapping

from xlflax import errors, paths
from xlflax.data.labelled import xtreme


def file_name(task: str, language: str) -> str:
  """The file of a task's predictions in a language: 'xnli/test-fr.tsv'.

  Raises:
    ConfigError: XTREME has no such task, or not this language in it.
  """
  known = xtreme.task(task)
  language = language.removesuffix('-en')
  if language not in known.languages:
    raise errors.ConfigError(
      f"XTREME's task {task} has no such language",
      got=language,
      expected='one of ' + ', '.join(known.languages),
    )
  return f'{task}/test-{language}.{known.example.ENDING}'


def write(directory: str, contents: Mapping[str, str]) -> tuple[str, ...]:
  """Writes files (name from `file_name` -> text) and tells what lacks.

  Args:
    directory: of the submission; what is there of other names stays.
    contents: texts by file name.

  Returns:
    The files that a complete submission needs and the folder lacks.
  """
  root = paths.of(directory)
  for name, text in contents.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')
  needed = [
    file_name(task, language)
    for task, known in xtreme.TASKS.items()
    for language in known.languages
  ]
  return tuple(name for name in needed if not (root / name).is_file())
