"""XTREME's folder, and XTREME-R's: the sources of their tasks.

The folder is the one that XTREME's `scripts/download_data.sh` leaves, named
`download`. Its test sets are blind; where a file has labels all the same, they
are read.

Hu et al. 2020, "XTREME"; github.com/google-research/xtreme.
"""

import pathlib

from xlflax.data.supervised.sources import beir, example_source, xtreme_tasks
from xlflax.storage import paths
from xlflax.utils import errors, name_suggestions, validation

TRAIN, VALIDATION, TEST = (
  xtreme_tasks.TRAIN,
  xtreme_tasks.VALIDATION,
  xtreme_tasks.TEST,
)
TASKS = xtreme_tasks.TASKS


def find_xtreme_task(
  name: str, version: str = xtreme_tasks.XTREME
) -> xtreme_tasks.XtremeTask:
  """The task; a ConfigError if XTREME, or XTREME-R, has none of this name."""
  if version not in xtreme_tasks.VERSIONS:
    raise errors.ConfigError(
      'There is no such version of XTREME',
      got=version,
      expected=' or '.join(xtreme_tasks.VERSIONS),
    )
  tasks = xtreme_tasks.VERSIONS[version]
  if name not in tasks:
    raise errors.ConfigError(
      'XTREME has no such task',
      got=name,
      expected='one of ' + ', '.join(tasks),
      fix=name_suggestions.did_you_mean(name, tasks),
    )
  return tasks[name]


def find_xtreme_files(
  directory: str, name: str, split: str, version: str = xtreme_tasks.XTREME
) -> dict[str, tuple[str, ...]]:
  """Part to its files, for all parts whose files are there.

  Raises:
    ConfigError: no such task.
    CorpusError: the folder does not exist.
  """
  root = _root(directory)
  task = find_xtreme_task(name, version)
  paths = {
    part: tuple(
      str(root / path.format(part.split('-')[0])) for path in task.files[split]
    )
    for part in task.parts(split)
  }
  return {
    part: (*part_paths, *_gold(root, task, part, split))
    for part, part_paths in paths.items()
    if all(pathlib.Path(path).is_file() for path in part_paths)
  }


def _gold(
  root: pathlib.Path, wanted: xtreme_tasks.XtremeTask, part: str, split: str
) -> tuple[str, ...]:
  """The path of a test set's gold pairs, if there is such a file."""
  if wanted.gold is None or split != TEST:
    return ()
  path = root / wanted.gold.format(part.split('-')[0])
  return (str(path),) if path.is_file() else ()


def describe_missing_files(directory: str, name: str) -> tuple[str, ...]:
  """One sentence for each split of the task some of whose files lack."""
  notes = []
  for split in find_xtreme_task(name).files:
    parts = find_xtreme_task(name).parts(split)
    available = find_xtreme_files(directory, name, split)
    lacking = [part for part in parts if part not in available]
    if split in (TRAIN, VALIDATION) and 'en' in available:
      lacking = []  # Training data of others are not used by XTREME.
    if lacking:
      pattern = ', '.join(find_xtreme_task(name).files[split]).replace(
        '{0}', '<language>'
      )
      notes.append(
        f'{name}: no {split} data of {", ".join(lacking)} ({pattern})'
      )
  return tuple(notes)


