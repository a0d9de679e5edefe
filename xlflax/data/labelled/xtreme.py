"""XTREME's tasks: languages, files, metrics.

The folder is the one that XTREME's `scripts/download_data.sh` leaves, named
`download`. Its test sets are blind; where a file has labels all the same, they
are read.

Hu et al. 2020, "XTREME"; github.com/google-research/xtreme.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax import errors
from xlflax import paths as paths_lib
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import formats
from xlflax.data.labelled import source as source_lib

TRAIN, VALIDATION, TEST = 'train', 'validation', 'test'
ENGLISH = ('en',)
_CSV: Mapping[str, Any] = {'quoting': 'csv'}
_SQUAD = {
  TRAIN: ('squad/train-v1.1.json',),
  VALIDATION: ('squad/dev-v1.1.json',),
}
_TAGGED_LANGUAGES = (
  'af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru '
  'ta te th tl tr ur vi yo zh'
).split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class XtremeTask:
  """One of the nine tasks.

  Attributes:
    name: XTREME's, also of the folder.
    group: of tasks, in XTREME's table of results.
    languages: those that are tested.
    metric: what XTREME reports; for questions the mean of F1 and exact match.
    files: split to paths in the folder, `{0}` the language; several that
      belong together for mining.
    gold: of the test set of collections to mine, the path of the pairs that
      are translations. XTREME keeps it back; where it is there, it is read.
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
  def example(self) -> type[examples_lib.Example]:
    """The class of the examples."""
    return formats.find(self.format).example

  @property
  def is_mined(self) -> bool:
    """Whether translations are to be found among two collections."""
    return issubclass(self.example, examples_lib.MinedSentence)

  def parts(self, split: str) -> tuple[str, ...]:
    """The parts of a split: languages; with English behind for mining."""
    if split not in self.files:
      return ()
    if split in self.english:
      return ENGLISH
    if self.is_mined:
      return tuple(f'{language}-en' for language in self.languages)
    return self.languages


def _of_three(folder: str) -> dict[str, tuple[str, ...]]:
  return {
    TRAIN: (f'{folder}/train-{{0}}.tsv',),
    VALIDATION: (f'{folder}/dev-{{0}}.tsv',),
    TEST: (f'{folder}/test-{{0}}.tsv',),
  }


TASKS: Mapping[str, XtremeTask] = {
  task.name: task
  for task in (
    XtremeTask(
      name='xnli',
      group='classification',
      metric='accuracy',
      languages=tuple('ar bg de el en es fr hi ru sw th tr ur vi zh'.split()),
      files=_of_three('xnli'),
      english=frozenset([TRAIN]),
      format='tsv',
      options=_CSV,
    ),
    XtremeTask(
      name='pawsx',
      group='classification',
      metric='accuracy',
      languages=tuple('de en es fr ja ko zh'.split()),
      files=_of_three('pawsx'),
      english=frozenset([TRAIN]),
      format='tsv',
      options=_CSV,
    ),
    XtremeTask(
      name='udpos',
      group='structured prediction',
      metric='f1',
      languages=tuple(_TAGGED_LANGUAGES),
      files=_of_three('udpos'),
      format='conll',
      options={'separator': 'tab'},
    ),
    XtremeTask(
      name='panx',
      group='structured prediction',
      metric='f1',
      languages=tuple(
        sorted((*_TAGGED_LANGUAGES, *'bn jv ka ml ms my sw'.split()))
      ),
      files=_of_three('panx'),
      format='conll_iob2',
      options={'separator': 'tab'},
    ),
    XtremeTask(
      name='xquad',
      group='question answering',
      metric='f1 and exact match',
      languages=tuple('ar de el en es hi ru th tr vi zh'.split()),
      files=_SQUAD | {TEST: ('xquad/xquad.{0}.json',)},
      english=frozenset(_SQUAD),
      format='squad',
    ),
    XtremeTask(
      name='mlqa',
      group='question answering',
      metric='f1 and exact match',
      languages=tuple('ar de en es hi vi zh'.split()),
      files=_SQUAD
      | {TEST: ('mlqa/MLQA_V1/test/test-context-{0}-question-{0}.json',)},
      english=frozenset(_SQUAD),
      format='squad',
    ),
    XtremeTask(
      name='tydiqa',
      group='question answering',
      metric='f1 and exact match',
      languages=tuple('ar bn en fi id ko ru sw te'.split()),
      files={
        TRAIN: ('tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{0}.train.json',),
        TEST: ('tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{0}.dev.json',),
      },
      format='squad',
    ),
    XtremeTask(
      name='bucc2018',
      group='retrieval',
      metric='f1',
      languages=('de', 'fr', 'ru', 'zh'),
      files={
        VALIDATION: tuple(
          f'bucc2018/{{0}}-en.dev.{end}' for end in ('{0}', 'en', 'gold')
        ),
        TEST: ('bucc2018/{0}-en.test.{0}', 'bucc2018/{0}-en.test.en'),
      },
      gold='bucc2018/{0}-en.test.gold',
      format='bucc',
    ),
    XtremeTask(
      name='tatoeba',
      group='retrieval',
      metric='accuracy',
      languages=tuple(
        sorted(
          (set(_TAGGED_LANGUAGES) | set('bn jv ka ml sw'.split()))
          - {'en', 'yo'}
        )
      ),
      files={TEST: ('tatoeba/{0}-en.{0}', 'tatoeba/{0}-en.en')},
      gold='tatoeba/{0}-en.gold',
      format='lines',
    ),
  )
}


