"""XTREME tasks, read from the folder that its download script creates.

Importing this module registers no tasks, because the folder must be specified.
The code

    from xlflax.tasks import xtreme
    xtreme.register('xtreme/download')

registers `xtreme.<task>.<language>` (such as `xtreme.xnli.fr`) with the splits
whose files exist, and a mixture `xtreme.<task>` for each task.
`register_treebanks` does the same for a folder of Universal Dependencies
treebanks. `xlflax tasks list --xtreme=DIR` and `--treebanks=DIR` list the
tasks.

The tasks are defined in `xlflax.data.supervised.sources.xtreme_tasks`.
"""

import logging
import pathlib
import re
from typing import NamedTuple

import seqio

from xlflax.data.supervised.sources import supervised_tasks, xtreme_tasks
from xlflax.data.supervised.sources import xtreme as xtreme_source
from xlflax.utils import errors

_SPLITS = {
  'train': xtreme_source.TRAIN,
  'dev': xtreme_source.VALIDATION,
  'test': xtreme_source.TEST,
}
_TREEBANK = re.compile(r'([a-z]{2,3})_\w+-ud-(train|dev|test)\b.*\.conllu')


class Registered(NamedTuple):
  """Tasks that were registered from a folder, and files that are missing.

  Attributes:
    names: Names of the registered tasks, followed by those of the mixtures.
    missing: Messages, one for each expected file or folder that is missing.
  """

  names: tuple[str, ...]
  missing: tuple[str, ...]


def register(directory: str, *, prefix: str = 'xtreme') -> Registered:
  """Registers all XTREME tasks whose files exist in a folder.

  Missing files are logged and returned, but do not raise an error.

  Args:
    directory: XTREME's `download` folder, or its parent.
    prefix: Prefix of the names of the registered tasks and mixtures.

  Raises:
    CorpusError: If the folder does not exist or contains no XTREME files, or a
      task with one of the names is already registered.
  """
  names: list[str] = []
  mixtures: list[str] = []
  missing: list[str] = []
  for name, task in xtreme_tasks.TASKS.items():
    files_by_split = {
      split: xtreme_source.find_xtreme_files(directory, name, split)
      for split in task.files
    }
    parts = dict.fromkeys(
      part for files in files_by_split.values() for part in files
    )
    task_names = []
    for part in parts:
      part_files = {
        split: files[part]
        for split, files in files_by_split.items()
        if part in files
      }
      task_name = f'{prefix}.{name}.{_short_name(part)}'
      task_names.append(_add_task(task_name, task, part, part_files))
    missing += xtreme_source.describe_missing_files(directory, name)
    if task_names:
      names += task_names
      mixtures.append(f'{prefix}.{name}')
      supervised_tasks.add_labeled_mixture(mixtures[-1], task_names)
  if not names:
    raise errors.CorpusError(
      'The folder must contain the folder of at least one XTREME task, such '
      'as xnli, udpos, panx, squad or xquad',
      got=directory,
    )
  for sentence in missing:
    logging.warning('%s', sentence)
  return Registered((*names, *mixtures), tuple(missing))


def register_treebanks(directory: str, *, prefix: str = 'ud') -> Registered:
  """Registers tasks for a folder of Universal Dependencies treebanks.

  Files are named like `UD_English-EWT/en_ewt-ud-dev.conllu`. Treebanks in the
  same language are concatenated. The tasks `<prefix>.tags.<language>` contain
  part-of-speech tags, and `<prefix>.trees.<language>` contain dependency trees.

  Args:
    directory: Folder that contains one folder for each treebank.
    prefix: Prefix of the names of the registered tasks and mixtures.

  Raises:
    CorpusError: If the folder contains no treebank, or a task with one of the
      names is already registered.
  """
  files: dict[str, dict[str, list[str]]] = {}
  for path in sorted(pathlib.Path(directory).rglob('*.conllu')):
    match = _TREEBANK.fullmatch(path.name)
    if match:
      files.setdefault(match[1], {}).setdefault(_SPLITS[match[2]], []).append(
        str(path)
      )
  if not files:
    raise errors.CorpusError(
      'The folder must contain treebanks, which are files such as '
      'UD_English-EWT/en_ewt-ud-dev.conllu',
      got=directory,
    )
  names = [
    supervised_tasks.add_labeled_task(
      f'{prefix}.{kind}.{language}',
      format=format,
      language=language,
      files={split: tuple(paths) for split, paths in splits.items()},
    ).name
    for kind, format in (('tags', 'conllu_tags'), ('trees', 'conllu'))
    for language, splits in files.items()
  ]
  for kind in ('tags', 'trees'):
    supervised_tasks.add_labeled_mixture(
      f'{prefix}.{kind}', [name for name in names if f'.{kind}.' in name]
    )
  return Registered((*names, f'{prefix}.tags', f'{prefix}.trees'), ())


def _add_task(
  name: str, xtreme_task: xtreme_tasks.XtremeTask, part: str, files
) -> str:
  """Registers the task for one language and returns its name."""
  task: seqio.Task
  if xtreme_task.is_mined:
    task = supervised_tasks.add_mined_task(
      name, language=part, files=files, format=xtreme_task.format
    )
  else:
    task = supervised_tasks.add_labeled_task(
      name,
      format=xtreme_task.format,
      language=part,
      files=files,
      **xtreme_task.options,
    )
  return task.name


def _short_name(part: str) -> str:
  return part.removesuffix('-en')
