"""Sources for the tasks in XTREME and XTREME-R.

The data is read from the folder `download` that XTREME's
`scripts/download_data.sh` creates. XTREME's test sets are blind, but gold
labels are read if a file contains them.

Source: Hu et al. (2020), "XTREME"; github.com/google-research/xtreme.
"""

import logging
import pathlib
from collections.abc import Sequence

from xlflax.data.supervised.sources import beir, example_source, xtreme_tasks
from xlflax.storage import paths
from xlflax.utils import errors, logs, name_suggestions, validation

TRAIN, VALIDATION, TEST = (
  xtreme_tasks.TRAIN,
  xtreme_tasks.VALIDATION,
  xtreme_tasks.TEST,
)
TASKS = xtreme_tasks.TASKS
_LOG = logging.getLogger(__name__)


def find_xtreme_task(
  name: str, version: str = xtreme_tasks.XTREME
) -> xtreme_tasks.XtremeTask:
  """Returns the definition of a task in XTREME or XTREME-R.

  Args:
    name: Name of the task, such as 'xnli'.
    version: Benchmark version, 'xtreme' or 'xtreme-r'.

  Raises:
    ConfigError: If the version or the task does not exist.
  """
  if version not in xtreme_tasks.VERSIONS:
    raise errors.ConfigError(
      'XTREME has no version with the requested name',
      got=version,
      expected=' or '.join(xtreme_tasks.VERSIONS),
    )
  tasks = xtreme_tasks.VERSIONS[version]
  if name not in tasks:
    raise errors.ConfigError(
      'XTREME has no task with the requested name',
      got=name,
      expected='one of ' + ', '.join(tasks),
      fix=name_suggestions.did_you_mean(name, tasks),
    )
  return tasks[name]


def find_xtreme_files(
  directory: str, name: str, split: str, version: str = xtreme_tasks.XTREME
) -> dict[str, tuple[str, ...]]:
  """Returns the existing files of an XTREME task, by language.

  Args:
    directory: Path of XTREME's folder `download`.
    name: Name of the task, such as 'xnli'.
    split: Name of the split: 'train', 'validation' or 'test'.
    version: Benchmark version, 'xtreme' or 'xtreme-r'.

  Raises:
    ConfigError: If the task does not exist.
    CorpusError: If the folder does not exist.
  """
  root = _find_root(directory)
  task = find_xtreme_task(name, version)
  files: dict[str, tuple[str, ...]] = {}
  for part in task.parts(split):
    language = part.split('-')[0]
    part_files = [
      root / pattern.format(language) for pattern in task.files[split]
    ]
    if all(file.is_file() for file in part_files):
      files[part] = (
        *map(str, part_files),
        *_find_gold(root, task, part, split),
      )
  return files


def _find_gold(
  root: pathlib.Path, task: xtreme_tasks.XtremeTask, part: str, split: str
) -> tuple[str, ...]:
  """Returns the path of the gold pairs of a test set, if the file exists."""
  if task.gold is None or split != TEST:
    return ()
  path = root / task.gold.format(part.split('-')[0])
  return (str(path),) if path.is_file() else ()


def describe_missing_files(directory: str, name: str) -> tuple[str, ...]:
  """Returns messages about missing files of an XTREME task, one per split."""
  messages = []
  task = find_xtreme_task(name)
  for split in task.files:
    available = find_xtreme_files(directory, name, split)
    if split in (TRAIN, VALIDATION) and 'en' in available:
      continue  # XTREME does not use training data in other languages.
    missing = [part for part in task.parts(split) if part not in available]
    if missing:
      messages.append(
        f'{name}: no {split} data for {", ".join(missing)} '
        f'({_show_patterns(task, split)})'
      )
  return tuple(messages)


def _show_patterns(task: xtreme_tasks.XtremeTask, split: str) -> str:
  """Returns the file name patterns of a split, for messages."""
  return ', '.join(task.files[split]).replace('{0}', '<language>')


