"""Tests of output streams: all commands with unusual standard streams.

The tests combine the help of all commands, and small calls of commands that
print text or JSON, with the encodings and types of the standard streams.
"""

import codecs
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from xlflax import cli
from xlflax.utils import errors

pytestmark = pytest.mark.slow
# Encodings of the standard streams. The first one is the reference.
_ENCODINGS = ('utf-8', 'ascii:strict', 'latin-1', 'utf-16')
# Kinds of standard output and standard error, as in `stream_worker`.
_STREAMS: tuple[tuple[str, str], ...] = (
  ('file', 'file'),
  ('unread', 'unread'),
  ('unread', 'file'),
  ('closed', 'closed'),
  ('full', 'file'),
  ('file', 'full'),
)
# Kinds of streams with which the help of each command is printed, too.
_HELP_STREAMS = (('unread', 'unread'), ('full', 'file'))
# Commands that end if nothing reads their output.
_PRINTING_COMMANDS = ('configs', 'tasks', 'translate')
_CORPUS = {
  'mono/de.größe.txt': 'Die Größe der Übung.\nEin zweiter Satz – mit Strich.\n',
  'mono/ja.txt': '猫がいる。\n🐈 犬もいる。\n',
  'parallel/de-ja.tsv': 'Die Katze schläft.\t猫が寝ている。\n\t猫\n',
}
_PAGE = '<p id="1">{} ärgert 猫.</p><p id="2">{} jeden Tag.</p>'
_TRAIN = (
  'train',
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.TRAIN_STEPS=4',
  '--vocabulary=läufe/vocabulary',
  '--model_dir=läufe/猫',
)


def _help_calls() -> list[tuple[str, ...]]:
  """Returns calls that print the help of all commands and subcommands."""
  calls: list[tuple[str, ...]] = [('--help',), ('--version',), ()]
  for name in cli.COMMANDS:
    calls.append((name, '--help'))
    module = cli.load_command(name)
    calls += [
      (name, subcommand, '--help')
      for subcommand in getattr(module, 'SUBCOMMANDS', ())
    ]
  launchers = ('local', 'slurm', 'kubernetes', 'tpu')
  return calls + [('launch', launcher, '--help') for launcher in launchers]


def _small_calls() -> list[tuple[str, ...]]:
  """Returns calls that print text or JSON, or fail with an error message.

  Errors contain non-ASCII values. `{output}` is a path that does not exist.
  """
  return [
    ('größe',),
    ('train', '--größe=猫'),
    ('verify', 'größe'),
    ('verify', 'größe', '--json'),
    ('configs', 'list'),
    ('configs', 'show', 'pretrain/mlm.gin'),
    ('configs', 'show', 'pretrain/mlm.gin', '--json'),
    ('configs', 'list', '猫*'),
    ('tasks', 'convert'),
    ('tasks', 'convert', 'sib200'),
    ('inspect', 'corpus'),
    ('inspect', 'corpus', '--json'),
    (
      'preprocess', '--corpus=corpus', '--output={output}',
      '--bad_records=drop',
    ),
    (
      'preprocess', '--corpus=corpus', '--output={output}',
      '--bad_records=drop', '--json',
    ),
    ('preprocess', '--corpus=corpus', '--output={output}'),
    (
      'build-corpus', 'pages', '--folder=en=seiten/en',
      '--folder=de=seiten/de', '--output={output}',
    ),
    ('launch', 'local', '--nproc_per_node=2', '--dry_run', '--', *_TRAIN),
    ('launch', 'slurm', '--nodes=2', '--dry_run', '--', *_TRAIN),
    (
      'launch', 'kubernetes', '--image=b', '--nnodes=2', '--volume=a=läufe',
      '--dry_run', '--', *_TRAIN,
    ),
    ('report', 'läufe/猫', '--output={output}'),
    ('evaluate', '--model_dir=läufe/猫', '--tasks=retrieval'),
    ('translate', '--model_dir=läufe/猫', '--source=de', '--target=ja'),
  ]  # fmt: skip