def task(name: str) -> XtremeTask:
  """The task; a ConfigError if XTREME has none of this name."""
  if name not in TASKS:
    raise errors.ConfigError(
      'XTREME has no such task', got=name, expected='one of ' + ', '.join(TASKS)
    )
  return TASKS[name]


def find(directory: str, name: str, split: str) -> dict[str, tuple[str, ...]]:
  """Part to its files, for all parts whose files are there.

  Raises:
    ConfigError: no such task.
    CorpusError: the folder does not exist.
  """
  root = _root(directory)
  wanted = task(name)
  paths = {
    part: tuple(
      str(root / path.format(part.split('-')[0]))
      for path in wanted.files[split]
    )
    for part in wanted.parts(split)
  }
  return {
    part: (*several, *_gold(root, wanted, part, split))
    for part, several in paths.items()
    if all(pathlib.Path(path).is_file() for path in several)
  }


def _gold(
  root: pathlib.Path, wanted: XtremeTask, part: str, split: str
) -> tuple[str, ...]:
  """The path of a test set's gold pairs, if there is such a file."""
  if wanted.gold is None or split != TEST:
    return ()
  path = root / wanted.gold.format(part.split('-')[0])
  return (str(path),) if path.is_file() else ()


def missing(directory: str, name: str) -> tuple[str, ...]:
  """One sentence for each split of the task some of whose files lack."""
  notes = []
  for split in task(name).files:
    parts = task(name).parts(split)
    found = find(directory, name, split)
    lacking = [part for part in parts if part not in found]
    if split in (TRAIN, VALIDATION) and 'en' in found:
      lacking = []  # Training data of others are not used by XTREME.
    if lacking:
      pattern = ', '.join(task(name).files[split]).replace('{0}', '<language>')
      notes.append(
        f'{name}: no {split} data of {", ".join(lacking)} ({pattern})'
      )
  return tuple(notes)


def examples(
  directory: str,
  name: str,
  split: str = TEST,
  *,
  languages: tuple[str, ...] | None = None,
  max_examples: int | None = None,
) -> source_lib.FileExamples | source_lib.MinedFiles:
  """The source of a task's split.

  Args:
    directory: XTREME's `download` folder.
    name: of the task.
    split: 'train', 'validation' or 'test'; train and validation are English
      for most tasks (`XtremeTask.english`).
    languages: codes to take; None: all whose files are there.
    max_examples: the first so many of a language; None: all. Collections to
      mine are never cut.

  Raises:
    ConfigError: no such task.
    CorpusError: no folder; no file of the split, or of a language named.
  """
  found = find(directory, name, split) if split in task(name).files else {}
  if languages is not None:
    wanted = {
      part: part.split('-')[0] in languages or part in languages
      for part in task(name).parts(split)
    }
    found = {part: paths for part, paths in found.items() if wanted[part]}
    lacking = set(languages) - set(found) - {p.split('-')[0] for p in found}
  if not found or (languages and lacking):
    raise errors.CorpusError(
      f'The folder of XTREME lacks files of the task {name}',
      got=', '.join(sorted(lacking)) if languages else None,
      expected=', '.join(
        task(name).files.get(split, ('a split it has',))
      ).replace('{0}', '<language>'),
      where=f'{directory}, split {split}',
      fix="let XTREME's scripts/download_data.sh fill the folder",
    )
  if task(name).is_mined:
    return source_lib.MinedFiles(files=found, format=task(name).format)
  return source_lib.FileExamples(
    files=found,
    format=task(name).format,
    options=task(name).options,
    max_examples=max_examples,
  )


def mlqa_pairs(directory: str, split: str = TEST) -> source_lib.FileExamples:
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
  languages = task('mlqa').languages
  paths = {
    context if context == question else f'{context}-{question}': folder
    / f'{name}-context-{context}-question-{question}.json'
    for context in languages
    for question in languages
  }
  found = {part: str(path) for part, path in paths.items() if path.is_file()}
  if not found:
    raise errors.CorpusError(
      'The folder of XTREME lacks files of the task mlqa',
      where=str(folder),
      expected=f'{name}-context-<language>-question-<language>.json',
    )
  return source_lib.FileExamples(format='squad', files=found)


def _root(directory: str) -> pathlib.Path:
  root = paths_lib.local(directory, where="XTREME's folder")
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
