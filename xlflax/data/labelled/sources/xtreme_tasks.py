"""The tasks of XTREME and XTREME-R: languages, files, metrics.

Hu et al. 2020, "XTREME"; Ruder et al. 2021, "XTREME-R"; the scripts of
github.com/google-research/xtreme.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import formats

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
  """One of the tasks.

  Attributes:
    name: XTREME's, also of the folder.
    group: of tasks, in XTREME's table of results.
    languages: those that are tested.
    metric: what XTREME reports; for questions the mean of F1 and exact match.
    files: split to paths in the folder, `{0}` the language; several that
      belong together for mining.
    gold: of the test set of collections to mine, the path of the pairs that
      are translations. XTREME keeps it back; if its file exists, it is read.
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
# Languages that XTREME-R adds.
_ADDED = {
  'udpos': 'lt pl ro uk wo',
  'panx': 'az gu lt pa pl qu ro uk',
  'tatoeba': 'az lt pl ro uk',
  'xquad': 'ro',
}
_XCOPA = XtremeTask(
  name='xcopa',
  group='classification',
  metric='accuracy',
  languages=tuple('et ht id it qu sw ta th tr vi zh'.split()),
  files={
    TRAIN: ('xcopa/train-{0}.jsonl',),
    VALIDATION: ('xcopa/val-{0}.jsonl',),
    TEST: ('xcopa/test-{0}.jsonl',),
  },
  english=frozenset([TRAIN, VALIDATION]),
  format='xcopa',
  options={'zeros': 'blind'},
)


def _with_added(task: XtremeTask) -> XtremeTask:
  more = (*task.languages, *_ADDED.get(task.name, '').split())
  return dataclasses.replace(task, languages=tuple(sorted(more)))


# XTREME-R's, without the two whose texts are ranked (`RANKED`).
R_TASKS: Mapping[str, XtremeTask] = {
  task.name: task
  for task in (
    *(
      _with_added(task)
      for name, task in TASKS.items()
      if name not in ('pawsx', 'bucc2018')
    ),
    _XCOPA,
  )
}
# Name -> group and languages of the questions.
RANKED: Mapping[str, tuple[str, tuple[str, ...]]] = {
  'mewslix': ('retrieval', tuple('ar de en es fa ja pl ro ta tr uk'.split())),
  'lareqa': ('retrieval', tuple('ar de el en es hi ru th tr vi zh'.split())),
}
XTREME, XTREME_R = 'xtreme', 'xtreme-r'
VERSIONS = {XTREME: TASKS, XTREME_R: R_TASKS}
