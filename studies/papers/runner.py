"""Runner for `xlflax` commands that create corpora and train tiny models."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Languages that are paired with English.
PAIRED_LANGUAGES = ('fr', 'ru', 'zh')

# Map from corpus to flags of build_corpus.py. The corpora of ECS contain text
# of one domain, the Bible. In `ecs_cc`, the text of the second language is from
# other domains.
CORPORA = {
  **{
    f'ecs_{language}': ['--languages', 'en', language, '--sources', 'bible']
    for language in PAIRED_LANGUAGES
  },
  **{
    f'ecs_cc_{language}': [
      '--languages',
      'en',
      language,
      '--sources',
      'bible',
      '--foreign_sources',
      'guide',
      'ntrex',
    ]
    for language in PAIRED_LANGUAGES
  },
  'compare': ['--languages', 'en', 'fr', 'ru', 'zh'],
  'many': ['--languages', 'en', 'de', 'fr', 'ru', 'zh'],
}
# Map from vocabulary to flags of `xlflax vocab`.
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
  """A row in a paper's result table and the training run of its tiny model.

  Attributes:
    name: Name of the run.
    files: Gin files that configure the run.
    corpus: Corpus of the run, a key of `CORPORA`.
    vocabulary: Vocabulary of the run, a key of `VOCABULARIES`.
    macros: Pairs of a gin macro and the name of another run. The macro is bound
      to that run's directory, and that run is trained first.
    flags: Additional flags for `xlflax train`.
    metric: Metric that must decrease during training. `a - b` denotes the
      difference between two metrics.
    table: Paper and number of the table, such as 'ECS 1'.
    row: Name of the row in the paper's table.
  """

  name: str
  files: tuple[str, ...]
  corpus: str = 'many'
  vocabulary: str = 'unigram'
  macros: tuple[tuple[str, str], ...] = ()
  flags: tuple[str, ...] = ()
  metric: str = 'loss'
  table: str = ''
  row: str = ''


class Runner:
  """Runner that creates corpora, vocabularies, caches and runs in a folder.

  Each input and each run is created only once. The methods may be called from
  several threads.

  Args:
    data: Folder that contains the data sets.
    work: Working folder to which all files are written.
    rows: All rows that can be trained. Rows whose runs initialize other runs
      must be included.
  """

  def __init__(self, data: pathlib.Path, work: pathlib.Path, rows: list[Row]):
    self.data, self.work = data.resolve(), work.resolve()
    self.work.mkdir(parents=True, exist_ok=True)
    self.rows = {row.name: row for row in rows}
    self._locks: dict[str, threading.Lock] = {}
    self._lock = threading.Lock()

  def run_command(
    self, command: list[str], log: pathlib.Path
  ) -> dict[str, float]:
    """Runs a command and measures its time.

    Args:
      command: Command line.
      log: File to which the command's output is written.

    Returns:
      The elapsed 'seconds', and the 'cpu_seconds' of all threads.

    Raises:
      RuntimeError: If the command fails.
    """
    with self._lock, open(self.work / 'commands.txt', 'a') as commands:
      commands.write(' '.join(command) + '\n')
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(log, 'w') as output:
      process = subprocess.Popen(
        interpreter_command(command), stdout=output, stderr=subprocess.STDOUT
      )
      _, status, usage = os.wait4(process.pid, 0)
      process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
      raise RuntimeError(
        f'`{" ".join(command)}` failed with exit status '
        f'{process.returncode}. Its output is in {log}.'
      )
    return {
      'seconds': time.monotonic() - started,
      'cpu_seconds': usage.ru_utime + usage.ru_stime,
    }

  def create_once(
    self, name: str, create: Callable[[pathlib.Path], Any]
  ) -> pathlib.Path:
    """Calls `create(path)`, unless it has already succeeded for this path.

    Args:
      name: Path of the file or folder, relative to the working folder.
      create: Function that takes a path and writes the file or folder to it.

    Returns:
      The path.
    """
    path = self.work / name
    with self._lock:
      lock = self._locks.setdefault(name, threading.Lock())
    with lock:
      marker = path.parent / f'.{path.name}.done'
      if not marker.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        create(path)
        marker.touch()
    return path

  def log_file(self, path: pathlib.Path) -> pathlib.Path:
    """Returns the log path of the command that creates a file or folder."""
    return self.work / 'logs' / f'{path.relative_to(self.work)}.log'

  def build_corpus(self, name: str) -> pathlib.Path:
    """Creates a corpus if it does not exist.

    Corpora for ECS are tokenized with Moses, and Chinese text is segmented.
    """
    raw = self.create_once(
      f'raw/{name}',
      lambda path: self.run_command(
        [
          sys.executable,
          '-m',
          'studies.real_text.build_corpus',
          '--data',
          str(self.data),
          '--output',
          str(path),
          *CORPORA[name],
        ],
        self.log_file(path),
      ),
    )
    if not name.startswith('ecs'):
      return raw
    return self.create_once(
      f'corpora/{name}',
      lambda path: self.run_command(
        [
          'xlflax',
          'preprocess',
          f'--corpus={raw}',
          f'--output={path}',
          '--moses',
          '--segment_chinese',
        ],
        self.log_file(path),
      ),
    )

  def build_vocabulary(self, corpus: str, name: str) -> pathlib.Path:
    """Creates a vocabulary for a corpus."""
    text = self.build_corpus(corpus)
    if name == 'english':
      text = self.create_once(
        f'raw/{corpus}_english', lambda path: copy_language(text, path, 'en')
      )
    return self.create_once(
      f'vocabularies/{corpus}_{name}',
      lambda path: self.run_command(
        [
          'xlflax',
          'vocab',
          f'--corpus={text}',
          f'--output={path}',
          *VOCABULARIES[name],
        ],
        self.log_file(path),
      ),
    )

  def build_cache(self, corpus: str, vocabulary: str) -> pathlib.Path:
    """Creates the token cache for a corpus and a vocabulary."""
    directory = self.build_vocabulary(corpus, vocabulary)
    text = self.build_corpus(corpus)
    mixtures = (
      ['corpus.mono.en']
      if vocabulary == 'english'
      else ['corpus.mono', 'corpus.parallel', 'corpus.code_switched']
    )
    return self.create_once(
      f'caches/{corpus}_{vocabulary}',
      lambda path: self.run_command(
        [
          'xlflax',
          'cache',
          f'--corpus={text}',
          f'--vocabulary={directory}',
          f'--output={path}',
          *[f'--mixture={name}' for name in mixtures],
        ],
        self.log_file(path),
      ),
    )

  def train(self, row: Row) -> pathlib.Path:
    """Trains the model of a table row, after the models that initialize it."""
    macros: dict[str, object] = {
      macro: str(self.train(self.rows[name])) for macro, name in row.macros
    }
    corpus = self.build_corpus(row.corpus)
    cache = self.build_cache(row.corpus, row.vocabulary)
    vocabulary = self.build_vocabulary(row.corpus, row.vocabulary)
    dictionaries = sorted((corpus / 'dictionaries').glob('*'))
    if any(file.endswith('dict.gin') for file in row.files):
      macros['DICTIONARIES'] = [str(path) for path in dictionaries]
    flags = [
      *(f'--gin_file={file}' for file in row.files),
      f'--corpus={corpus}',
      f'--vocabulary={vocabulary}',
      f'--cache={cache}',
      *[f'--gin.{macro}={value!r}' for macro, value in macros.items()],
      *row.flags,
    ]

    def run_training(path: pathlib.Path) -> None:
      cost = self.run_command(
        ['xlflax', 'train', *flags, f'--model_dir={path}'], self.log_file(path)
      )
      (path / 'cost.json').write_text(json.dumps(cost))

    return self.create_once(f'runs/{row.name}', run_training)


def interpreter_command(command: list[str]) -> list[str]:
  """Returns a command that runs `xlflax` with the current interpreter.

  The command therefore does not depend on the search path.
  """
  program, *arguments = command
  if program != 'xlflax':
    return command
  return [sys.executable, '-m', 'xlflax.cli', *arguments]


def copy_language(
  corpus: pathlib.Path, target: pathlib.Path, language: str
) -> None:
  """Writes the monolingual text of one language as a separate corpus."""
  for path in corpus.rglob(f'mono/{language}.*'):
    copy = target / path.relative_to(corpus)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(path.read_bytes())


def read_result(run: pathlib.Path, metric: str = 'loss') -> dict:
  """Reads the first and last value of a run's metric, and the cost of the run.

  Args:
    run: Model directory.
    metric: Metric to read. `a - b` denotes the difference between two metrics.

  Returns:
    The number of 'steps', the 'first' and the 'last' logged value of the
    metric, and the command's 'seconds' and 'cpu_seconds'.
  """
  records = [
    json.loads(line)
    for line in (run / 'metrics.jsonl').read_text().splitlines()
  ]
  minuend, *subtrahends = metric.split(' - ')
  values = [
    (
      record['step'],
      record['train'][minuend]
      - sum(record['train'][name] for name in subtrahends),
    )
    for record in records
    if 'train' in record
  ]
  return {
    'steps': values[-1][0],
    'first': values[0][1],
    'last': values[-1][1],
    **json.loads((run / 'cost.json').read_text()),
  }
