"""XTREME's nine tasks, from the folder that its download script leaves.

Nothing is registered on import, as the folder must be told:

    from xlflax.tasks import xtreme
    xtreme.register('xtreme/download')

registers `xtreme.<task>.<language>` (`xtreme.xnli.fr`) with the splits whose
files are there, and a mixture `xtreme.<task>` of each task; `register_treebanks`
does so for a folder of Universal Dependencies. `xlflax tasks list --xtreme=DIR`
and `--treebanks=DIR` show them.

`xlflax.data.supervised.sources.xtreme_tasks` has the table.
"""

import logging
import pathlib
import re
from typing import NamedTuple

import seqio

from xlflax.data.supervised.sources import supervised_tasks, xtreme_tasks
from xlflax.data.supervised.sources import xtreme as tables
from xlflax.utils import errors

_SPLITS = {'train': tables.TRAIN, 'dev': tables.VALIDATION, 'test': tables.TEST}
_TREEBANK = re.compile(r'([a-z]{2,3})_\w+-ud-(train|dev|test)\b.*\.conllu')


class Registered(NamedTuple):
  """What was registered.

  Attributes:
    names: of tasks and mixtures, mixtures last.
    missing: one sentence for each thing that the folder lacks.
  """

  names: tuple[str, ...]
  missing: tuple[str, ...]


def register(directory: str, *, prefix: str = 'xtreme') -> Registered:
  """Registers what a folder of XTREME holds; see the module.

  Files that lack are logged and told, and are no error.

  Args:
    directory: XTREME's `download` folder, or the one above it.
    prefix: of the names.

  Raises:
    CorpusError: there is no such folder or nothing of XTREME in it, or a name
      is taken.
  """
  names: list[str] = []
  mixtures: list[str] = []
  missing: list[str] = []
  for name, task in xtreme_tasks.TASKS.items():
    found = {
      split: tables.find_xtreme_files(directory, name, split)
      for split in task.files
    }
    parts = dict.fromkeys(part for files in found.values() for part in files)
    own = [
      _add(
        f'{prefix}.{name}.{_short(part)}',
        task,
        part,
        {split: files[part] for split, files in found.items() if part in files},
      )
      for part in parts
    ]
    missing += tables.describe_missing_files(directory, name)
    if own:
      names += own
      mixtures.append(f'{prefix}.{name}')
      supervised_tasks.add_labelled_mixture(mixtures[-1], own)
  if not names:
    raise errors.CorpusError(
      'Nothing of XTREME lies in this folder',
      got=directory,
      expected='folders such as xnli, udpos, panx, squad, xquad',
    )
  for note in missing:
    logging.warning('%s', note)
  return Registered((*names, *mixtures), tuple(missing))


def register_treebanks(directory: str, *, prefix: str = 'ud') -> Registered:
  """Registers a folder of treebanks (`UD_English-EWT/en_ewt-ud-dev.conllu`).

  Treebanks of one language are joined. Tasks `<prefix>.tags.<language>` have
  parts of speech, `<prefix>.trees.<language>` dependency trees.

  Raises:
    CorpusError: no such folder, no treebank in it, or a name is taken.
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
      'No treebank lies in this folder',
      got=directory,
      expected='files such as UD_English-EWT/en_ewt-ud-dev.conllu',
    )
  names = [
    supervised_tasks.add_labelled_task(
      f'{prefix}.{kind}.{language}',
      format=format,
      language=language,
      files={split: tuple(paths) for split, paths in splits.items()},
    ).name
    for kind, format in (('tags', 'conllu_tags'), ('trees', 'conllu'))
    for language, splits in files.items()
  ]
  for kind in ('tags', 'trees'):
    supervised_tasks.add_labelled_mixture(
      f'{prefix}.{kind}', [n for n in names if f'.{kind}.' in n]
    )
  return Registered((*names, f'{prefix}.tags', f'{prefix}.trees'), ())


def _add(name: str, task: xtreme_tasks.XtremeTask, part: str, files) -> str:
  add: seqio.Task
  if task.is_mined:
    add = supervised_tasks.add_mined_task(
      name, language=part, files=files, format=task.format
    )
  else:
    add = supervised_tasks.add_labelled_task(
      name, format=task.format, language=part, files=files, **task.options
    )
  return add.name


def _short(part: str) -> str:
  return part.removesuffix('-en')