@validation.validate_call
def xtreme_examples(
  directory: str,
  name: str,
  split: str = TEST,
  *,
  languages: tuple[str, ...] | None = None,
  max_examples: validation.PositiveInt | None = None,
  version: str = xtreme_tasks.XTREME,
) -> example_source.FileDataset | example_source.BitextMiningFiles:
  """Returns the source of examples for one split of an XTREME task.

  Args:
    directory: Path of XTREME's folder `download`.
    name: Name of the task, such as 'xnli'.
    split: Name of the split: 'train', 'validation' or 'test'. For most tasks,
      the train and validation splits are in English (`XtremeTask.english`).
    languages: Language codes to read. If None, all languages with files are
      read.
    max_examples: Maximum number of examples to read for each language. If None,
      all examples are read. Collections for bitext mining are never truncated.
    version: Benchmark version, 'xtreme' or 'xtreme-r'. XTREME-R has XCOPA and
      more languages.

  Raises:
    ConfigError: If the task does not exist.
    CorpusError: If the folder does not exist, if it has no files for the split,
      or if it has no file for one of the languages.
  """
  task = find_xtreme_task(name, version)
  files: dict[str, tuple[str, ...]] = {}
  if split in task.files:
    files = find_xtreme_files(directory, name, split, version)
  missing: set[str] = set()
  if languages is not None:
    files = {
      part: part_files
      for part, part_files in files.items()
      if part in languages or part.split('-')[0] in languages
    }
    missing = (
      set(languages) - set(files) - {part.split('-')[0] for part in files}
    )
  if not files or missing:
    raise errors.CorpusError(
      'The XTREME folder contains no files for the languages '
      f'{", ".join(sorted(missing))} in the split {split!r} of the task '
      f'{name!r}'
      if missing
      else f'The XTREME folder contains no files for the split {split!r} of '
      f'the task {name!r}',
      expected=_show_patterns(task, split)
      if split in task.files
      else 'one of the splits ' + ', '.join(task.files),
      where=directory,
      fix="Run XTREME's scripts/download_data.sh to create the files."
      if split in task.files
      else f'Choose a different split of the task {name!r}.',
    )
  missing_parts: tuple[str, ...] = ()
  if languages is None:
    missing_parts = tuple(p for p in task.parts(split) if p not in files)
    _warn_about_missing_parts(task, split, missing_parts)
  if task.is_mined:
    return example_source.BitextMiningFiles(
      files=files, format=task.format, missing=missing_parts
    )
  return example_source.FileDataset(
    files=files,
    format=task.format,
    options=task.options,
    max_examples=max_examples,
    missing=missing_parts,
  )


def _warn_about_missing_parts(
  task: xtreme_tasks.XtremeTask, split: str, missing: Sequence[str]
) -> None:
  """Logs the languages of a test set that have no files."""
  if missing and split == TEST:
    _LOG.warning(
      'XTREME task %s: %d of %d languages of the test set have no files (%s): '
      '%s.',
      task.name,
      len(missing),
      len(task.parts(split)),
      _show_patterns(task, split),
      name_suggestions.format_names(missing),
      extra=logs.ONCE,
    )


@validation.validate_call
def xtreme_rankings(
  directory: str, name: str, split: str = TEST
) -> beir.BeirDataset:
  """Returns the source for XTREME-R's retrieval task Mewsli-X or LAReQA.

  Args:
    directory: Path of XTREME-R's folder. Its subfolder `<name>/ranked` is
      written by `xlflax tasks convert <name>`.
    name: Name of the task, 'mewslix' or 'lareqa'.
    split: Name of the split: 'test' or, for Mewsli-X, 'dev'.

  Raises:
    ConfigError: If the task does not exist.
    CorpusError: If the folder does not exist.
  """
  if name not in xtreme_tasks.RANKED:
    raise errors.ConfigError(
      'XTREME-R has no retrieval task with the requested name',
      got=name,
      expected=' or '.join(xtreme_tasks.RANKED),
    )
  folder = _find_root(directory) / name / 'ranked'
  if name == 'mewslix':
    folder = folder / split
  if not folder.is_dir():
    raise errors.CorpusError(
      'The XTREME-R folder does not contain the converted retrieval data',
      where=str(folder),
      fix=f'Run `xlflax tasks convert {name} --input={directory}/{name} '
      f'--output={directory}/{name}/ranked`.',
    )
  return beir.BeirDataset(directory=str(folder))


@validation.validate_call
def mlqa_pairs(directory: str, split: str = TEST) -> example_source.FileDataset:
  """Returns the MLQA source for all pairs of context and question languages.

  This is the generalized cross-lingual transfer (G-XLT) task. In the language
  split 'es-en', the contexts are in Spanish and the questions are in English.
  In the split 'es', both are in Spanish.

  Args:
    directory: Path of XTREME's folder `download`.
    split: Name of the split, 'validation' or 'test'.

  Raises:
    CorpusError: If the folder contains no MLQA files.
  """
  name = {VALIDATION: 'dev', TEST: 'test'}.get(split, split)
  folder = _find_root(directory) / 'mlqa' / 'MLQA_V1' / name
  languages = find_xtreme_task('mlqa').languages
  files = {}
  parts = []
  for context in languages:
    for question in languages:
      file = folder / f'{name}-context-{context}-question-{question}.json'
      part = context if context == question else f'{context}-{question}'
      parts.append(part)
      if file.is_file():
        files[part] = str(file)
  if not files:
    raise errors.CorpusError(
      'The XTREME folder must contain files named '
      f'{name}-context-LANGUAGE-question-LANGUAGE.json for the task mlqa',
      where=str(folder),
    )
  return example_source.FileDataset(
    format='squad',
    files=files,
    missing=tuple(part for part in parts if part not in files),
  )


def _find_root(directory: str) -> pathlib.Path:
  """Returns the folder with the data, which may be the subfolder `download`."""
  root = paths.to_local_path(directory, where="XTREME's folder")
  if not root.is_dir():
    raise errors.CorpusError(
      'The XTREME folder does not exist',
      got=directory,
      fix='Pass the folder `download`, which scripts/download_data.sh in '
      'github.com/google-research/xtreme creates.',
    )
  if (
    not any((root / name).is_dir() for name in TASKS)
    and (root / 'download').is_dir()
  ):
    return root / 'download'
  return root
