"""Makes corpora, vocabularies, caches and runs by `xlflax` commands, each once."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / 'real_text' / 'build_corpus.py'
PAIRS = ('fr', 'ru', 'zh')

# Corpus -> flags of build_corpus.py. ECS's are of one domain, the Bible; in
# `ecs_cc` the second language is of another one.
CORPORA = {
  **{f'ecs_{x}': ['--languages', 'en', x, '--sources', 'bible'] for x in PAIRS},
  **{
    f'ecs_cc_{x}': [
      '--languages',
      'en',
      x,
      '--sources',
      'bible',
      '--foreign_sources',
      'guide',
      'ntrex',
    ]
    for x in PAIRS
  },
  'compare': ['--languages', 'en', 'fr', 'ru', 'zh'],
  'many': ['--languages', 'en', 'de', 'fr', 'ru', 'zh'],
}
# Vocabulary -> flags of `xlflax vocab`.
VOCABULARIES = {
  'joint': ['--vocab_sharing=joint', '--model_type=bpe', '--num_merges=4000'],
  'shared': ['--vocab_sharing=shared', '--model_type=bpe', '--num_merges=2000'],
  'none': ['--vocab_sharing=none', '--model_type=bpe', '--num_merges=2000'],
  'separate': [
    '--vocab_sharing=separate',
    '--model_type=bpe',
    '--num_merges=2000',
  ],
  'unigram': ['--size=8000', '--extra_ids=32'],
  'english': ['--size=4000'],
}


@dataclasses.dataclass(frozen=True)
class Row:
  """A run of `xlflax train`.

  Attributes:
    name: of the run.
    files: gin files.
    corpus: of `CORPORA`.
    vocabulary: of `VOCABULARIES`.
    macros: gin macro -> name of the run whose directory it is.
    more: further flags of `xlflax train`.
    measure: metric that must fall; `a - b` is a difference of two.
    table: paper and table, as a page shows it.
    row: the paper's name of it.
  """

  name: str
  files: tuple[str, ...]
  corpus: str = 'many'
  vocabulary: str = 'unigram'
  macros: tuple[tuple[str, str], ...] = ()
  more: tuple[str, ...] = ()
  measure: str = 'loss'
  table: str = ''
  row: str = ''


class Maker:
  """Makes inputs and runs, each once, several at a time."""

  def __init__(self, data: pathlib.Path, work: pathlib.Path, rows: list[Row]):
    """Args:
    data: the data sets.
    work: where everything is made.
    rows: all that `run` may be asked for, directly or as a beginning.
    """
    self.data, self.work = data.resolve(), work.resolve()
    self.work.mkdir(parents=True, exist_ok=True)
    self.rows = {row.name: row for row in rows}
    self._locks: dict[str, threading.Lock] = {}
    self._lock = threading.Lock()

  def call(self, command: list[str], log: pathlib.Path) -> dict[str, float]:
    """Runs a command; its output goes to a file that an error names.

    Returns:
      'seconds' of the clock, and 'cpu_seconds' of all its threads.
    """
    with self._lock, open(self.work / 'commands.txt', 'a') as commands:
      commands.write(' '.join(command) + '\n')
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(log, 'w') as output:
      process = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT
      )
      _, status, usage = os.wait4(process.pid, 0)
      process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
      raise RuntimeError(f'{" ".join(command)}: see {log}')
    return {
      'seconds': time.monotonic() - started,
      'cpu_seconds': usage.ru_utime + usage.ru_stime,
    }

  def once(self, name: str, make) -> pathlib.Path:
    """The path of something that `make(path)` makes, unless it is there."""
    path = self.work / name
    with self._lock:
      lock = self._locks.setdefault(name, threading.Lock())
    with lock:
      done = path.parent / f'.{path.name}.done'
      if not done.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        done.touch()
    return path

  def log(self, path: pathlib.Path) -> pathlib.Path:
    return self.work / 'logs' / f'{path.relative_to(self.work)}.log'

  def corpus(self, name: str) -> pathlib.Path:
    """A corpus; ECS's are tokenised as Moses does, Chinese segmented."""
    raw = self.once(
      f'raw/{name}',
      lambda path: self.call(
        [
          sys.executable,
          str(BUILD),
          '--data',
          str(self.data),
          '--output',
          str(path),
          *CORPORA[name],
        ],
        self.log(path),
      ),
    )
    if not name.startswith('ecs'):
      return raw
    return self.once(
      f'corpora/{name}',
      lambda path: self.call(
        [
          'xlflax',
          'preprocess',
          f'--corpus={raw}',
          f'--output={path}',
          '--moses',
          '--segment_chinese',
        ],
        self.log(path),
      ),
    )

  def vocabulary(self, corpus: str, name: str) -> pathlib.Path:
    text = self.corpus(corpus)
    if name == 'english':
      text = self.once(
        f'raw/{corpus}_english', lambda path: copy_language(text, path, 'en')
      )
    return self.once(
      f'vocabularies/{corpus}_{name}',
      lambda path: self.call(
        [
          'xlflax',
          'vocab',
          f'--corpus={text}',
          f'--output={path}',
          *VOCABULARIES[name],
        ],
        self.log(path),
      ),
    )

  def cache(self, corpus: str, vocabulary: str) -> pathlib.Path:
    directory = self.vocabulary(corpus, vocabulary)
    text = self.corpus(corpus)
    mixtures = (
      ['corpus.mono.en']
      if vocabulary == 'english'
      else ['corpus.mono', 'corpus.parallel', 'corpus.code_switched']
    )
    return self.once(
      f'caches/{corpus}_{vocabulary}',
      lambda path: self.call(
        [
          'xlflax',
          'cache',
          f'--corpus={text}',
          f'--vocabulary={directory}',
          f'--output={path}',
          *[f'--mixture={name}' for name in mixtures],
        ],
        self.log(path),
      ),
    )

  def run(self, row: Row) -> pathlib.Path:
    """Trains a row, after the runs that it begins from."""
    macros: dict[str, object] = {
      macro: str(self.run(self.rows[name])) for macro, name in row.macros
    }
    cache = self.cache(row.corpus, row.vocabulary)
    vocabulary = self.vocabulary(row.corpus, row.vocabulary)
    dictionaries = sorted((self.corpus(row.corpus) / 'dictionaries').glob('*'))
    if any(file.endswith('dict.gin') for file in row.files):
      macros['DICTIONARIES'] = [str(path) for path in dictionaries]
    flags = [
      *(f'--gin_file={file}' for file in row.files),
      f'--corpus={self.corpus(row.corpus)}',
      f'--vocabulary={vocabulary}',
      f'--cache={cache}',
      *[f'--gin.{macro}={value!r}' for macro, value in macros.items()],
      *row.more,
    ]

    def train(path):
      cost = self.call(
        ['xlflax', 'train', *flags, f'--model_dir={path}'], self.log(path)
      )
      (path / 'cost.json').write_text(json.dumps(cost))

    return self.once(f'runs/{row.name}', train)


def copy_language(
  corpus: pathlib.Path, target: pathlib.Path, language: str
) -> None:
  """The monolingual text of one language as a corpus of its own."""
  for path in corpus.rglob(f'mono/{language}.*'):
    copy = target / path.relative_to(corpus)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(path.read_bytes())


def result_of(run: pathlib.Path, measure: str = 'loss') -> dict:
  """Steps, first and last value reported, and what it cost."""
  lines = [
    json.loads(line)
    for line in (run / 'metrics.jsonl').read_text().splitlines()
  ]
  first, *others = measure.split(' - ')
  values = [
    (
      line['step'],
      line['train'][first] - sum(line['train'][other] for other in others),
    )
    for line in lines
    if 'train' in line
  ]
  return {
    'steps': values[-1][0],
    'first': values[0][1],
    'last': values[-1][1],
    **json.loads((run / 'cost.json').read_text()),
  }