def _write_inputs(directory: pathlib.Path) -> None:
  files = {f'corpus/{name}': text for name, text in _CORPUS.items()}
  for language, word in (('en', 'Dog'), ('de', 'Hund')):
    for number in range(40):
      files[f'seiten/{language}/{number}.html'] = _PAGE.format(
        f'{word} {number}', f'{word} {number}'
      )
  for name, text in files.items():
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')


def _run_jobs(directory, cases, encoding):
  """Runs calls in forks of one process, and returns their results.

  Args:
    directory: Directory in which the calls run.
    cases: Pairs of the arguments of a call and the kinds of its streams.
    encoding: Encoding of the streams.

  Returns:
    A mapping from each case to (status, standard output, standard error).
    Missing output is None.
  """
  folder = pathlib.Path(tempfile.mkdtemp(dir=directory))
  jobs: dict = {}
  for arguments, (stdout, stderr) in cases:
    job_folder = folder / str(len(jobs))
    jobs[arguments, (stdout, stderr)] = {
      'arguments': [
        word.format(output=job_folder / 'output')
        if word.startswith('--output')
        else word
        for word in arguments
      ],
      'stdout': stdout,
      'stderr': stderr,
      'folder': str(job_folder),
      'directory': str(directory),
    }
  jobs_file = folder / 'jobs.json'
  jobs_file.write_text(json.dumps(list(jobs.values())))
  environment = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith('PYTHON')
  }
  subprocess.run(
    [sys.executable, '-m', 'tests.cli.stream_worker', str(jobs_file)],
    env=environment | {'PYTHONIOENCODING': encoding, 'COLUMNS': '80'},
    check=True,
  )
  return {key: _read_result(job, encoding) for key, job in jobs.items()}


def _read_result(job, encoding):
  folder = pathlib.Path(job['folder'])
  texts = []
  for name in ('stdout', 'stderr'):
    path = folder / name
    # Decoding checks that the output is valid in the encoding of the streams.
    texts.append(
      codecs.decode(path.read_bytes(), encoding.partition(':')[0])
      if path.exists()
      else None
    )
  return int((folder / 'status').read_text()), *texts


def _expected_status(arguments, streams, reference):
  """Returns the documented status of a call with unusual streams."""
  reference_status, reference_output, _ = reference
  if reference_output:
    is_printing = arguments[:1] and arguments[0] in _PRINTING_COMMANDS
    if streams[0] == 'unread' and is_printing:
      return errors.ExitStatus.INTERRUPTED
    if streams[0] == 'full':
      return errors.ExitStatus.FAILURE
  return reference_status


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
  """Directory with the input files of the calls."""
  directory = tmp_path_factory.mktemp('streams')
  _write_inputs(directory)
  return directory


@pytest.fixture(scope='module')
def references(directory):
  """Results of all calls with files as streams, by arguments."""
  calls = _help_calls() + _small_calls()
  cases = [(arguments, _STREAMS[0]) for arguments in calls]
  results = _run_jobs(directory, cases, _ENCODINGS[0])
  return {arguments: result for (arguments, _), result in results.items()}


def _find_problems(references, results):
  """Returns the results with a traceback or an undocumented status."""
  problems = []
  for (arguments, kinds), (status, stdout, stderr) in results.items():
    expected_status = _expected_status(arguments, kinds, references[arguments])
    has_traceback = 'Traceback' in (stdout or '') + (stderr or '')
    if status != expected_status or has_traceback:
      problems.append((arguments, status, expected_status, stderr))
  return problems


@pytest.mark.parametrize('encoding', _ENCODINGS[1:])
def test_all_commands_support_all_encodings(directory, references, encoding):
  cases = [(arguments, _STREAMS[0]) for arguments in references]
  results = _run_jobs(directory, cases, encoding)
  assert not _find_problems(references, results)


@pytest.mark.parametrize('kinds', _STREAMS[1:], ids='-'.join)
def test_all_commands_support_all_stream_types(directory, references, kinds):
  calls = references if kinds in _HELP_STREAMS else _small_calls()
  cases = [(arguments, kinds) for arguments in calls]
  results = _run_jobs(directory, cases, _ENCODINGS[0])
  assert not _find_problems(references, results)