@validation.validate_call
def xtreme_examples(
  directory: str,
  name: str,
  split: str = TEST,
  *,
  languages: tuple[str, ...] | None = None,
  max_examples: validation.PositiveInt | None = None,
  version: str = xtreme_tasks.XTREME,
) -> example_source.FileExamples | example_source.MinedFiles:
  """The source of a task's split.

  Args:
    directory: XTREME's `download` folder.
    name: of the task.
    split: 'train', 'validation' or 'test'; train and validation are English
      for most tasks (`XtremeTask.english`).
    languages: codes to take; None: all whose files are there.
    max_examples: the first so many of a language; None: all. Collections to
      mine are never cut.
    version: 'xtreme' or 'xtreme-r', which has XCOPA and more languages.

  Raises:
    ConfigError: no such task.
    CorpusError: no folder; no file of the split, or of a language named.
  """
  wanted_task = find_xtreme_task(name, version)
  files = (
    find_xtreme_files(directory, name, split, version)
    if split in wanted_task.files
    else {}
  )
  if languages is not None:
    is_selected = {
      part: part.split('-')[0] in languages or part in languages
      for part in wanted_task.parts(split)
    }
    files = {part: paths for part, paths in files.items() if is_selected[part]}
    lacking = set(languages) - set(files) - {p.split('-')[0] for p in files}
  if not files or (languages and lacking):
    raise errors.CorpusError(
      f'The folder of XTREME lacks files of the task {name}',
      got=', '.join(sorted(lacking)) if languages else None,
      expected=', '.join(
        wanted_task.files.get(split, ('a split it has',))
      ).replace('{0}', '<language>'),
      where=f'{directory}, split {split}',
      fix="let XTREME's scripts/download_data.sh fill the folder",
    )
  if wanted_task.is_mined:
    return example_source.MinedFiles(files=files, format=wanted_task.format)
  return example_source.FileExamples(
    files=files,
    format=wanted_task.format,
    options=wanted_task.options,
    max_examples=max_examples,
  )


@validation.validate_call
def xtreme_rankings(
  directory: str, name: str, split: str = TEST
) -> beir.RankedFolder:
  """Queries and documents of XTREME-R's Mewsli-X or LAReQA.

  Args:
    directory: XTREME-R's folder; `<name>/ranked` in it is what `xlflax tasks
      convert <name>` writes.
    name: 'mewslix' or 'lareqa'.
    split: 'test', of Mewsli-X 'dev', too.

  Raises:
    ConfigError: no such task.
    CorpusError: no folder.
  """
  if name not in xtreme_tasks.RANKED:
    raise errors.ConfigError(
      'XTREME-R has no such ranking',
      got=name,
      expected=' or '.join(xtreme_tasks.RANKED),
    )
  folder = _root(directory) / name / 'ranked'
  if name == 'mewslix':
    folder = folder / split
  if not folder.is_dir():
    raise errors.CorpusError(
      'The folder of XTREME-R lacks a ranking',
      where=str(folder),
      fix=f'xlflax tasks convert {name} --input={directory}/{name} '
      f'--output={directory}/{name}/ranked',
    )
  return beir.RankedFolder(directory=str(folder))


@validation.validate_call
def mlqa_pairs(
  directory: str, split: str = TEST
) -> example_source.FileExamples:
  """MLQA with context and question in any two languages (G-XLT).

  Parts are 'es-en': context in Spanish, question in English; 'es' for both in
  one.

  Args:
    directory: XTREME's `download` folder.
    split: 'validation' or 'test'.

  Raises:
    CorpusError: no file of MLQA in the folder.
  """
  name = {VALIDATION: 'dev', TEST: 'test'}.get(split, split)
  folder = _root(directory) / 'mlqa' / 'MLQA_V1' / name
  languages = find_xtreme_task('mlqa').languages
  paths = {
    context if context == question else f'{context}-{question}': folder
    / f'{name}-context-{context}-question-{question}.json'
    for context in languages
    for question in languages
  }
  files = {part: str(path) for part, path in paths.items() if path.is_file()}
  if not files:
    raise errors.CorpusError(
      'The folder of XTREME lacks files of the task mlqa',
      where=str(folder),
      expected=f'{name}-context-<language>-question-<language>.json',
    )
  return example_source.FileExamples(format='squad', files=files)


def _root(directory: str) -> pathlib.Path:
  root = paths.to_local_path(directory, where="XTREME's folder")
  if not root.is_dir():
    raise errors.CorpusError(
      "XTREME's folder does not exist",
      got=directory,
      expected='the folder download, which scripts/download_data.sh of '
      'github.com/google-research/xtreme makes',
    )
  if (
    not any((root / name).is_dir() for name in TASKS)
    and (root / 'download').is_dir()
  ):
    return root / 'download'
  return root
